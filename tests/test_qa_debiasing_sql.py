"""Trained readers by SQL: changes of bias and of answers, correlations, costs and checks, on tables done by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from biaseval.analysis import relations
from biaseval.qa_bias.changes import change_draws
from biaseval.qa_bias.significance import segment_draws
from biaseval.tables import QA_CHANGE_DRAWS, TABLES, tables_of
from tests.measuring import measure
from tests.test_analysis import names_of
from tests.test_qa_sql import OVERLAP, RIGHT, VALUES, QaPlan, Rows, two_segments

Z = 1.959963984540054
Floats = npt.NDArray[np.float64]

MARTS = (
    "qa_debiasing", "qa_out_of_distribution", "qa_out_of_distribution_by_model", "qa_out_of_distribution_by_method",
    "qa_debiasing_by_method", "qa_bias_models", "qa_debiasing_correlation", "qa_training_curves",
)  # fmt: skip
"""Each after those that it reads."""

RELATIONS = (*MARTS, "qa_training_costs")
"""The last is an intermediate relation: it tells when a run was made."""


class Study(QaPlan):
    """The tables of a run that trained readers, whose relations DuckDB computes as they are; no run directory is made.

    Thresholds are those that a test gives, by heuristic; one that stands alone is fixed.
    """

    def __init__(self, thresholds: dict[str, Sequence[float]], **spec: Any) -> None:
        super().__init__(heuristics=list(thresholds), **spec)
        self.tried = thresholds
        self.trained: Rows = []
        self.tables: dict[str, Rows] = {}
        """Of other tables, by name."""
        self.n_draws = 40

    def reader(
        self, model: str, method: str = "standard", bias: str | None = None, standard: str | None = "base", **how: Any
    ) -> None:
        """Add a trained reader; one that was given up has a problem."""
        given_up = how.get("problem") is not None
        self.trained.append(
            {
                "number": len(self.trained),
                "model": model,
                "base": "bert",
                "data": "squad",
                "method": method,
                "bias": bias,
                "seed": 42,
                "standard": None if method in ("standard", "bias_model") else standard,
                "path": None if given_up else f"readers/{model}",
                "steps": 3,
                "best_step": None if given_up else 2,
                "n_windows": 30,
                "n_workers": 2,
                "device": "cpu",
            }
            | {"problem": None}
            | how
        )

    def titles(self, titles: Sequence[str | None], dataset: str = "squad") -> None:
        """Give the questions of a data set titles, in their order."""
        own = [example for example in self.examples if example["dataset"] == dataset]
        for example, title in zip(own, titles, strict=True):
            example["title"] = title

    def whole_training(self) -> None:
        """Add what training left of every reader: three steps of two seconds, an evaluation behind the last one."""
        steps, evaluations = self.tables.setdefault("training", []), self.tables.setdefault("evaluations", [])
        for reader in self.trained:
            model = reader["model"]
            steps += [{"model": model, "step": step, "loss": 1.0, "seconds": 2.0} for step in range(reader["steps"])]
            sets = ["squad (biased)", "squad (other)"] if reader["method"] == "bias_model" else ["squad"]
            if reader["problem"] is None:
                evaluations += [
                    {"model": model, "step": 2, "dataset": name, "loss": 0.5, "exact_match": 0.6, "f1": 0.7}
                    for name in sets
                ]

    @contextmanager
    def opened(self, *marts: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection with the study's relations, of `RELATIONS` those named or all, until the block ends."""
        with within_transaction() as connection:
            self.create(connection, marts or RELATIONS)
            yield connection

    def create(self, connection: duckdb.DuckDBPyConnection, marts: Sequence[str] = RELATIONS) -> None:
        """Create the relations of the study, and of `RELATIONS` these."""
        bootstrap = self.spec["bootstrap"]
        self.tables["qa_settings"] = [
            {"seed": self.spec["seed"], "variant": self.spec["variant"], "heuristics": list(self.tried), **bootstrap}
        ]
        measured = [reader for reader in self.trained if reader["method"] != "bias_model" and not reader["problem"]]
        self.tables["qa_models"] = [
            {"number": number, "model": reader["model"], "on_missing": "error", "is_trained": True}
            for number, reader in enumerate(measured)
        ]
        self.tables["qa_thresholds"] = [
            {"dataset": dataset, "heuristic": heuristic, "threshold": threshold, "is_fixed": len(grid) == 1}
            for dataset in dict.fromkeys(example["dataset"] for example in self.examples)
            for heuristic, grid in self.tried.items()
            for threshold in grid
        ]
        if "training" not in self.tables:
            self.whole_training()
        given = {
            "qa_examples": self.examples,
            "qa_attributes": self.attributes,
            "qa_predictions": self.predictions,
            "trained_models": self.trained,
            **self.tables,
        }
        sql = all_sql()
        for name, kind in tables_of("qa_bias").items():
            if name != "qa_draws" and (name in given or name != "qa_change_draws"):
                connection.from_arrow(kind.rows(given.get(name, []))).create(name)
        relations.create("table", "qa_measured", sql["qa_measured"], connection)
        connection.from_arrow(self._draws(connection)).create("qa_draws")
        for name in ("qa_articles", "qa_paired_answers", "qa_bias_candidates", "qa_bias_by_heuristic", "qa_by_dataset"):
            relations.create("table", name, sql[name], connection)
        if "qa_change_draws" not in given:
            connection.from_arrow(self._change_draws(connection)).create("qa_change_draws")
        for name in marts:
            relations.create("table", name, sql[name], connection)

    def _draws(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        bootstrap = self.spec["bootstrap"]
        thresholds = TABLES["qa_thresholds"].rows(self.tables["qa_thresholds"])
        return pa.concat_tables(
            segment_draws(
                model,
                table(f"from qa_measured where model = '{model}' order by dataset, heuristic, row", connection),
                thresholds,
                seed=self.spec["seed"],
                **bootstrap,
            )
            for model in dict.fromkeys(row["model"] for row in self.predictions)
        )

    def _change_draws(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        draws = [
            change_draws(
                reader["model"],
                table(CHANGE_ROWS.format(model=reader["model"]), connection),
                seed=self.spec["seed"],
                draws=self.n_draws,
            )
            for reader in self.trained
        ]
        return pa.concat_tables([QA_CHANGE_DRAWS.empty(), *draws])


@cache
def all_sql() -> dict[str, str]:
    """Return the query of every relation that these runs have."""
    every = relations.relations("intermediate", "marts", "checks", tables=tables_of("qa_bias"))
    return {relation.name: relation.sql for relation in every}


@cache
def shared_connection() -> duckdb.DuckDBPyConnection:
    """Return a connection with the macros: to make one takes longer than a test."""
    connection = relations.connect([])
    connection.execute("set threads = 1").fetchall()
    return connection


@contextmanager
def within_transaction(connection: duckdb.DuckDBPyConnection | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection, the shared one unless another is given, and undo what is done until the block ends."""
    connection = connection or shared_connection()
    connection.execute("begin").fetchall()
    try:
        yield connection
    finally:
        connection.execute("rollback").fetchall()


def ask(sql: str, *parameters: Any) -> Any:
    """Return the value of an expression."""
    [(answer,)] = shared_connection().execute(f"select {sql}", parameters).fetchall()
    return answer


CHANGE_ROWS = """
    select
        answers.dataset,
        qa_attributes.heuristic,
        answers.article,
        answers.n_articles,
        qa_attributes.value,
        biases.threshold,
        standards.threshold as standard_threshold,
        answers.exact_match,
        answers.standard_exact_match
    from qa_paired_answers as answers
    inner join qa_attributes using (dataset, example_id)
    inner join qa_bias_by_heuristic as biases
        on answers.model = biases.model and answers.dataset = biases.dataset
        and qa_attributes.heuristic = biases.heuristic
    inner join qa_bias_by_heuristic as standards
        on answers.standard = standards.model and answers.dataset = standards.dataset
        and qa_attributes.heuristic = standards.heuristic
    where
        answers.model = '{model}'
        and qa_attributes.is_measured
        and answers.standard_exact_match is not null
        and biases.status = 'measured'
        and standards.status = 'measured'
"""
"""What `change_draws` is given of a reader."""


def table(sql: str, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    return connection.sql(sql).to_arrow_table()


def rows(sql: str, connection: duckdb.DuckDBPyConnection) -> Rows:
    found: Rows = table(sql, connection).to_pylist()
    return found


def made(relation: str, **tables: Rows) -> Rows:
    """Return a relation over tables that hold nothing but these columns."""
    with within_transaction() as connection:
        for name, given in tables.items():
            columns = {column: pa.array([row[column] for row in given]) for column in given[0]}
            columns = {
                column: values.cast(pa.float64()) if pa.types.is_null(values.type) else values
                for column, values in columns.items()
            }
            connection.from_arrow(pa.table(columns)).create(name)
        return rows(all_sql()[relation], connection)


def problems(check: str, connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return what a check finds."""
    return [str(row["problem"]) for row in rows(f"select problem from ({all_sql()[check]}\n)", connection)]


def cluster_error(influence: Floats, articles: Floats) -> float:
    """Return the clustered standard error of a sum, article by article."""
    total, names = 0.0, sorted(set(articles.tolist()))
    for name in names:
        inside = 0.0
        for one, article in zip(influence, articles, strict=True):
            if article == name:
                inside += one
        total += inside**2
    return float(np.sqrt(len(names) / (len(names) - 1) * total))


def segment_influence(right: Floats, is_lower: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """Return the mean of the lower segment minus that of the higher one, and how far each question moves it."""
    lower, higher = right[is_lower].mean(), right[~is_lower].mean()
    influence = np.where(is_lower, (right - lower) / is_lower.sum(), -(right - higher) / (~is_lower).sum())
    return float(lower - higher), influence


def expected(lower: float, n_lower: int, higher: float, n_higher: int, sample: int, *, replacement: bool) -> float:
    """Protocol section 4, in points."""
    bounds = []
    for share, size in ((lower, n_lower), (higher, n_higher)):
        factor = 1 if replacement else np.sqrt((size - sample) / (size - 1))
        reach = 1.8777 * np.sqrt(share * (1 - share)) / np.sqrt(sample) * factor
        bounds.append((share - reach, share + reach))
    [low, high] = bounds
    return float(100 * max(0, low[0] - high[1], high[0] - low[1]))


# The closed form of the significance


def test_the_closed_form_is_that_of_the_protocol() -> None:
    for replacement in (False, True):
        for lower, n_lower, higher, n_higher in ((0.8, 8000, 0.6, 1700), (0.5, 900, 0.9, 801), (0.7, 900, 0.71, 900)):
            wanted = expected(lower, n_lower, higher, n_higher, 800, replacement=replacement)
            for given in ((lower, n_lower, higher, n_higher), (higher, n_higher, lower, n_lower)):
                found = ask("expected_significance(?, ?, ?, ?, 800, ?)", *given, replacement)
                assert found == pytest.approx(wanted, abs=1e-9)
    assert wanted == 0


def test_the_closed_form_by_hand() -> None:
    """Samples of 100 of 200 and of 400: 0.8 -/+ 1.8777 * 0.4 / 10 * sqrt(100 / 199), 0.5 and 0.5, sqrt(300 / 399)."""
    lower, higher = 187.77 * 0.04 * (100 / 199) ** 0.5, 187.77 * 0.05 * (300 / 399) ** 0.5
    found = ask("expected_significance(0.8, 200, 0.5, 400, 100, false)")
    assert found == pytest.approx(30 - lower - higher)
    assert found == pytest.approx(16.535, abs=1e-3)
    assert ask("expected_significance(0.8, 200, 0.5, 400, 100, true)") == pytest.approx(30 - 187.77 * 0.09)


def test_a_sample_that_is_all_of_a_segment_has_no_spread_without_replacement() -> None:
    assert ask("expected_significance(0.8, 10, 0.5, 10, 10, false)") == pytest.approx(30)
    assert ask("expected_significance(1, 1, 0, 1, 1, false)") == pytest.approx(100)
    assert ask("expected_significance(0, 90, 1, 90, 10, true)") == pytest.approx(100)


@pytest.mark.parametrize(
    "given", ["null, 900, 0.5, 900", "0.5, 900, null, 900", "0.5, 799, 0.9, 900", "0.5, 900, 1, 0"]
)
def test_the_closed_form_has_no_value_where_nothing_was_drawn_or_a_segment_is_too_small(given: str) -> None:
    for replacement in ("false", "true"):
        assert ask(f"expected_significance({given}, 800, {replacement})") is None


@pytest.mark.parametrize(
    ("lower", "n_lower", "higher", "n_higher"),
    [(0.824, 8768, 0.689, 1651), (0.764, 3281, 0.819, 7289), (0.743, 954, 0.808, 9616), (0.81, 3571, 0.796, 6999)],
)
def test_the_closed_form_is_the_mean_of_the_published_100_trials_of_800(
    lower: float, n_lower: int, higher: float, n_higher: int
) -> None:
    """Segments of protocol 11.1: the mean of 2,000 times 100 trials is within 0.05 points where intervals lie apart.

    Where they meet, single values are 0 or above it and their mean exceeds the closed form, by less than 0.35.
    """
    rng = np.random.default_rng(0)
    bounds = []
    for share, size in ((lower, n_lower), (higher, n_higher)):
        right = round(share * size)
        means = rng.hypergeometric(right, size - right, 800, size=(2000, 100)) / 8
        bounds.append(np.quantile(means, [0.025, 0.975], axis=1))
    distance = np.maximum(0, np.maximum(bounds[0][0] - bounds[1][1], bounds[1][0] - bounds[0][1])).mean()
    share_lower, share_higher = round(lower * n_lower) / n_lower, round(higher * n_higher) / n_higher
    found = ask("expected_significance(?, ?, ?, ?, 800, false)", share_lower, n_lower, share_higher, n_higher)
    if found > 1.5:
        assert found == pytest.approx(distance, abs=0.05)
    else:
        assert found - 0.05 <= distance <= found + 0.35


def test_the_closed_form_equals_that_of_the_golden_table(shared: Path) -> None:
    golden = pq.read_table(shared / "golden/qa/significance_expected.parquet").to_pylist()
    valid = [row for row in golden if row["valid"]]
    assert len(valid) > 30
    for row in valid:
        shares = [row[f"analytic_{side}_em_mean"] / 100 for side in ("lower", "higher")]
        given = (shares[0], row["n_lower"], shares[1], row["n_higher"], row["sample_size"])
        # Its quantile is that of 100 trials too, computed and not rounded.
        assert ask("expected_significance(?, ?, ?, ?, ?, false)", *given) == pytest.approx(
            row["analytic_distance_em"], abs=0.002
        )


# Articles


def test_articles_are_titles_else_contexts_numbered_by_data_set() -> None:
    study = Study({"ans_len": [1]})
    study.questions({"ans_len": [1] * 6})
    study.titles(["Normans", "Atoms", "", None, "Atoms", None])
    for example, context in zip(study.examples, ["x", "y", "Beta", "Beta", "z", "Zeta"], strict=True):
        example["context"] = context
    study.questions({"ans_len": [1] * 3}, dataset="natural")
    study.answers([1] * 6)
    with study.opened() as connection:
        found = rows("from qa_articles order by dataset, row", connection)
    natural, squad = found[:3], found[3:]
    assert [(row["article"], row["n_articles"]) for row in natural] == [(0, 1)] * 3
    assert [row["article"] for row in squad] == [2, 0, 1, 1, 0, 3]  # Atoms, Beta, Normans, Zeta: in their order
    assert {row["n_articles"] for row in squad} == {4}
    assert list(squad[0]) == ["dataset", "example_id", "role", "row", "article", "n_articles"]


# Changes of bias, by hand

ARTICLES = list("ABCDABCDAB") + list("CDABCDABCD")
DEBIASED = [1] * 7 + [0] * 3 + [0] * 3 + [1] * 6 + [0] * 1
"""70 % of the lower and 60 % of the higher segment, where the standard reader has 80 % and 50 %."""
LESS = [(one + 1) / 2 for one in DEBIASED]


def two_readers(**spec: Any) -> Study:
    """Return a study whose trials hold all of a segment: its significances are the differences, 30 and 10."""
    study = Study({"ans_len": [1]}, **spec)
    study.questions({"ans_len": [*VALUES, None]})
    study.titles([*ARTICLES, "E"])
    study.reader("base")
    study.reader("careful", "learned_mixin", "ans_len")
    study.answers([*RIGHT, 1], [*OVERLAP, 1.0], model="base")
    study.answers([*DEBIASED, 0], [*LESS, 0.5], model="careful")
    return study


def hand_draws(study: Study) -> None:
    study.tables["qa_change_draws"] = [
        {
            "model": "careful", "dataset": "squad", "heuristic": "ans_len", "draw": draw,
            "lower": lower, "higher": higher, "standard_lower": 0.9, "standard_higher": 0.5,
        }
        for draw, (lower, higher) in enumerate([(0.7, 0.6), (0.7, 0.5), (0.3, 0.6), (0.6, 0.6), (None, 0.6)])
    ]  # fmt: skip


def test_a_debiased_reader_by_hand() -> None:
    study = two_readers()
    hand_draws(study)
    with study.opened("qa_debiasing") as connection:
        [standard, found] = rows("from qa_debiasing order by model", connection)
    is_lower = np.array(VALUES) == 1
    right, standard_right = np.array(DEBIASED, dtype=float), np.array(RIGHT, dtype=float)
    gap_change, influence = segment_influence(right - standard_right, is_lower)
    half_width = 100 * Z * cluster_error(influence, np.array(ARTICLES))
    assert gap_change == pytest.approx(-0.2)
    # 10, 20, 30 and 0 points in the four samples that have both segments, 40 of the standard reader in each.
    low, high = np.quantile([-30, -20, -10, -40], [0.025, 0.975])
    whole = {
        "model": "careful",
        "base": "bert",
        "data": "squad",
        "method": "learned_mixin",
        "bias": "ans_len",
        "seed": 42,
        "dataset": "squad",
        "heuristic": "ans_len",
        "is_addressed": True,
        "threshold": 1.0,
        "status": "measured",
        "bias_significance": pytest.approx(10),
        "standard_significance": pytest.approx(30),
        "significance_change": pytest.approx(-20),
        "significance_change_low": pytest.approx(low),
        "significance_change_high": pytest.approx(high),
        "worse_high": pytest.approx(60),
        "standard_worse_high": pytest.approx(50),
        "worse_high_change": pytest.approx(10),
        "gap": pytest.approx(10),
        "standard_gap": pytest.approx(30),
        "gap_change": pytest.approx(-20),
        "gap_change_low": pytest.approx(-20 - half_width),
        "gap_change_high": pytest.approx(-20 + half_width),
        "exact_match": pytest.approx(100 * 13 / 21),
        "standard_exact_match": pytest.approx(100 * 14 / 21),
        "is_nearly_broken": False,
        "n_rows": 20,
        "n_articles": 4,
        "n_draws": 4,
    }
    assert found == whole
    assert list(found) == list(whole)
    nothing = dict.fromkeys(name for name in whole if name.endswith(("_change", "_low", "_high")) and name in whole)
    assert standard == {
        **whole,
        **nothing,
        **dict.fromkeys(name for name in whole if name.startswith("standard_")),
        "model": "base",
        "method": "standard",
        "bias": None,
        "is_addressed": False,
        "bias_significance": pytest.approx(30),
        "worse_high": pytest.approx(50),
        "gap": pytest.approx(30),
        "exact_match": pytest.approx(100 * 14 / 21),
        "is_nearly_broken": None,
        "n_draws": 0,
    }


def test_a_gap_is_signed_by_the_standard_readers() -> None:
    """The standard reader is 30 points better on the higher segment, the other one 10 on the lower one."""
    study = two_readers()
    swapped = [*RIGHT[10:], *RIGHT[:10]]
    study.predictions = []
    study.answers([*swapped, 1], model="base")
    study.answers([*DEBIASED, 0], model="careful")
    with study.opened("qa_debiasing") as connection:
        [standard, found] = rows("from qa_debiasing order by model", connection)
    assert (standard["gap"], found["standard_gap"]) == (pytest.approx(30), pytest.approx(30))
    assert (found["gap"], found["gap_change"]) == (pytest.approx(-10), pytest.approx(-40))
    assert found["significance_change"] == pytest.approx(-20)
    _, influence = segment_influence(np.array(DEBIASED) - np.array(swapped, dtype=float), np.array(VALUES) == 1)
    half_width = 100 * Z * cluster_error(influence, np.array(ARTICLES))
    assert [found["gap_change_low"], found["gap_change_high"]] == pytest.approx([-40 - half_width, -40 + half_width])


@pytest.mark.parametrize(("n_right", "is_nearly_broken"), [(4, False), (3, True)])
def test_a_reader_is_nearly_broken_below_two_thirds_of_the_standard_readers_worse_segment(
    n_right: int, is_nearly_broken: bool
) -> None:
    study = two_readers()
    study.predictions = []
    study.answers([1] * 8 + [0] * 2 + [1] * 6 + [0] * 4 + [1], model="base")
    study.answers([1] * n_right + [0] * (10 - n_right) + [1] * 5 + [0] * 6, model="careful")
    with study.opened("qa_debiasing") as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
    assert (found["worse_high"], found["standard_worse_high"]) == (pytest.approx(10 * n_right), pytest.approx(60))
    assert found["is_nearly_broken"] is is_nearly_broken


def test_a_reader_with_the_same_answers_has_changed_nothing() -> None:
    study = two_readers()
    study.predictions = []
    for model in ("base", "careful"):
        study.answers([*RIGHT, 1], model=model)
    with study.opened("qa_debiasing", "qa_out_of_distribution") as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        [outcome] = rows("from qa_out_of_distribution where model = 'careful'", connection)
    changes = [value for name, value in found.items() if "_change" in name]
    assert changes == pytest.approx([0] * 7, abs=1e-9)
    assert found["n_draws"] == 40
    assert [value for name, value in outcome.items() if "_change" in name] == pytest.approx([0] * 6, abs=1e-9)


# Changes of bias, against loops in numpy

PLACES = {"ans_len": (2.0, 4), "cos_sim": (0.35, 0), "word_dist": (3.0, 0)}
"""The thresholds, and how much better the standard reader is below them."""


def large_study(seed: int = 0, **spec: Any) -> tuple[Study, dict[str, Floats]]:
    """Return a study of three readers on 500 questions about 12 articles, and its columns."""
    rng = np.random.default_rng(seed)
    n_rows = 500
    columns: dict[str, Floats] = {
        "ans_len": rng.integers(1, 6, size=n_rows).astype(float),
        "cos_sim": rng.random(n_rows),
        "word_dist": rng.integers(-1, 8, size=n_rows).astype(float),
        "article": rng.integers(12, size=n_rows),
    }
    study = Study(
        spec.pop("thresholds", {heuristic: [threshold] for heuristic, (threshold, _) in PLACES.items()}),
        bootstrap={"trials": 20, "sample": 100, **spec.pop("bootstrap", {})},
        **spec,
    )
    study.questions({name: [None if one < 0 else one for one in columns[name]] for name in PLACES})
    study.titles([f"title {one}" for one in columns["article"]])
    study.reader("base")
    study.reader("mixin", "learned_mixin", "ans_len")
    study.reader("again", "resample", "cos_sim")
    skill = rng.normal(0, 0.15, size=12)[columns["article"]]
    for model, slope in (("base", 0.5), ("mixin", 0.1), ("again", 0.4)):
        chance = np.clip(0.5 + skill + slope * (columns["ans_len"] <= 2), 0, 1)
        columns[model] = (rng.random(n_rows) < chance).astype(float)
        columns[f"{model} f1"] = np.maximum(columns[model], rng.random(n_rows))
        study.answers(columns[model].tolist(), columns[f"{model} f1"].tolist(), model=model)
    return study, columns


@pytest.mark.parametrize("replacement", [False, True])
def test_every_change_equals_that_of_a_loop(replacement: bool) -> None:
    study, columns = large_study(bootstrap={"replacement": replacement})
    with study.opened() as connection:
        found = {(row["model"], row["heuristic"]): row for row in rows("from qa_debiasing", connection)}
        draws = rows("from qa_change_draws order by draw", connection)
        biases = {(row["model"], row["heuristic"]): row for row in rows("from qa_bias_by_heuristic", connection)}
        assert problems("qa_changes_are_in_range", connection) == []
    assert len(found) == 9
    for model in ("mixin", "again"):
        for heuristic, (threshold, _) in PLACES.items():
            row, standard = found[model, heuristic], found["base", heuristic]
            taken = columns[heuristic] >= 0
            is_lower = columns[heuristic][taken] <= threshold
            right, standard_right = columns[model][taken], columns["base"][taken]
            gap, _ = segment_influence(right, is_lower)
            standard_gap, _ = segment_influence(standard_right, is_lower)
            change, influence = segment_influence(right - standard_right, is_lower)
            side = -1 if standard_gap < 0 else 1
            half_width = Z * cluster_error(influence, columns["article"][taken])
            assert [row["gap"], row["standard_gap"], row["gap_change"]] == pytest.approx(
                [100 * side * gap, 100 * side * standard_gap, 100 * side * change]
            )
            assert [row["gap_change_low"], row["gap_change_high"]] == pytest.approx(
                [100 * (side * change - half_width), 100 * (side * change + half_width)]
            )
            sizes = (int(is_lower.sum()), int((~is_lower).sum()))
            own = [one for one in draws if (one["model"], one["heuristic"]) == (model, heuristic)]
            changes = [
                expected(one["lower"], sizes[0], one["higher"], sizes[1], 100, replacement=replacement)
                - expected(
                    one["standard_lower"], sizes[0], one["standard_higher"], sizes[1], 100, replacement=replacement
                )
                for one in own
            ]
            assert len(changes) == row["n_draws"] == 40
            assert [row["significance_change_low"], row["significance_change_high"]] == pytest.approx(
                np.quantile(changes, [0.025, 0.975]).tolist(), abs=1e-9
            )
            published = [biases[reader, heuristic]["bias_significance"] for reader in (model, "base")]
            assert [row["bias_significance"], row["standard_significance"]] == published
            assert row["significance_change"] == pytest.approx(published[0] - published[1], abs=1e-12)
            worst = [biases[reader, heuristic]["worse_high"] for reader in (model, "base")]
            assert [row["worse_high"], row["standard_worse_high"]] == worst
            assert row["worse_high_change"] == pytest.approx(worst[0] - worst[1])
            assert row["is_addressed"] == (heuristic == {"mixin": "ans_len", "again": "cos_sim"}[model])
            assert (row["n_rows"], row["n_articles"]) == (np.count_nonzero(taken), 12)
            assert (standard["n_rows"], standard["n_articles"]) == (np.count_nonzero(taken), 12)
            assert standard["gap"] == pytest.approx(row["standard_gap"])
            assert row["exact_match"] == pytest.approx(100 * columns[model].mean())
            assert row["standard_exact_match"] == pytest.approx(100 * columns["base"].mean())
    shown = found["mixin", "ans_len"]
    assert shown["significance_change_high"] < 0  # the study has something to find
    assert shown["gap_change_high"] < 0


def test_whole_articles_widen_an_interval_and_pairing_narrows_it() -> None:
    """Every article is easy for one of the readers: questions about it change together."""
    rng = np.random.default_rng(1)
    study, columns = large_study()
    shift = rng.normal(0, 0.4, size=12)[columns["article"]]
    study.predictions = []
    for model, middle in (("base", 0.5), ("mixin", 0.5 + shift), ("again", None)):
        right = columns["base"] if middle is None else (rng.random(500) < middle).astype(float)
        study.answers(np.asarray(right, dtype=float).tolist(), model=model)
        columns[model] = right
    with study.opened("qa_out_of_distribution") as connection:
        found = rows("from qa_out_of_distribution", connection)
    [mixin] = [row for row in found if row["model"] == "mixin"]
    naive = Z * np.std(columns["mixin"] - columns["base"], ddof=1) / np.sqrt(500)
    assert mixin["exact_match_change_high"] - mixin["exact_match_change"] > 1.5 * naive


def test_readers_that_search_their_own_thresholds_are_each_split_at_theirs() -> None:
    """In the published code's variant the gap of either reader is at its own threshold, and so is its change."""
    study, columns = large_study(variant="reference", thresholds={"ans_len": [1, 2, 3, 4]}, bootstrap={"sample": 40})
    right = np.where(columns["ans_len"] <= 3, 1.0, columns["mixin"])
    study.predictions = [row for row in study.predictions if row["model"] != "mixin"]
    study.answers(right.tolist(), model="mixin")
    with study.opened() as connection:
        [standard] = rows("from qa_debiasing where model = 'base'", connection)
        [found] = rows("from qa_debiasing where model = 'mixin'", connection)
        draws = rows("from qa_change_draws where model = 'mixin' order by draw", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert (standard["threshold"], found["threshold"]) == (2, 3)
    [own, of_standard] = (columns["ans_len"] <= threshold for threshold in (3, 2))
    gap, influence = segment_influence(right, own)
    standard_gap, standard_influence = segment_influence(columns["base"], of_standard)
    assert [found["gap"], found["standard_gap"]] == pytest.approx([100 * gap, 100 * standard_gap])
    half_width = 100 * Z * cluster_error(influence - standard_influence, columns["article"])
    change = 100 * (gap - standard_gap)
    assert [found[f"gap_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(
        [change, change - half_width, change + half_width]
    )
    changes = [
        expected(one["lower"], own.sum(), one["higher"], (~own).sum(), 40, replacement=False)
        - expected(
            one["standard_lower"], of_standard.sum(), one["standard_higher"], (~of_standard).sum(), 40,
            replacement=False,
        )
        for one in draws
    ]  # fmt: skip
    assert [found["significance_change_low"], found["significance_change_high"]] == pytest.approx(
        np.quantile(changes, [0.025, 0.975]).tolist(), abs=1e-9
    )


def test_the_order_of_rows_changes_no_byte() -> None:
    study, _ = large_study()
    found = []
    for _ in range(2):
        with study.opened() as connection:
            found.append({name: table(f"from {name}", connection) for name in RELATIONS})
        for part in (study.examples, study.attributes, study.predictions, study.trained):
            part.reverse()
    for name in RELATIONS:
        assert found[0][name].equals(found[1][name]), name
    assert found[0]["qa_debiasing"].num_rows == 9


# Where there is nothing to compare

UNKNOWN = (
    "bias_significance", "standard_significance", "significance_change", "significance_change_low",
    "significance_change_high", "worse_high", "standard_worse_high", "worse_high_change", "gap", "standard_gap",
    "gap_change", "gap_change_low", "gap_change_high", "is_nearly_broken",
)  # fmt: skip


def test_groups_that_are_too_small_have_no_bias_and_no_change() -> None:
    study = two_readers(bootstrap={"trials": 20, "sample": 11})
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_are_in_range", connection) == []
        assert rows("from qa_change_draws", connection) == []
    assert [found[name] for name in UNKNOWN] == [None] * len(UNKNOWN)
    assert (found["status"], found["n_rows"], found["n_articles"], found["n_draws"]) == ("groups too small", 20, 4, 0)
    assert found["exact_match"] == pytest.approx(100 * 13 / 21)


def test_a_heuristic_without_values_has_no_questions() -> None:
    study = two_readers()
    for row in study.attributes:
        row |= {"value": -1.0, "is_measured": False}
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert [found[name] for name in UNKNOWN] == [None] * len(UNKNOWN)
    assert (found["n_rows"], found["n_articles"]) == (0, 0)


def test_no_significant_threshold_is_no_change_without_an_interval() -> None:
    """Of two thresholds none is significant for either reader: both significances are 0."""
    study = Study({"ans_len": [1, 2]})
    study.questions({"ans_len": VALUES})
    study.titles(ARTICLES)
    study.reader("base")
    study.reader("careful", "resample", "ans_len")
    for model in ("base", "careful"):
        study.answers([1, 0] * 10, model=model)
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert (found["status"], found["threshold"], found["significance_change"]) == ("not significant", None, 0)
    assert found["significance_change_low"] is found["gap"] is found["gap_change"] is None


@pytest.mark.parametrize(
    "titles",
    [["A"] * 20, ["A"] * 10 + list("BCDEFGHIJK"), list("BCDEFGHIJK") + ["A"] * 10],
    ids=["one article", "one below", "one above"],
)
def test_a_segment_in_a_single_article_has_no_interval(titles: list[str]) -> None:
    study = two_readers()
    study.titles([*titles, "E"])
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert (found["gap_change"], found["significance_change"]) == (pytest.approx(-20), pytest.approx(-20))
    for name in ("gap_change", "significance_change"):
        assert found[f"{name}_low"] is found[f"{name}_high"] is None
    assert found["n_articles"] == len(set(titles))


def test_a_data_set_of_a_single_article_has_changes_without_intervals() -> None:
    study = two_readers()
    study.titles(["A"] * 21)
    with study.opened() as connection:
        [found] = rows("from qa_out_of_distribution where model = 'careful'", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert (found["exact_match_change"], found["n_articles"]) == (pytest.approx(-1 / 21), 1)
    for name in ("exact_match_change", "f1_change"):
        assert found[f"{name}_low"] is found[f"{name}_high"] is None


def test_a_reader_that_was_given_up_has_a_row_among_the_costs_only() -> None:
    study = two_readers()
    study.reader("broken", "learned_mixin", "ans_len", problem="its loss is not finite", steps=1)
    study.reader("hypothesis", "bias_model", "ans_len")
    with study.opened("qa_debiasing", "qa_out_of_distribution", "qa_training_costs") as connection:
        for mart in ("qa_debiasing", "qa_out_of_distribution"):
            models = {row["model"] for row in rows(f"from {mart}", connection)}
            assert models == {"base", "careful"}, mart
        costs = {row["model"]: row for row in rows("from qa_training_costs", connection)}
    assert set(costs) == {"base", "careful", "broken", "hypothesis"}
    assert costs["broken"]["problem"] == "its loss is not finite"


def test_a_reader_whose_standard_one_was_given_up_is_measured_and_compared_with_nothing() -> None:
    study = two_readers()
    study.trained[0] |= {"path": None, "best_step": None, "problem": "its loss is not finite"}
    study.predictions = [row for row in study.predictions if row["model"] == "careful"]
    with study.opened() as connection:
        [found] = rows("from qa_debiasing", connection)
        [outcome] = rows("from qa_out_of_distribution", connection)
        assert rows("from qa_debiasing_by_method", connection) == []
        [mean] = rows("from qa_out_of_distribution_by_method", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert (mean["f1_change"], mean["exact_match_change"], mean["n_biases"]) == (None, None, 0)
    assert (found["model"], found["bias_significance"]) == ("careful", pytest.approx(10))
    assert [found[name] for name in UNKNOWN if name not in ("bias_significance", "worse_high")] == [None] * 12
    assert (found["n_rows"], found["n_articles"]) == (20, 4)
    assert (outcome["f1_change"], outcome["standard_f1"], outcome["n_rows"], outcome["n_articles"]) == (
        None, None, 21, 5,
    )  # fmt: skip


def test_models_that_the_run_did_not_train_are_compared_with_nothing() -> None:
    study = two_readers()
    study.answers([*RIGHT, 1], model="from elsewhere")
    with study.opened("qa_debiasing", "qa_out_of_distribution") as connection:
        for mart in ("qa_debiasing", "qa_out_of_distribution"):
            assert {row["model"] for row in rows(f"from {mart}", connection)} == {"base", "careful"}
        assert len(rows("select distinct model from qa_bias_by_heuristic", connection)) == 3


# Answers elsewhere


def test_answers_on_every_data_set_by_hand() -> None:
    study = two_readers(datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}})
    study.questions({"ans_len": [1] * 6}, dataset="natural")
    study.titles(["P", "P", "Q", "Q", "Q", "R"], dataset="natural")
    [f1, standard_f1] = [0.5, 0.25, 1.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 0.5, 0.5, 0.25]
    [exact, standard_exact] = [0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 0]
    study.answers(exact, f1, model="careful", dataset="natural")
    study.answers(standard_exact, standard_f1, model="base", dataset="natural")
    with study.opened("qa_out_of_distribution") as connection:
        found = rows("from qa_out_of_distribution order by model, dataset", connection)
    assert [(row["model"], row["dataset"], row["role"]) for row in found] == [
        ("base", "natural", "out_of_distribution"),
        ("base", "squad", "in_distribution"),
        ("careful", "natural", "out_of_distribution"),
        ("careful", "squad", "in_distribution"),
    ]
    # Differences of F1 are 0.5 - 0.25, -0.5 and 0.75 by article, 0.5 / 6 on average, of 2, 3 and 1 questions.
    by_article = [0.25 - 2 * 0.5 / 6, -0.5 - 3 * 0.5 / 6, 0.75 - 0.5 / 6]
    half_width = Z * np.sqrt(3 / 2 * np.sum(np.square(by_article))) / 6
    # Of exact match 0, -1 and 1, 0 on average.
    half_width_exact = Z * np.sqrt(3 / 2 * 2) / 6
    natural = {
        "model": "careful",
        "base": "bert",
        "data": "squad",
        "method": "learned_mixin",
        "bias": "ans_len",
        "seed": 42,
        "dataset": "natural",
        "role": "out_of_distribution",
        "f1": pytest.approx(3.25 / 6),
        "exact_match": pytest.approx(2 / 6),
        "standard_f1": pytest.approx(2.75 / 6),
        "standard_exact_match": pytest.approx(2 / 6),
        "f1_change": pytest.approx(0.5 / 6),
        "f1_change_low": pytest.approx(0.5 / 6 - half_width),
        "f1_change_high": pytest.approx(0.5 / 6 + half_width),
        "exact_match_change": pytest.approx(0, abs=1e-12),
        "exact_match_change_low": pytest.approx(-half_width_exact),
        "exact_match_change_high": pytest.approx(half_width_exact),
        "n_rows": 6,
        "n_articles": 3,
    }
    assert found[2] == natural
    assert list(found[2]) == list(natural)
    assert found[0] == {
        **natural,
        **dict.fromkeys(name for name in natural if "_change" in name or name.startswith("standard_")),
        "model": "base",
        "method": "standard",
        "bias": None,
        "f1": pytest.approx(2.75 / 6),
    }


def test_the_error_of_answers_equals_that_of_a_loop() -> None:
    study, columns = large_study()
    with study.opened("qa_out_of_distribution") as connection:
        found = {row["model"]: row for row in rows("from qa_out_of_distribution", connection)}
    for model in ("mixin", "again"):
        for metric, suffix in (("exact_match", ""), ("f1", " f1")):
            differences = columns[f"{model}{suffix}"] - columns[f"base{suffix}"]
            half_width = Z * cluster_error((differences - differences.mean()) / 500, columns["article"])
            wanted = [differences.mean(), differences.mean() - half_width, differences.mean() + half_width]
            assert [found[model][f"{metric}_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(wanted)


def test_questions_that_only_one_reader_answered_change_nothing() -> None:
    study = two_readers()
    study.predictions = [
        row for row in study.predictions if (row["model"], row["example_id"]) not in {("base", "q0"), ("careful", "q1")}
    ]
    study.spec["bootstrap"]["sample"] = 9
    with study.opened("qa_debiasing", "qa_out_of_distribution") as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        [outcome] = rows("from qa_out_of_distribution where model = 'careful'", connection)
    assert (found["n_rows"], outcome["n_rows"]) == (18, 19)
    paired = np.arange(20) >= 2
    change, influence = segment_influence(
        (np.array(DEBIASED) - np.array(RIGHT, dtype=float))[paired], np.array(VALUES)[paired] == 1
    )
    assert found["gap_change"] == pytest.approx(100 * change)
    half_width = 100 * Z * cluster_error(influence, np.array(ARTICLES)[paired])
    assert found["gap_change_high"] == pytest.approx(100 * change + half_width)
    assert outcome["exact_match_change"] == pytest.approx((sum(DEBIASED[2:]) - sum(RIGHT[2:]) - 1) / 19)


# Means over biases and over sets

PUBLISHED = {
    # Protocol 11.3: ans-len, word-dist, cos-sim, sim-ents, sim-word, subj-pos; significance and worse EM.
    "standard": [(12.51, 69.01), (8.62, 70.69), (2.63, 75.44), (2.48, 78.57), (1.04, 77.5), (1.01, 79.19)],
    "resample": [(6.87, 69.75), (6.70, 69.25), (1.99, 73.57), (1.62, 79.45), (0.23, 76.94), (0, 77.44)],
    "learned_mixin": [(6.36, 18.52), (0, 38.38), (0, 21.88), (2.87, 30.76), (0.68, 20.88), (4.41, 24.26)],
}
BIASES = ("ans_len", "word_dist", "cos_sim", "sim_ents", "sim_word", "subj_pos")


def changes_of_bias(method: str, seed: int = 42, dataset: str = "squad") -> Rows:
    """Return the published rows of ``qa_debiasing`` of a method's readers on what each addresses."""
    pairs = zip(BIASES, PUBLISHED[method], PUBLISHED["standard"], strict=True)
    return [
        {
            "base": "bert", "data": "squad", "method": method, "seed": seed, "dataset": dataset, "heuristic": heuristic,
            "is_addressed": True, "bias_significance": value, "standard_significance": standard,
            "significance_change": value - standard, "worse_high": worse, "standard_worse_high": standard_worse,
            "worse_high_change": worse - standard_worse, "is_nearly_broken": worse < 2 / 3 * standard_worse,
        }
        for heuristic, (value, worse), (standard, standard_worse) in pairs
    ]  # fmt: skip


ROLES: Rows = [
    {"dataset": "squad", "role": "in_distribution"},
    {"dataset": "squad", "role": "in_distribution"},
    {"dataset": "natural", "role": "out_of_distribution"},
]
WORDS_OF_METHOD = (
    "base", "data", "method", "seed", "dataset", "bias_significance", "standard_significance", "significance_change",
    "worse_high", "standard_worse_high", "n_heuristics", "n_nearly_broken",
)  # fmt: skip


def test_means_over_what_a_method_addresses_are_the_published_ones() -> None:
    """The published means of the significance are over seven, a 0 of ans-pos with them, of EM over six."""
    given = [*changes_of_bias("learned_mixin"), *changes_of_bias("resample")]
    given += [row | {"is_addressed": False, "heuristic": "ans_pos", "bias_significance": 50.0} for row in given]
    given += [row | {"dataset": "natural"} for row in given]
    mixin, resampled = made("qa_debiasing_by_method", qa_debiasing=given, qa_out_of_distribution=ROLES)
    for found, method, significance, worse, n_broken in (
        (mixin, "learned_mixin", 2.05, 25.78, 6), (resampled, "resample", 2.49, 74.4, 0),
    ):  # fmt: skip
        assert tuple(found) == WORDS_OF_METHOD
        assert [found[name] for name in WORDS_OF_METHOD[:5]] == ["bert", "squad", method, 42, "squad"]
        assert 6 / 7 * found["bias_significance"] == pytest.approx(significance, abs=0.0051)
        assert 6 / 7 * found["standard_significance"] == pytest.approx(4.04, abs=0.0051)
        assert found["significance_change"] == pytest.approx(
            found["bias_significance"] - found["standard_significance"]
        )
        assert found["worse_high"] == pytest.approx(worse, abs=0.0051)
        # Of seven the mean is 76.08, with 82.19 of ans-pos.
        assert (6 * found["standard_worse_high"] + 82.19) / 7 == pytest.approx(76.08, abs=0.0051)
        assert (found["n_heuristics"], found["n_nearly_broken"]) == (6, n_broken)


def test_means_over_biases_leave_out_what_is_not_measured_and_pair_what_has_a_threshold() -> None:
    given = changes_of_bias("resample")[:3] + changes_of_bias("resample", seed=1)[:2]
    # The first was not measured; the second has no significant threshold, its standard reader has one.
    given[0] |= {"significance_change": None, "bias_significance": None, "worse_high": None, "worse_high_change": None}
    given[1] |= {"bias_significance": 0.0, "significance_change": -8.62, "worse_high": None, "worse_high_change": None}
    given[1] |= {"is_nearly_broken": None}
    other, found = made("qa_debiasing_by_method", qa_debiasing=given, qa_out_of_distribution=ROLES)
    assert [found[name] for name in WORDS_OF_METHOD[3:]] == [
        42, "squad", pytest.approx(1.99 / 2), pytest.approx((8.62 + 2.63) / 2), pytest.approx((-8.62 - 0.64) / 2),
        73.57, 75.44, 2, 0,
    ]  # fmt: skip
    assert [other[name] for name in WORDS_OF_METHOD[3:]] == [
        1, "squad", pytest.approx((6.87 + 6.7) / 2), pytest.approx((12.51 + 8.62) / 2),
        pytest.approx((-5.64 - 1.92) / 2), pytest.approx(69.5), pytest.approx(69.85), 2, 0,
    ]  # fmt: skip


def elsewhere_study() -> tuple[Study, dict[str, dict[str, Floats]]]:
    """Return a study of three readers on a set in distribution and two others of unlike sizes, and its columns by set.

    Of columns named after readers: F1; followed by ``exact``: exact match.
    """
    rng = np.random.default_rng(5)
    study = Study(
        {"ans_len": [1]},
        datasets={
            "in_distribution": {"squad": "a.json"},
            "out_of_distribution": {"natural": "b.json", "trivia": "c.json"},
        },
        bootstrap={"trials": 5, "sample": 10},
    )
    study.reader("base")
    study.reader("careful", "learned_mixin", "ans_len")
    study.reader("again", "learned_mixin", "cos_sim")
    columns: dict[str, dict[str, Floats]] = {}
    for dataset, n_rows, n_articles in (("squad", 60, 6), ("natural", 150, 10), ("trivia", 80, 4)):
        own = columns[dataset] = {"article": rng.permutation(np.arange(n_rows) % n_articles)}
        study.questions({"ans_len": (1 + np.arange(n_rows) % 2).tolist()}, dataset)
        study.titles([f"title {one}" for one in own["article"]], dataset)
        for model in ("base", "careful", "again"):
            own[f"{model} exact"] = (rng.random(n_rows) < 0.4).astype(float)
            own[model] = np.maximum(own[f"{model} exact"], rng.random(n_rows) / 2)
            study.answers(own[f"{model} exact"].tolist(), own[model].tolist(), model, dataset)
    return study, columns


def test_the_mean_over_sets_has_the_error_of_means_of_other_questions() -> None:
    study, columns = elsewhere_study()
    with study.opened() as connection:
        found = {row["model"]: row for row in rows("from qa_out_of_distribution_by_model", connection)}
        assert problems("qa_changes_are_in_range", connection) == []
    assert list(found) == ["again", "base", "careful"]
    for model in ("careful", "again"):
        row = found[model]
        for metric, suffix in (("f1", ""), ("exact_match", " exact")):
            means, variances = [], []
            for dataset in ("natural", "trivia"):
                own = columns[dataset]
                change = own[f"{model}{suffix}"] - own[f"base{suffix}"]
                means.append(change.mean())
                variances.append(cluster_error((change - change.mean()) / len(change), own["article"]) ** 2)
            half_width = Z * np.sqrt(variances[0] / 4 + variances[1] / 4)
            wanted = [np.mean(means), np.mean(means) - half_width, np.mean(means) + half_width]
            assert [row[f"{metric}_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(wanted)
            for name, reader in ((metric, model), (f"standard_{metric}", "base")):
                each = [columns[dataset][f"{reader}{suffix}"].mean() for dataset in ("natural", "trivia")]
                assert row[name] == pytest.approx(np.mean(each))
        assert (row["n_datasets"], row["n_rows"]) == (2, 230)
    assert list(found["base"]) == [
        "model", "base", "data", "method", "bias", "seed", "f1", "exact_match", "standard_f1", "standard_exact_match",
        "f1_change", "f1_change_low", "f1_change_high", "exact_match_change", "exact_match_change_low",
        "exact_match_change_high", "n_datasets", "n_rows",
    ]  # fmt: skip
    assert found["base"]["f1"] == pytest.approx(found["again"]["standard_f1"])
    compared = [value for name, value in found["base"].items() if "_change" in name or name.startswith("standard_")]
    assert compared == [None] * 8


def test_a_mean_over_sets_needs_them_all() -> None:
    """A change of 0.1 -/+ 0.03 and one of -0.2 -/+ 0.04: -0.05 -/+ 0.025."""
    place = {"model": "careful", "base": "bert", "data": "squad", "method": "resample", "bias": "ans_len", "seed": 42}
    pairs = {"natural": (0.1, 0.03, 0.5), "trivia": (-0.2, 0.04, 0.9), "squad": (0.7, 0.01, 0.9)}
    sets: Rows = [
        place
        | {
            "dataset": dataset, "f1": f1, "exact_match": f1, "standard_f1": f1 - change,
            "role": "in_distribution" if dataset == "squad" else "out_of_distribution",
            "standard_exact_match": f1 - change, "n_rows": 10,
        }
        | {
            f"{metric}_change{end}": change + sign * half
            for metric in ("f1", "exact_match")
            for end, sign in (("", 0), ("_low", -1), ("_high", 1))
        }
        for dataset, (change, half, f1) in pairs.items()
    ]  # fmt: skip

    def mean(**first: None) -> dict[str, Any]:
        given = [row | (first if row["dataset"] == "natural" else {}) for row in sets]
        [found] = made("qa_out_of_distribution_by_model", qa_out_of_distribution=given)
        return found

    whole = mean()
    ends = ("f1_change", "f1_change_low", "f1_change_high")
    assert [whole[name] for name in ends] == pytest.approx([-0.05, -0.075, -0.025])
    assert (whole["f1"], whole["standard_f1"]) == (pytest.approx(0.7), pytest.approx(0.75))
    bounds = [f"{metric}_change_{end}" for metric in ("f1", "exact_match") for end in ("low", "high")]
    single = mean(**dict.fromkeys(bounds))
    assert single == whole | dict.fromkeys(bounds)
    compared = [name for name in whole if "_change" in name or name.startswith("standard_")]
    assert mean(**dict.fromkeys(compared)) == whole | dict.fromkeys(compared)


def test_the_mean_over_biases_is_of_readers_of_one_method_and_seed() -> None:
    study, columns = elsewhere_study()
    study.reader("other seed", "learned_mixin", "ans_len", seed=43)
    study.reader("given up", "learned_mixin", "word_dist", problem="its loss is not finite")
    study.reader("hypothesis", "bias_model", "ans_len")
    for dataset, own in columns.items():
        study.answers([1.0] * len(own["base"]), model="other seed", dataset=dataset)
    with study.opened(*MARTS[:4]) as connection:
        found = rows("from qa_out_of_distribution_by_method order by seed, dataset", connection)
    assert [(row["method"], row["seed"], row["dataset"], row["n_biases"]) for row in found] == [
        ("learned_mixin", seed, dataset, n)
        for seed, n in ((42, 2), (43, 1))
        for dataset in ("mean", "natural", "squad", "trivia")
    ]
    assert list(found[0]) == [
        "base", "data", "method", "seed", "dataset", "f1_change", "exact_match_change", "n_biases",
    ]  # fmt: skip
    for metric, suffix in (("f1", ""), ("exact_match", " exact")):
        changes = {
            dataset: [float(np.mean(own[f"{model}{suffix}"] - own[f"base{suffix}"])) for model in ("careful", "again")]
            for dataset, own in columns.items()
        }
        wanted = [np.mean([changes["natural"], changes["trivia"]])]
        wanted += [np.mean(changes[dataset]) for dataset in ("natural", "squad", "trivia")]
        assert [row[f"{metric}_change"] for row in found[:4]] == pytest.approx(wanted)
    right = 1 - columns["squad"]["base exact"].mean()
    assert (found[6]["dataset"], found[6]["exact_match_change"]) == ("squad", pytest.approx(right))


# Curves of training


def test_curves_are_of_the_readers_that_were_asked_behind_a_step() -> None:
    study = two_readers()
    study.reader("again", "learned_mixin", "cos_sim")
    study.reader("broken", "learned_mixin", "word_dist", problem="its loss is not finite")
    study.reader("hypothesis", "bias_model", "ans_len")
    asked = (
        ("careful", 0, "squad", 2.0, 0.25, 0.5), ("again", 0, "squad", 4.0, 0.5, 0.625),
        ("broken", 0, "squad", 9.0, 1.0, 1.0),
        ("careful", 1, "squad", 1.0, 0.5, 0.75), ("again", 1, "squad", float("inf"), 0.0, 0.0),
        ("careful", 1, "dev", float("nan"), 0.0, 0.0), ("again", 1, "dev", 3.0, 0.5, 0.5),
        ("base", 1, "squad", 1.5, 0.5, 0.75), ("hypothesis", 1, "squad (biased)", 2.5, 0.5, 0.75),
    )  # fmt: skip
    names = ("model", "step", "dataset", "loss", "exact_match", "f1")
    study.tables |= {"evaluations": [dict(zip(names, row, strict=True)) for row in asked], "training": []}
    with study.opened("qa_training_curves") as connection:
        found = rows("from qa_training_curves", connection)
    inside = "in_distribution"
    assert [tuple(row.values())[2:] for row in found] == [
        ("bias_model", "squad (biased)", None, 1, *[2.5] * 3, *[0.5] * 3, *[0.75] * 3, 1),
        ("learned_mixin", "dev", None, 1, *[3.0] * 3, *[0.5] * 6, 1),
        ("learned_mixin", "squad", inside, 0, 3.0, 2.0, 4.0, 0.375, 0.25, 0.5, 0.5625, 0.5, 0.625, 2),
        ("learned_mixin", "squad", inside, 1, *[1.0] * 3, *[0.5] * 3, *[0.75] * 3, 1),
        ("standard", "squad", inside, 1, *[1.5] * 3, *[0.5] * 3, *[0.75] * 3, 1),
    ]
    assert {(row["base"], row["data"]) for row in found} == {("bert", "squad")}
    assert list(found[0]) == [
        "base", "data", "method", "dataset", "role", "step", "loss", "loss_low", "loss_high", "exact_match",
        "exact_match_low", "exact_match_high", "f1", "f1_low", "f1_high", "n_readers",
    ]  # fmt: skip


# Bias models


def test_a_bias_model_by_hand() -> None:
    study = two_readers()
    study.reader("hypothesis", "bias_model", "ans_len", best_step=1)
    study.tables["evaluations"] = [
        {"model": model, "step": step, "dataset": f"{name} ({segment})", "loss": 1.0, "exact_match": exact, "f1": f1}
        for model, step, name, segment, exact, f1 in (
            ("hypothesis", 1, "squad", "biased", 0.5, 0.625),
            ("hypothesis", 1, "squad", "other", 0.125, 0.25),
            ("hypothesis", 1, "more (biased)", "biased", 0.25, 0.5),
            ("hypothesis", 1, "more (biased)", "other", 0.0, 0.75),
            ("hypothesis", 2, "squad", "biased", 0.9, 0.9),
            ("hypothesis", 2, "squad", "other", 0.9, 0.9),
            ("careful", 1, "squad", "biased", 0.9, 0.9),
        )
    ]
    segments = {"base": "bert", "data": "squad", "threshold": 1.0}
    study.tables["qa_segments"] = [
        {**segments, "bias": "ans_len", "n_biased_validation": 30, "n_other_validation": 12},
        {**segments, "bias": "sim_word", "n_biased_validation": 1, "n_other_validation": 2},
        {**segments, "base": "roberta", "bias": "ans_len", "n_biased_validation": 3, "n_other_validation": 4},
    ]
    with study.opened("qa_bias_models") as connection:
        found = rows("from qa_bias_models", connection)
    place = {"model": "hypothesis", "base": "bert", "data": "squad", "bias": "ans_len"}
    assert found == [
        place
        | {
            "dataset": "more (biased)", "best_step": 1, "f1_biased": 0.5, "f1_other": 0.75, "f1_difference": -0.25,
            "exact_match_biased": 0.25, "exact_match_other": 0.0, "n_biased": 30, "n_other": 12,
        },
        place
        | {
            "dataset": "squad", "best_step": 1, "f1_biased": 0.625, "f1_other": 0.25, "f1_difference": 0.375,
            "exact_match_biased": 0.5, "exact_match_other": 0.125, "n_biased": 30, "n_other": 12,
        },
    ]  # fmt: skip
    assert list(found[0]) == [*place, "dataset", "best_step", *list(found[0])[6:]]


# Costs


def test_costs_by_hand() -> None:
    study = two_readers()
    study.trained[1] |= {"device": "NVIDIA H100", "n_workers": 4, "steps": 2, "best_step": 1}
    study.reader("never began", "resample", "ans_len", steps=0, problem="a segment is empty", device=None)
    study.tables["training"] = [
        {"model": "base", "step": 0, "loss": 1.0, "seconds": 5.0},
        {"model": "careful", "step": 0, "loss": 1.0, "seconds": 1000.0},
        {"model": "careful", "step": 1, "loss": 1.0, "seconds": 800.0},
    ]
    study.tables["evaluations"] = [
        {"model": "careful", "step": step, "dataset": name, "loss": 1.0, "exact_match": 0.0, "f1": 0.0}
        for step in (0, 1)
        for name in ("squad", "more")
    ]
    with study.opened("qa_training_costs") as connection:
        found = rows("from qa_training_costs order by model", connection)
    place = {"base": "bert", "data": "squad", "seed": 42}
    assert found == [
        {"model": "base", **place, "method": "standard", "bias": None, "steps": 3, "best_step": 2, "seconds": 5.0,
         "accelerator_hours": None, "n_evaluations": 0, "problem": None},
        {"model": "careful", **place, "method": "learned_mixin", "bias": "ans_len", "steps": 2, "best_step": 1,
         "seconds": 1800.0, "accelerator_hours": 2.0, "n_evaluations": 2, "problem": None},
        {"model": "never began", **place, "method": "resample", "bias": "ans_len", "steps": 0, "best_step": None,
         "seconds": None, "accelerator_hours": None, "n_evaluations": 0, "problem": "a segment is empty"},
    ]  # fmt: skip
    assert list(found[0]) == [
        "model", "base", "data", "method", "bias", "seed", "steps", "best_step", "seconds", "accelerator_hours",
        "n_evaluations", "problem",
    ]  # fmt: skip


# Correlations


def correlations(changes: dict[str, tuple[str, float | None, dict[str, float | None]]], **more: Any) -> Rows:
    """Return the mart, of readers each with a method, a change of significance on squad and one of F1 on other sets."""
    debiasing = [
        {"model": model, "method": method, "dataset": "squad", "is_addressed": True, "significance_change": shift}
        for model, (method, shift, _) in changes.items()
    ]
    # What is not addressed, or measured elsewhere, takes no part.
    debiasing += [row | {"is_addressed": False, "significance_change": 50.0} for row in debiasing[:2]]
    debiasing += [row | {"dataset": "natural", "significance_change": 60.0} for row in debiasing[:2]]
    outcomes = [
        {"model": model, "dataset": dataset, "role": "out_of_distribution", "f1_change": change}
        for model, (_, _, others) in changes.items()
        for dataset, change in others.items()
    ]
    outcomes += [{"model": model, "dataset": "squad", "role": "in_distribution", "f1_change": 0.7} for model in changes]
    means = [
        {
            "model": model,
            "f1_change": None if None in others.values() else sum(filter(None, others.values())) / len(others),
        }
        for model, (_, _, others) in changes.items()
    ]
    return made(
        "qa_debiasing_correlation",
        qa_debiasing=debiasing,
        qa_out_of_distribution=outcomes,
        qa_out_of_distribution_by_model=means,
    )


def test_correlations_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    changes: dict[str, tuple[str, float | None, dict[str, float | None]]] = {}
    for number in range(14):
        method = "resample" if number < 6 else "learned_mixin"
        shift = float(rng.normal()) if number % 4 else 0.0  # some tie
        others: dict[str, float | None] = {name: float(0.3 * shift + rng.normal()) for name in ("natural", "trivia")}
        changes[f"reader {number:02}"] = (method, shift, others)
    changes["standard"] = ("standard", None, {"natural": None, "trivia": None})
    found = {tuple(row.values())[:3]: row for row in correlations(changes)}
    methods = {"resample": 6, "learned_mixin": 8, "all": 14}
    assert found.keys() == {("squad", method, other) for method in methods for other in ("natural", "trivia", "mean")}
    assert list(found["squad", "all", "mean"]) == [
        "dataset", "method", "other_dataset", "n_models", "pearson", "pearson_low", "pearson_high", "spearman",
    ]  # fmt: skip
    for (_, method, other), row in found.items():
        chosen = [one for one in changes.values() if one[0] == method or (method == "all" and one[0] != "standard")]
        x = [float(shift) for _, shift, _ in chosen if shift is not None]
        y = [np.mean([*others.values()]) if other == "mean" else others[other] for _, _, others in chosen]
        reference = stats.pearsonr(x, y)
        interval = reference.confidence_interval(0.95)
        assert row["n_models"] == methods[method] == len(x)
        assert row["pearson"] == pytest.approx(reference.statistic)
        assert [row["pearson_low"], row["pearson_high"]] == pytest.approx([interval.low, interval.high])
        assert row["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)


def test_fishers_interval_by_hand() -> None:
    """Of 1 2 3 4 and 1 3 2 4 the correlation is 0.8: atanh 1.0986, and 1.96 to either side with 4 readers."""
    changes = {
        f"reader {x}": ("resample", float(x), {"natural": y}) for x, y in ((1, 0.1), (2, 0.3), (3, 0.2), (4, 0.4))
    }
    found = correlations({**changes})
    assert {(row["method"], row["other_dataset"]) for row in found} == {
        (method, other) for method in ("resample", "all") for other in ("natural", "mean")
    }
    for row in found:
        assert (row["pearson"], row["spearman"]) == (pytest.approx(0.8), pytest.approx(0.8))
        assert [row["pearson_low"], row["pearson_high"]] == pytest.approx([-0.6969, 0.9956], abs=1e-4)


def test_a_perfect_correlation_has_an_interval_without_width() -> None:
    changes = {f"reader {x}": ("resample", float(x), {"natural": -0.1 * x}) for x in range(5)}
    for row in correlations({**changes}):
        assert [row["pearson"], row["pearson_low"], row["pearson_high"]] == pytest.approx([-1] * 3)
        assert -1 <= row["pearson_low"] <= row["pearson_high"]


def test_correlations_need_readers_that_differ() -> None:
    def found(shifts: Sequence[float | None], changes: Sequence[float]) -> dict[str, Any]:
        pairs = enumerate(zip(shifts, changes, strict=True))
        [row] = [
            row
            for row in correlations({f"r{n}": ("resample", shift, {"natural": y}) for n, (shift, y) in pairs})
            if (row["method"], row["other_dataset"]) == ("all", "natural")
        ]
        return row

    nothing = dict.fromkeys(("pearson", "pearson_low", "pearson_high", "spearman"))
    place = {"dataset": "squad", "method": "all", "other_dataset": "natural"}
    assert found([1, 2], [0.1, 0.3]) == {**place, "n_models": 2, **nothing}
    three = found([1, 2, 4], [0.1, 0.3, 0.2])
    assert (three["n_models"], three["pearson_low"], three["pearson_high"]) == (3, None, None)
    assert three["pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [0.1, 0.3, 0.2])[0, 1])
    assert found([3] * 5, [0.1, 0.2, 0.3, 0.4, 0.5]) == {**place, "n_models": 5, **nothing}
    assert found([1, 2, 3, 4, 5], [0.2] * 5) == {**place, "n_models": 5, **nothing}
    # Readers whose groups are too small on the set take no part.
    assert found([1, 2, 4, None, None], [0.1, 0.3, 0.2, 9, 9]) == three
    assert found([None] * 4, [1, 2, 3, 4]) == {**place, "n_models": 0, **nothing}


def test_correlations_come_of_the_marts_of_a_study() -> None:
    study = two_readers(datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}})
    study.questions({"ans_len": VALUES}, dataset="natural")
    rng = np.random.default_rng(0)
    study.answers(RIGHT, model="base", dataset="natural")
    study.answers(DEBIASED, model="careful", dataset="natural")
    for number in range(4):
        model = f"again {number}"
        study.reader(model, "resample", "ans_len")
        study.answers((rng.random(21) < 0.6).astype(float).tolist(), model=model)
        study.answers((rng.random(20) < 0.2 * number + 0.1).astype(float).tolist(), model=model, dataset="natural")
    with study.opened(
        "qa_debiasing", "qa_out_of_distribution", "qa_out_of_distribution_by_model", "qa_debiasing_correlation"
    ) as connection:
        found = rows("from qa_debiasing_correlation where other_dataset = 'natural'", connection)
        shifts = {
            row["model"]: row["significance_change"]
            for row in rows("from qa_debiasing where dataset = 'squad' and is_addressed", connection)
        }
        changes = {
            row["model"]: row["f1_change"]
            for row in rows("from qa_out_of_distribution where dataset = 'natural'", connection)
        }
    assert [(row["method"], row["n_models"]) for row in found] == [("all", 5), ("learned_mixin", 1), ("resample", 4)]
    for row, models in ((found[0], shifts.keys()), (found[2], [name for name in shifts if name != "careful"])):
        wanted = np.corrcoef([shifts[model] for model in models], [changes[model] for model in models])[0, 1]
        assert row["pearson"] == pytest.approx(wanted)


# Checks


def trained_study() -> Study:
    study = two_readers()
    study.reader("hypothesis", "bias_model", "ans_len")
    study.reader("broken", "learned_mixin", "ans_len", problem="its loss is not finite", steps=2)
    study.tables["qa_segments"] = [
        {"base": "bert", "data": "squad", "bias": "ans_len", "n_biased_validation": 9, "n_other_validation": 9}
    ]
    hand_draws(study)
    return study


CHECKS = ("qa_training_is_whole", "qa_evaluations_are_whole", "qa_changes_are_in_range")


@pytest.fixture(scope="module")
def whole() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(relations.connect([])) as connection:
        trained_study().create(connection)
        yield connection


def test_a_whole_study_passes_every_check(whole: duckdb.DuckDBPyConnection) -> None:
    for check in names_of("qa_bias", "checks"):
        if check in CHECKS:
            assert problems(check, whole) == [], check
    assert set(CHECKS) <= set(names_of("qa_bias", "checks"))


BROKEN: list[tuple[str, str, str]] = [
    # Training
    ("qa_training_is_whole", "delete from training where model = 'base' and step = 1",
     "base: 2 steps, 2 different, 2 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set step = 3 where model = 'base' and step = 2",
     "base: 3 steps, 3 different, 3 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set step = 1 where model = 'base' and step = 2",
     "base: 3 steps, 2 different, 3 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set loss = 'nan' where model = 'hypothesis' and step = 2",
     "hypothesis: 3 steps, 3 different, 2 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set loss = null where model = 'careful' and step = 0",
     "careful: 3 steps, 3 different, 2 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "delete from training where model = 'careful'",
     "careful: 0 steps, 0 different, 0 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update trained_models set steps = null where model = 'base'",
     "base: 3 steps, 3 different, 3 of finite loss; wanted 0 to null"),
    ("qa_training_is_whole", "update training set model = 'other' where model = 'base' and step = 2",
     "other: 1 steps of a reader that is not in trained_models"),
    ("qa_training_is_whole", "delete from evaluations where model = 'careful'",
     "careful: no evaluation behind step 2, whose weights are kept"),
    ("qa_training_is_whole", "update trained_models set best_step = 1 where model = 'base'",
     "base: no evaluation behind step 1, whose weights are kept"),
    ("qa_training_is_whole", "update trained_models set best_step = 3 where model = 'base'",
     "base: path readers/base, best step 3 of 3"),
    ("qa_training_is_whole", "update trained_models set best_step = null where model = 'base'",
     "base: path readers/base, best step null of 3"),
    ("qa_training_is_whole", "update trained_models set path = null where model = 'base'",
     "base: path null, best step 2 of 3"),
    ("qa_training_is_whole", "update trained_models set standard = 'hypothesis' where model = 'careful'",
     "careful: compared with hypothesis, which is no other standard reader of its base, data and seed"),
    ("qa_training_is_whole", "update trained_models set standard = 'gone' where model = 'careful'",
     "careful: compared with gone, which"),
    ("qa_training_is_whole", "update trained_models set standard = 'base' where model = 'base'",
     "base: compared with base, which"),
    ("qa_training_is_whole", "update trained_models set seed = 43 where model = 'careful'",
     "careful: compared with base, which"),
    ("qa_training_is_whole", "delete from qa_models where model = 'careful'",
     "careful: was trained, and is not measured"),
    ("qa_training_is_whole", "update qa_models set is_trained = false where model = 'careful'",
     "careful: was trained, and is not measured"),
    ("qa_training_is_whole", "update qa_models set model = 'broken' where model = 'careful'",
     "broken: is measured as trained in this run, which has no weights of it"),
    ("qa_training_is_whole", "update qa_models set model = 'hypothesis' where model = 'careful'",
     "hypothesis: is measured as trained in this run"),
    # Evaluations
    ("qa_evaluations_are_whole", "update evaluations set model = 'other' where model = 'base'",
     "other, step 2, squad: there is no such reader"),
    ("qa_evaluations_are_whole", "update evaluations set step = 3 where model = 'base'",
     "base, step 3, squad: there is no such step"),
    ("qa_evaluations_are_whole", "update evaluations set step = null where model = 'base'",
     "base, step null, squad: there is no such step"),
    ("qa_evaluations_are_whole", "insert into evaluations from evaluations where model = 'base'",
     "base, step 2, squad: 2 evaluations"),
    ("qa_evaluations_are_whole", "update evaluations set loss = 'nan' where model = 'base'",
     "base, step 2, squad: loss nan, exact match 0.6, F1 0.7"),
    ("qa_evaluations_are_whole", "update evaluations set loss = 'inf' where model = 'base'", "loss inf"),
    ("qa_evaluations_are_whole", "update evaluations set loss = null where model = 'base'", "loss null"),
    ("qa_evaluations_are_whole", "update evaluations set loss = -1 where model = 'base'", "loss -1.0"),
    ("qa_evaluations_are_whole", "update evaluations set exact_match = 60 where model = 'base'", "exact match 60.0"),
    ("qa_evaluations_are_whole", "update evaluations set f1 = null where model = 'base'", "F1 null"),
    ("qa_evaluations_are_whole", "update evaluations set f1 = 'nan' where model = 'base'", "F1 nan"),
    ("qa_evaluations_are_whole",
     "insert into evaluations select * replace (0 as step) from evaluations where model = 'base' union all by name "
     "select * replace (0 as step, 'more' as dataset) from evaluations where model = 'base'",
     "base: asked 1 sets behind step 2, and 2 behind step 0"),
    ("qa_evaluations_are_whole", "delete from evaluations where dataset = 'squad (other)'",
     "hypothesis, step 2: asked biased, wanted biased and other"),
    ("qa_evaluations_are_whole", "update evaluations set dataset = 'more (biased)' where dataset = 'squad (other)'",
     "hypothesis, step 2: asked biased, wanted biased and other"),
    ("qa_evaluations_are_whole", "update evaluations set dataset = 'all' where dataset = 'squad (biased)'",
     "hypothesis, step 2: asked no segment and other, wanted biased and other"),
    ("qa_evaluations_are_whole",
     "insert into evaluations select * replace ('all' as dataset) from evaluations where dataset = 'squad (biased)'",
     "hypothesis, step 2: asked biased and no segment and other, wanted biased and other"),
    # Marts
    ("qa_changes_are_in_range", "update qa_change_draws set lower = 1.5 where draw = 1",
     "careful, squad, ans_len, draw 1: "),
    ("qa_changes_are_in_range", "update qa_change_draws set standard_higher = 'nan' where draw = 1",
     "careful, squad, ans_len, draw 1: "),
    ("qa_changes_are_in_range", "insert into qa_change_draws from qa_change_draws where draw = 2",
     "careful, squad, ans_len, draw 2: {'n_times': 2"),
    ("qa_changes_are_in_range", "update qa_change_draws set draw = -1 where draw = 2", "draw -1: "),
    ("qa_changes_are_in_range", "update qa_change_draws set model = 'base' where draw = 2",
     "base, squad, ans_len: draws of a comparison that there is not"),
    ("qa_changes_are_in_range", "update qa_change_draws set heuristic = 'cos_sim' where draw = 2",
     "careful, squad, cos_sim: draws of a comparison that there is not"),
    *[
        ("qa_changes_are_in_range", f"update qa_debiasing set {wrong} where model = 'careful'",
         "careful, squad, ans_len: {")
        for wrong in (
            "bias_significance = -1, significance_change = -31",
            "bias_significance = null",
            "standard_significance = 101, significance_change = -91",
            "significance_change = -19",
            "significance_change = null",
            "significance_change_low = significance_change_high + 1",
            "significance_change_low = -101",
            "significance_change_high = null",
            "significance_change_low = null, significance_change_high = null",
            "worse_high = 101",
            "worse_high_change = -101",
            "gap = 101, gap_change = 71",
            "standard_gap = -30",
            "gap_change = gap_change + 1",
            "gap_change_low = gap_change + 1",
            "exact_match = 101",
            "exact_match = null",
            "n_articles = n_rows + 1",
            "n_draws = 0",
        )
    ],
    *[
        ("qa_changes_are_in_range", f"update qa_out_of_distribution set {wrong} where model = 'careful'",
         "careful, squad: {")
        for wrong in (
            "f1 = 2, f1_change = 2 - standard_f1",
            "exact_match = null",
            "f1_change = f1_change + 0.1",
            "f1_change = null",
            "exact_match_change = exact_match_change + 0.001",
            "f1_change_low = f1_change + 0.1",
            "exact_match_change_high = null",
            "n_articles = 0",
        )
    ],
    *[
        ("qa_changes_are_in_range", f"update qa_bias_models set {wrong}", "hypothesis, squad: {")
        for wrong in (
            "f1_other = null",
            "f1_other = 70",
            "exact_match_biased = 60",
            "exact_match_other = -1",
            "n_other = 0",
            "n_biased = null",
            "f1_biased = null, f1_other = null, exact_match_biased = null, exact_match_other = null",
        )
    ],
    *[
        ("qa_changes_are_in_range",
         "insert into qa_debiasing_correlation values ('squad', 'all', 'natural', " + wrong + ")",
         "squad, all, natural: {")
        for wrong in (
            "5, 1.1, 0.5, 1, 0.5", "5, 0.5, 0.6, 0.9, 0.5", "5, 0.5, 0.1, 0.4, 0.5", "5, 0.5, 0.1, 1.1, 0.5",
            "5, 0.5, 0.1, 0.9, null", "5, 0.5, 0.1, 0.9, -1.1", "5, 'nan', 0.1, 0.9, 0.5", "5, 0.5, null, null, 0.5",
            "null, null, null, null, null",
        )
    ],
    *[
        ("qa_changes_are_in_range", f"update qa_debiasing_by_method set {wrong}",
         "bert@squad, learned_mixin, seed 42, squad: {")
        for wrong in (
            "bias_significance = -1, significance_change = -31",
            "bias_significance = null",
            "significance_change = significance_change + 1",
            "worse_high = 101",
            "worse_high = null",
            "standard_worse_high = -1",
            "n_heuristics = 0, n_nearly_broken = 0",
            "n_nearly_broken = n_heuristics + 1",
        )
    ],
    *[
        ("qa_changes_are_in_range",
         "insert into qa_out_of_distribution_by_model values "
         f"('careful', 'bert', 'squad', 'learned_mixin', 'ans_len', 42, {wrong})",
         "careful, mean of sets: {")
        for wrong in (
            "70, 0.6, 0.6, 0.5, 0.1, 0.05, 0.15, 0.1, 0.05, 0.15, 2, 20",
            "0.7, null, 0.6, 0.5, 0.1, 0.05, 0.15, 0.1, 0.05, 0.15, 2, 20",
            "0.7, 0.6, 0.6, 0.5, 'nan', 0.05, 0.15, 0.1, 0.05, 0.15, 2, 20",
            "0.7, 0.6, 0.6, 0.5, 10, 5, 15, 0.1, 0.05, 0.15, 2, 20",
            "0.7, 0.6, 0.6, 0.5, null, null, null, 0.1, 0.05, 0.15, 2, 20",
            "0.7, 0.6, 0.6, 0.5, 0.1, 0.11, 0.15, 0.1, 0.05, 0.15, 2, 20",
            "0.7, 0.6, 0.6, 0.5, 0.1, 0.05, 0.15, 0.1, 0.05, 0.09, 2, 20",
            "0.7, 0.6, 0.6, 0.5, 0.1, null, null, 0.1, 0.05, 0.15, 2, 20",
            "0.7, 0.6, 0.6, 0.5, 0.1, 0.05, 0.15, 0.1, 0.05, 0.15, 2, 1",
            "0.7, 0.6, 0.6, 0.5, 0.1, 0.05, 0.15, 0.1, 0.05, 0.15, 0, 20",
        )
    ],
    *[
        ("qa_changes_are_in_range", f"update qa_out_of_distribution_by_method set {wrong}",
         "bert@squad, learned_mixin, seed 42, squad: {")
        for wrong in ("f1_change = 2", "exact_match_change = 'nan'", "f1_change = null", "n_biases = null")
    ],
    *[
        ("qa_changes_are_in_range", f"update qa_training_curves set {wrong} where method = 'learned_mixin'",
         "bert@squad, learned_mixin, squad, step 2: {")
        for wrong in (
            "loss = loss_low - 1", "loss = loss_high + 1", "loss_low = -1", "loss_high = null",
            "exact_match = exact_match_high + 0.1", "exact_match_high = 60, exact_match = 60", "exact_match_low = -1",
            "f1 = 'nan'", "f1_low = null", "f1_high = 70", "n_readers = 0",
        )
    ],
    *[
        ("qa_changes_are_in_range", f"update qa_training_costs set {wrong} where model = 'base'", "base: {")
        for wrong in ("seconds = -1", "accelerator_hours = -1", "seconds = null", "n_evaluations = 0", "steps = 0")
    ],
]  # fmt: skip


@pytest.mark.parametrize(("check", "statement", "problem"), BROKEN)
def test_a_check_finds_what_it_is_for(
    check: str, statement: str, problem: str, whole: duckdb.DuckDBPyConnection
) -> None:
    with within_transaction(whole):
        whole.execute(statement).fetchall()
        found = problems(check, whole)
    assert any(problem in one for one in found), found


def test_what_is_wrong_with_a_reader_that_was_given_up_is_no_problem(whole: duckdb.DuckDBPyConnection) -> None:
    with within_transaction(whole):
        for statement in (
            "update training set loss = 'nan' where model = 'broken'",
            "delete from training where model = 'broken' and step = 0",
            "insert into evaluations select * replace ('broken' as model, 0 as step, 'nan' as loss, null as f1) "
            "from evaluations where model = 'base'",
        ):
            whole.execute(statement).fetchall()
        assert [problems(check, whole) for check in CHECKS] == [[], [], []]


def test_an_evaluation_on_the_way_may_lack_a_finite_loss(whole: duckdb.DuckDBPyConnection) -> None:
    """Its weights are not those that are kept."""
    with within_transaction(whole):
        whole.execute(
            "insert into evaluations select * replace (0 as step, 'nan' as loss) from evaluations where model = 'base'"
        ).fetchall()
        assert problems("qa_evaluations_are_whole", whole) == []


def test_a_set_for_validation_may_lack_a_segment(whole: duckdb.DuckDBPyConnection) -> None:
    with within_transaction(whole):
        whole.execute(
            "insert into evaluations select * replace ('more (other)' as dataset) from evaluations "
            "where dataset = 'squad (other)'"
        ).fetchall()
        whole.execute(f"create or replace table qa_bias_models as {all_sql()['qa_bias_models']}").fetchall()
        [more, squad] = rows("from qa_bias_models order by dataset", whole)
        assert [problems(check, whole) for check in CHECKS] == [[], [], []]
    assert [more["f1_biased"], more["f1_difference"], more["f1_other"]] == [None, None, 0.7]
    assert squad["f1_biased"] == 0.7


def test_draws_of_a_comparison_whose_groups_are_too_small_are_left_aside() -> None:
    study = two_readers(bootstrap={"trials": 20, "sample": 11})
    hand_draws(study)
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_are_in_range", connection) == []
    assert (found["n_draws"], found["significance_change_low"]) == (0, None)


# Runs


def test_a_run_that_trained_nothing_has_these_marts_without_a_row(tmp_path: Path) -> None:
    run = two_segments().write(tmp_path)
    measure(run)
    for mart in MARTS:
        found = pq.read_table(Path(run, "marts", f"{mart}.parquet"))
        assert found.num_rows == 0, mart
        assert found.num_columns > 5, mart
    assert {name.stem for name in Path(run, "marts").iterdir()} == set(names_of("qa_bias", "marts"))
