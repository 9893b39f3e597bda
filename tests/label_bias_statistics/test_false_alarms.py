"""False alarms of verdicts where there is no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.label_bias_statistics.answers import METRICS, Answers, analysed, right_with, rows


def without_effect(n_suites: int, n_tasks: int, n_rows: int, shares_of_a: Sequence[float]) -> dict[str, Any]:
    """Return answers that have nothing to do with gold labels, of methods that answer a by these chances."""
    rng = np.random.default_rng([1, n_tasks])
    answers, suites = [], {}
    for suite in range(n_suites):
        suites[f"s{suite}"] = [f"s{suite}t{task}" for task in range(n_tasks)]
        for task in suites[f"s{suite}"]:
            gold = rng.choice(list("ab"), size=n_rows).tolist()
            shift = rng.normal(0, 0.05) if n_tasks > 1 else 0
            for method, share in zip(("none", "cc", "dc"), shares_of_a, strict=True):
                p = rng.random(n_rows) < share + shift
                answers.append(Answers(task, "ab", gold, right_with(np.where(p, "a", "b").tolist(), "ab"), method))
                probabilities = rng.dirichlet([2, 2], size=16)
                answers.append(Answers(task, "ab", list("ab" * 8), probabilities, method, purpose="bias_score"))
    return {"answers": answers, "suites": suites}


@pytest.mark.parametrize("n_tasks", [2, 6, 10])
def test_words_are_wrong_in_few_suites_without_any_effect(n_tasks: int) -> None:
    connection = analysed(**without_effect(300, n_tasks, 30, [0.6, 0.6, 0.6]))
    found = rows(connection, "from label_bias_verdicts")
    assert len(found) == 300 * 2 * len(METRICS)
    wrong = {row["suite"] for row in found if row["verdict"] in ("higher", "lower")}
    assert len(wrong) / 300 < 0.07
    assert wrong if n_tasks > 5 else {row["verdict"] for row in found} == {"too few"}


def test_words_on_one_task_are_wrong_in_few_runs_where_methods_prefer_other_labels() -> None:
    """None nearly always answers a, cc b: neither knows anything, and they are biased alike."""
    connection = analysed(**without_effect(150, 1, 60, [0.9, 0.1, 0.9]))
    found = rows(connection, "from label_bias_verdicts")
    assert len(found) == 150 * 2 * len(METRICS)
    for metric in METRICS:
        wrong = {row["suite"] for row in found if row["verdict"] in ("higher", "lower") and row["metric"] == metric}
        assert len(wrong) / 150 < 0.05, metric
    intervals = rows(connection, "from label_bias_by_task_over_sets")
    covered = [row["accuracy_low"] <= 0.5 <= row["accuracy_high"] for row in intervals]
    assert 0.93 < np.mean(covered) < 0.98
