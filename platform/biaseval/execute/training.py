"""Trains the missing adapters of a run on Ray Train: groups of workers, each with the base model, side by side.

A group trains one adapter after another; several workers of a group share every step of each. Its adapters are dealt
out before it starts, the costliest first, so groups need not talk to each other. A worker writes an adapter when it is
trained, its steps before it: what is complete stays, whatever dies, and a group that lost a worker starts again with
what is missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.train

from biaseval.execute.cluster import connected, quiet_worker
from biaseval.execute.workers import STORAGE, Groups, Wait, collected, fit, share, this_node
from biaseval.spec import CausalSpec, LoraSpec, ModelSpec
from biaseval.store import Run
from biaseval.tables import TRAINING
from biaseval.training.rows import ADAPTERS, encoded_rows, rows_of

_SECONDS_BETWEEN_LOOKS = 5.0

_OUTCOMES = f"{STORAGE}/outcomes"
"""The folder of a run that holds, while it trains, what came of each adapter of this sitting."""


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
        What came of each, in the order of ``missing``.

    Raises:
        InputError: the model cannot be trained, or Ray lacks the resources asked for.
        BiasevalError: training failed; complete adapters stay.
    """
    run.delete(STORAGE)  # what a killed process left
    with connected(spec.execution) as is_local:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        groups = share(lora, spec.execution, len(missing), nodes, is_local=is_local)
        content = {"name": spec.name, "model": spec.model.model_dump(), "lora": lora.model_dump()}
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
            wait = Wait(groups)
            while waiting:
                _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_SECONDS_BETWEEN_LOOKS)
                on_progress(max(0, len(parts & run.parts("training")) - n_before))
                wait.look(len(waiting))
            collected(started, LoraSpec.SECTION)
            return [AdapterOutcome(**run.read_json(_outcome_file(adapter.part))) for adapter in missing]
        finally:
            run.delete(STORAGE)


def deal(missing: Sequence[AdapterToTrain], n_groups: int) -> list[list[AdapterToTrain]]:
    """Return what each group trains: the adapters from the costliest on, each to the group with the least so far."""
    dealt: list[list[AdapterToTrain]] = [[] for _ in range(n_groups)]
    tokens = [0] * n_groups
    for adapter in sorted(missing, key=lambda adapter: (-adapter.tokens, adapter.part)):
        group = tokens.index(min(tokens))
        dealt[group].append(adapter)
        tokens[group] += adapter.tokens
    return [sorted(own, key=lambda adapter: adapter.part) for own in dealt if own]


def _outcome_file(part: int) -> str:
    return f"{_OUTCOMES}/{part:05d}.json"


@ray.remote(num_cpus=0, max_retries=0)
def _train_group(run_uri: str, spec: dict[str, Any], adapters: list[dict[str, Any]], groups: dict[str, Any]) -> None:
    """Train a group's adapters; when a worker or its node dies, those of which nothing came yet."""
    run = Run.open(run_uri)

    def config() -> dict[str, Any]:
        left = [adapter for adapter in adapters if not run.has(_outcome_file(AdapterToTrain(**adapter).part))]
        return {"run_uri": run_uri, "spec": spec, "adapters": left, "groups": groups}

    fit(run, _train_adapters, config, LoraSpec.SECTION, Groups(**groups))


def _train_adapters(config: dict[str, Any]) -> None:
    """Train adapters one after another; runs in every worker of a group, the first of which writes."""
    quiet_worker()
    groups = Groups(**config["groups"])
    # Before DeepSpeed is imported: it would look for accelerators and find those that this worker may not use.
    os.environ["DS_ACCELERATOR"] = "cuda" if groups.use_gpu else "cpu"
    import torch

    from biaseval.models import Loading, ModelSource, load_model, load_tokenizer
    from biaseval.training.optimization import partition
    from biaseval.training.preparation import set_precision
    from biaseval.training.trainer import train_adapter

    if groups.n_threads is not None:
        torch.set_num_threads(groups.n_threads)
    run = Run.open(config["run_uri"])
    model_spec, lora = ModelSpec(**config["spec"]["model"]), LoraSpec(**config["spec"]["lora"])
    context = ray.train.get_context()
    rank, n_workers = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    source = ModelSource.of(model_spec)
    tokenizer = load_tokenizer(source)
    # ZeRO 3 moves to a GPU only what is the worker's share: the whole model need not fit there.
    where = "cpu" if lora.zero == 3 else str(device)
    dtype = None if lora.precision == "bfloat16" else lora.precision
    model = load_model(source, Loading(dtype, where))
    set_precision(model, lora.precision)
    partition(model, lora, device)
    for adapter in (AdapterToTrain(**each) for each in config["adapters"]):
        started = time.perf_counter()
        rows = rows_of(adapter.adapter, run.read_part("training_rows", adapter.rows_part))
        encoded = encoded_rows(tokenizer, rows)
        trained = train_adapter(model, encoded, lora, device=device, rank=rank, n_workers=n_workers)
        if rank == 0:
            records = [asdict(step) for step in trained.steps]
            _write(run, config["spec"]["name"], adapter, rows, records, trained.files)
            outcome = AdapterOutcome(
                name=adapter.adapter,
                n_steps=len(trained.steps),
                loss=trained.steps[-1].loss,
                is_complete=trained.files is not None,
                seconds=time.perf_counter() - started,
                step_seconds=sum(step.seconds for step in trained.steps),
            )
            run.write_text(_outcome_file(adapter.part), json.dumps(asdict(outcome)) + "\n")


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
