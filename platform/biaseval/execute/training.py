"""Trains the missing adapters of a run on Ray Train: groups of workers, each with the base model, side by side.

A group trains one adapter after another; several workers of a group share every step of each. Its adapters are dealt
out before it starts, the costliest first, so groups need not talk to each other. A worker writes an adapter when it is
trained, its steps before it: what is complete stays, whatever dies, and a group that lost a worker starts again with
what is missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ray
import ray.train

from biaseval.errors import InputError
from biaseval.execute.cluster import connected, quiet_worker
from biaseval.execute.workers import STORAGE, Groups, collected, fit, share, this_node
from biaseval.spec import LabelBiasSpec, LoraSpec
from biaseval.store import Run
from biaseval.tables import TRAINING
from biaseval.training.rows import ADAPTERS, AdapterKey, TaskPool, trained_adapters, training_rows

_SECONDS_BETWEEN_LOOKS = 5.0


@dataclass(frozen=True)
class AdapterToTrain:
    """An adapter that is missing."""

    part: int
    """Number of its part of ``training``: its place among all adapters of the run."""
    task_part: int
    """Number of the part of ``tasks`` and ``splits`` that holds its task."""
    task: str
    n_demos: int
    demo_set: int
    tokens: int
    """Of its training rows."""

    @property
    def key(self) -> AdapterKey:
        """Which adapter it is."""
        return AdapterKey(self.task, self.n_demos, self.demo_set)


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


def train_missing(
    run: Run, spec: LabelBiasSpec, missing: Sequence[AdapterToTrain], on_progress: Callable[[int], None]
) -> list[AdapterOutcome]:
    """Train ``missing`` and write each with its steps.

    Args:
        run: the run directory, which every node must reach.
        spec: the run's, with a section ``lora``.
        missing: at least one.
        on_progress: hears now and then how many of them are done.

    Returns:
        What came of each, in the order of ``missing``; of a group that lost a worker and began again, without those
        that were complete by then.

    Raises:
        InputError: the model cannot be trained, or Ray lacks the resources asked for.
        BiasevalError: training failed; complete adapters stay.
    """
    lora = _lora(spec)
    with connected(spec.execution) as is_local:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        groups = share(lora, spec.execution, len(missing), nodes, is_local=is_local)
        content = spec.model_dump(mode="json")
        started = [
            _train_group.options(scheduling_strategy=this_node()).remote(
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
            trained = collected(started, LoraSpec.SECTION)
        finally:
            run.delete(STORAGE)
    outcomes = [AdapterOutcome(**outcome) for own in trained for outcome in own]
    order = {adapter.key.name: number for number, adapter in enumerate(missing)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def deal(missing: Sequence[AdapterToTrain], n_groups: int) -> list[list[AdapterToTrain]]:
    """Return what each group trains: the adapters from the costliest on, each to the group with the least so far."""
    dealt: list[list[AdapterToTrain]] = [[] for _ in range(n_groups)]
    tokens = [0] * n_groups
    for adapter in sorted(missing, key=lambda adapter: (-adapter.tokens, adapter.part)):
        group = tokens.index(min(tokens))
        dealt[group].append(adapter)
        tokens[group] += adapter.tokens
    return [sorted(own, key=lambda adapter: adapter.part) for own in dealt if own]


@ray.remote(num_cpus=0, max_retries=0)
def _train_group(
    run_uri: str, spec: dict[str, Any], adapters: list[dict[str, Any]], groups: dict[str, Any]
) -> list[dict[str, Any]]:
    """Train a group's adapters; when a worker or its node dies, those that are missing once more."""
    run = Run.open(run_uri)

    def config(attempt: int) -> dict[str, Any]:
        complete = trained_adapters(run) if attempt > 1 else set()
        remaining = [adapter for adapter in adapters if AdapterToTrain(**adapter).key.name not in complete]
        return {"run_uri": run_uri, "spec": spec, "adapters": remaining, "groups": groups}

    trained: list[dict[str, Any]] = fit(run, _train_adapters, config, LoraSpec.SECTION, Groups(**groups))
    return trained


def _train_adapters(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train adapters one after another; runs in every worker of a group, the first of which writes."""
    quiet_worker()
    groups = Groups(**config["groups"])
    # Before DeepSpeed is imported: it would look for accelerators and find those that this worker may not use.
    os.environ["DS_ACCELERATOR"] = "cuda" if groups.use_gpu else "cpu"
    import torch

    from biaseval.label_bias.prompts import PromptFitter, TokenCounter
    from biaseval.models import load_model, load_tokenizer
    from biaseval.training.adapters import set_precision
    from biaseval.training.batches import encode_rows
    from biaseval.training.optimization import partition
    from biaseval.training.trainer import train_adapter

    if groups.n_threads is not None:
        torch.set_num_threads(groups.n_threads)
    run = Run.open(config["run_uri"])
    spec = LabelBiasSpec.model_validate(config["spec"])
    lora = _lora(spec)
    context = ray.train.get_context()
    rank, n_workers = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    identity: dict[str, Any] = {"revision": spec.model.revision, "trust_remote_code": spec.model.trust_remote_code}
    tokenizer = load_tokenizer(spec.model.path, **identity)
    # ZeRO 3 moves to a GPU only what is the worker's share: the whole model need not fit there.
    where = "cpu" if lora.zero == 3 else str(device)
    model = load_model(spec.model.path, dtype=lora.precision, device=where, **identity)
    set_precision(model, lora.precision)
    partition(model, lora, device)
    fitter = PromptFitter(TokenCounter(tokenizer), spec.prompt.max_tokens)
    outcomes = []
    pools: dict[int, TaskPool] = {}
    for adapter in (AdapterToTrain(**each) for each in config["adapters"]):
        started = time.perf_counter()
        if adapter.task_part not in pools:
            parts = (run.read_part(table, adapter.task_part) for table in ("tasks", "splits"))
            pools = {adapter.task_part: TaskPool.of(*parts)}
        pool = pools[adapter.task_part]
        rows = training_rows(pool, adapter.key, lora.n_examples, fitter)
        encoded = encode_rows(tokenizer, rows, pool.labels, lora.max_tokens)
        trained = train_adapter(model, encoded, lora, device=device, rank=rank, n_workers=n_workers)
        if rank == 0:
            records = [asdict(step) for step in trained.steps]
            _write(run, spec.name, adapter, records, trained.files)
        outcomes.append(
            AdapterOutcome(
                name=adapter.key.name,
                n_steps=len(trained.steps),
                loss=trained.steps[-1].loss,
                is_complete=trained.files is not None,
                seconds=time.perf_counter() - started,
                step_seconds=sum(step.seconds for step in trained.steps),
            )
        )
    return [asdict(outcome) for outcome in outcomes]


def _write(
    run: Run, model: str, adapter: AdapterToTrain, steps: list[dict[str, Any]], files: Mapping[str, bytes] | None
) -> None:
    """Write an adapter's steps and files; the last file makes it complete."""
    key = {"task": adapter.task, "n_demos": adapter.n_demos, "demo_set": adapter.demo_set}
    rows = [{"model": model, "adapter": adapter.key.name, **key, **step} for step in steps]
    run.write_part("training", adapter.part, TRAINING.rows(rows))
    folder = f"{ADAPTERS}/{adapter.key.name}"
    run.delete(folder)  # what a killed process began
    for name, content in (files or {}).items():
        run.write_bytes(f"{folder}/{name}", content)


def _lora(spec: LabelBiasSpec) -> LoraSpec:
    if spec.lora is None:
        raise InputError("lora: the spec has no such section, which says how to train; add lora: {preset: reif2024}")
    return spec.lora
