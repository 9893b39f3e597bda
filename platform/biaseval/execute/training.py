"""Trains the missing adapters of a run on Ray Train: groups of workers, each with the base model, side by side.

A group trains one adapter after another; several workers of a group share every step of each. Its adapters are dealt
out before it starts, the costliest first, so groups need not talk to each other. A worker writes an adapter when it is
trained, its steps before it: what is complete stays, whatever dies, and a group that lost a worker starts again with
what is missing.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import pyarrow as pa
import ray
import ray.train
from ray.exceptions import RayError
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.torch import TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biaseval.errors import BiasevalError, InputError
from biaseval.execute.cluster import connected, n_cores, quiet_worker
from biaseval.spec import CausalSpec, ExecutionSpec, LoraSpec, ModelSpec
from biaseval.store import Run
from biaseval.tables import TRAINING
from biaseval.training.rows import ADAPTERS, encoded_rows, rows_of, trained_adapters

_STORAGE = ".train"
"""The folder of a run where Ray Train keeps its own files while it works."""

_ATTEMPTS = 3
_SECONDS_BETWEEN_LOOKS = 5.0


@dataclass(frozen=True)
class AdapterToTrain:
    """An adapter that is missing."""

    part: int
    """Number of its part of ``training``: its place among all adapters of the run."""
    rows_part: int
    """Number of the part of ``training_rows`` that holds its examples."""
    adapter: str
    """Its folder below ``adapters/``."""
    tokens: int
    """Of its examples."""


@dataclass(frozen=True)
class AdapterOutcome:
    """What came of an adapter."""

    name: str
    n_steps: int
    loss: float
    """Of the last step."""
    is_complete: bool
    """False if loss or gradient was not finite at the last step, so that there is no adapter."""
    seconds: float
    """From its rows' tokens to its files, without loading the model."""
    step_seconds: float
    """Of these, in optimizer steps: forward, backward and update."""


@dataclass(frozen=True)
class Groups:
    """How workers share a cluster."""

    n_groups: int
    resources_per_worker: dict[str, float]
    use_gpu: bool
    n_threads: int | None
    """Of one worker on CPUs; on this machine ``OMP_NUM_THREADS`` where that is set, else its part of the cores."""


def train_missing(
    run: Run,
    spec: CausalSpec,
    lora: LoraSpec,
    missing: Sequence[AdapterToTrain],
    on_progress: Callable[[int], None],
) -> list[AdapterOutcome]:
    """Train ``missing`` and write each with its steps.

    Args:
        run: the run directory, which every node must reach.
        spec: the run's.
        lora: its section ``lora``.
        missing: at least one.
        on_progress: hears now and then how many of them are done.

    Returns:
        What came of each, in the order of ``missing``; of a group that lost a worker and began again, without those
        that were complete by then.

    Raises:
        InputError: the model cannot be trained, or Ray lacks the resources asked for.
        BiasevalError: training failed; complete adapters stay.
    """
    with connected(spec.execution) as is_local:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        groups = share(lora, spec.execution, len(missing), nodes, is_local=is_local)
        content = {"name": spec.name, "model": spec.model.model_dump(), "lora": lora.model_dump()}
        # They take no CPU, and an autoscaler may give a node away on which nothing else runs.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        started = [
            _train_group.options(scheduling_strategy=here).remote(
                run.uri, content, [asdict(adapter) for adapter in own], asdict(groups)
            )
            for own in deal(missing, groups.n_groups)
        ]
        parts = {adapter.part for adapter in missing}
        n_before = len(parts & run.parts("training"))
        waiting = started
        try:
            while waiting:
                _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_SECONDS_BETWEEN_LOOKS)
                on_progress(max(0, len(parts & run.parts("training")) - n_before))
            outcomes = _collected(started)
        finally:
            run.delete(_STORAGE)
    order = {adapter.adapter: number for number, adapter in enumerate(missing)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def share(
    lora: LoraSpec,
    execution: ExecutionSpec,
    n_adapters: int,
    nodes: Sequence[Mapping[str, float]],
    *,
    is_local: bool,
) -> Groups:
    """Return how many groups of ``lora.workers`` train side by side, and what each worker gets.

    With GPUs, a worker has one, and there are as many groups as the GPUs allow. On CPUs there is one group on this
    machine, and on a cluster one for every ``lora.workers`` nodes. ``execution.actors`` sets another number of groups;
    there are never more than adapters.

    Args:
        lora: says how many workers make a group.
        execution: ``actors`` and ``gpus_per_actor``; the latter 0 keeps training off GPUs, and a number on a cluster
            says that GPU nodes come on demand.
        n_adapters: that are missing.
        nodes: ``CPU`` and ``GPU`` of each node.
        is_local: Ray is this machine's own.

    Raises:
        InputError: there are fewer GPUs or CPUs than the workers need, and none will come.
    """
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    cpus = [node["CPU"] for node in nodes if node.get("CPU", 0)]
    asked = None if execution.actors == "auto" else min(execution.actors, n_adapters)
    if execution.gpus_per_actor != 0 and (gpus or execution.gpus_per_actor != "auto"):
        n_groups = asked or max(1, min(n_adapters, gpus // lora.workers))
        comes_on_demand = not is_local and execution.gpus_per_actor != "auto"
        if n_groups * lora.workers > gpus and not comes_on_demand:
            raise _too_few(lora, n_groups, gpus, "GPU")
        return Groups(n_groups, {"GPU": 1}, use_gpu=True, n_threads=None)
    n_groups = asked or max(1, min(n_adapters, 1 if is_local else len(cpus) // lora.workers))
    n_workers = n_groups * lora.workers
    most = int(max(cpus, default=0))
    per_worker = next((n for n in range(most, 0, -1) if sum(int(own // n) for own in cpus) >= n_workers), 0)
    if not per_worker:
        raise _too_few(lora, n_groups, int(sum(cpus)), "CPU")
    # Logical CPUs of a local Ray are more than the machine's cores, and Ray hides what the environment says of threads.
    n_threads = max(1, int(os.environ.get("OMP_NUM_THREADS") or n_cores() // n_workers)) if is_local else per_worker
    return Groups(n_groups, {"CPU": per_worker}, use_gpu=False, n_threads=n_threads)


def _too_few(lora: LoraSpec, n_groups: int, found: int, kind: str) -> InputError:
    needed = n_groups * lora.workers
    groups = "" if n_groups == 1 else f" in each of {n_groups} groups (execution.actors)"
    return InputError(
        f"lora.workers: {lora.workers}{groups} need {needed} {kind}s, one each, and Ray has {found}: {needed - found} "
        "missing; lower lora.workers or execution.actors, or submit the run to a larger cluster"
    )


def deal(missing: Sequence[AdapterToTrain], n_groups: int) -> list[list[AdapterToTrain]]:
    """Return what each group trains: the adapters from the costliest on, each to the group with the least so far."""
    dealt: list[list[AdapterToTrain]] = [[] for _ in range(n_groups)]
    tokens = [0] * n_groups
    for adapter in sorted(missing, key=lambda adapter: (-adapter.tokens, adapter.part)):
        group = tokens.index(min(tokens))
        dealt[group].append(adapter)
        tokens[group] += adapter.tokens
    return [sorted(own, key=lambda adapter: adapter.part) for own in dealt if own]


def _collected(started: Sequence[Any]) -> list[AdapterOutcome]:
    """Return what all groups trained; raise the first error only when every group has ended."""
    outcomes: list[AdapterOutcome] = []
    errors: list[Exception] = []
    for group in started:
        try:
            outcomes += [AdapterOutcome(**outcome) for outcome in ray.get(group)]
        except RayError as error:
            cause = getattr(error, "cause", None)
            errors.append(cause if isinstance(cause, BiasevalError) else _failed(error))
    if errors:
        raise errors[0]
    return outcomes


def _failed(error: BaseException) -> BiasevalError:
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [repr(error)]
    remedy = ""
    if "out of memory" in str(error):
        remedy = (
            "set lora.gradient_checkpointing to true, lora.batch_size to 1, or lora.zero to 3 with more lora.workers; "
        )
    return BiasevalError(f"training failed: {lines[-1]}; {remedy}run the same command again to resume")


@ray.remote(num_cpus=0, max_retries=0)
def _train_group(
    run_uri: str, spec: dict[str, Any], adapters: list[dict[str, Any]], groups: dict[str, Any]
) -> list[dict[str, Any]]:
    """Train a group's adapters; when a worker or its node dies, those that are missing once more."""
    quiet_worker()
    run = Run.open(run_uri)
    for attempt in range(1, _ATTEMPTS + 1):
        complete = trained_adapters(run) if attempt > 1 else set()
        remaining = [adapter for adapter in adapters if AdapterToTrain(**adapter).adapter not in complete]
        trainer = TorchTrainer(
            cast(Any, _train_adapters),  # Ray's annotations know no train function that returns a value
            train_loop_config={"run_uri": run_uri, "spec": spec, "adapters": remaining, "groups": groups},
            scaling_config=ScalingConfig(
                num_workers=spec["lora"]["workers"],
                use_gpu=groups["use_gpu"],
                resources_per_worker=groups["resources_per_worker"],
            ),
            run_config=RunConfig(
                # A name that was there before would go on where it ended.
                name=uuid.uuid4().hex,
                storage_path=run.path(_STORAGE),
                storage_filesystem=run.fs,
                failure_config=FailureConfig(max_failures=0),
            ),
        )
        try:
            result: Any = trainer.fit()
            outcomes: list[dict[str, Any]] = result.return_value
            return outcomes
        except TrainingFailedError as error:
            causes = list(error.worker_failures.values()) if isinstance(error, WorkerGroupError) else []
            ours = next((cause for cause in causes if isinstance(cause, BiasevalError)), None)
            if ours is not None:
                raise ours from None
            # What our code raises it will raise again; a worker that died may be replaced.
            if attempt == _ATTEMPTS or not all(isinstance(cause, RayError) for cause in causes):
                raise _failed(next(iter(causes), error)) from None
    raise AssertionError("the last attempt returns or raises")


def _train_adapters(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train adapters one after another; runs in every worker of a group, the first of which writes."""
    quiet_worker()
    groups = Groups(**config["groups"])
    # Before DeepSpeed is imported: it would look for accelerators and find those that this worker may not use.
    os.environ["DS_ACCELERATOR"] = "cuda" if groups.use_gpu else "cpu"
    import torch

    from biaseval.models import load_model, load_tokenizer
    from biaseval.training.adapters import set_precision
    from biaseval.training.optimization import partition
    from biaseval.training.trainer import train_adapter

    if groups.n_threads is not None:
        torch.set_num_threads(groups.n_threads)
    run = Run.open(config["run_uri"])
    model_spec, lora = ModelSpec(**config["spec"]["model"]), LoraSpec(**config["spec"]["lora"])
    context = ray.train.get_context()
    rank, n_workers = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    identity: dict[str, Any] = {"revision": model_spec.revision, "trust_remote_code": model_spec.trust_remote_code}
    tokenizer = load_tokenizer(model_spec.path, **identity)
    # ZeRO 3 moves to a GPU only what is the worker's share: the whole model need not fit there.
    where = "cpu" if lora.zero == 3 else str(device)
    model = load_model(model_spec.path, dtype=lora.precision, device=where, **identity)
    set_precision(model, lora.precision)
    partition(model, lora, device)
    outcomes = []
    for adapter in (AdapterToTrain(**each) for each in config["adapters"]):
        started = time.perf_counter()
        rows = rows_of(adapter.adapter, run.read_part("training_rows", adapter.rows_part))
        encoded = encoded_rows(tokenizer, rows)
        trained = train_adapter(model, encoded, lora, device=device, rank=rank, n_workers=n_workers)
        if rank == 0:
            records = [asdict(step) for step in trained.steps]
            _write(run, config["spec"]["name"], adapter, rows, records, trained.files)
        outcomes.append(
            AdapterOutcome(
                name=adapter.adapter,
                n_steps=len(trained.steps),
                loss=trained.steps[-1].loss,
                is_complete=trained.files is not None,
                seconds=time.perf_counter() - started,
                step_seconds=sum(step.seconds for step in trained.steps),
            )
        )
    return [asdict(outcome) for outcome in outcomes]


def _write(
    run: Run,
    model: str,
    adapter: AdapterToTrain,
    rows: pa.Table,
    steps: list[dict[str, Any]],
    files: Mapping[str, bytes] | None,
) -> None:
    """Write an adapter's steps and files; the last file makes it complete."""
    [key] = rows.select(["adapter", "task", "n_demos", "demo_set", "setting", "instruction"]).slice(0, 1).to_pylist()
    run.write_part("training", adapter.part, TRAINING.rows([{"model": model, **key, **step} for step in steps]))
    folder = f"{ADAPTERS}/{adapter.adapter}"
    run.delete(folder)  # what a killed process began
    for name, content in (files or {}).items():
        run.write_bytes(f"{folder}/{name}", content)
