"""Simulated QA-bias runs whose truth is known: questions, values of heuristics and answers, but no texts."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.qa_chance import derive_chance
from biaseval.analysis.qa_draws import derive_qa_bias
from biaseval.qa_bias.heuristics.built_in import HEURISTICS
from biaseval.qa_bias.splits.significance import PUBLISHED_THRESHOLDS
from biaseval.spec import QaBiasSpec
from biaseval.store import Run
from biaseval.tables import QA_ATTRIBUTES, QA_EXAMPLES, QA_PREDICTIONS, TRAINED_MODELS, tables_of
from tests.validation.cells import Cell
from tests.validation.outcomes import OUTCOMES, outcomes
from tests.validation.qa_bias_queries import comparison_queries, queries

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

Effect = Literal["none", "biased", "same", "better", "alike", "unequal"]
"""No bias; one planted; two models with the same, of equal quality, and one of them better everywhere; two models
without bias that err alike; two with the same bias, of equal quality over all articles but not in each, which are very
unequal. Two models are also those of two runs that are compared."""

DATASET = "simulated"
PLANTED = "word_dist"
"""The heuristic of the bias that is planted, at its published threshold."""

SETTINGS = ("search", "mikula2024")
"""How thresholds are chosen: each run is measured with both."""

_EASE = 1.1
"""The logit of a right answer, in an article like the others."""
_OF_ARTICLE = 0.3
"""Standard deviation in logits of what makes all questions of an article easier."""
_BIAS = 0.5
"""Logits that questions below the planted threshold are easier."""
_BETTER = 0.03
"""How much more often the better model is right."""
_SHARED, _SHARED_ALIKE = 0.5, 0.8
"""Of questions that two models answer by the same luck."""
_OF_MODEL = 0.3
"""Standard deviation in logits of what makes the questions of an article easier for one model, where articles are very
unequal."""
_PARTLY, _LEAST_F1, _MOST_F1 = 0.5, 0.1, 0.9
"""Of wrong answers: the share that has some words right, and how many."""
_UNEVEN, _VERY_UNEVEN = 4.0, 0.3
"""Concentration of the articles' sizes: SQuAD's have 43 to 810 questions."""
_OF_VALUES = 0.15
"""The part of the variance of a heuristic's values that articles explain."""


@dataclass(frozen=True)
class Size:
    """Of a data set, as published ones are."""

    n_questions: int
    n_articles: int
    """As many as questions: each has a context of its own, and no title."""


SIZES = (Size(1700, 34), Size(2356, 2356), Size(3000, 60), Size(10570, 48))


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of QA bias.

    Args:
        n_small: of small cells, of which there is none: a run takes seconds.
        n_large: runs of each cell.
    """
    return [_cell(effect, size, n_large) for effect, sizes in _SIZES_OF.items() for size in sizes]


_SIZES_OF: Mapping[Effect, tuple[Size, ...]] = {
    "none": SIZES,
    "biased": (SIZES[1], SIZES[3]),
    "same": SIZES,
    "better": (SIZES[0], SIZES[1], SIZES[3]),
    "alike": (SIZES[1], SIZES[2]),
    "unequal": (SIZES[2],),
}
"""Power takes fewer sizes than errors; among 1,700 questions nearly no heuristic has groups of the sample's size."""


_N_PER_PART = 5


def _cell(effect: Effect, size: Size, n_runs: int) -> Cell:
    sizes = {"n_questions": size.n_questions, "n_articles": size.n_articles}
    return Cell("qa_bias", effect, sizes, n_runs, _N_PER_PART, partial(_judged, effect, sizes))


def _judged(effect: Effect, sizes: Mapping[str, int], n_runs: int, seed: list[int]) -> pa.Table:
    return pa.concat_tables(
        [judge(simulate(effect, seed=[*seed, run], **sizes), effect, f"r{run:04d}") for run in range(n_runs)]
    )


@dataclass(frozen=True)
class Simulated:
    """One run, and what is true of it."""

    tables: dict[str, pa.Table]
    """``qa_examples``, ``qa_attributes``, ``qa_predictions``."""
    truths: pa.Table
    """By (model, question): the chance of an exact match, and the expected F1, in an article that is not known."""
    models: tuple[str, ...]
    seed: int
    """Of the run's own draws."""


def simulate(effect: Effect, *, n_questions: int, n_articles: int, seed: list[int]) -> Simulated:
    """Return a run over one data set.

    Args:
        effect: what is true of it.
        n_questions: of the data set.
        n_articles: that they are about; as many as questions are contexts of single ones.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    article = _articles(rng, n_questions, n_articles, _VERY_UNEVEN if effect == "unequal" else _UNEVEN)
    values = heuristic_values(rng, article, n_articles)
    ids = pa.array([f"q{number:05d}" for number in range(n_questions)])
    names = pa.array([f"a{number:05d}" for number in range(n_articles)]).take(pa.array(article))
    has_titles = n_articles < n_questions
    rows = pa.array(np.arange(n_questions, dtype=np.int32))
    empty = pa.array([""] * n_questions)
    texts = pa.array([["x"]] * n_questions, QA_EXAMPLES.schema.field("answers").type)
    starts = pa.array([[0]] * n_questions, QA_EXAMPLES.schema.field("answer_starts").type)
    examples = [_same(DATASET, n_questions), ids, rows, _same("in_distribution", n_questions)]
    examples += [names if has_titles else empty, empty, names, texts, starts]
    attributes = [
        pa.table(
            [
                _same(DATASET, n_questions),
                ids,
                _same(heuristic, n_questions),
                pa.array(own),
                pa.array(own != -1),
                pa.nulls(n_questions, pa.string()),
            ],
            schema=QA_ATTRIBUTES.schema,
        )
        for heuristic, own in values.items()
    ]
    models = ("m1",) if effect in ("none", "biased") else ("m1", "m2")
    shared = _SHARED_ALIKE if effect == "alike" else _SHARED
    ease = rng.normal(0, _OF_ARTICLE, size=n_articles)[article]
    luck = rng.random(n_questions)
    predictions, truths = [], []
    for model in models:
        bias = 0.0 if effect in ("none", "alike") else _BIAS
        logits = _EASE + bias * is_easier(values[PLANTED]).astype(np.float64)
        own_ease = rng.normal(0, _OF_MODEL, size=n_articles)[article] if effect == "unequal" else np.zeros(n_questions)
        gain = _BETTER if effect == "better" and model == "m2" else 0.0
        chance = np.minimum(1, sigmoid(logits + ease + own_ease) + gain)
        own_luck = np.where(rng.random(n_questions) < shared, luck, rng.random(n_questions))
        is_right = own_luck < chance
        partly = np.where(rng.random(n_questions) < _PARTLY, rng.uniform(_LEAST_F1, _MOST_F1, n_questions), 0)
        answers = {"model": model, "dataset": DATASET, "prediction": "x"}
        columns = {name: _same(value, n_questions) for name, value in answers.items()} | {
            "example_id": ids,
            "exact_match": pa.array(is_right.astype(np.float64)),
            "f1": pa.array(np.where(is_right, 1, partly)),
            "score": pa.nulls(n_questions, pa.float64()),
            "n_best": pa.nulls(n_questions, QA_PREDICTIONS.schema.field("n_best").type),
        }
        predictions.append(pa.table({name: columns[name] for name in QA_PREDICTIONS.schema.names}))
        spread = float(np.hypot(_OF_ARTICLE, _OF_MODEL)) if effect == "unequal" else _OF_ARTICLE
        expected = expected_exact_match(logits, gain, spread)
        truths.append(
            pa.table(
                {
                    "model": _same(model, n_questions),
                    "example_id": ids,
                    "exact_match": pa.array(expected),
                    "f1": pa.array(expected + (1 - expected) * _PARTLY * (_LEAST_F1 + _MOST_F1) / 2),
                }
            )
        )
    tables = {
        "qa_examples": pa.table(examples, schema=QA_EXAMPLES.schema),
        "qa_attributes": pa.concat_tables(attributes),
        "qa_predictions": pa.concat_tables(predictions).cast(QA_PREDICTIONS.schema),
    }
    return Simulated(tables, pa.concat_tables(truths), models, int(rng.integers(2**31)))


def _same(value: str, n_rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), n_rows)


def _articles(rng: np.random.Generator, n_questions: int, n_articles: int, uneven: float) -> Integers:
    """Return the article of each question, in the order of articles."""
    if n_articles == n_questions:
        return np.arange(n_questions)
    others = rng.multinomial(n_questions - n_articles, rng.dirichlet(np.full(n_articles, uneven)))
    return np.repeat(np.arange(n_articles), 1 + others)


def heuristic_values(rng: np.random.Generator, article: Integers, n_articles: int) -> dict[str, Floats]:
    """Return values like SQuAD's, alike within articles; nothing of them says how easy an article is.

    Args:
        rng: the generator.
        article: of each question.
        n_articles: all.
    """
    n_questions = len(article)

    def latent() -> Floats:
        shift = rng.normal(0, np.sqrt(_OF_VALUES), size=n_articles)[article]
        return shift + rng.normal(0, np.sqrt(1 - _OF_VALUES), size=n_questions)

    alike = latent()
    of_words = np.sqrt(0.5) * alike + np.sqrt(0.5) * latent()
    of_cosine = np.sqrt(0.5) * alike + np.sqrt(0.5) * latent()
    found = {
        "word_dist": np.floor(np.exp(1.3 + 1.0 * latent())),
        "sim_word": np.floor(np.maximum(0, 3.6 + 2.0 * of_words)),
        "ans_pos": np.floor(np.maximum(0, 1.2 + 2.0 * latent())),
        "cos_sim": np.clip(0.25 + 0.14 * of_cosine, 0, 1),
        "ans_len": np.floor(np.exp(0.8 + 0.8 * latent())) + 1,
        "sim_ents": np.floor(np.maximum(0, 0.4 + 1.1 * latent())),
        "subj_pos": np.floor(np.maximum(0, 1.0 + 1.8 * latent())),
    }
    found["word_dist"] = np.minimum(found["word_dist"], 80)
    found["subj_pos"][rng.random(n_questions) < _UNDEFINED] = -1  # no subject is found
    return found


_UNDEFINED = 0.1
"""Of questions."""


def is_easier(values: Floats) -> npt.NDArray[np.bool_]:
    """Return which questions the planted bias makes easier."""
    return values <= PUBLISHED_THRESHOLDS[PLANTED]


def sigmoid(logits: Floats) -> Floats:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-logits))


def expected_exact_match(logits: Floats, gain: float, spread: float = _OF_ARTICLE) -> Floats:
    """Return the chance of a right answer of questions with these logits, over articles."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    known, places = np.unique(logits, return_inverse=True)
    chances = np.minimum(1, sigmoid(known[:, None] + spread * nodes) + gain)
    expected: Floats = (chances @ weights / weights.sum())[places]
    return expected


def judge(simulated: Simulated, effect: Effect, run: str) -> pa.Table:
    """Return what the marts say of a simulated run, beside the truth: rows of `OUTCOMES`.

    Args:
        simulated: the run.
        effect: what is true of it.
        run: its name.
    """
    found = []
    for thresholds in SETTINGS:
        tables = _derived(simulated, thresholds)
        tables |= {"truths": simulated.truths, "named": pa.table({"run": [run]})}
        wanted = ["qa_bias_tests", "qa_by_model"]
        if len(simulated.models) > 1:
            wanted.append("qa_model_comparisons")
        if thresholds == "search":
            wanted += ["qa_curves", "qa_by_dataset"]
        asked = queries(effect, thresholds)
        found += list(outcomes("qa_bias", tables, wanted, asked).values())
        if len(simulated.models) > 1:
            compared = _two_runs(tables) | {name: tables[name] for name in ("truths", "named")}
            asked = comparison_queries(effect, thresholds)
            found += list(outcomes("qa_bias", compared, ["qa_bias_comparison"], asked).values())
    return pa.concat_tables([table.select(OUTCOMES.names).cast(OUTCOMES) for table in found])


def _two_runs(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return what a comparison reads of two runs, each with one of the models."""
    runs = {"a": "m1", "b": "m2"}
    both = {
        name: pa.concat_tables([_of_run(tables[name], run, model) for run, model in runs.items()])
        for name in ("qa_examples", "qa_attributes", "qa_predictions", "qa_settings", "qa_models", "qa_thresholds")
    }
    return {**both, "comparison_sign_flips": tables["sign_flips"]}


def _of_run(rows: pa.Table, run: str, model: str) -> pa.Table:
    if "model" in rows.column_names:
        rows = rows.filter(pc.field("model") == model)
    return rows.append_column("run", _same(run, rows.num_rows))


def _derived(simulated: Simulated, thresholds: str) -> dict[str, pa.Table]:
    """Return all tables of the run, made of its questions as those of real runs are."""
    spec = QaBiasSpec.model_validate(
        {
            "kind": "qa_bias",
            "name": "simulated",
            "seed": simulated.seed,
            "models": [{"name": model, "predictions": {DATASET: "given"}} for model in simulated.models],
            "datasets": {"in_distribution": {DATASET: "given"}},
            "heuristics": list(HEURISTICS),  # whose values are given
            "thresholds": thresholds,
        }
    )
    with tempfile.TemporaryDirectory(prefix="biaseval-validation-") as folder:
        run = Run.open(folder)
        for name, rows in simulated.tables.items():
            run.write_part(name, 0, rows)
        derive_qa_bias(run, spec)
        derive_chance(run, spec)
        made = {
            name: pa.concat_tables([run.read_part(name, part) for part in sorted(parts)])
            for name in tables_of("qa_bias")
            if (parts := run.parts(name))
        }
    return {**made, TRAINED_MODELS.name: TRAINED_MODELS.empty()}
