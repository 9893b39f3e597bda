"""Workers that train together, as processes on this machine: at every ZeRO stage the same as one does alone."""

import gc
import itertools
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from biaseval.execute.groups import for_all
from biaseval.spec import InstructSpec, ModelSpec
from biaseval.store import Run
from biaseval.training.loop import StepRecord
from biaseval.training.objectives import Conversations, LabelledPrompts, Objective
from biaseval.training.outcome import Outcome, train
from biaseval.training.preparation import load_base
from biaseval.training.recipe import Recipe, adapters_recipe, tuning_recipe
from biaseval.training.work import Work
from biaseval.units import Unit
from tests.training.trainingtexts import CPU, SMALL, random_conversations, random_rows

# The limit is for what hangs: both workers import DeepSpeed, which a busy machine takes minutes for.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STAGES = (None, 0, 1, 2, 3)
N_WORKERS = 2


class KilledError(Exception):
    """Stands for the death of all workers."""


def few_shot(model: str, **changes: Any) -> tuple[Recipe, Objective, str]:
    lora = SMALL.model_copy(update={"epochs": 2, **changes})
    return adapters_recipe(ModelSpec(path=model), lora), LabelledPrompts(random_rows(11)), "adapters/t/k0.s0"


def tuning(model: str, lora: dict[str, Any] | None = None, **changes: Any) -> tuple[Recipe, Objective, str]:
    training = {"learning_rate": 2e-3, "precision": "float32", "gradient_checkpointing": False, "accumulation": 6}
    content = {
        "kind": "instruct", "name": "tiny", "model": {"path": model}, "data": {"path": "unused"}, "lora": lora,
        "training": {**training, "epochs": 2, "checkpoint_steps": 2, **changes},
    }  # fmt: skip
    held_out = Conversations(random_conversations(5, seed=1), 64)
    objective = Conversations(random_conversations(), 64, held_out)
    return tuning_recipe(InstructSpec.model_validate(content)), objective, "model" if lora is None else "adapter"


resumable = partial(tuning, checkpoint_steps=1)


def trained(
    folder: Path, what: tuple[Recipe, Objective, str], killed_behind: int | None = None, rank: int = 0,
    n_workers: int = 1,
) -> Outcome:  # fmt: skip
    recipe, objective, result = what

    def hear(record: StepRecord) -> None:
        if record.step == killed_behind:
            raise KilledError

    base = load_base(recipe, CPU, rank, n_workers)
    return train(Run.open(str(folder)), base, Work(objective, {"model": "tiny"}), recipe, result, hear)


def train_two_on_one(folder: Path, what: tuple[Recipe, Objective, str], rank: int) -> list[str]:
    """Train an adapter twice on one base model, as a group does; return what is left in memory of either."""
    recipe, objective, result = what
    base = load_base(recipe, CPU, rank, N_WORKERS)
    for name in ("first", "second"):
        train(Run.open(str(folder / name)), base, Work(objective, {"model": "tiny"}), recipe, result, lambda _: None)
    gc.collect()
    names = [type(each).__name__ for each in gc.get_objects()]
    return [name for name in names if name in ("DeepSpeedEngine", "DeepSpeedZeroOptimizer_Stage3", "Loss")]


def work_together(rank: int, folder: Path, model: str) -> None:
    """Train everything one after another; what one worker of two does."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(N_WORKERS)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), N_WORKERS), rank=rank, world_size=2)
    place = {"rank": rank, "n_workers": N_WORKERS}
    for zero in STAGES:
        trained(folder / f"few-shot-{zero}", few_shot(model, zero=zero, workers=2), **place)
        trained(folder / f"tuned-{zero}", tuning(model, zero=zero, workers=2), **place)
        stopping = few_shot(model, zero=zero, workers=2, learning_rate=1e30)
        outcome = trained(folder / f"stopped-{zero}", stopping, **place)
        assert not outcome.is_complete
        assert outcome.n_steps < 4
    left = train_two_on_one(folder, few_shot(model, zero=3, workers=2), rank)
    (folder / f"left-{rank}.json").write_text(json.dumps(left))
    # The first worker takes what is next, for all of them.
    units = [Unit(number, 1, (f"{number}/file",), {}) for number in range(3)]
    assert list(for_all(iter(units) if rank == 0 else itertools.repeat(None), N_WORKERS)) == units
    trained(folder / "adapter", tuning(model, {"r": 4, "alpha": 8}, zero=3, workers=2), **place)
    # Begun by one worker alone, gone on with under ZeRO 0, 1 and 2, ended under ZeRO 3.
    for zero, behind in enumerate((3, 4, 5)):
        with pytest.raises(KilledError):
            trained(folder / "resumed", resumable(model, zero=zero, workers=2), killed_behind=behind, **place)
        assert Run.open(str(folder / "resumed")).read_table("training")["step"].to_pylist() == list(range(behind))
    outcome = trained(folder / "resumed", resumable(model, zero=3, workers=2), **place)
    assert outcome.first_step == 5
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    folder = tmp_path_factory.mktemp("together")
    with pytest.raises(KilledError):
        trained(folder / "resumed", resumable(str(tiny_llama)), killed_behind=2)
    work = (folder, str(tiny_llama))
    torch.multiprocessing.start_processes(work_together, args=work, nprocs=N_WORKERS, start_method="spawn")
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    trained(folder / "few-shot", few_shot(str(tiny_llama)))
    trained(folder / "tuned", tuning(str(tiny_llama)))
    trained(folder / "adapter", tuning(str(tiny_llama), {"r": 4, "alpha": 8}))
    return folder


def assert_same(found: Path, expected: Path) -> None:
    [one], [other] = (list(folder.rglob("*model.safetensors")) for folder in (found, expected))
    assert one.relative_to(found) == other.relative_to(expected)
    weights, wanted = load_file(one), load_file(other)
    assert weights.keys() == wanted.keys()
    assert max((weights[name] - value).abs().max().item() for name, value in wanted.items()) < 1e-4
    rows, wanted_rows = (Run.open(str(folder)).read_table("training").to_pylist() for folder in (found, expected))
    for row, want in zip(rows, wanted_rows, strict=True):
        row.pop("seconds")
        want.pop("seconds")
        assert row == {key: pytest.approx(v, abs=1e-4) if isinstance(v, float) else v for key, v in want.items()}


@pytest.mark.parametrize("zero", STAGES)
def test_two_workers_train_the_same_as_one(together: Path, alone: Path, zero: int | None) -> None:
    assert_same(together / f"few-shot-{zero}", alone / "few-shot")
    assert_same(together / f"tuned-{zero}", alone / "tuned")


def test_adapters_may_be_tuned_on_a_partitioned_model_and_a_training_go_on_under_another_stage(
    together: Path, alone: Path
) -> None:
    assert_same(together / "adapter", alone / "adapter")
    assert_same(together / "resumed", alone / "tuned")


def test_adapters_on_one_partitioned_model_are_as_alone_and_leave_nothing_in_memory(
    together: Path, alone: Path
) -> None:
    for name in ("first", "second"):
        assert_same(together / name, alone / "few-shot")
    assert [json.loads((together / f"left-{rank}.json").read_text()) for rank in range(N_WORKERS)] == [[], []]


@pytest.mark.parametrize("zero", STAGES)
def test_what_is_not_finite_is_not_written(together: Path, zero: int | None) -> None:
    folder = together / f"stopped-{zero}"
    assert not (folder / "adapters").exists()
    norms = [row["grad_norm"] for row in Run.open(str(folder)).read_table("training").to_pylist()]
    assert [norm is not None and bool(np.isfinite(norm)) for norm in norms] == [True] * (len(norms) - 1) + [False]
