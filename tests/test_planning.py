"""Plans are the same to the byte wherever they are made, mistakes come in one message, and a kill is made good."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.execute.cluster import Cluster
from biaseval.execute.resources import Resources
from biaseval.pipelines import planning
from biaseval.runs.commands import claimed_run, describe
from biaseval.spec import LabelBiasSpec, load_spec
from biaseval.store import Run
from tests.buckets import free_port
from tests.taskfiles import write_task

TABLES = ("tasks", "splits", "contexts", "prompts", "training_rows")


SPEC = """
kind: label_bias
name: tiny
prompt: {n_demos: [0, 2], demo_sets: 2}
calibration: [cc, dc, looc]
"""


def _spec(folder: Path, model: Path, **changes: Any) -> LabelBiasSpec:
    for number in range(9501, 9506):
        labels = ("no", "yes") if number % 2 else ("no", "not sure", "yes")
        write_task(folder / "tasks", f"task{number}_made", n_instances=130 + number % 7, number=number, labels=labels)
    names = [path.stem for path in sorted((folder / "tasks").iterdir())]
    tasks = {"path": "tasks", "include": names, "min_instances": 130, "max_eval": 30, **changes.pop("tasks", {})}
    content = {**yaml.safe_load(SPEC), "model": {"path": str(model)}, "tasks": tasks, **changes}
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    spec = load_spec(path)
    assert isinstance(spec, LabelBiasSpec)
    return spec


def _plan(spec: LabelBiasSpec, folder: Path) -> dict[str, bytes]:
    """Return the files of a new plan, by their names."""
    with claimed_run(spec, str(folder)) as run:
        names = [name for table in TABLES for name in run.files(table)]
        return {name: run.read_bytes(name) for name in [*names, "plan.json"]}


def _on_ray(patch: pytest.MonkeyPatch, n_workers: int) -> None:
    machine = Resources([{"CPU": 4.0}], is_local=True, n_cores=n_workers)
    patch.setattr(Cluster, "resources", lambda _: machine)
    patch.setattr(planning, "MUCH", 1)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("sampling", ["per_task", "reif2024"])
def test_a_plan_is_the_same_wherever_it_is_made(
    sampling: str, tmp_path: Path, tiny_llama: Path, ray_cluster: None
) -> None:
    lora = {"n_examples": 4} if sampling == "per_task" else None
    spec = _spec(tmp_path, tiny_llama, tasks={"sampling": sampling}, lora=lora, execution={"part_rows": 60})
    here = _plan(spec, tmp_path / "here")
    assert len([name for name in here if name.startswith("prompts/")]) > 5
    described = describe(spec)
    for n_workers in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            _on_ray(patch, n_workers)
            assert _plan(spec, tmp_path / f"ray{n_workers}") == here
            assert describe(spec) == described


@pytest.mark.ray
def test_all_that_is_wrong_comes_in_one_message_from_ray_too(
    tmp_path: Path, tiny_llama: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = _spec(tmp_path, tiny_llama, prompt={"n_demos": [0], "max_tokens": 100_000}, calibration=[])
    for number in (9502, 9504):
        too_long = {"Definition": ["amber river " * 2_500]}
        write_task(tmp_path / "tasks", f"task{number}_made", n_instances=140, number=number, changes=too_long)
    messages = []
    for place in ("here", "ray"):
        if place == "ray":
            _on_ray(monkeypatch, 2)
        with pytest.raises(InputError) as caught:
            _plan(spec, tmp_path / place)
        messages.append(str(caught.value))
        assert not any(Run.open(str(tmp_path / place)).files(name) for name in (*TABLES, "plan.json"))
    assert messages[0] == messages[1]
    assert "task9502_made" in messages[0]
    assert "task9504_made" in messages[0]


def test_a_plan_killed_half_way_is_made_anew(tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = _spec(tmp_path, tiny_llama)
    expected = _plan(spec, tmp_path / "whole")
    write = planning.Files.write

    def killed(files: planning.Files, run: Run, number: int, first: int) -> None:
        if number == 3:
            raise KeyboardInterrupt
        write(files, run, number, first)

    with monkeypatch.context() as patch:
        patch.setattr(planning.Files, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            _plan(spec, tmp_path / "killed")
    left = Run.open(str(tmp_path / "killed"))
    assert left.parts("contexts") == {0, 1, 2}
    assert not left.has("plan.json")
    assert _plan(spec, tmp_path / "killed") == expected


def test_a_plan_does_without_weights_and_a_run_begins_with_all_of_them(tmp_path: Path, tiny_llama: Path) -> None:
    model = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    spec = _spec(tmp_path, model)
    whole = describe(spec)
    (model / "model.safetensors").unlink()
    found = describe(spec)
    assert (found.lines, found.facts) == (whole.lines, whole.facts)
    problem = f"{model}: model directory without weights; model.safetensors or its shards must be in it"
    assert [*found.notes] == [*whole.notes, f"note: a run begins when the weights are there: {problem}"]
    with pytest.raises(InputError) as caught, claimed_run(spec, str(tmp_path / "run")):
        pass
    assert str(caught.value) == problem
    assert not (tmp_path / "run").exists()


def test_a_run_without_its_ray_writes_nothing(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("biaseval.execute.address._PATIENCE_S", 0.5)
    with (
        pytest.raises(InputError, match=r"^no Ray answers at"),
        claimed_run(_spec(tmp_path, tiny_llama), str(tmp_path / "run")),
    ):
        pass
    assert not (tmp_path / "run").exists()
