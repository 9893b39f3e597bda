"""Nulls of the search for a threshold, over answers given by hand, and a plan of questions about articles."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.qa_bias.splits.search_null import closed_form, search_nulls
from tests.qaplans import QaPlan

Floats = npt.NDArray[np.float64]


def measured(values: Any, exact_match: Any, article: Any, model: str = "bert", heuristic: str = "ans_len") -> pa.Table:
    n_rows = len(values)
    names = {"model": model, "dataset": "squad", "heuristic": heuristic}
    columns = {"value": np.asarray(values, float), "exact_match": np.asarray(exact_match, float), "article": article}
    texts = {name: pa.array([text] * n_rows, pa.string()) for name, text in names.items()}
    return pa.table({**texts, "question": np.arange(n_rows), **columns})


def thresholds(candidates: Sequence[float], heuristic: str = "ans_len") -> pa.Table:
    names = ["squad"] * len(candidates), [heuristic] * len(candidates)
    return pa.table([*map(pa.array, names), pa.array(candidates, pa.float64())], ["dataset", "heuristic", "threshold"])


def searches(threshold: float | None = None, heuristic: str = "ans_len", **searched_on: str | None) -> pa.Table:
    """Return at which threshold models are measured, and on which of them it was searched."""
    schema = pa.schema([(name, pa.string()) for name in ("model", "dataset", "heuristic", "searched_on")])
    place = {"dataset": "squad", "heuristic": heuristic}
    models = [{"model": model, "searched_on": source, **place} for model, source in searched_on.items()]
    found = pa.Table.from_pylist(models, schema)
    return found.append_column("threshold", pa.array([threshold] * len(models), pa.float64()))


def searched(
    values: Any, exact_match: Any, article: Any, candidates: Sequence[float], **how: Any
) -> npt.NDArray[np.float64]:
    """Return what the search finds, observed and in each permutation."""
    return nulls(measured(values, exact_match, article), candidates, searches(bert="bert"), **how).get(
        "bert", np.empty(0)
    )


def nulls(answers: pa.Table, candidates: Sequence[float], asked: pa.Table, **how: Any) -> dict[str, Floats]:
    """Return what is found in each model, observed and in each permutation."""
    given: dict[str, Any] = {"seed": 42, "sample": 100, "replacement": False, "variant": "paper"}
    given |= {"permutations": 199} | how
    found = search_nulls(answers, thresholds(candidates), asked, **given)
    models = dict.fromkeys(found["model"].to_pylist())
    own = {model: found.filter(pc.field("model") == model) for model in models}
    assert all(rows["draw"].to_pylist() == list(range(1 + given["permutations"])) for rows in own.values())
    return {model: rows["significance"].to_numpy() for model, rows in own.items()}


def p_value(found: Floats) -> float:
    return float(np.mean(found >= found[0] - 1e-9))


def significance(lower: Floats, higher: Floats, sample: int) -> float:
    """Return the closed form of answers below a threshold and above it."""
    sides = (np.array([one]) for own in (lower, higher) for one in (own.mean(), len(own)))
    [found] = closed_form(*sides, sample, False)
    return float(found)


TITLES = [*"AAABBBCCCDDDEEFFGG", "H", "I"]


def small_plan(models: Sequence[str] = ("bert",), **spec: Any) -> QaPlan:
    """Return a plan of twenty questions about nine articles; the first ten have short answers."""
    plan = QaPlan(models, thresholds={"ans_len": 1.0}, bootstrap={"trials": 20, "sample": 8}, **spec)
    rng = np.random.default_rng(7)
    values = rng.permutation([1.0] * 10 + [3.0] * 10).tolist()
    plan.questions({"ans_len": values})
    plan.titles(TITLES)
    for number, model in enumerate(models):
        exact = (rng.random(20) < 0.5 + 0.3 * (np.array(values) == 1) * (number == 0)).astype(float)
        plan.answers(exact.tolist(), np.maximum(exact, rng.random(20)).tolist(), model=model)
    return plan
