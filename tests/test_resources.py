"""Resources: GPUs, memory, and machines."""

import re
import subprocess
import sys
from typing import Any, Literal

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from biaseval.errors import InputError, TransientError
from biaseval.execute import resources as sharing
from biaseval.execute.machine import take_share
from biaseval.scoring.memory import free_bytes
from biaseval.spec import ExecutionSpec, LoraSpec
from biaseval.spec.search import SearchExecutionSpec


def node(cpus: float, gpus: float = 0) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}


def machine(n_cores: int, **execution: Any) -> sharing.Resources:
    """Return what a Ray of a search's own has on a machine without GPUs."""
    own = SearchExecutionSpec(**execution)
    return sharing.Resources([node(sharing.local_cpus(own, n_cores))], is_local=True, n_cores=n_cores)


# CPUs of a Ray of one's own


@pytest.mark.parametrize(("execution", "n_cores", "expected"), [
    (ExecutionSpec(), 8, 8 + 2), (ExecutionSpec(actors=3), 8, 3 * 2 + 2), (SearchExecutionSpec(), 8, 8 + 2),
    # Each of two has half of the cores and two to spare, and one more has room for what starts them.
    (SearchExecutionSpec(at_once=2), 8, 2 * (4 + 2) + 1),
    (SearchExecutionSpec(at_once=2, actors=3), 8, 2 * (3 * 1 + 2) + 1),
    # More than there are cores: at least one for each.
    (SearchExecutionSpec(at_once=3), 2, 3 * (1 + 2) + 1),
])  # fmt: skip
def test_a_ray_of_its_own_has_room_for_what_runs(execution: ExecutionSpec, n_cores: int, expected: int) -> None:
    assert sharing.local_cpus(execution, n_cores) == expected


# Trials at a time


def at_once(asked: int | None, there: sharing.Resources, gpus_of_one: int = 1, n_runs: int = 100, **own: Any) -> int:
    return sharing.runs_at_once(asked, ExecutionSpec(**own), gpus_of_one, n_runs, there)


EIGHT = sharing.Resources([node(32, 4), node(32, 4)], is_local=False, n_cores=32)
"""Eight GPUs on two nodes."""


@pytest.mark.parametrize(("asked", "how", "expected"), [
    (None, {}, 8), (None, {"gpus_of_one": 2}, 4), (None, {"gpus_of_one": 3}, 2), (None, {"actors": 2}, 4),
    (None, {"gpus_of_one": 2, "actors": 2}, 2), (None, {"n_runs": 5}, 5), (3, {}, 3),
    # Where a run needs more than there is, one says so.
    (None, {"gpus_of_one": 16}, 1),
    # On CPUs, one after another.
    (None, {"gpus_per_actor": 0}, 1), (2, {"gpus_per_actor": 0}, 2),
])  # fmt: skip
def test_as_many_trials_run_at_a_time_as_gpus_allow(asked: int | None, how: dict[str, Any], expected: int) -> None:
    assert at_once(asked, EIGHT, **how) == expected


ON_DEMAND = sharing.Resources(
    [node(8)], is_local=False, n_cores=8,
    types=[sharing.NodeType("gpu", {"CPU": 8, "GPU": 1}, 16), sharing.NodeType("cpu", {"CPU": 8}, 4)],
)  # fmt: skip
"""A head, and sixteen GPUs that come one by one."""


def test_no_more_is_asked_for_than_can_come() -> None:
    assert (ON_DEMAND.most("GPU"), ON_DEMAND.most("CPU")) == (16, 16 * 8 + 4 * 8)
    with pytest.raises(InputError, match=r"gpus_per_actor: 2 asked for, and no node .* \(gpu, cpu\), has more than 1"):
        sharing.allocate(ExecutionSpec(gpus_per_actor=2), 9, ON_DEMAND)
    # Where nobody says what comes, it is waited for.
    head = sharing.Resources([node(4)], False, 4)
    assert sharing.allocate(ExecutionSpec(gpus_per_actor=2), 9, head).n_actors == (1, 9)
    assert [sharing.runs_at_once(asked, ExecutionSpec(gpus_per_actor=1), 1, 4, head) for asked in (None, 3)] == [4, 3]


@pytest.mark.parametrize(("n_gpus", "words"), [
    (1, "a node with a GPU: .* set execution.gpus_per_actor to 0$"),
    (2, "2 GPUs: .* set execution.gpus_per_actor to less$"),
])  # fmt: skip
def test_gpus_of_which_nobody_says_that_they_come_are_waited_for_with_a_word(n_gpus: int, words: str) -> None:
    execution, bare = ExecutionSpec(gpus_per_actor=n_gpus), sharing.Resources([node(4)], is_local=False, n_cores=4)
    found = sharing.allocate(execution, 9, bare).caution or ""
    assert re.search(words, found)
    assert "no autoscaler is known" in found
    assert (sharing.share(LoraSpec(), execution, 9, bare).caution or "").startswith("waits for a node with a GPU")
    with pytest.raises(TransientError, match=r"^no node of Ray has CPUs or GPUs now; run"):
        sharing.share(LoraSpec(), ExecutionSpec(), 9, sharing.Resources([{}], False, 8))
    # Where GPUs are there, or known to come, nothing is said.
    for there in (EIGHT, ON_DEMAND):
        assert sharing.allocate(ExecutionSpec(gpus_per_actor=1), 9, there).caution is None
        assert sharing.share(LoraSpec(), ExecutionSpec(gpus_per_actor=1), 9, there).caution is None
    turns = sharing.allocate(ExecutionSpec(gpus_per_actor=2), 9, EIGHT).caution or ""
    assert turns.startswith("on several GPUs for each model, which work one after another")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(2, 16), min_size=1, max_size=3).flatmap(
        lambda some: st.integers(1, 4).map(lambda times: some * times)
    ),
    st.one_of(st.just("auto"), st.integers(1, 5)),
    st.integers(1, 12),
)
@example([4] * 8, "auto", 12)
def test_no_trial_waits_for_another_on_any_cluster(cpus: list[int], actors: Literal["auto"] | int, asked: int) -> None:
    execution = ExecutionSpec(actors=actors)
    assume(sum(cpus) >= 5)  # of the smallest ones not even a run alone has all that it asks for
    whole = sharing.Resources([node(own) for own in cpus], is_local=False, n_cores=4)
    try:
        n_trials = sharing.runs_at_once(asked, execution, 1, 100, whole)
    except InputError:
        assume(False)
    found = sharing.allocate(execution, 100, sharing.share_of(whole, n_trials))
    assert isinstance(found.n_actors, int)
    assert n_trials * (sharing.LEADER_CPUS + found.n_actors * found.num_cpus) + 1 <= sum(cpus)


# Blocks of arithmetic


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 20))
def test_blocks_take_a_cpu_each_and_a_ray_of_its_own_has_room(n_cores: int, asked: int, n_blocks: int) -> None:
    assert sharing.blocks_at_once(asked, n_blocks, machine(n_cores, at_once=asked)) == min(asked, n_blocks)
    assert sharing.blocks_at_once("auto", n_blocks, machine(n_cores)) == min(n_blocks, n_cores)
    cluster = sharing.Resources([node(3.5), node(2), node(0.5)], is_local=False, n_cores=1)
    assert [sharing.blocks_at_once(own, 9, cluster) for own in ("auto", 2)] == [3 + 2, 2]
    with pytest.raises(
        InputError, match=r"execution.at_once: 6 at a time, and Ray has CPUs for 5; lower it, or submit"
    ):
        sharing.blocks_at_once(6, 9, cluster)
    assert sharing.blocks_at_once(6, 5, cluster) == 5


# Clusters that begin without workers

CPU_NODES, GPU_NODES = sharing.NodeType("cpu", {"CPU": 8}, 4), sharing.NodeType("gpu", {"CPU": 8, "GPU": 1}, 16)


def empty(*types: sharing.NodeType) -> sharing.Resources:
    """Return what a cluster has that is its head alone."""
    return sharing.Resources([{"CPU": 0}], is_local=False, n_cores=4, types=types)


def test_what_a_worker_sets_comes_before_torch_and_does_nothing_on_a_cpu() -> None:
    code = """
import sys
from biaseval.execute import datasets, machine
from biaseval.pipelines.labels import label_scores
from biaseval.pipelines.qa import stages
assert "torch" not in sys.modules
machine.quiet_worker()
import torch
assert torch.empty(3).numel() == 3
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


GIB = 1 << 30
H100, L4 = {"CPU": 16.0, "GPU": 2.0, "accelerator_type:H100": 1.0}, {"CPU": 8, "GPU": 1, "accelerator_type:L4": 1}
TWO = sharing.Resources([{"CPU": 8}, H100], is_local=False, n_cores=8)


@pytest.mark.parametrize(("nodes", "expected"), [
    ([{"CPU": 8}], None), ([H100, {"CPU": 8}], 79), ([H100, L4], 22), ([H100, {"GPU": 1}], None),
    ([{"GPU": 1, "accelerator_type:A100": 1, "accelerator_type:A100-80G": 1}], 39),
    ([{"GPU": 1, "accelerator_type:TPU-V4": 1}], None),
])  # fmt: skip
def test_the_smallest_gpu_counts_and_an_unknown_one_forbids(
    nodes: list[dict[str, float]], expected: int | None
) -> None:
    assert sharing.gpu_bytes(nodes) == (None if expected is None else expected * GIB)


@pytest.mark.parametrize(("weights", "memory", "n_gpus", "n_parts", "expected"), [
    (1 * GIB, 79 * GIB, 1, 100, 4),  # no more of them, however small
    (3 * GIB, 39 * GIB, 1, 100, 3),  # 12 GiB each: four times the weights
    (1 * GIB, 22 * GIB, 1, 100, 2),  # 8 GiB each, at least
    (1 * GIB, 15 * GIB, 1, 100, 1),
    (3 * GIB + 1, 79 * GIB, 1, 100, 1),  # no small model
    (1 * GIB, 79 * GIB, 2, 23, 2),  # four parts for each of four actors, not of six
    (1 * GIB, 79 * GIB, 2, 3, 1),
])  # fmt: skip
def test_actors_of_a_gpu(weights: int, memory: int, n_gpus: int, n_parts: int, expected: int) -> None:
    assert sharing.actors_of_a_gpu(weights, memory, n_gpus, n_parts) == expected


@pytest.mark.parametrize(("execution", "resources", "weights", "expected"), [
    ({}, TWO, GIB, ((1, 100), 0.25)), ({}, sharing.Resources([H100], True, 8), GIB, (8, 0.25)),
    ({}, sharing.share_of(TWO, 2), GIB, ((1, 100), 0.25)), ({}, TWO, 3 * GIB, ((1, 100), 0.25)),
    ({}, TWO, 14 * GIB, ((1, 100), 1)), ({}, TWO, None, ((1, 100), 1)),
    ({"gpus_per_actor": 1}, TWO, GIB, ((1, 100), 1)), ({"actors": 2}, TWO, GIB, (2, 1)),
    # What comes on demand has no type.
    ({}, sharing.Resources([H100], False, 8, types=[sharing.NodeType("gpu", {"GPU": 1}, 4)]), GIB, ((1, 4), 1)),
])  # fmt: skip
def test_small_models_share_gpus_where_nobody_says_otherwise(
    execution: dict[str, Any], resources: sharing.Resources, weights: int | None, expected: Any
) -> None:
    found = sharing.allocate(ExecutionSpec(**execution), 100, resources, weights)
    assert (found.n_actors, found.num_gpus) == expected
    assert found.device == "cuda"
    assert found.caution is None


def test_a_third_of_a_gpu_is_what_ray_takes_three_times_and_a_spare_one_is_said() -> None:
    found = sharing.allocate(
        ExecutionSpec(), 100, sharing.Resources([{**H100, "accelerator_type:A100": 1}], True, 8), 3 * GIB
    )
    assert found.num_gpus == 0.3333
    spare, needed = (sharing.allocate(ExecutionSpec(gpus_per_actor=2), 9, TWO, gib * GIB).caution for gib in (14, 83))
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
