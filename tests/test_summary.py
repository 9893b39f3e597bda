"""`summary.json`: what a run comes to, for machines; and the other results that commands print as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.analysis.summary_marts import SCHEMA_VERSION, summarize
from biaseval.json_values import plain
from biaseval.store import Run
from tests.commands import Command
from tests.compare.runs import label_plan, make
from tests.older_runs import copy_older_run
from tests.taskfiles import write_task

MARTS = {
    "label_bias": (["label_bias_by_model"], ["label_bias_verdicts"]),
    "qa_bias": (["qa_by_model", "qa_by_dataset"], ["qa_bias_tests", "qa_model_comparisons", "qa_debiasing"]),
}


@pytest.mark.parametrize("kind", MARTS)
def test_a_summary_has_the_rows_of_marts_and_nothing_that_sql_has_not(kind: str, tmp_path: Path) -> None:
    if kind == "label_bias":
        run_dir = make(label_plan({"task1": "11110000", "task2": "11111100"}), tmp_path / "run")
    else:
        run_dir = str(copy_older_run(kind, tmp_path)[1])
    found = summarize(Run.open(run_dir), ["Biased."], ["Few rows."])
    assert list(found) == [
        *("schema_version", "kind", "name", "models", "counts", "metrics", "verdicts", "conclusions", "cautions")
    ]
    assert (found["schema_version"], found["kind"]) == (SCHEMA_VERSION, kind)
    assert (found["conclusions"], found["cautions"]) == (["Biased."], ["Few rows."])
    assert (list(found["metrics"]), list(found["verdicts"])) == MARTS[kind]
    for mart, rows in found["metrics"].items():
        assert rows == plain(query([run_dir], f"from {mart} order by all").to_pylist())
    assert any(found["counts"].values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert "/tmp" not in json.dumps(found)


def test_models_are_named_with_what_identifies_their_files(tmp_path: Path) -> None:
    _, run_dir = copy_older_run("qa_bias", tmp_path)
    models = {model["name"]: model["digest"] for model in summarize(Run.open(str(run_dir)), [], [])["models"]}
    recorded = json.loads((run_dir / "environment.json").read_text())["models"]
    assert models == {name: recorded.get(name, {}).get("digest") for name in models}
    assert any(models.values())


def test_checked_tasks_are_json_too(tmp_path: Path, command: Command) -> None:
    write_task(tmp_path, "task1_good_classification")
    write_task(tmp_path, "task3_bad_classification", changes={"Definition": [""]})
    found = command("tasks", "check", str(tmp_path), "--json")
    content: dict[str, Any] = json.loads(found.out)
    assert (found.code, content["usable"], content["left_out"]) == (2, ["task1_good_classification"], {})
    assert list(content["bad"]) == ["task3_bad_classification"]
