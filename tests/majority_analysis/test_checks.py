"""Checks of a majority-bias run: each has a run that breaks it."""

import shutil
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.analysis import sql_files as relations
from biaseval.errors import BiasevalError
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.relation import Relations, copied
from tests.relationnames import names_of

FIRST = "0/100/3/True/0"
OF_FIRST = f"where prompt_id = '{FIRST}'"
WHOLE, GENERATED = "generations_are_whole", f"prompt_id = '{FIRST}' and mode = 'generate'"
CC = "prompt_id = '50/50/5/False/cc/0'"


SCORED = "prompts_are_scored_once_per_label"
FIT, COUNTS = "majority_prompts_fit_their_setting", "majority_contexts_hold_the_counts"
SAME_ROWS, PREDICTED = "majority_settings_have_the_same_rows", "majority_settings_have_every_prediction"

# A check, table or mart, the changes of a whole run, and what is found.
BROKEN: list[tuple[str, list[str], str]] = [
    ("settings", [copied("settings", "setting as setting", "number = 0")], "{'setting': 0/100}: 2 rows"),
    ("settings", [copied("settings", "'1/99' as setting", "number = 0")], "{'number': 0}: 2 rows"),
    ("settings_are_well_formed", ["update settings set labels = ['b', 'a'] where number = 1"], "setting 50/50 (1)"),
    ("settings_are_well_formed", ["update settings set shares = [0.5, 0.4] where number = 0"], "setting 0/100 (0)"),
    ("settings_are_well_formed", ["update settings set counts = [0, 3] where number = 0"], "setting 0/100 (0)"),
    ("settings_are_well_formed", ["update settings set counts = [2] where number = 0"], "setting 0/100 (0)"),
    (FIT, [f"update prompts set gold = 'Maybe' {OF_FIRST}"], f"{FIRST} has setting 0/100"),
    (FIT, [f"update prompts set gold = null {OF_FIRST}"], "gold null"),
    (FIT, [f"update prompts set labels = ['False'] {OF_FIRST}"], "labels [False]"),
    (FIT, ["delete from settings where setting = '0/100'"], "are not known"),
    (COUNTS, ["update contexts set demo_labels = ['True', 'False'] where setting = '0/100'"], "its setting 0/100"),
    (COUNTS, ["update contexts set demo_labels = [] where context_id = '0/100/3/True'"], "has the demonstrations []"),
    (COUNTS, ["delete from settings where setting = '0/100'"], "0/100 is not known"),
    (SAME_ROWS, [f"delete from {name} {OF_FIRST}" for name in ("prompts", "label_scores")],
     "setting 0/100, seed 3, with instruction: 3 rows"),
    (SAME_ROWS, ["update prompts set instance_id = 'x' where prompt_id = '0/100/5/True/1'"], "seed 5, with"),
    (SAME_ROWS, [copied("contexts", "'second' as context_id", "context_id = '0/100/3/True'"),
                 f"update prompts set context_id = 'second' {OF_FIRST}"], "4 rows in 2 contexts"),
    (WHOLE, [f"delete from generations {OF_FIRST}"], f"prompt {FIRST} has 0 outputs (generate)"),
    (WHOLE, [copied("generations", "mode as mode", GENERATED)], f"prompt {FIRST} has 2 outputs (generate)"),
    (WHOLE, [copied("generations", "'other' as mode", GENERATED)], f"prompt {FIRST} has an output (other)"),
    (WHOLE, [copied("generations", "'new' as prompt_id")], "prompt new has an output (generate)"),
    (WHOLE, [f"update generations set prediction = 'Maybe' {OF_FIRST}"], "the prediction Maybe"),
    (WHOLE, [f"update generations set prediction = null {OF_FIRST} and mode = 'constrained'"], "the prediction null"),
    (PREDICTED, [f"delete from {name} where {CC}" for name in ("prompts", "label_scores")],
     "setting 50/50, seed 5, without instruction: no predictions by likelihood, cc"),
    (PREDICTED, [copied("settings", "'1/99' as setting, 3 as number")],
     "setting 1/99, seed 3, with instruction: no predictions by generate, none"),
    (SCORED, [f"delete from label_scores {OF_FIRST}"], f"prompt {FIRST} has no score"),
    ("majority_by_setting", ["update majority_by_setting set weighted_f1 = 1.5"], "weighted_f1 is 1.5, not from 0 to"),
    ("majority_metrics_are_there", ["update majority_by_model set rb_at_10 = null"], ""),
    ("majority_draws_are_of_the_rows", ["update majority_draws set weighted_f1 = 0.9 where draw = 0"], "of draw 0"),
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    """Return the relations of a run, in tables that may be changed."""
    plan = MajorityPlan(("likelihood", "generate", "constrained"), calibration=("cc",))
    return plan.relations(tmp_path_factory.mktemp("runs")).changeable()


def test_a_whole_run_breaks_no_check(whole: Relations) -> None:
    for check in {check for check, _, _ in BROKEN}:
        assert whole.problems(check) == [], check


@pytest.mark.parametrize(("check", "changes", "problem"), BROKEN)
def test_a_check_finds_what_it_is_for(check: str, changes: list[str], problem: str, whole: Relations) -> None:
    found = whole.problems(check, *changes)
    assert any(problem in one for one in found), found


def test_a_broken_run_gives_no_metrics_and_names_the_check(tmp_path: Path) -> None:
    plan = MajorityPlan()
    plan.settings[0]["counts"] = [0, 3]
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError, match=r"- settings_are_well_formed: .*setting 0/100 \(0\)"):
        measure(run)
    assert not Path(run, "marts").exists()


def test_a_mart_that_leaves_its_range_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(relations.ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    path = tmp_path / "analytics/marts/majority_by_setting.sql"
    text = path.read_text()
    right = " measured.weighted_f1,"
    assert text.count(right) == 1
    path.write_text(text.replace(right, " measured.weighted_f1 + 1 as weighted_f1,"))
    run = MajorityPlan().write(tmp_path / "run")
    with pytest.raises(BiasevalError, match=r"majority_by_setting: .*weighted_f1 is 1.*, not from 0 to 1: "):
        measure(run)
    assert not Path(run, "marts").exists()


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    checks = {kind: set(names_of(kind, "checks")) for kind in ("label_bias", "majority_bias")}
    broken = {check for check, _, _ in BROKEN} | {"training_rows_are_held_out"}
    assert checks["majority_bias"] - checks["label_bias"] <= broken


def test_missing_outputs_of_any_way_are_counted(tmp_path: Path) -> None:
    run = MajorityPlan().write(tmp_path, n_parts=2)
    Path(run, "generations", "part-00001.parquet").unlink()
    for ask in (measure, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 4 parts missing \(first: generations/part-00001.parquet\)"):
            ask(run)
    Path(run, "generations", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 4 parts missing \(first: generations/part-00000.parquet\)"):
        measure(run)
