"""Whole searches: trials are chosen, made, resumed and concluded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from biaseval.analysis import query
from biaseval.cli import app
from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.runs import describe, run_spec, run_status
from biaseval.search.trials import make_trial
from biaseval.spec import LabelBiasSpec, SearchSpec, load_spec
from biaseval.store import Run
from biaseval.tables import TRIALS
from tests.inprocess import in_this_process
from tests.searches import searched, write_file
from tests.test_pipelines import write_spec as write_label_bias

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

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
        folder,
        model,
        tasks={"path": "tasks", "include": [TASK], "min_instances": 130, "max_eval": 40},
        prompt={"n_demos": [0]},
        calibration=["cc"],
        execution={"part_rows": 400},
    )
    content = {
        "spec": "spec.yaml",
        "search": {"prompt.n_demos": [[0], [2]], "prompt.demo_sets": [1, 40]},
        "objective": {"sql": "select avg(macro_f1) as f1 from label_bias_by_task", "maximize": True},
        "algorithm": "grid",
        "trials": ...,
        "batch": 3,
        **changes,
    }
    return write_file(folder / "search.yaml", searched(**content))


def copy_of(run_dir: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run_dir, folder / "run"))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a search of a label-bias spec."""
    folder = tmp_path_factory.mktemp("grid")
    spec = write_label_search(folder, tiny_llama)
    with in_this_process():
        run_spec(load_spec(spec), str(folder / "run"))
    return spec, folder / "run"


# A search of a spec that is measured


def test_every_combination_is_tried_in_order(grid: tuple[Path, Path]) -> None:
    found = trials(grid[1])
    assert [json.loads(row["parameters"]) for row in found] == [
        {"prompt.n_demos": [0], "prompt.demo_sets": 1},
        {"prompt.n_demos": [0], "prompt.demo_sets": 40},
        {"prompt.n_demos": [2], "prompt.demo_sets": 1},
        {"prompt.n_demos": [2], "prompt.demo_sets": 40},
    ]
    assert [row["trial"] for row in found] == [0, 1, 2, 3]
    assert {row["seed"] for row in found} == {42}
    # Without demonstrations one set is all there are.
    assert values_of(found[0]) == values_of(found[1]) != values_of(found[2])


def test_a_trial_that_cannot_be_is_recorded_and_the_search_goes_on(grid: tuple[Path, Path]) -> None:
    *done, failed = trials(grid[1])
    assert [row["state"] for row in done] == ["done"] * 3
    assert (failed["state"], failed["objectives"], failed["evaluation"]) == ("failed", None, None)
    assert "40 demonstration sets of 2 need 80 demonstrations and the pool has 64" in failed["problem"]
    [best] = rows(grid[1], "select n_done, n_failed, n_stopped, n_trials from search_best")
    assert best == {"n_done": 3, "n_failed": 1, "n_stopped": 0, "n_trials": 4}


def test_the_best_spec_is_the_chosen_point_ready_to_be_run(grid: tuple[Path, Path]) -> None:
    spec, run_dir = grid
    [chosen] = rows(run_dir, "select trial, parameters, value from search_best")
    found = {row["trial"]: values_of(row)["f1"] for row in trials(run_dir) if row["state"] == "done"}
    assert chosen["value"] == max(found.values())
    assert chosen["trial"] == min(trial for trial, value in found.items() if value == chosen["value"])
    search, best = load_spec(spec), load_spec(run_dir / "best.yaml")
    assert isinstance(search, SearchSpec)
    assert isinstance(best, LabelBiasSpec)
    point = json.loads(chosen["parameters"])
    assert best == search.at(point).model_copy(update={"execution": search.spec.execution})
    assert (best.prompt.n_demos, best.prompt.demo_sets) == (point["prompt.n_demos"], point["prompt.demo_sets"])


def test_a_trial_is_a_run_like_any_other(grid: tuple[Path, Path]) -> None:
    trial = grid[1] / "trials" / "00002"
    assert run_status(str(trial)).n_parts_done == run_status(str(trial)).n_parts > 0
    [found] = rows(trial, "select distinct n_demos, n_rows from label_bias_by_task")
    assert found == {"n_demos": 2, "n_rows": 40}
    spec = load_spec(trial / "spec.yaml")
    assert isinstance(spec, LabelBiasSpec)
    assert spec.prompt.n_demos == [2]


def test_a_search_leaves_what_the_contract_names(grid: tuple[Path, Path]) -> None:
    run_dir = grid[1]
    for name in ("spec.yaml", "environment.json", "results.duckdb", "report.html", "best.yaml"):
        assert (run_dir / name).is_file(), name
    status = run_status(str(run_dir))
    assert status.is_complete
    assert (status.n_parts_done, status.n_parts) == (4, 4)
    assert list(status.given_up) == ["trial 3"]
    assert "the pool has 64" in status.given_up["trial 3"]


@pytest.mark.usefixtures("here")
def test_what_is_missing_is_made_again_and_what_is_there_is_kept(grid: tuple[Path, Path], tmp_path: Path) -> None:
    """A kill leaves the row of a trial behind it all, so what it lacks may lie between others."""
    run_dir = copy_of(grid[1], tmp_path)
    before, times = trials(run_dir), stamps(run_dir)
    scored = (run_dir / "trials/00001/label_scores/part-00000.parquet").stat().st_mtime_ns
    (run_dir / "trials" / "part-00001.parquet").unlink()
    run_spec(load_spec(grid[0]), str(run_dir))
    assert trials(run_dir) == before
    after = stamps(run_dir)
    assert {name for name in after if after[name] != times[name]} == {"part-00001.parquet"}
    # What the trial had made is kept, too.
    assert (run_dir / "trials/00001/label_scores/part-00000.parquet").stat().st_mtime_ns == scored


def test_what_gives_out_is_no_failure_of_a_trial(grid: tuple[Path, Path], tmp_path: Path) -> None:
    """Another process, left of a trial that was begun before, still holds its directory."""
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
    assert not part.exists()


@pytest.mark.usefixtures("here")
def test_points_that_another_version_chose_are_not_mixed_with_this_ones(
    grid: tuple[Path, Path], tmp_path: Path
) -> None:
    run_dir = copy_of(grid[1], tmp_path)
    [row] = pq.read_table(run_dir / "trials" / "part-00001.parquet").to_pylist()
    row["parameters"] = json.dumps({"prompt.n_demos": [0], "prompt.demo_sets": 7})
    pq.write_table(TRIALS.rows([row]), run_dir / "trials" / "part-00001.parquet")
    for lost in ("trials/part-00002.parquet", "digests.json"):  # by which the row would be a damaged one
        (run_dir / lost).unlink()
    with pytest.raises(BiasevalError, match=r"trial 1 was made at .*7.*, and Optuna now chooses .*40.*another version"):
        run_spec(load_spec(grid[0]), str(run_dir))


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
def test_more_trials_at_a_time_than_there_is_room_for_are_refused(tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_label_search(tmp_path, tiny_llama, execution={"at_once": 3})
    with pytest.raises(InputError, match=r"execution.at_once: 3 trials at a time, and Ray has CPUs for 1; lower it"):
        run_spec(load_spec(spec), str(tmp_path / "run"))


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
    failed, done = trials(tmp_path / "run")
    assert (failed["state"], done["state"]) == ("failed", "done")
    assert failed["problem"].startswith("objective f1: the query returns ")
    [best] = rows(tmp_path / "run", "select trial from search_best")
    assert best == {"trial": 1}


def test_what_is_wrong_is_said_at_once_and_before_anything_is_made(tmp_path: Path, tiny_llama: Path) -> None:
    objective = {"sql": "select avg(macro_fl) as f1 from label_bias_by_task", "maximize": True}
    spec = write_label_search(tmp_path, tiny_llama, objective=objective)
    with pytest.raises(InputError) as caught:
        run_spec(load_spec(spec, ["spec=spec.yaml"]), str(tmp_path / "run"))
    assert "macro_fl" in str(caught.value)
    base = tmp_path / "spec.yaml"
    base.write_text(base.read_text().replace("max_eval: 40", "max_eval: 40\n  templates: absent.csv"))
    with pytest.raises(InputError) as caught:
        run_spec(load_spec(spec), str(tmp_path / "run"))
    assert "macro_fl" in str(caught.value)
    assert "absent.csv" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_plan_says_how_many_trials_there_are(grid: tuple[Path, Path]) -> None:
    spec = load_spec(grid[0])
    found = describe(spec)
    lines = dict(found.lines)
    assert lines["trials"] == "4 (grid)"
    learning = load_spec(grid[0], ["algorithm=optuna", "trials=9"])
    assert dict(describe(learning).lines)["trials"] == "9 (optuna, chosen 3 at a time)"
    assert lines["searched"] == "prompt.n_demos (choice), prompt.demo_sets (grid)"
    assert (found.facts["n_trials"], found.facts["objectives"]) == (4, ["f1"])
    caution = "the choice sees all that it is measured on"
    assert not any(caution in note for note in found.notes)
    assert any(caution in note for note in describe(load_spec(grid[0], ["choose_on=published"])).notes)


def test_tuning_takes_a_search_and_nothing_else(grid: tuple[Path, Path]) -> None:
    ended = CliRunner().invoke(app, ["tune", str(grid[0].parent / "spec.yaml")])
    assert ended.exit_code != 0
    assert "is of the kind label_bias; biaseval tune takes a search" in str(ended.exception)
