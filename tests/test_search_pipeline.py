"""Whole searches: trials are chosen, made, computed in blocks of what is scored once, resumed and concluded."""

import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from biaseval.analysis import query
from biaseval.cli import app
from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.runs import describe, run_spec, run_status
from biaseval.search.samples import assigned
from biaseval.search.trials import make_trial
from biaseval.spec import load_spec
from biaseval.store import Run
from biaseval.tables import TRIALS
from tests.inprocess import in_this_process
from tests.searches import searched, write_file
from tests.test_pipelines import write_spec as write_label_bias

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900), pytest.mark.usefixtures("few_groups"), pytest.mark.slow]

TASK = "task9501_two_classification"


def rows(run_dir: Path | str, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query([str(run_dir)], sql).to_pylist()
    return found


def trials(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of ``trials`` but for how long they took."""
    return rows(run_dir, "select * exclude (seconds) from trials order by trial")


def stamps(run_dir: Path) -> dict[str, int]:
    """Return when each trial's row was written."""
    return {path.name: path.stat().st_mtime_ns for path in (run_dir / "trials").glob("part-*.parquet")}


def values_of(row: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = json.loads(row["objectives"])
    return found


def write_label_search(folder: Path, model: Path, **changes: Any) -> Path:
    """Write a search whose trials score one task anew, as many as there are combinations, one of which cannot be."""
    write_label_bias(
        folder, model, tasks={"path": "tasks", "include": [TASK], "min_instances": 130, "max_eval": 40},
        prompt={"n_demos": [0]}, calibration=["cc"], execution={"part_rows": 400},
    )  # fmt: skip
    content = {
        "spec": "spec.yaml", "search": {"prompt.n_demos": [[0], [2]], "prompt.demo_sets": [1, 40]},
        "objective": {"sql": "select avg(macro_f1) as f1 from label_bias_by_task", "maximize": True},
        "algorithm": "grid", "trials": ..., "batch": 3, **changes,
    }  # fmt: skip
    return write_file(folder / "search.yaml", searched(**content))


def copy_of(run_dir: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run_dir, folder / "run"))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a search of a label-bias spec."""
    return _searched(write_label_search(tmp_path_factory.mktemp("grid"), tiny_llama))


def _searched(spec: Path) -> tuple[Path, Path]:
    """Return a spec file and the directory of its search, made beside it."""
    with in_this_process():
        run_spec(load_spec(spec), str(spec.parent / "run"), page=False)
    return spec, spec.parent / "run"


def test_every_combination_is_tried_in_order_and_one_that_cannot_be_is_recorded(grid: tuple[Path, Path]) -> None:
    found = trials(grid[1])
    points = [(json.loads(row["parameters"])["prompt.n_demos"], json.loads(row["parameters"])["prompt.demo_sets"])
              for row in found]  # fmt: skip
    assert points == [([0], 1), ([0], 40), ([2], 1), ([2], 40)]
    assert [(row["trial"], row["seed"], row["state"]) for row in found] == [
        *((number, 42, "done") for number in range(3)),
        (3, 42, "failed"),
    ]
    # Without demonstrations one set is all there are.
    assert values_of(found[0]) == values_of(found[1]) != values_of(found[2])
    assert (found[3]["objectives"], found[3]["evaluation"]) == (None, None)
    problem = "40 demonstration sets of 2 need 80 demonstrations and the pool has 64"
    assert problem in found[3]["problem"]
    [best] = rows(grid[1], "select n_done, n_failed, n_stopped, n_trials from search_best")
    assert best == {"n_done": 3, "n_failed": 1, "n_stopped": 0, "n_trials": 4}
    status = run_status(str(grid[1]))
    assert (status.size_done, status.size) == (4, 4)
    assert list(status.given_up) == ["trial 3"]
    assert problem in status.given_up["trial 3"]


def test_the_best_spec_is_the_chosen_point_ready_to_be_run(grid: tuple[Path, Path]) -> None:
    spec, run_dir = grid
    [chosen] = rows(run_dir, "select trial, parameters, value from search_best")
    found = {row["trial"]: values_of(row)["f1"] for row in trials(run_dir) if row["state"] == "done"}
    assert chosen["value"] == max(found.values())
    assert chosen["trial"] == min(trial for trial, value in found.items() if value == chosen["value"])
    search: Any = load_spec(spec)
    best: Any = load_spec(run_dir / "best.yaml")
    point = json.loads(chosen["parameters"])
    assert best == search.at(point).model_copy(update={"execution": search.spec.execution})
    assert (best.prompt.n_demos, best.prompt.demo_sets) == (point["prompt.n_demos"], point["prompt.demo_sets"])


@pytest.mark.usefixtures("here")
def test_what_is_missing_is_made_again_and_what_is_there_is_kept(grid: tuple[Path, Path], tmp_path: Path) -> None:
    """A kill leaves the row of a trial behind it all, so what it lacks may lie between others."""
    run_dir = copy_of(grid[1], tmp_path)
    before, times = trials(run_dir), stamps(run_dir)
    scored = (run_dir / "trials/00001/label_scores/part-00000.parquet").stat().st_mtime_ns
    (run_dir / "trials" / "part-00001.parquet").unlink()
    run_spec(load_spec(grid[0]), str(run_dir), page=False)
    assert trials(run_dir) == before
    after = stamps(run_dir)
    assert {name for name in after if after[name] != times[name]} == {"part-00001.parquet"}
    # What the trial had made is kept, too.
    assert (run_dir / "trials/00001/label_scores/part-00000.parquet").stat().st_mtime_ns == scored


@pytest.mark.usefixtures("here")
def test_outages_fail_no_trial(grid: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, left of a trial that was begun before, still holds its directory; then the disk is full."""
    run_dir = copy_of(grid[1], tmp_path)
    part = run_dir / "trials" / "part-00001.parquet"
    part.unlink()
    point = {"prompt.n_demos": [0], "prompt.demo_sets": 40}
    told: dict[str, Any] = {"run_uri": str(run_dir), "points": {1: point}, "cutoffs": {}, "at_once": 1}
    with (
        Run.open(str(run_dir / "trials" / "00001")).lock(),
        pytest.raises(TransientError, match="another process is working on this run"),
    ):
        make_trial(1, **told)
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(TransientError, match=r"cannot be written \(No space left\)"):
        make_trial(1, **told)
    assert not part.exists()


@pytest.mark.usefixtures("here")
def test_two_searches_cannot_share_a_run_directory(grid: tuple[Path, Path]) -> None:
    spec, run_dir = grid
    before = stamps(run_dir)
    with pytest.raises(InputError, match=r"belongs to another spec(.|\n)*batch: the run has 3, the spec 2"):
        run_spec(load_spec(spec, ["batch=2"]), str(run_dir))
    with pytest.raises(InputError, match=r"belongs to another spec(.|\n)*kind: the run has 'search'"):
        run_spec(load_spec(spec.parent / "spec.yaml"), str(run_dir))
    assert stamps(run_dir) == before


@pytest.mark.usefixtures("here")
def test_a_search_whose_first_trials_all_fail_ends(tmp_path: Path, tiny_llama: Path) -> None:
    nothing = {"sql": "select avg(macro_f1) as f1 from label_bias_by_task where method = 'dc'", "maximize": True}
    search = {"prompt.n_demos": [[0], [2]], "prompt.demo_sets": [1]}
    spec = write_label_search(tmp_path, tiny_llama, objective=nothing, batch=1, search=search)
    with pytest.raises(BiasevalError, match=r"each of the first 1 trials failed.*the first says: objective f1: .*null"):
        run_spec(load_spec(spec), str(tmp_path / "run"))
    [path] = (tmp_path / "run" / "trials").glob("part-*.parquet")
    assert path.name == "part-00000.parquet"


@pytest.mark.usefixtures("here")
def test_an_objective_that_a_trial_has_not_fails_that_trial_alone(tmp_path: Path, tiny_llama: Path) -> None:
    """Seen through the command, as its user does."""
    some = {"sql": "select avg(macro_f1) as f1 from label_bias_by_task where n_demos = 2", "maximize": True}
    search = {"prompt.n_demos": [[0], [2]], "prompt.demo_sets": [1]}
    spec = write_label_search(tmp_path, tiny_llama, objective=some, search=search)
    ended = CliRunner().invoke(app, ["tune", str(spec), "--run-dir", str(tmp_path / "run")])
    assert ended.exit_code == 0, ended.output
    assert "report.html" in ended.output
    assert run_status(str(tmp_path / "run")).is_complete
    for name in ("spec.yaml", "environment.json", "results.duckdb", "report.html", "best.yaml"):
        assert (tmp_path / "run" / name).is_file(), name
    failed, done = trials(tmp_path / "run")
    assert (failed["state"], done["state"]) == ("failed", "done")
    assert failed["problem"].startswith("objective f1: the query returns ")
    [best] = rows(tmp_path / "run", "select trial from search_best")
    assert best == {"trial": 1}


def test_a_plan_says_how_many_trials_there_are(grid: tuple[Path, Path]) -> None:
    found = describe(load_spec(grid[0]))
    lines = dict(found.lines)
    assert lines["trials"] == "4 (grid)"
    assert lines["searched"] == "prompt.n_demos (choice), prompt.demo_sets (grid)"
    assert (found.facts["n_trials"], found.facts["objectives"]) == (4, ["f1"])
    changed = describe(load_spec(grid[0], ["algorithm=optuna", "trials=9", "choose_on=published"]))
    assert dict(changed.lines)["trials"] == "9 (optuna, chosen 3 at a time)"
    cautions = [[note for note in each.notes if "the choice sees all that" in note] for each in (found, changed)]
    assert [len(each) for each in cautions] == [0, 1]


def test_tuning_takes_a_search_and_nothing_else(grid: tuple[Path, Path]) -> None:
    ended = CliRunner().invoke(app, ["tune", str(grid[0].parent / "spec.yaml")])
    assert ended.exit_code != 0
    assert "is of the kind label_bias; biaseval tune takes a search" in str(ended.exception)


def write_arithmetic_search(folder: Path, model: Path, **changes: Any) -> Path:
    """Write a search of what is computed of the same scores, in two blocks of which the second knows the first."""
    search = {"scoring.normalization": ["mean", "sum"], "calibration.cc.strength": {"uniform": [0, 1.5]}}
    objective = {"sql": "select avg(macro_f1) as f1 from label_bias_by_task where method like 'cc%'", "maximize": True}
    content = {"search": search, "objective": objective, "algorithm": "optuna", "trials": 8, "batch": 4, **changes}
    return write_label_search(folder, model, **content)


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a search whose trials are computed of the same scores."""
    return _searched(write_arithmetic_search(tmp_path_factory.mktemp("arithmetic"), tiny_llama))


def test_what_trials_share_is_scored_once_and_they_have_no_runs(arithmetic: tuple[Path, Path]) -> None:
    run_dir = arithmetic[1]
    assert list((run_dir / "shared" / "label_scores").iterdir())
    assert sorted(path.name for path in (run_dir / "trials").iterdir()) == ["part-00000.parquet", "part-00004.parquet"]
    found = trials(run_dir)
    assert [row["trial"] for row in found] == list(range(8))
    assert {(row["state"], row["run"], row["steps"], row["problem"]) for row in found} == {("done", None, 0, None)}
    assert len({json.loads(row["parameters"])["calibration.cc.strength"] for row in found}) == 8
    assert len({row["objectives"] for row in found}) > 1
    status = run_status(str(run_dir))
    assert status.size_done == status.size
    assert not (run_dir / "shared" / "marts").exists()


@pytest.mark.usefixtures("here")
def test_a_block_that_is_missing_is_computed_again_and_nothing_else(
    arithmetic: tuple[Path, Path], tmp_path: Path
) -> None:
    run_dir = copy_of(arithmetic[1], tmp_path)
    scores = {path.name: path.stat().st_mtime_ns for path in (run_dir / "shared" / "label_scores").iterdir()}
    before, times = trials(run_dir), stamps(run_dir)
    missing = {"part-00000.parquet", "part-00004.parquet"}
    for name in missing:
        (run_dir / "trials" / name).unlink()
    run_spec(load_spec(arithmetic[0]), str(run_dir), page=False)
    assert trials(run_dir) == before
    assert {own for own, time in stamps(run_dir).items() if time != times[own]} == missing
    assert scores == {path.name: path.stat().st_mtime_ns for path in (run_dir / "shared" / "label_scores").iterdir()}


@pytest.mark.usefixtures("here")
def test_blocks_of_another_version_are_not_mixed_with_this_ones(arithmetic: tuple[Path, Path], tmp_path: Path) -> None:
    run_dir = copy_of(arithmetic[1], tmp_path)
    found = pq.read_table(run_dir / "trials" / "part-00000.parquet").to_pylist()
    found[2]["parameters"] = json.dumps({"scoring.normalization": "sum", "calibration.cc.strength": 1.25})
    pq.write_table(TRIALS.rows(found), run_dir / "trials" / "part-00000.parquet")
    for lost in ("trials/part-00004.parquet", "digests.json"):  # by which the row would be a damaged one
        (run_dir / lost).unlink()
    with pytest.raises(BiasevalError, match=r"trial 2 was made at .*1\.25.*, and Optuna now chooses .*another version"):
        run_spec(load_spec(arithmetic[0]), str(run_dir))


def test_permuting_the_labels_of_the_other_half_leaves_the_choice_as_it_is(
    arithmetic: tuple[Path, Path], tmp_path: Path, tiny_llama: Path, here: None
) -> None:
    spec, first = arithmetic
    shared = Run.open(str(first / "shared"))
    members = assigned(shared, "label_bias", "half", 42).to_pylist()
    judged = {(row["purpose"], row["row"]) for row in members if row["sample"] == "evaluation"}
    prompts = shared.read_table("prompts").to_pylist()
    instances = {row["instance_id"] for row in prompts if (row["purpose"], row["row"]) in judged}
    assert len(judged) == (40 + 32) / 2
    (tmp_path / "tasks").mkdir()
    for path in (spec.parent / "tasks").iterdir():
        content = json.loads(path.read_text())
        own = [instance for instance in content["Instances"] if instance["id"] in instances]
        outputs = [instance["output"] for instance in own]
        for instance, output in zip(own, sorted(outputs), strict=True):
            instance["output"] = output
        (tmp_path / "tasks" / path.name).write_text(json.dumps(content))
    second = tmp_path / "run"
    run_spec(load_spec(write_arithmetic_search(tmp_path, tiny_llama)), str(second), page=False)
    before, after = trials(first), trials(second)
    assert [row["parameters"] for row in after] == [row["parameters"] for row in before]
    assert [row["objectives"] for row in after] == [row["objectives"] for row in before]
    assert [row["evaluation"] for row in after] != [row["evaluation"] for row in before]
    sql = "select trial, objective, left_out, value from trial_values where sample = 'choice' order by all"
    assert rows(second, sql) == rows(first, sql)
    chosen = "select trial, parameters, value, value_low, n_within_noise from search_best"
    assert rows(second, chosen) == rows(first, chosen)
    assert (second / "best.yaml").read_text() == (first / "best.yaml").read_text().replace(
        str(spec.parent), str(tmp_path)
    )


@pytest.mark.usefixtures("here")
def test_rows_that_no_setting_shows_choose_and_the_published_rows_judge(tmp_path: Path, tiny_llama: Path) -> None:
    search = {"calibration.cc.strength": [0, 0.5, 1]}
    own = {"search": search, "algorithm": "grid", "trials": ..., "choose_on": "held_out"}
    spec = write_arithmetic_search(tmp_path, tiny_llama, **own)
    base = yaml.safe_load((tmp_path / "spec.yaml").read_text())
    write_file(tmp_path / "spec.yaml", {**base, "held_out": True})
    run_spec(load_spec(spec), str(tmp_path / "run"), page=False)
    run_spec(load_spec(tmp_path / "run" / "best.yaml"), str(tmp_path / "best"), page=False)
    [alone] = rows(tmp_path / "best", load_spec(spec).objective.sql)
    [chosen] = rows(tmp_path / "run", "select evaluation from search_best")
    assert chosen["evaluation"] == pytest.approx(alone["f1"], abs=1e-12)
