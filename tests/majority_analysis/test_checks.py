"""Checks of a majority-bias run: each has a run that breaks it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.analysis import sql_files as relations
from biaseval.errors import BiasevalError
from biaseval.runs import analyse_run
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.relationnames import names_of


def _set(table: str, column: str, value: Any, **where: Any) -> Callable[[MajorityPlan], None]:
    def change(plan: MajorityPlan) -> None:
        row = next(row for row in getattr(plan, table) if all(row[key] == wanted for key, wanted in where.items()))
        row[column] = value

    return change


def _drop(table: str, **where: Any) -> Callable[[MajorityPlan], None]:
    def change(plan: MajorityPlan) -> None:
        kept = [row for row in getattr(plan, table) if any(row[key] != value for key, value in where.items())]
        assert len(kept) < len(getattr(plan, table))
        setattr(plan, table, kept)

    return change


def _repeat(table: str, **changes: Any) -> Callable[[MajorityPlan], None]:
    return lambda plan: getattr(plan, table).append(getattr(plan, table)[0] | changes)


def _both(*changes: Callable[[MajorityPlan], None]) -> Callable[[MajorityPlan], None]:
    def change_all(plan: MajorityPlan) -> None:
        for change in changes:
            change(plan)

    return change_all


FIRST = "0/100/3/True/0"

BROKEN: list[tuple[str, Callable[[MajorityPlan], None], str]] = [
    ("settings", _repeat("settings"), "{'setting': 0/100}: 2 rows"),
    ("settings", _repeat("settings", setting="1/99"), "{'number': 0}: 2 rows"),
    ("settings_are_well_formed", _set("settings", "labels", ["False", "True"], number=1), "setting 50/50 (1)"),
    ("settings_are_well_formed", _set("settings", "shares", [0.5, 0.4]), "setting 0/100 (0)"),
    ("settings_are_well_formed", _set("settings", "counts", [0, 3]), "setting 0/100 (0)"),
    ("settings_are_well_formed", _set("settings", "counts", [2]), "setting 0/100 (0)"),
    ("majority_prompts_fit_their_setting", _set("prompts", "gold", "Maybe"), f"{FIRST} has setting 0/100"),
    ("majority_prompts_fit_their_setting", _set("prompts", "gold", None), "gold null"),
    ("majority_prompts_fit_their_setting", _set("prompts", "labels", ["False"]), "labels [False]"),
    ("majority_prompts_fit_their_setting", _drop("settings", setting="0/100"), "are not known"),
    ("majority_contexts_hold_the_counts", _set("contexts", "demo_labels", ["True", "False"]), "its setting 0/100"),
    (
        "majority_contexts_hold_the_counts",
        _set("contexts", "demo_labels", []),
        "0/100/3/True has the demonstrations []",
    ),
    ("majority_contexts_hold_the_counts", _drop("settings", setting="0/100"), "0/100 is not known"),
    (
        "majority_settings_have_the_same_rows",
        _both(_drop("prompts", prompt_id=FIRST), _drop("label_scores", prompt_id=FIRST)),
        "setting 0/100, seed 3, with instruction: 3 rows",
    ),
    ("majority_settings_have_the_same_rows", _set("prompts", "instance_id", "x", row=1, demo_set=5), "seed 5, with"),
    (
        "majority_settings_have_the_same_rows",
        _both(
            _repeat("contexts", context_id="second"),
            _set("prompts", "context_id", "second", prompt_id=FIRST),
        ),
        "4 rows in 2 contexts",
    ),
    ("generations_are_whole", _drop("generations", prompt_id=FIRST), f"prompt {FIRST} has 0 outputs (generate)"),
    ("generations_are_whole", _repeat("generations"), f"prompt {FIRST} has 2 outputs (generate)"),
    ("generations_are_whole", _repeat("generations", mode="other"), f"prompt {FIRST} has an output (other)"),
    ("generations_are_whole", _repeat("generations", prompt_id="new"), "prompt new has an output (generate)"),
    ("generations_are_whole", _set("generations", "prediction", "Maybe"), "the prediction Maybe"),
    ("generations_are_whole", _set("generations", "prediction", None, mode="constrained"), "the prediction null"),
    (
        "majority_settings_have_every_prediction",
        _both(
            _drop("prompts", prompt_id="50/50/5/False/cc/0"),
            _drop("label_scores", prompt_id="50/50/5/False/cc/0"),
        ),
        "setting 50/50, seed 5, without instruction: no predictions by likelihood, cc",
    ),
    (
        "majority_settings_have_every_prediction",
        _repeat("settings", setting="1/99", number=3),
        "setting 1/99, seed 3, with instruction: no predictions by generate, none",
    ),
    ("prompts_are_scored_once_per_label", _drop("label_scores", prompt_id=FIRST), f"prompt {FIRST} has no score"),
]


@pytest.mark.parametrize(("check", "break_run", "problem"), BROKEN)
def test_a_broken_run_gives_no_metrics_and_names_the_check(
    check: str, break_run: Callable[[MajorityPlan], None], problem: str, tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood", "generate", "constrained"), calibration=("cc",))
    break_run(plan)
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError) as failure:
        measure(run)
    [line] = [line for line in str(failure.value).splitlines() if f"- {check}: " in line]
    assert problem in line
    assert not Path(run, "marts").exists()


def test_a_mart_that_leaves_its_range_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(relations.ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    run = MajorityPlan().write(tmp_path / "run")
    for mart, right, wrong, problem in (
        (
            "majority_by_setting",
            "    measured.weighted_f1,",
            "    measured.weighted_f1 + 1 as weighted_f1,",
            "majority_by_setting: .*weighted_f1 is 1.*, not from 0 to 1: ",
        ),
        (
            "majority_by_model",
            "rb_at_k(list(weighted_f1), 10) as rb_at_10,",
            "null::double as rb_at_10,",
            "majority_metrics_are_there: ",
        ),
        ("majority_draws", "2 * n_correct", "1.5 * n_correct", "majority_draws_are_of_the_rows: .*of draw 0"),
    ):
        path = tmp_path / f"analytics/marts/{mart}.sql"
        text = path.read_text()
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong))
        with pytest.raises(BiasevalError, match=problem):
            measure(run)
        path.write_text(text)
    measure(run)


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    checks = {kind: set(names_of(kind, "checks")) for kind in ("label_bias", "majority_bias")}
    elsewhere = {"majority_draws_are_of_the_rows", "majority_metrics_are_there", "training_rows_are_held_out"}
    broken = {check for check, _, _ in BROKEN} | elsewhere
    assert checks["majority_bias"] - checks["label_bias"] <= broken


def test_missing_outputs_of_any_way_are_counted(tmp_path: Path) -> None:
    run = MajorityPlan().write(tmp_path, n_parts=2)
    Path(run, "generations", "part-00001.parquet").unlink()
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 4 parts missing \(first: generations/part-00001.parquet\)"):
            ask(run)
    Path(run, "generations", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 4 parts missing \(first: generations/part-00000.parquet\)"):
        measure(run)
