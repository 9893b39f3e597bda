"""Runs to compare, and what is read of their comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.analysis import query
from biaseval.analysis.comparing import Compared
from tests.labelplans import Plan
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.qaplans import QaPlan
from tests.relation import Together

Rows = list[dict[str, Any]]

Array = npt.NDArray[np.float64]

GOLDS = "aaabbbab"
"""The gold labels of the main rows of each task."""


def label_plan(hits: Mapping[str, str], n_demos: Sequence[int] = (0,), golds: str = GOLDS) -> Plan:
    """Return a run whose predictions are right (1) or wrong (0) on the main rows of each task."""
    plan = Plan()
    for task, right in hits.items():
        plan.task(task, ["a", "b"])
        for number in n_demos:
            for gold, hit in zip(golds * (len(right) // len(golds)), right, strict=True):
                p = 0.9 if (gold == "a") == (hit == "1") else 0.1
                plan.probabilities(task, "main", gold, [p, 1 - p], n_demos=number)
            for gold in "aabb":
                plan.probabilities(task, "bias_score", gold, [0.8, 0.2], n_demos=number)
    for row in plan.prompts:
        row["input_text"] = f"Input:  {row['instance_id']}\nOutput:"
    return plan


def make(plan: Plan | MajorityPlan | QaPlan, folder: Path) -> str:
    run = plan.write(folder)
    measure(run, has_checks=False)
    return run


HITS = {
    "task1": ("11110000", "11111100"), "task2": ("11110000", "11111110"), "task3": ("11111100", "11111110"),
    "task4": ("11000000", "11110011"), "task5": ("11110001", "11111101"), "task6": ("10110000", "11011010"),
    "task7": ("11110000", "11110100"),
}  # fmt: skip
"""Of seven tasks, in which rows the first and the other run are right: the other always more often."""


def compared_rows(runs: Sequence[str], kind: str = "label_bias", where: str = "true") -> Rows:
    found: Rows = query(runs, f"from {kind}_comparison where {where} order by all").to_pylist()
    return found


def conclusions(compared: Compared) -> str:
    """Return what is said of a comparison, a line each."""
    return "\n".join(f"{row['lead']} {row['text']}" for row in compared.conclusions)


def cautions(compared: Compared) -> str:
    """Return what a reader of a comparison must know, a line each."""
    return "\n".join(row["text"] for row in compared.cautions)


def flipped(values: Array, signs: Array) -> Array:
    """Return the statistic of each pattern of signs: |mean| over the root of the mean square, times sqrt(n)."""
    squares = np.sqrt((values**2).sum())
    return np.round(np.abs(signs @ values) / squares, 9) if squares > 0 else np.zeros(len(signs))


def agreement(runs: Sequence[str], kind: str, run: str) -> Rows:
    """Return on how many predictions a run and others agree."""
    found: Rows = query(runs, f"from {kind}_agreement where run = '{run}' order by all").to_pylist()
    return found


OTHER_SEEDS = tuple(
    f"update {table} set {seed} = {seed} + 10 where run = 'large'"
    for table, seed in (
        ("contexts", "demo_set"), ("prompts", "demo_set"), ("majority_contexts", "seed"),
        ("majority_predictions", "seed"), ("majority_draw_values", "seed"), ("majority_seed_boundaries", "seed"),
    )
)  # fmt: skip
"""The statements that put a majority-bias run behind other demonstrations."""


def as_models(pair: Together, models: Mapping[str, tuple[str, Mapping[str, Any]]], *names: str) -> dict[str, pa.Table]:
    """Return relations of two runs again for each model, of one of the runs, and the settings of these models.

    Args:
        pair: has the relations.
        models: by name: of which run it has the rows, and what its settings say.
        names: of relations, by run or by ordered pair of runs; models of one run have the rows of the pair, too.
    """
    made: dict[str, Rows] = {
        "run_settings": [{"run": name, "model": name, **facts} for name, (_, facts) in models.items()]
    }
    with pair.changed():
        for name in names:
            rows = pair.rows(f"from {name}")
            made[name] = [
                row | ({"run": run, "other_run": other} if other else {"run": run})
                for run in models
                for other in (models if "other_run" in rows[0] else [None])
                for row in rows
                if row["run"] == models[run][0] and run != other
            ]
    return {name: pa.Table.from_pylist(rows) for name, rows in made.items()}
