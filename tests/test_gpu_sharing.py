"""Small models share GPUs, by hand; whole GPUs otherwise. Nothing here needs one."""

from typing import Any

import pytest
import torch

from biaseval.execute.gpu_sharing import actors_of_a_gpu, gpu_bytes
from biaseval.execute.machine import take_share
from biaseval.execute.resources import NodeType, Resources, allocate, share_of
from biaseval.scoring.memory import free_bytes
from biaseval.spec import ExecutionSpec

GIB = 1 << 30
H100, L4 = {"CPU": 16.0, "GPU": 2.0, "accelerator_type:H100": 1.0}, {"CPU": 8, "GPU": 1, "accelerator_type:L4": 1}
TWO = Resources([{"CPU": 8}, H100], is_local=False, n_cores=8)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{"CPU": 8}], None),
        ([H100, {"CPU": 8}], 79),
        ([H100, L4], 22),
        ([H100, {"GPU": 1}], None),
        ([{"GPU": 1, "accelerator_type:A100": 1, "accelerator_type:A100-80G": 1}], 39),
        ([{"GPU": 1, "accelerator_type:TPU-V4": 1}], None),
    ],
)
def test_the_smallest_gpu_counts_and_an_unknown_one_forbids(
    nodes: list[dict[str, float]], expected: int | None
) -> None:
    assert gpu_bytes(nodes) == (None if expected is None else expected * GIB)


@pytest.mark.parametrize(
    ("weights", "memory", "n_gpus", "n_parts", "expected"),
    [
        (1 * GIB, 79 * GIB, 1, 100, 4),  # no more of them, however small
        (3 * GIB, 39 * GIB, 1, 100, 3),  # 12 GiB each: four times the weights
        (1 * GIB, 22 * GIB, 1, 100, 2),  # 8 GiB each, at least
        (1 * GIB, 15 * GIB, 1, 100, 1),
        (3 * GIB + 1, 79 * GIB, 1, 100, 1),  # no small model
        (1 * GIB, 79 * GIB, 2, 23, 2),  # four parts for each of four actors, not of six
        (1 * GIB, 79 * GIB, 2, 3, 1),
    ],
)
def test_actors_of_a_gpu(weights: int, memory: int, n_gpus: int, n_parts: int, expected: int) -> None:
    assert actors_of_a_gpu(weights, memory, n_gpus, n_parts) == expected


@pytest.mark.parametrize(
    ("execution", "resources", "weights", "expected"),
    [
        ({}, TWO, GIB, ((1, 100), 0.25)),
        ({}, Resources([H100], True, 8), GIB, (8, 0.25)),
        ({}, share_of(TWO, 2), GIB, ((1, 100), 0.25)),
        ({}, TWO, 3 * GIB, ((1, 100), 0.25)),
        ({}, TWO, 14 * GIB, ((1, 100), 1)),
        ({}, TWO, None, ((1, 100), 1)),
        ({"gpus_per_actor": 1}, TWO, GIB, ((1, 100), 1)),
        ({"actors": 2}, TWO, GIB, (2, 1)),
        # What comes on demand has no type.
        ({}, Resources([H100], False, 8, types=[NodeType("gpu", {"GPU": 1}, 4)]), GIB, ((1, 4), 1)),
    ],
)
def test_small_models_share_gpus_where_nobody_says_otherwise(
    execution: dict[str, Any], resources: Resources, weights: int | None, expected: Any
) -> None:
    found = allocate(ExecutionSpec(**execution), 100, resources, weights)
    assert (found.n_actors, found.num_gpus) == expected
    assert found.device == "cuda"
    assert found.caution is None


def test_a_third_of_a_gpu_is_what_ray_takes_three_times_and_a_spare_one_is_said() -> None:
    found = allocate(ExecutionSpec(), 100, Resources([{**H100, "accelerator_type:A100": 1}], True, 8), 3 * GIB)
    assert found.num_gpus == 0.3333
    spare, needed = (allocate(ExecutionSpec(gpus_per_actor=2), 9, TWO, gib * GIB).caution for gib in (14, 83))
    assert (spare or "").startswith(
        "on 2 GPUs for each model, which one has room for: the others would do nothing; set"
    )
    assert (needed or "").startswith("on several GPUs for each model, which work one after another")


@pytest.mark.parametrize(("free", "reserved", "expected"), [(70, 0, 20), (12, 0, 12), (70, 5, 15)])
def test_budgets_are_of_a_gpus_share(free: int, reserved: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    take_share(None, 0.25)
    take_share(None, 1)
    take_share(torch.get_num_threads(), 0)
    assert shares == [0.25]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: shares[0])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved * GIB)
    assert free_bytes(torch.device("cuda", 0)) == expected * GIB
