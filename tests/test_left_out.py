"""Metrics without the tasks, demonstrations or questions of failed parts are those of a run that never had them."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.environment import raw_spec
from biaseval.errors import BiasevalError, InputError
from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.failed_parts import FailedParts
from biaseval.pipelines.labels import label_scores
from biaseval.pipelines.qa import stages
from biaseval.runs import reanalyse_run, run_spec, run_status
from biaseval.spec import load_spec, stored_spec
from biaseval.store import Run
from tests.commands import Command
from tests.golden_marts import differences
from tests.older_runs import copy_older_run

pytestmark = pytest.mark.slow

BAD: set[int] = set()
"""Parts that fail."""


class BadLabels(label_scores.LabelScoresWorker):
    def make(self, task: Task, prepared: Any) -> Made:
        if task.number in BAD:
            raise RuntimeError("a kernel failed")
        return super().make(task, prepared)


class BadAnswers(stages.AnswersWorker):
    def make(self, task: Task, prepared: None) -> Made:
        if task.work["part"] in BAD:
            raise RuntimeError("a kernel failed")
        return super().make(task, prepared)


@pytest.fixture(autouse=True)
def bad(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    BAD.clear()
    monkeypatch.setattr(label_scores, "LabelScoresWorker", BadLabels)
    monkeypatch.setattr(stages, "AnswersWorker", BadAnswers)


LEAVE_OUT = "analysis.missing_parts=leave_out"

CASES = {
    "label_bias": (
        3, ["tasks.include=[task9601_meal_classification]"], "task task9602_dish_classification",
        "task task9602_dish_classification",
    ),
    "majority_bias": (1, ["seeds=[0]"], "demo_set 1", "demonstration set 1"),
    "qa_bias": (1, [], "part 1", "questions of part 1"),
}  # fmt: skip
"""The part that fails, keys of a run that never had its rows, and these rows in the table and in words."""


def marts(run: Run) -> dict[str, pa.Table]:
    return {Path(name).stem: pq.read_table(run.path(name)) for name in sorted(run.files("marts"))}


def without_questions(run: Run, part: int, root: Path) -> None:
    """Take the questions of a part out of the files of a QA run."""
    gone = {*run.read_part("qa_examples", part)["example_id"].to_pylist()}
    given = json.loads((root / "given.json").read_text())
    (root / "given.json").write_text(json.dumps({name: text for name, text in given.items() if name not in gone}))
    rows = (root / "home.jsonl").read_text().splitlines()
    (root / "home.jsonl").write_text("\n".join(row for row in rows if json.loads(row)["id"] not in gone))


@pytest.mark.parametrize("kind", CASES)
def test_metrics_are_those_of_a_run_that_never_had_the_rows(kind: str, tmp_path: Path) -> None:
    (spec_file, _), (part, without, stored, named) = copy_older_run(kind, tmp_path), CASES[kind]
    BAD.add(part)
    with pytest.raises(BiasevalError, match="leave_out it computes the metrics without them"):
        run_spec(load_spec(spec_file, []), str(tmp_path / "run"), page=False)
    run = run_spec(load_spec(spec_file, [LEAVE_OUT]), str(tmp_path / "run"), page=False)
    found = marts(run)
    said = {*found[f"{kind}_cautions"]["text"].to_pylist()}
    assert all(why.endswith(f"without {stored}") for why in run_status(run.uri).given_up.values())
    if kind == "label_bias":
        with pytest.raises(BiasevalError, match=r"part-00003.parquet: failed, and is left out; biaseval run tries it"):
            reanalyse_run(run.uri, ["analysis.missing_parts=refuse"])
    BAD.clear()
    if kind == "qa_bias":
        without_questions(run, part, spec_file.parent)
    other = marts(run_spec(load_spec(spec_file, without), str(tmp_path / "other"), page=False))
    differing = {name: problems for name in other if (problems := differences(found[name], other[name]))}
    assert differing.keys() == {f"{kind}_cautions"}, differing
    assert said - {*other[f"{kind}_cautions"]["text"].to_pylist()} == {
        f"Parts failed, and every number leaves out: {named} (failed_parts in SQL)."
    }


def test_a_page_says_what_is_left_out_until_a_later_command_makes_it(tmp_path: Path, command: Command) -> None:
    spec_file, _ = copy_older_run("label_bias", tmp_path)
    run = ["run", str(spec_file), "--set", LEAVE_OUT, "--run-dir", str(tmp_path / "run")]
    BAD.update({0, 3})
    with pytest.raises(BiasevalError, match="rows that are missing: 124, in 2 parts"):  # nothing would be left
        run_spec(load_spec(spec_file, [LEAVE_OUT]), str(tmp_path / "run"))
    BAD.clear()
    BAD.add(3)
    done = command(*run)
    assert (done.code, "left out of all numbers, because parts failed: task task9602" in done.err) == (0, True)
    said = "every number leaves out: task task9602_dish_classification"
    assert said in (tmp_path / "run" / "report.html").read_text()
    assert said in (tmp_path / "run" / "summary.json").read_text()
    BAD.clear()
    assert command(*run).code == 0
    assert said not in (tmp_path / "run" / "report.html").read_text()
    assert not (tmp_path / "run" / "failed_parts").exists()


def test_a_part_that_a_killed_command_made_is_left_out_no_longer(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec_file, _ = copy_older_run("label_bias", tmp_path)
    spec, folder = load_spec(spec_file, [LEAVE_OUT]), str(tmp_path / "run")
    BAD.add(3)
    run = run_spec(spec, folder)
    assert "leaves out: task task9602" in command("sql", folder, "select 1").err
    assert query([folder], "select distinct task from prompts").num_rows == 1
    BAD.clear()
    for place in (f"{FailedParts.__module__}.FailedParts.refuse", "biaseval.runs.commands.finish"):
        with monkeypatch.context() as patch:  # killed behind the last part, and then in the metrics
            patch.setattr(place, Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                run_spec(spec, folder)
    assert run.parts("label_scores") == {0, 1, 2, 3}
    assert not run_status(folder).is_complete  # and no mart of fewer rows passes for one of all
    run_spec(spec, folder)
    assert query([folder], "select distinct task from label_bias_by_task").num_rows == 2
    assert not run.has("failed_parts")


def test_searches_and_trainings_leave_nothing_out(tmp_path: Path) -> None:
    for name in ("search", "qa_training"):
        content = raw_spec(Run.open(str(copy_older_run(name, tmp_path)[1])))
        content.get("spec", content)["analysis"] = {"missing_parts": "leave_out"}
        with pytest.raises(InputError, match=r"analysis.missing_parts: .*; take leave_out out"):
            stored_spec(content, "spec.yaml")
