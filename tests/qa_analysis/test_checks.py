"""Checks of a QA-bias run: each has a run that breaks it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from biaseval.analysis import qa_draws, query
from biaseval.analysis import sql_files as relations
from biaseval.errors import BiasevalError
from biaseval.runs import analyse_run
from biaseval.tables import tables_of
from tests.measuring import measure
from tests.qaplans import QaPlan, two_models, two_segments
from tests.relationnames import names_of


def _set(table: str, column: str, value: Any, **where: Any) -> Callable[[QaPlan], None]:
    def change(plan: QaPlan) -> None:
        chosen = [row for row in getattr(plan, table) if where.items() <= row.items()]
        assert chosen
        chosen[0][column] = value

    return change


def _drop(table: str, **where: Any) -> Callable[[QaPlan], None]:
    def change(plan: QaPlan) -> None:
        kept = [row for row in getattr(plan, table) if not where.items() <= row.items()]
        assert len(kept) < len(getattr(plan, table))
        setattr(plan, table, kept)

    return change


def _repeat(table: str, **changes: Any) -> Callable[[QaPlan], None]:
    return lambda plan: getattr(plan, table).append(getattr(plan, table)[0] | changes)


BROKEN: list[tuple[str, Callable[[QaPlan], None], str]] = [
    ("qa_examples", _repeat("examples", row=99), "{'dataset': squad, 'example_id': q0}: 2 rows"),
    ("qa_examples", _repeat("examples", example_id="q99"), "{'dataset': squad, 'row': 0}: 2 rows"),
    ("qa_examples", _set("examples", "row", None), "{'dataset': squad, 'row': NULL}: lacks a value"),
    ("qa_attributes", _repeat("attributes"), "'example_id': q0, 'heuristic': ans_len}: 2 rows"),
    ("qa_predictions", _repeat("predictions"), "{'model': bert, 'dataset': squad, 'example_id': q0}: 2 rows"),
    ("qa_predictions", _set("predictions", "f1", 1.1), "f1 is 1.1, not from 0 to 1: {'model': bert, 'dataset': squad"),
    ("qa_predictions", _set("predictions", "f1", np.nan), "f1 is nan, not from 0 to 1"),
    ("qa_attributes_are_whole", _drop("attributes", example_id="q3"), "question q3 of squad has no ans_len"),
    (
        "qa_attributes_are_whole",
        _set("attributes", "heuristic", "ans_pos", example_id="q3"),
        "question q3 of squad has ans_pos, which was not asked for",
    ),
    (
        "qa_attributes_are_whole",
        _repeat("attributes", example_id="new"),
        "question new of squad has ans_len, which was not asked for",
    ),
    ("qa_attributes_are_whole", _set("attributes", "value", None), "question q0 of squad has ans_len null"),
    ("qa_attributes_are_whole", _set("attributes", "value", np.nan), "question q0 of squad has ans_len nan"),
    ("qa_attributes_are_whole", _set("attributes", "value", np.inf), "question q0 of squad has ans_len inf"),
    ("qa_attributes_are_whole", _set("attributes", "is_measured", None), "question q0 of squad has ans_len 1.0"),
    (
        "qa_predictions_are_whole",
        _drop("predictions", example_id="q5"),
        "question q5 of squad has no prediction of bert",
    ),
    (
        "qa_predictions_are_whole",
        _repeat("predictions", example_id="new"),
        "question new of squad has a prediction of bert, which was not asked for",
    ),
    ("qa_predictions_are_whole", _set("predictions", "exact_match", 0.5), "exact match 0.5, F1 1.0"),
    ("qa_predictions_are_whole", _set("predictions", "exact_match", None), "exact match null"),
    ("qa_predictions_are_whole", _set("predictions", "f1", None), "F1 null"),
]


@pytest.mark.parametrize(("check", "break_run", "problem"), BROKEN)
def test_a_broken_run_gives_no_metrics_and_names_the_check(
    check: str, break_run: Callable[[QaPlan], None], problem: str, tmp_path: Path
) -> None:
    plan = two_segments()
    break_run(plan)
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError) as failure:
        measure(run)
    [line] = [line for line in str(failure.value).splitlines() if f"- {check}: " in line]
    assert problem in line
    assert not Path(run, "marts").exists()


def test_draws_that_are_lost_or_repeated_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two_segments().write(tmp_path)
    whole = qa_draws.segment_draws
    for change, problem in (
        (lambda draws: draws.slice(1), "qa_draws_are_whole: .*39 draws, 39 of them whole; wanted 40"),
        (
            lambda draws: pa.concat_tables([draws.slice(1), draws.slice(5, 1)]),
            "qa_draws: 1 problems, first: .*: 2 rows",
        ),
        (lambda draws: draws.filter(pc.field("threshold") > 1), "qa_draws_are_whole: .*threshold 1.0: 0 draws"),
        (
            lambda draws: draws.set_column(3, "threshold", pa.repeat(0.5, len(draws))),
            "qa_draws: 40 problems, first: .*'threshold': 0.5, .*: 2 rows",
        ),
    ):
        monkeypatch.setattr(
            qa_draws, "segment_draws", lambda *given, change=change, **how: change(whole(*given, **how))
        )
        with pytest.raises(BiasevalError, match=problem):
            measure(run)
    assert not Path(run, "marts").exists()


def test_a_mart_that_leaves_its_range_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(relations.ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    run = two_segments().write(tmp_path / "run")
    for mart, right, wrong, problem in (
        ("qa_by_dataset", "    means.f1,\n", "    means.f1 + 1 as f1,\n", "qa_by_dataset: .*f1 is "),
        (
            "qa_bias_by_heuristic",
            "    n_lower,",
            "    n_lower + 1 as n_lower,",
            "qa_findings_are_whole: .*ans_len: 24 rows of 23",
        ),
        (
            "qa_bias_tests",
            "    nulls.p,",
            "    null::double as p,",
            "qa_findings_are_whole: .*bert, squad, ans_len: significance",
        ),
        (
            "qa_curves",
            ">= bins.bin_start",
            ">= bins.bin_start + 2",
            "qa_findings_are_whole: .*ans_len: .* 10 in the bins",
        ),
    ):
        path = tmp_path / f"analytics/marts/{mart}.sql"
        text = path.read_text()
        assert text.count(right) == 1, right
        path.write_text(text.replace(right, wrong))
        with pytest.raises(BiasevalError, match=problem):
            measure(run)
        path.write_text(text)
    measure(run)


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    checks = set(names_of("qa_bias", "checks"))
    broken = {check for check, _, _ in BROKEN if check not in tables_of("qa_bias")}
    broken |= {"qa_draws_are_whole", "qa_findings_are_whole"}
    of_trained_readers = {"qa_training_is_whole", "qa_evaluations_are_whole", "qa_changes_have_their_draws"}
    assert checks == broken | of_trained_readers  # those are broken in qa_debiasing.test_checks


def test_missing_parts_of_any_model_are_counted(tmp_path: Path) -> None:
    plan = two_models()
    run = plan.write(tmp_path, n_parts=3)
    measure(run)
    Path(run, "qa_predictions", "part-00004.parquet").unlink()
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 9 parts missing \(first: qa_predictions/part-00004.parquet\)"):
            ask(run)
    Path(run, "qa_attributes", "part-00001.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 9 parts missing \(first: qa_attributes/part-00001.parquet\)"):
        measure(run)
    shutil.rmtree(Path(run, "qa_examples"))
    with pytest.raises(BiasevalError, match="the table qa_examples has no part; run the same command again"):
        query([run], "select 1")


def test_a_model_without_any_answer_is_not_overlooked(tmp_path: Path) -> None:
    run = two_models().write(tmp_path, n_parts=2)
    measure(run)
    for part in (2, 3):
        Path(run, "qa_predictions", f"part-0000{part}.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 6 parts missing \(first: qa_predictions/part-00002.parquet\)"):
        query([run], "select 1")


def test_a_run_without_marts_is_not_finished(tmp_path: Path) -> None:
    run = two_segments().write(tmp_path)
    with pytest.raises(BiasevalError, match=r"marts/qa_\w+\.parquet is missing"):
        query([run], "select 1")
