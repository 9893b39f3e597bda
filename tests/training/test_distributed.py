"""Training on a real Ray: adapters, one after another, and whatever is killed."""

import itertools
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.util.placement_group import placement_group_table
from typer.testing import CliRunner

from biaseval.cli import app
from biaseval.errors import BiasevalError, InputError
from biaseval.execute import groups, training, waiting
from biaseval.execute.budget import HALT, GpuHours
from biaseval.execute.cluster import Cluster
from biaseval.execute.messages import Queue
from biaseval.execute.parts import Parts
from biaseval.execute.resources import Ask, Groups
from biaseval.execute.tasks import Made, Task
from biaseval.execute.training import Training
from biaseval.pipelines.labels.adapters import adapter_stage, training_summary
from biaseval.pipelines.run import make_missing
from biaseval.runs import describe, train_lora
from biaseval.spec import AnySpec, ExecutionSpec, load_spec
from biaseval.store import Run
from biaseval.training import outcome
from biaseval.training.recipe import adapters_recipe, tuning_recipe
from biaseval.training.work import few_shot_adapter, tuned_model
from biaseval.units import Done, Unit
from tests.taskfiles import write_task
from tests.training import windows
from tests.training.test_tuning import spec_of

LORA = {"precision": "float32", "r": 4, "epochs": 2, "learning_rate": 2e-3, "gradient_checkpointing": False}
TASK = "task9501_two_classification"


def write_spec(folder: Path, model: Path, n_demos: Sequence[int] = (0, 2), **lora: Any) -> Path:
    if not (folder / "tasks").exists():
        write_task(folder / "tasks", TASK, n_instances=140, number=9501)
    content = {
        "kind": "label_bias", "name": "tiny", "model": {"path": str(model)},
        "tasks": {"path": "tasks", "include": [TASK], "min_instances": 130, "max_eval": 4},
        "prompt": {"n_demos": list(n_demos), "demo_sets": 1}, "lora": {**LORA, **lora},
    }  # fmt: skip
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.ray
def test_a_group_that_lost_a_worker_gives_back_what_it_had(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: None
) -> None:
    configs: list[dict[str, Any]] = []
    begun: list[list[int]] = []

    def fit(run: Run, work: Any, config: Any, section: str, workers: Any) -> None:
        for n_taken in (2, 3):
            configs.append(own := config())
            following = groups._following(run, own["job"], own["queue"], own["group"])
            begun.append([unit.number for unit in itertools.islice(following, n_taken)])
            run.write_text(".train/outcomes/00000.json", "{}")
            run.write_text("checkpoints/step-00000004/checkpoint.json", '{"n_steps": 4, "n_parts": 1, "n_files": 1}')

    monkeypatch.setattr(groups, "fit", fit)
    units = [Unit(number, 1, (f"adapters/{number}/adapter_config.json",)) for number in range(3)]
    spec = spec_of(tiny_llama)
    lora = load_spec(write_spec(tmp_path, tiny_llama))
    for number, (recipe, work) in enumerate(
        ((adapters_recipe(lora.model, lora.lora), few_shot_adapter), (tuning_recipe(spec), tuned_model))
    ):
        run = Run.open(str(tmp_path / str(number)))
        queue = groups.queued(units)
        groups.lead._function(groups.Job(run.uri, recipe, work, {}, None), queue, 0)
    assert begun == [[0, 1], [2, 1]] * 2  # it died with 1, which waits behind 2
    assert [config["n_ended"] for config in configs] == [0, 1] * 2
    # Where checkpoints are kept, another one is progress too; here the one of the unit that it had.
    assert [config["start"] for config in configs] == [[], [], [], [4]]


def test_adapters_that_stopped_are_named_behind_the_summary(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = ["t/k0.s0 (step 1, loss nan)", "t/k2.s0 (step 1, loss inf)"]
    times = {"seconds": 1.0, "step_seconds": 0.5}
    given_up = [
        Done(
            Unit(n, 1, (), {"adapter": name}), facts={"is_complete": False, "n_steps": 2, "loss": float(loss), **times}
        )
        for n, (name, loss) in enumerate([("t/k0.s0", "nan"), ("t/k2.s0", "inf")])
    ]
    spec = write_spec(tmp_path, tiny_llama)
    loaded, plan = load_spec(spec), {"adapters": [{"part": n, **done.unit.work} for n, done in enumerate(given_up)]}
    run = Run.open(str(tmp_path / "run"))
    summary = training_summary(run, adapter_stage(run, loaded, loaded.lora, plan, []), given_up)
    monkeypatch.setattr("biaseval.runs.commands.train_lora", lambda spec, run_uri: summary)
    done = CliRunner().invoke(app, ["train", "lora", str(spec), "--run-dir", str(tmp_path / "run")])
    assert isinstance(done.exception, BiasevalError)
    assert done.exception.exit_code == 1
    assert f"2 adapters stopped because loss or gradient was not finite: {'; '.join(stopped)}" in str(done.exception)
    assert "0 of 2" in done.stdout


@pytest.mark.ray
@pytest.mark.slow
def test_an_error_of_a_worker_arrives_as_it_is(tmp_path: Path, tiny_llama: Path, ray_cluster: None) -> None:
    spec = load_spec(write_spec(tmp_path, tiny_llama))
    model = tmp_path / "model"
    shutil.copytree(tiny_llama, model)
    spec = load_spec(write_spec(tmp_path, model))
    (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-4])
    with pytest.raises(InputError, match=f"{model}: no usable causal language model"):
        train_lora(spec, str(tmp_path / "run"))


def test_gpu_hours_that_are_used_up_begin_no_other_adapter_and_more_of_them_train_it(
    tmp_path: Path, tiny_llama: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the group had a GPU, and its driver heard of each adapter at once."""
    monkeypatch.setattr("biaseval.execute.training.GpuHours", lambda run, most, n_gpus: GpuHours(run, most, 1))
    plain = outcome.train

    def train_and_halt(run: Run, *arguments: Any) -> Any:
        found = plain(run, *arguments)
        run.write_text(HALT, "")
        return found

    path = write_spec(tmp_path, tiny_llama)
    with monkeypatch.context() as patch:
        patch.setattr(outcome, "train", train_and_halt)
        with pytest.raises(BiasevalError, match=r"max_gpu_hours: 1e-09 are used up .* before all is made; raise it"):
            train_lora(load_spec(path, ["execution.max_gpu_hours=0.000000001"]), str(tmp_path / "run"))
    run = Run.open(str(tmp_path / "run"))
    assert len([name for name in run.files("adapters") if name.endswith("adapter_config.json")]) == 1
    assert not run.has(HALT)
    [used] = [own["seconds"] for own in run.read_json("environment.json")["training"]]
    assert run.read_json("environment.json")["gpu_hours"] == pytest.approx(used / 3600, abs=2e-6)
    with pytest.raises(BiasevalError, match="max_gpu_hours: 1e-09 are used up"):
        train_lora(load_spec(path, ["execution.max_gpu_hours=0.000000001"]), str(tmp_path / "run"))
    train_lora(load_spec(path, ["execution.max_gpu_hours=9"]), str(tmp_path / "run"))
    assert len([name for name in run.files("adapters") if name.endswith("adapter_config.json")]) == 2


def test_planning_says_what_training_costs(tmp_path: Path, tiny_llama: Path) -> None:
    plan = describe(load_spec(write_spec(tmp_path, tiny_llama)))
    shown, cost = dict(plan.training_lines), plan.training
    assert (shown["adapters to train"], shown["optimizer steps"]) == ("2", "8")
    n_tokens, longest = shown["tokens of training rows"].split(" (longest row ")
    assert int(longest.removesuffix(")")) == cost.row_tokens
    assert 0 < cost.row_tokens < int(n_tokens.replace(",", ""))
    assert [shape.name for shape in cost.shapes][1:] == ["7B (Llama-2)", "13B (Llama-2)", "40B (Falcon)"]
    # 2 layers: q, o 32x32, k, v 32x16, gate, up, down 32x64; head 32 x vocabulary.
    vocabulary = cost.shapes[0].targets[-1][1]
    assert cost.n_trainable[0] == 4 * (2 * (2 * 64 + 2 * 48 + 3 * 96) + 32 + vocabulary)


def test_groups_take_the_costliest_first_and_as_fast_as_they_are() -> None:
    queue = Queue(Unit(n, 1, (f"{n}/file",), {"tokens": tokens}) for n, tokens in enumerate([5, 9, 4, 1, 5]))

    def taken(group: int) -> int | None:
        unit = queue.take(group)
        return None if unit is None else unit.number

    assert [queue.begin(0, "a"), queue.begin(1, "b")] == [(0, None), (0, None)]
    assert queue.leaders() == {"a", "b"}
    assert [taken(0), taken(1), taken(0), taken(0)] == [1, 0, 4, 2]  # group 1 is slow
    # It dies: what it had is begun behind all others, by whoever comes first.
    n_ended, unit = queue.begin(1, "c")
    assert (n_ended, unit and unit.number) == (0, 0)
    assert not queue.is_over(is_halted=True)  # group 0 has one
    assert [taken(0), taken(0), taken(0)] == [3, 0, None]
    assert queue.is_over(is_halted=False)
    assert [taken(1), queue.begin(0, "a"), queue.begin(1, "c")] == [None, (5, None), (0, None)]


def end_in_the_window(monkeypatch: pytest.MonkeyPatch, folder: Path, lead: Any) -> None:
    """Have groups of three CPUs ended when the second has its place, and its controller has told nobody of it."""
    both = Groups(2, 1, {"CPU": 3}, use_gpu=False, n_threads=1)
    monkeypatch.setattr(groups, "SECONDS_BETWEEN_LOOKS", 0.5)
    monkeypatch.setattr(training, "share", lambda *arguments: both)
    monkeypatch.setattr(groups, "Queue", windows.patient(folder))
    monkeypatch.setattr(groups, "lead", ray.remote(num_cpus=0, max_retries=0)(lead))


def refuse_leftovers(folder: Path) -> None:
    assert (folder / "window").exists()
    assert "CREATED" not in [group["state"] for group in placement_group_table().values()]


def light_stage(spec: AnySpec, *work: Mapping[str, Any]) -> Training:
    """Return the stage of units with next to nothing to train (`windows.light_lead`)."""
    return Training(
        name="training", verb="trained", noun="adapters",
        units=[Unit(number, 1, (f"trained/{number}",), own) for number, own in enumerate(work)],
        execution=spec.execution, recipe=adapters_recipe(spec.model, spec.lora), work=windows.no_work,
    )  # fmt: skip


class Writer:
    """Writes its part."""

    def __init__(self, run: Run, allocation: Any) -> None:
        self._run = run

    def make(self, task: Task, prepared: Any) -> Made:
        self._run.write_text(task.files[0], "measured")
        return Made({})


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(540)
def test_the_next_stage_gets_what_ended_groups_held(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: None
) -> None:
    """The same, with next to nothing to train; as often as `BIASEVAL_REPEATS` says."""
    spec = load_spec(write_spec(tmp_path, tiny_llama))
    for number in range(int(os.environ.get("BIASEVAL_REPEATS", 1))):
        folder, started = tmp_path / str(number), time.monotonic()
        folder.mkdir()
        run = Run.open(str(folder / "run"))
        run.create()
        end_in_the_window(monkeypatch, folder, windows.light_lead)
        measuring = Parts(
            name="measuring", verb="measured", units=[Unit(0, 1, ("measured/0",))], execution=ExecutionSpec(actors=1),
            worker=Writer,
        )  # fmt: skip
        assert len(make_missing(run, [light_stage(spec, {}, {}), measuring], spec.execution)) == 3
        refuse_leftovers(folder)
        print(f"{number + 1} ended, the last in {time.monotonic() - started:.0f} s", flush=True)


def controllers() -> dict[str, str]:
    """Return the states of Ray Train's controllers."""
    actors = ray._private.state.actors()
    return {name: own["State"] for name, own in actors.items() if own["ActorClassName"] == "TrainController"}


@pytest.mark.ray
@pytest.mark.slow
def test_groups_that_train_end_with_who_asked_for_them(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: None
) -> None:
    end_in_the_window(monkeypatch, tmp_path, windows.light_lead)
    spec, run = load_spec(write_spec(tmp_path, tiny_llama)), Run.open(str(tmp_path / "run"))
    run.create()
    stage = light_stage(spec, {"tokens": 2}, {"waits": True})

    def stopped_when_placed(wait: waiting.Wait, ask: Ask | None, *, is_idle: bool) -> None:
        if not is_idle:
            raise KeyboardInterrupt

    monkeypatch.setattr(waiting.Wait, "look", stopped_when_placed)
    with Cluster(spec.execution) as cluster:
        before = controllers().keys()
        with pytest.raises(KeyboardInterrupt):
            list(stage.make(run, stage.units, cluster))
        found = controllers()
    assert {found[own] for own in found.keys() - before} == {"DEAD"}
    assert "CREATED" not in [group["state"] for group in placement_group_table().values()]
    assert not run.has("trained/1")


def test_a_lost_steps_table_is_noticed(tmp_path: Path, tiny_llama: Path) -> None:
    run = Run.open(str(tmp_path))
    run.write_text("adapters/t/k0.s0/adapter_config.json", "{}")
    spec = load_spec(write_spec(tmp_path / "spec", tiny_llama))
    stage = adapter_stage(run, spec, spec.lora, {"adapters": [{"part": 0, "adapter": "t/k0.s0"}]}, [])
    with pytest.raises(BiasevalError, match="1 adapters have no part in training"):
        training_summary(run, stage, [])
