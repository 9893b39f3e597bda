"""Whole searches whose trials are arithmetic: computed in blocks, of what is scored once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.errors import BiasevalError
from biaseval.runs import run_spec, run_status
from biaseval.search.samples import assigned
from biaseval.spec import LabelBiasSpec, SearchSpec, load_spec
from biaseval.store import Run
from biaseval.tables import TRIALS
from tests.inprocess import in_this_process
from tests.searches import write_file
from tests.test_search_pipeline import copy_of, rows, stamps, trials, values_of, write_label_search

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def write_arithmetic_search(folder: Path, model: Path, **changes: Any) -> Path:
    """Write a search of what is computed of the same scores, in two blocks of which the second knows the first."""
    search = {"scoring.normalization": ["mean", "sum"], "calibration.cc.strength": {"uniform": [0, 1.5]}}
    objective = {"sql": "select avg(macro_f1) as f1 from label_bias_by_task where method like 'cc%'", "maximize": True}
    content = {"search": search, "objective": objective, "algorithm": "optuna", "trials": 8, "batch": 4, **changes}
    return write_label_search(folder, model, **content)


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a search whose trials are computed of the same scores."""
    folder = tmp_path_factory.mktemp("arithmetic")
    spec = write_arithmetic_search(folder, tiny_llama)
    with in_this_process():
        run_spec(load_spec(spec), str(folder / "run"))
    return spec, folder / "run"


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
    assert status.is_complete
    assert not (run_dir / "shared" / "marts").exists()


def test_a_trial_that_is_arithmetic_comes_to_what_a_run_of_it_does(
    arithmetic: tuple[Path, Path], tmp_path: Path, here: None
) -> None:
    """With all rows: where the choice is made on what is published."""
    search = load_spec(arithmetic[0], ["choose_on=published"])
    assert isinstance(search, SearchSpec)
    run_spec(search, str(tmp_path / "published"))
    [best] = rows(tmp_path / "published", "select trial, parameters, value from search_best")
    assert values_of(trials(tmp_path / "published")[best["trial"]]) == {"f1": best["value"]}
    run_spec(load_spec(tmp_path / "published" / "best.yaml"), str(tmp_path / "run"))
    [alone] = rows(tmp_path / "run", search.objective.sql)
    assert alone["f1"] == pytest.approx(best["value"], abs=1e-12)
    chosen = load_spec(tmp_path / "published" / "best.yaml")
    assert isinstance(chosen, LabelBiasSpec)
    assert chosen.calibration == [f"cc@{json.loads(best['parameters'])['calibration.cc.strength']!r}"]


@pytest.mark.usefixtures("here")
def test_a_block_that_is_missing_is_computed_again_and_nothing_else(
    arithmetic: tuple[Path, Path], tmp_path: Path
) -> None:
    run_dir = copy_of(arithmetic[1], tmp_path)
    scores = {path.name: path.stat().st_mtime_ns for path in (run_dir / "shared" / "label_scores").iterdir()}
    before, times = trials(run_dir), stamps(run_dir)
    for name in ("part-00004.parquet", "part-00000.parquet"):
        (run_dir / "trials" / name).unlink()
        run_spec(load_spec(arithmetic[0]), str(run_dir))
        assert trials(run_dir) == before
        after = stamps(run_dir)
        assert {own for own in after if after[own] != times[own]} == {name}
        times = after
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
    run_spec(load_spec(write_arithmetic_search(tmp_path, tiny_llama)), str(second))
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
    run_spec(load_spec(spec), str(tmp_path / "run"))
    run_spec(load_spec(tmp_path / "run" / "best.yaml"), str(tmp_path / "best"))
    [alone] = rows(tmp_path / "best", load_spec(spec).objective.sql)
    [chosen] = rows(tmp_path / "run", "select evaluation from search_best")
    assert chosen["evaluation"] == pytest.approx(alone["f1"], abs=1e-12)


@pytest.mark.usefixtures("here")
def test_a_point_is_chosen_for_each_of_several(tmp_path: Path, tiny_llama: Path) -> None:
    sql = "select n_demos, macro_f1 as f1 from label_bias_by_task where method like 'cc%'"
    spec = write_arithmetic_search(
        tmp_path,
        tiny_llama,
        objective={"sql": sql, "maximize": True},
        per=["n_demos"],
        algorithm="grid",
        trials=...,
        search={"calibration.cc.strength": [0, 0.5, 1]},
    )
    base = yaml.safe_load((tmp_path / "spec.yaml").read_text())
    write_file(tmp_path / "spec.yaml", {**base, "prompt": {"n_demos": [0, 2], "demo_sets": 1}})
    run_spec(load_spec(spec), str(tmp_path / "run"))
    found = trials(tmp_path / "run")
    assert [list(json.loads(row["objectives"])["f1"]) for row in found] == [["0", "2"]] * 3
    for row in rows(tmp_path / "run", "select scope, trial, value from search_best"):
        by_trial = [json.loads(one["objectives"])["f1"][row["scope"]] for one in found]
        assert (row["value"], row["trial"]) == (max(by_trial), by_trial.index(max(by_trial)))
    assert not (tmp_path / "run" / "best.yaml").exists()
