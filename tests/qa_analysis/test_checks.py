"""Checks of a QA-bias run: each has a run that breaks it."""

import shutil
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.analysis import sql_files as relations
from biaseval.errors import BiasevalError
from biaseval.tables import tables_of
from tests.measuring import measure
from tests.qaplans import two_models, two_segments
from tests.relation import Relations, copied
from tests.relationnames import names_of

ATTRIBUTES, PREDICTIONS = "qa_attributes_are_whole", "qa_predictions_are_whole"
Q0 = "where example_id = 'q0'"

# A check, table or mart, the change of a whole run, and what is found.
BROKEN: list[tuple[str, str, str]] = [
    ("qa_examples", copied("qa_examples", "99 as row", "row = 0"), "{'dataset': squad, 'example_id': q0}: 2 rows"),
    ("qa_examples", copied("qa_examples", "'q99' as example_id", "row = 0"), "{'dataset': squad, 'row': 0}: 2 rows"),
    ("qa_examples", f"update qa_examples set row = null {Q0}", "{'dataset': squad, 'row': NULL}: lacks a value"),
    ("qa_attributes", copied("qa_attributes", "1 as value"), "'heuristic': ans_len}: 2 rows"),
    ("qa_predictions", copied("qa_predictions", "'p' as prediction"), "'example_id': q0}: 2 rows"),
    ("qa_predictions", f"update qa_predictions set f1 = 1.1 {Q0}", "f1 is 1.1, not from 0 to 1: {'model': bert"),
    ("qa_predictions", f"update qa_predictions set f1 = 'nan' {Q0}", "f1 is nan, not from 0 to 1"),
    (ATTRIBUTES, f"delete from qa_attributes {Q0}", "question q0 of squad has no ans_len"),
    (ATTRIBUTES, f"update qa_attributes set heuristic = 'ans_pos' {Q0}", "q0 of squad has ans_pos, which was not"),
    (ATTRIBUTES, copied("qa_attributes", "'new' as example_id"), "new of squad has ans_len, which was not asked for"),
    (ATTRIBUTES, f"update qa_attributes set value = null {Q0}", "q0 of squad has ans_len null"),
    (ATTRIBUTES, f"update qa_attributes set value = 'nan' {Q0}", "q0 of squad has ans_len nan"),
    (ATTRIBUTES, f"update qa_attributes set value = 'inf' {Q0}", "q0 of squad has ans_len inf"),
    (ATTRIBUTES, f"update qa_attributes set is_measured = null {Q0}", "q0 of squad has ans_len 1.0"),
    (PREDICTIONS, f"delete from qa_predictions {Q0}", "question q0 of squad has no prediction of bert"),
    (PREDICTIONS, copied("qa_predictions", "'new' as example_id"), "a prediction of bert, which was not asked for"),
    (PREDICTIONS, f"update qa_predictions set exact_match = 0.5 {Q0}", "exact match 0.5, F1 1.0"),
    (PREDICTIONS, f"update qa_predictions set exact_match = null {Q0}", "exact match null"),
    (PREDICTIONS, f"update qa_predictions set f1 = null {Q0}", "F1 null"),
    ("qa_draws_are_whole", "delete from qa_draws where trial = 0 and segment = 'lower'", "39 draws, 39 of them whole"),
    ("qa_draws_are_whole", "delete from qa_draws where threshold = 1", "threshold 1.0: 0 draws"),
    ("qa_draws", copied("qa_draws", "0.5 as f1"), ": 2 rows"),
    ("qa_by_dataset", "update qa_by_dataset set f1 = 1.5", "f1 is "),
    ("qa_findings_are_whole", "update qa_bias_by_heuristic set n_lower = n_lower + 1", "ans_len: 24 rows of 23"),
    ("qa_findings_are_whole", "update qa_bias_tests set p = null", "bert, squad, ans_len: significance"),
    ("qa_findings_are_whole", "update qa_curves set n_rows = 10", " 10 in the bins"),
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    return two_segments().relations(tmp_path_factory.mktemp("runs")).changeable()


def test_a_whole_run_breaks_no_check(whole: Relations) -> None:
    for check in {check for check, _, _ in BROKEN}:
        assert whole.problems(check) == [], check


@pytest.mark.parametrize(("check", "change", "problem"), BROKEN)
def test_a_check_finds_what_it_is_for(check: str, change: str, problem: str, whole: Relations) -> None:
    found = whole.problems(check, change)
    assert any(problem in one for one in found), found


def test_a_broken_run_gives_no_metrics_and_names_the_check(tmp_path: Path) -> None:
    plan = two_segments()
    plan.predictions[0]["exact_match"] = 0.5
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError, match=r"- qa_predictions_are_whole: .*exact match 0.5, F1 1.0"):
        measure(run)
    assert not Path(run, "marts").exists()


def test_a_mart_that_a_check_refuses_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(relations.ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    path = tmp_path / "analytics/marts/qa_bias_tests.sql"
    text = path.read_text()
    assert text.count(" nulls.p,") == 1
    path.write_text(text.replace(" nulls.p,", " null::double as p,"))
    run = two_segments().write(tmp_path / "run")
    with pytest.raises(BiasevalError, match=r"qa_findings_are_whole: .*bert, squad, ans_len: significance"):
        measure(run)
    assert not Path(run, "marts").exists()


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    broken = {check for check, _, _ in BROKEN} - {*tables_of("qa_bias"), *names_of("qa_bias", "marts")}
    of_trained_readers = {"qa_training_is_whole", "qa_evaluations_are_whole", "qa_changes_have_their_draws"}
    assert set(names_of("qa_bias", "checks")) == broken | of_trained_readers  # broken in qa_debiasing.test_readers


def test_missing_parts_of_any_model_are_counted(tmp_path: Path) -> None:
    run = two_models().write(tmp_path, n_parts=2)
    with pytest.raises(BiasevalError, match=r"marts/qa_\w+\.parquet is missing"):
        query([run], "select 1")
    measure(run)
    Path(run, "qa_predictions", "part-00002.parquet").unlink()
    for ask in (measure, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 6 parts missing \(first: qa_predictions/part-00002.parquet\)"):
            ask(run)
    Path(run, "qa_predictions", "part-00003.parquet").unlink()  # a model without any answer
    with pytest.raises(BiasevalError, match=r"2 of 6 parts missing \(first: qa_predictions/part-00002.parquet\)"):
        query([run], "select 1")
    Path(run, "qa_attributes", "part-00001.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"3 of 6 parts missing \(first: qa_attributes/part-00001.parquet\)"):
        measure(run)
    shutil.rmtree(Path(run, "qa_examples"))
    with pytest.raises(BiasevalError, match="the table qa_examples has no part; run the same command again"):
        query([run], "select 1")
