"""Training on a real Ray: in one process or several, with DeepSpeed or without, and whatever is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from biaseval.cli import app
from biaseval.errors import BiasevalError, InputError
from biaseval.execute.training import AdapterToTrain, deal, share
from biaseval.models import ModelSource, load_model
from biaseval.pipelines import TrainingSummary, summarize_plan, train_lora
from biaseval.spec import ExecutionSpec, LoraSpec, load_spec
from biaseval.store import Run
from biaseval.tables import TRAINING
from tests.processes import run_until_killed
from tests.taskfiles import write_task

LORA = {"precision": "float32", "r": 4, "epochs": 2, "learning_rate": 2e-3, "gradient_checkpointing": False}
TASK = "task9501_two_classification"


def write_spec(folder: Path, model: Path, **lora: Any) -> Path:
    if not (folder / "tasks").exists():
        write_task(folder / "tasks", TASK, n_instances=140, number=9501)
    content = {
        "kind": "label_bias",
        "name": "tiny",
        "model": {"path": str(model)},
        "tasks": {"path": "tasks", "include": [TASK], "min_instances": 130, "max_eval": 4},
        "prompt": {"n_demos": [0, 2], "demo_sets": 1},
        "lora": {**LORA, **lora},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def train(folder: Path, model: Path, **lora: Any) -> tuple[TrainingSummary, Path]:
    spec = load_spec(write_spec(folder, model, **lora))
    return train_lora(spec, str(folder / "run")), folder / "run"


def adapters(run_dir: Path) -> dict[str, dict[str, torch.Tensor]]:
    files = sorted((run_dir / "adapters").glob("*/*/adapter_model.safetensors"))
    return {str(file.parent.relative_to(run_dir / "adapters")): load_file(file) for file in files}


def assert_same(found: Path, expected: Path, tolerance: float) -> None:
    one, other = adapters(found), adapters(expected)
    assert list(one) == list(other) == [f"{TASK}/k0.s0", f"{TASK}/k2.s0"]
    for name, weights in other.items():
        assert weights.keys() == one[name].keys()
        assert max((one[name][key] - value).abs().max().item() for key, value in weights.items()) < tolerance
    rows, wanted = (Run.open(str(run_dir)).read_table("training").to_pylist() for run_dir in (found, expected))
    for row, want in zip(rows, wanted, strict=True):
        row.pop("seconds")
        want.pop("seconds")
        assert row == {k: pytest.approx(v, abs=tolerance) if isinstance(v, float) else v for k, v in want.items()}


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, ray_cluster: None
) -> tuple[TrainingSummary, Path]:
    """Return what one worker without DeepSpeed made."""
    return train(tmp_path_factory.mktemp("alone"), tiny_llama)


@pytest.mark.ray
@pytest.mark.slow
def test_training_leaves_adapters_and_their_steps(alone: tuple[TrainingSummary, Path], tiny_llama: Path) -> None:
    summary, run_dir = alone
    assert (summary.n_adapters, summary.n_planned, summary.n_trained, summary.n_steps) == (2, 2, 2, 8)
    assert summary.first_loss is not None
    assert summary.last_loss is not None
    assert summary.last_loss < summary.first_loss
    assert summary.overhead_share is not None
    assert 0 <= summary.overhead_share < 1
    assert not summary.stopped
    run = Run.open(str(run_dir))
    assert run.parts("training") == {0, 1}
    rows = run.read_table("training")
    assert rows.schema == TRAINING.schema
    assert [row["step"] for row in rows.to_pylist()] == [0, 1, 2, 3] * 2
    assert {row["model"] for row in rows.to_pylist()} == {"tiny"}
    assert sorted(adapters(run_dir)) == sorted({row["adapter"] for row in rows.to_pylist()})
    adapted = load_model(ModelSource(str(tiny_llama), adapter=str(run_dir / "adapters" / TASK / "k2.s0")))
    assert any("lora_A" in name for name, _ in adapted.named_parameters())
    assert not [path for path in run_dir.rglob("*") if "incomplete" in path.name or path.name == ".train"]
    assert json.loads((run_dir / "environment.json").read_text())["training"][0]["n_adapters"] == 2


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("zero", [None, 2, 3])
def test_two_workers_train_the_same_adapters_as_one(
    alone: tuple[TrainingSummary, Path], tmp_path: Path, tiny_llama: Path, zero: int | None
) -> None:
    _, run_dir = train(tmp_path, tiny_llama, workers=2, zero=zero)
    assert_same(run_dir, alone[1], 1e-4)


@pytest.mark.ray
@pytest.mark.slow
def test_only_what_is_missing_is_trained(alone: tuple[TrainingSummary, Path], tmp_path: Path, tiny_llama: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(alone[1], run_dir)
    shutil.copytree(alone[1].parent / "tasks", tmp_path / "tasks")
    kept = run_dir / "adapters" / TASK / "k0.s0" / "adapter_model.safetensors"
    before = kept.stat().st_mtime_ns
    # Killed between its two files: weights without a configuration are no adapter.
    (run_dir / "adapters" / TASK / "k2.s0" / "adapter_config.json").unlink()
    summary, _ = train(tmp_path, tiny_llama)
    assert (summary.n_adapters, summary.n_trained) == (2, 1)
    assert kept.stat().st_mtime_ns == before
    assert_same(run_dir, alone[1], 1e-6)
    summary, _ = train(tmp_path, tiny_llama)
    assert (summary.n_adapters, summary.n_trained, summary.overhead_share) == (2, 0, None)


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_training_resumes(alone: tuple[TrainingSummary, Path], tmp_path: Path, tiny_llama: Path) -> None:
    spec, run_dir = write_spec(tmp_path, tiny_llama), tmp_path / "run"
    run_until_killed(lambda: bool(adapters(run_dir)), "train", "lora", str(spec), "--run-dir", str(run_dir))
    assert adapters(run_dir)
    train(tmp_path, tiny_llama)
    assert_same(run_dir, alone[1], 1e-4)


def train_workers() -> list[psutil.Process]:
    """Return the processes of Ray Train's workers below this one."""
    found = []
    for own in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RayTrainWorker" in own.name():
                found.append(own)
    return found


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_what_is_complete_stays(
    alone: tuple[TrainingSummary, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    killed: list[float] = []

    before = {own.pid for own in train_workers()}

    def kill() -> None:
        deadline = time.monotonic() + 120
        workers: list[psutil.Process] = []
        while not workers and time.monotonic() < deadline:
            workers = [own for own in train_workers() if own.pid not in before]
        found: list[Path] = []
        # Looking for processes takes longer than training such an adapter.
        while not found and time.monotonic() < deadline:
            # An adapter's outcome comes behind its files.
            found = list((tmp_path / "run" / ".train" / "outcomes").glob("*.json"))
        for each in workers if found else ():
            each.kill()
        [config] = (tmp_path / "run" / "adapters").glob("*/*/adapter_config.json")
        killed.append(config.stat().st_mtime_ns)

    thread = threading.Thread(target=kill)
    thread.start()
    summary, run_dir = train(tmp_path, tiny_llama)
    thread.join()
    [first, _] = sorted(file.stat().st_mtime_ns for file in run_dir.glob("adapters/*/*/adapter_config.json"))
    assert killed == [first]
    assert summary.n_trained == 2
    assert summary.overhead_share is not None
    assert_same(run_dir, alone[1], 1e-4)


@pytest.mark.ray
@pytest.mark.slow
def test_adapters_that_stop_are_named_and_their_steps_recorded(
    tmp_path: Path, tiny_llama: Path, ray_cluster: None
) -> None:
    spec = write_spec(tmp_path, tiny_llama, learning_rate=1e30)
    done = CliRunner().invoke(app, ["train", "lora", str(spec), "--run-dir", str(tmp_path / "run")])
    assert isinstance(done.exception, BiasevalError)
    assert done.exception.exit_code == 1
    assert "2 adapters stopped because loss or gradient was not finite" in str(done.exception)
    assert f"{TASK}/k0.s0 (step 1, loss" in str(done.exception)
    assert "0 of 2" in done.stdout
    rows = Run.open(str(tmp_path / "run")).read_table("training").to_pylist()
    assert [row["step"] for row in rows] == [0, 1] * 2
    assert not adapters(tmp_path / "run")


@pytest.mark.ray
def test_more_workers_than_resources_are_refused(tmp_path: Path, tiny_llama: Path, ray_cluster: None) -> None:
    with pytest.raises(InputError, match=r"lora.workers: 8 need 8 CPUs, one each, and Ray has 4: 4 missing"):
        train(tmp_path, tiny_llama, workers=8)


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


def test_a_deepspeed_file_that_contradicts_is_refused_before_anything_is_written(
    tmp_path: Path, tiny_llama: Path
) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 4}')
    with pytest.raises(InputError, match=r"train_batch_size 4 contradicts lora.batch_size 1 times lora.accumulation 8"):
        train(tmp_path, tiny_llama, zero=2, deepspeed_config="ds.json")
    assert not (tmp_path / "run").exists()


def test_planning_says_what_training_costs(tmp_path: Path, tiny_llama: Path) -> None:
    cost = summarize_plan(load_spec(write_spec(tmp_path, tiny_llama)))[2]
    assert cost is not None
    assert (cost.n_adapters, cost.n_steps) == (2, 8)
    assert 0 < cost.longest < cost.tokens
    assert [shape.name for shape in cost.shapes][1:] == ["7B (Llama-2)", "13B (Llama-2)", "40B (Falcon)"]
    # 2 layers: q, o 32x32, k, v 32x16, gate, up, down 32x64; head 32 x vocabulary.
    vocabulary = cost.shapes[0].targets[-1][1]
    assert cost.n_trainable[0] == 4 * (2 * (2 * 64 + 2 * 48 + 3 * 96) + 32 + vocabulary)


def test_rows_that_do_not_fit_are_refused_with_the_plan_and_leave_nothing(tmp_path: Path, tiny_llama: Path) -> None:
    spec = load_spec(write_spec(tmp_path, tiny_llama, max_tokens=20))
    message = r"(?s)k0.s0: a training row has \d+ tokens .* lora.max_tokens is 20.*k2.s0: a training row has"
    with pytest.raises(InputError, match=message):
        summarize_plan(spec)
    with pytest.raises(InputError, match=message):
        train_lora(spec, str(tmp_path / "run"))
    assert not [path for path in (tmp_path / "run").iterdir() if path.name != ".lock"]


def node(cpus: float = 0, gpus: float = 0) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus}


@pytest.mark.parametrize(
    ("workers", "actors", "n_adapters", "nodes", "is_local", "expected"),
    [
        (1, "auto", 10, [node(8, 4)], True, (4, {"GPU": 1})),
        (2, "auto", 10, [node(8, 4), node(8, 1)], False, (2, {"GPU": 1})),
        (2, "auto", 1, [node(8, 4)], True, (1, {"GPU": 1})),
        (2, 1, 10, [node(8, 4)], True, (1, {"GPU": 1})),
        (1, "auto", 10, [node(4)], True, (1, {"CPU": 4})),
        (2, "auto", 10, [node(4)], True, (1, {"CPU": 2})),
        (2, "auto", 10, [node(5), node(5), node(5), node(5)], False, (2, {"CPU": 5})),
        (4, "auto", 10, [node(5), node(5), node(5)], False, (1, {"CPU": 2})),
    ],
)
def test_groups_share_a_cluster(
    workers: int,
    actors: Any,
    n_adapters: int,
    nodes: list[dict[str, float]],
    is_local: bool,
    expected: tuple[int, dict[str, float]],
) -> None:
    lora = LoraSpec(workers=workers)
    groups = share(lora, ExecutionSpec(actors=actors), n_adapters, nodes, is_local=is_local)
    assert (groups.n_groups, groups.resources_per_worker) == expected
    assert groups.use_gpu == ("GPU" in expected[1])


def test_gpus_that_are_missing_are_counted() -> None:
    lora, nodes = LoraSpec(workers=4), [node(16, 2)]
    with pytest.raises(InputError, match="4 need 4 GPUs, one each, and Ray has 2: 2 missing"):
        share(lora, ExecutionSpec(), 3, nodes, is_local=False)
    with pytest.raises(InputError, match=r"4 in each of 2 groups .* need 8 GPUs, one each, and Ray has 4: 4 missing"):
        share(lora, ExecutionSpec(actors=2), 3, [node(16, 4)], is_local=True)
    # Where GPU nodes come on demand, a number says so.
    assert share(lora, ExecutionSpec(gpus_per_actor=1), 3, [node(4)], is_local=False).use_gpu
    assert not share(lora, ExecutionSpec(gpus_per_actor=0), 3, nodes, is_local=True).use_gpu


def test_adapters_are_dealt_by_their_cost() -> None:
    missing = [AdapterToTrain(n, 0, f"t/k{n}.s0", tokens) for n, tokens in enumerate([5, 9, 4, 1, 5])]
    dealt = deal(missing, 2)
    assert sorted(adapter.part for own in dealt for adapter in own) == [0, 1, 2, 3, 4]
    assert [sum(adapter.tokens for adapter in own) for own in dealt] == [13, 11]
    assert len(deal(missing[:1], 3)) == 1


def test_a_lost_steps_table_is_noticed(tmp_path: Path, tiny_llama: Path) -> None:
    from biaseval.pipelines.training import _summary

    run = Run.open(str(tmp_path))
    run.write_text("adapters/t/k0.s0/adapter_config.json", "{}")
    with pytest.raises(BiasevalError, match="1 adapters have no part in training"):
        _summary(run, ["t/k0.s0"], [])
