"""Tables of studies done by hand, and what asks DuckDB for the relations over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import sql_files as relations
from biaseval.analysis.qa_chance import N_UNITS
from biaseval.analysis.sign_flips import sign_flips
from biaseval.qa_bias.changes import change_draws
from biaseval.qa_bias.search_null import search_nulls
from biaseval.qa_bias.significance import segment_draws
from biaseval.tables import QA_CHANGE_DRAWS, TABLES, tables_of
from tests.qaplans import QaPlan, Rows

Floats = npt.NDArray[np.float64]

MARTS = (
    "qa_debiasing", "qa_answer_changes", "qa_out_of_distribution", "qa_out_of_distribution_by_model",
    "qa_out_of_distribution_by_method", "qa_debiasing_by_method", "qa_bias_models", "qa_debiasing_correlation",
    "qa_training_curves",
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
        self.n_permutations = 0
        """Of the answers, by which biases are told from chance; none: they were not tested."""

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
        asked = {*(marts or RELATIONS), *(["qa_answer_changes"] if "qa_out_of_distribution" in marts else [])}
        with within_transaction() as connection:
            self.create(connection, [name for name in RELATIONS if name in asked])
            yield connection

    def create(self, connection: duckdb.DuckDBPyConnection, marts: Sequence[str] = RELATIONS) -> None:
        """Create the relations of the study, and of `RELATIONS` these."""
        bootstrap = self.spec["bootstrap"]
        self.tables["qa_settings"] = [
            {"seed": self.spec["seed"], "variant": self.spec["variant"], "heuristics": list(self.tried), **bootstrap}
        ]
        measured = [reader for reader in self.trained if reader["method"] != "bias_model" and not reader["problem"]]
        self.tables["qa_models"] = [
            {"number": number, "model": reader["model"], "on_missing": "error", "is_trained": True, "is_people": False}
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
            later = {"qa_draws", "sign_flips", *({"qa_search_nulls"} if self.n_permutations else set())}
            if name not in later and (name in given or name != "qa_change_draws"):
                connection.from_arrow(kind.rows(given.get(name, []))).create(name)
        connection.from_arrow(flips()).create("sign_flips")
        relations.create("table", "qa_measured", sql["qa_measured"], connection)
        connection.from_arrow(self._draws(connection)).create("qa_draws")
        for name in ("qa_articles", "qa_paired_answers", "qa_bias_candidates", "qa_bias_by_heuristic", "qa_by_dataset"):
            relations.create("table", name, sql[name], connection)
        if self.n_permutations:
            connection.from_arrow(self._nulls(connection)).create("qa_search_nulls")
        relations.create("table", "qa_bias_tests", sql["qa_bias_tests"], connection)
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

    def _nulls(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        bootstrap = self.spec["bootstrap"]
        return search_nulls(
            table(ANSWERS, connection),
            table("select dataset, heuristic, threshold from qa_thresholds order by all", connection),
            table("select model, dataset, heuristic, threshold, searched_on from qa_bias_by_heuristic", connection),
            seed=self.spec["seed"],
            sample=bootstrap["sample"],
            replacement=bootstrap["replacement"],
            variant=self.spec["variant"],
            permutations=self.n_permutations,
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
def flips() -> pa.Table:
    """Return the patterns of signs that a run has."""
    return sign_flips(N_UNITS, 42)


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


ANSWERS = """
    select
        qa_measured.model, dataset, qa_measured.heuristic,
        dense_rank() over (partition by dataset order by example_id) as question,
        qa_articles.article, qa_articles.n_articles, qa_measured.value, qa_measured.exact_match
    from qa_measured
    inner join qa_articles using (dataset, example_id)
    order by all
"""
"""What `search_nulls` is given."""

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


def quantile(n_articles: int) -> float:
    """Return the 97.5 % quantile of Student's t with one degree of freedom less than articles."""
    return float(stats.t.ppf(0.975, n_articles - 1))


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
