"""How many demonstrations of a set have which label."""

from __future__ import annotations

from pathlib import Path

from tests.labelplans import Plan, rows
from tests.measuring import measure


def test_each_set_has_a_count_of_every_label(tmp_path: Path) -> None:
    plan = Plan()
    plan.task("task1", ["a", "b", "c"])
    shown = {(0, 0): [], (1, 0): ["c"], (3, 0): ["a", "b", "a"], (3, 1): ["b", "b", "b"]}
    for n_demos, demo_set in shown:
        plan.probabilities("task1", "main", "a", [0.6, 0.2, 0.2], n_demos=n_demos, demo_set=demo_set)
    for context in plan.contexts:
        context["demo_labels"] = shown[context["n_demos"], context["demo_set"]]
    # As leave-one-out calibration, or the length limit, has it: the same set, less one.
    plan.contexts.append({**plan.contexts[2], "context_id": "one less", "demo_labels": ["a", "b"]})
    run = plan.write(tmp_path)
    measure(run)
    found = rows(
        run,
        "select n_demos, demo_set, list(n_with_label order by label) as counts, any_value(n_demos_used) as n, "
        "any_value(is_single_label) as is_single from demonstration_labels group by all order by all",
    )
    assert [tuple(row.values()) for row in found] == [
        (1, 0, [0, 0, 1], 1, False),
        (3, 0, [2, 1, 0], 3, False),
        (3, 1, [0, 3, 0], 3, True),
    ]
