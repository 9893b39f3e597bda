"""Studies whose readers and answers are written by hand: DuckDB computes their relations, no run directory is made."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import qa_chance
from biaseval.analysis.sign_flips import sign_flips
from biaseval.qa_bias.splits.article_draws import article_draws
from biaseval.qa_bias.splits.search_null import search_nulls
from biaseval.qa_bias.splits.significance import segment_draws
from biaseval.tables import QA_CHANGE_DRAWS, TABLES, tables_of
from tests.handmade import within_transaction
from tests.qaplans import OVERLAP, RIGHT, VALUES, QaPlan, Rows
from tests.relation import Within

Floats = npt.NDArray[np.float64]

MARTS = (
    "qa_debiasing", "qa_answer_changes", "qa_out_of_distribution", "qa_out_of_distribution_by_model",
    "qa_out_of_distribution_by_method", "qa_debiasing_by_method", "qa_bias_models", "qa_debiasing_correlation",
    "qa_training_curves",
)  # fmt: skip


class Study(QaPlan):
    """The tables of a run that trained readers; where none is added, of one that measured the models of its spec.

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
                "number": len(self.trained), "model": model, "base": "bert", "data": "squad", "method": method,
                "bias": bias, "seed": 42, "standard": None if method in ("standard", "bias_model") else standard,
                "path": None if given_up else f"readers/{model}", "steps": 3, "best_step": None if given_up else 2,
                "n_windows": 30, "n_workers": 2, "device": "cpu", "problem": None,
            }
            | how
        )  # fmt: skip

    def whole_training(self) -> None:
        """Add what training left of every reader: three steps of two seconds, an evaluation behind the last one."""
        steps, evaluations = self.tables.setdefault("training", []), self.tables.setdefault("evaluations", [])
        for reader in self.trained:
            of = {"model": reader["model"]}
            steps += [{**of, "step": step, "loss": 1.0, "seconds": 2.0} for step in range(reader["steps"])]
            sets = ["squad (biased)", "squad (other)"] if reader["method"] == "bias_model" else ["squad"]
            found = {**of, "step": 2, "loss": 0.5, "exact_match": 0.6, "f1": 0.7}
            evaluations += [{**found, "dataset": name} for name in sets if reader["problem"] is None]

    def asked(self, *queries: str) -> list[Rows]:
        """Return the rows of each query over the study's relations."""
        with self.opened() as found:
            return [found.rows(sql) for sql in queries]

    @contextmanager
    def opened(self) -> Iterator[Within]:
        """Yield the study's relations, until the block ends."""
        with within_transaction() as connection:
            yield self.create(connection)

    def create(self, connection: duckdb.DuckDBPyConnection) -> Within:
        """Create the tables of the study, and return the relations over them."""
        bootstrap, seed, variant = self.spec["bootstrap"], self.spec["seed"], self.spec["variant"]
        trained = [row["model"] for row in self.trained if row["method"] != "bias_model" and not row["problem"]]
        models = trained or [model["name"] for model in self.spec["models"]]
        facts = {"on_missing": "error" if trained else "drop", "is_trained": bool(trained), "is_people": False}
        thresholds = [
            {"dataset": dataset, "heuristic": heuristic, "threshold": threshold, "is_fixed": len(grid) == 1}
            for dataset in dict.fromkeys(example["dataset"] for example in self.examples)
            for heuristic, grid in self.tried.items()
            for threshold in grid
        ]
        if "training" not in self.tables:
            self.whole_training()
        given = {
            "qa_examples": self.examples, "qa_attributes": self.attributes, "qa_predictions": self.predictions,
            "trained_models": self.trained,
            "qa_settings": [{"seed": seed, "variant": variant, "heuristics": list(self.tried), **bootstrap}],
            "qa_models": [{"number": number, "model": model, **facts} for number, model in enumerate(models)],
            "qa_thresholds": thresholds, **self.tables,
        }  # fmt: skip
        derived = {"qa_draws", "sign_flips", "qa_search_nulls", "qa_change_draws"} - self.tables.keys()
        for name, kind in tables_of("qa_bias").items():
            if name not in derived:
                connection.from_arrow(kind.rows(given.get(name, []))).create(name)
        found = Within(connection, "qa_bias")
        connection.from_arrow(flips()).create("sign_flips")
        found.rows("from qa_measured limit 0")

        def table(sql: str) -> pa.Table:
            return connection.sql(sql).to_arrow_table()

        measured = "from qa_measured where model = '{}' order by dataset, heuristic, row"
        tried = TABLES["qa_thresholds"].rows(thresholds)
        answering = dict.fromkeys(row["model"] for row in self.predictions)
        draws = [segment_draws(m, table(measured.format(m)), tried, seed=seed, **bootstrap) for m in answering]
        connection.from_arrow(pa.concat_tables(draws)).create("qa_draws")
        found.rows("from qa_bias_by_heuristic, qa_articles, qa_paired_answers limit 0")
        for sql in (qa_chance._CHOSEN, qa_chance._ANSWERS):
            connection.execute(sql).fetchall()
        nulls = TABLES["qa_search_nulls"].empty()
        if self.n_permutations:
            how = {name: bootstrap[name] for name in ("sample", "replacement")}
            how |= {"seed": seed, "variant": variant, "permutations": self.n_permutations}
            tables = ("answers", "(select dataset, heuristic, threshold from qa_thresholds)", "chosen")
            nulls = search_nulls(*(table(f"from {one} order by all") for one in tables), **how)
        connection.from_arrow(nulls).create("qa_search_nulls")
        if "qa_change_draws" in derived:
            changes = [QA_CHANGE_DRAWS.empty()]
            for reader in self.trained:
                connection.execute("set variable asked = $model", {"model": reader["model"]})
                answers = table(qa_chance._PAIRED)
                changes.append(article_draws(QA_CHANGE_DRAWS, reader["model"], answers, seed=seed, draws=self.n_draws))
            connection.from_arrow(pa.concat_tables(changes)).create("qa_change_draws")
        return found


@cache
def flips() -> pa.Table:
    """Return the patterns of signs that a run has."""
    return sign_flips(qa_chance.N_UNITS, 42)


def quantile(n_articles: int) -> float:
    """Return the 97.5 % quantile of Student's t with one degree of freedom less than articles."""
    return float(stats.t.ppf(0.975, n_articles - 1))


def cluster_error(influence: Floats, articles: Floats) -> float:
    """Return the clustered standard error of a sum, article by article."""
    totals = [sum(influence[articles == name]) for name in sorted(set(articles.tolist()))]
    return float(np.sqrt(len(totals) / (len(totals) - 1) * sum(total**2 for total in totals)))


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


PLACES = {"ans_len": (2.0, 4), "cos_sim": (0.35, 0), "word_dist": (3.0, 0)}
"""The thresholds, and how much better the standard reader is below them."""


def large_study(seed: int = 0, **spec: Any) -> tuple[Study, dict[str, Floats]]:
    """Return a study of three readers on 500 questions about 12 articles, and its columns."""
    rng = np.random.default_rng(seed)
    n_rows = 500
    columns: dict[str, Floats] = {
        "ans_len": rng.integers(1, 6, size=n_rows).astype(float), "cos_sim": rng.random(n_rows),
        "word_dist": rng.integers(-1, 8, size=n_rows).astype(float), "article": rng.integers(12, size=n_rows),
    }  # fmt: skip
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
