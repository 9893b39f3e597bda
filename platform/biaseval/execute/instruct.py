"""Tunes a model on conversations on Ray Train: one group of workers, which goes on where a killed one was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
import ray.train

from biaseval.errors import BiasevalError
from biaseval.execute.cluster import connected, quiet_worker
from biaseval.execute.workers import STORAGE, Groups, Wait, collected, fit, share, this_node
from biaseval.spec import InstructSpec
from biaseval.store import Run, part_name
from biaseval.tables import TRAINING

if TYPE_CHECKING:
    from biaseval.training.templates import EncodedConversation
    from biaseval.training.trainer import StepRecord

ADAPTER = "adapter"
"""The folder of a run that holds the tuned adapter, and its name in the table ``training``."""

PROGRESS = "progress.json"
"""What the first worker says of itself while it trains."""

_SECONDS_BETWEEN_LOOKS = 5.0


@dataclass(frozen=True)
class TuningOutcome:
    """What a sitting of training did."""

    first_step: int
    """0-based; above 0 where it resumed."""
    n_steps: int
    """That are made now, all sittings together."""
    seconds: float
    """From the model's files to those of the tuned one, without starting workers."""
    step_seconds: float
    """Of these, in optimizer steps."""
    why_not_packed: str | None
    """Where packing was asked for and did not take place."""


def tune(run: Run, spec: InstructSpec, on_progress: Callable[[dict[str, Any]], None]) -> TuningOutcome:
    """Make the steps that a planned run lacks, and write what comes of them.

    Args:
        run: the run directory, which every node must reach.
        spec: the run's.
        on_progress: hears now and then what the first worker last wrote: ``n_steps``, ``loss``, ``seconds``.

    Raises:
        InputError: the model cannot be trained, or Ray lacks the resources asked for.
        BiasevalError: training failed, or a loss or gradient was not finite; the last checkpoint stays.
    """
    with connected(spec.execution) as is_local:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        groups = share(spec.training, spec.execution, 1, nodes, is_local=is_local)
        started = _tune_in_group.options(scheduling_strategy=this_node()).remote(
            run.uri, spec.model_dump(mode="json"), asdict(groups)
        )
        try:
            waiting = [started]
            wait = Wait(groups)
            while waiting:
                _, waiting = ray.wait(waiting, timeout=_SECONDS_BETWEEN_LOOKS)
                if run.has(PROGRESS):
                    on_progress(run.read_json(PROGRESS))
                wait.look(len(waiting))
            [outcome] = collected([started], spec.training.SECTION)
        finally:
            run.delete(STORAGE)
            run.delete(PROGRESS)
    return TuningOutcome(**outcome)


@ray.remote(num_cpus=0, max_retries=0)
def _tune_in_group(run_uri: str, spec: dict[str, Any], groups: dict[str, Any]) -> dict[str, Any]:
    """Lead a group; a worker that died is replaced, and all go on behind the last checkpoint."""
    from biaseval.training.checkpoints import newest_checkpoint

    run = Run.open(run_uri)

    def config() -> dict[str, Any]:
        checkpoint = newest_checkpoint(run)
        start = checkpoint.n_steps if checkpoint else 0
        return {"run_uri": run_uri, "spec": spec, "groups": groups, "start": start}

    section = InstructSpec.model_validate(spec).training.SECTION
    outcome: dict[str, Any] = fit(run, _tune, config, section, Groups(**groups))
    return outcome


def _tune(config: dict[str, Any]) -> dict[str, Any]:
    """Train; runs in every worker of a group, the first of which writes what is not written side by side."""
    quiet_worker()
    groups = Groups(**config["groups"])
    # Before DeepSpeed is imported: it would look for accelerators and find those that this worker may not use.
    os.environ["DS_ACCELERATOR"] = "cuda" if groups.use_gpu else "cpu"
    import torch

    from biaseval.models import Loading, ModelSource, adapter_files, load_model, load_tokenizer, unfilled_model
    from biaseval.training.checkpoints import keep_only, newest_checkpoint, read_states, write_checkpoint
    from biaseval.training.model_files import write_model
    from biaseval.training.optimization import partition
    from biaseval.training.packing import why_not_packed
    from biaseval.training.preparation import set_precision
    from biaseval.training.tuning import n_tuning_steps, prepared, tuning_steps, weights_dtype

    if groups.n_threads is not None:
        torch.set_num_threads(groups.n_threads)
    started = time.perf_counter()
    run = Run.open(config["run_uri"])
    spec = InstructSpec.model_validate(config["spec"])
    context = ray.train.get_context()
    rank, n_workers = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    conversations = run.read_table("conversations")
    train, held_out = (_encoded(conversations, role) for role in ("train", "held_out"))
    source = ModelSource.of(spec.model)
    dtype = weights_dtype(spec)
    # Below an adapter norms keep all that their files have.
    stored = None if spec.lora is not None and dtype == "bfloat16" else dtype
    if spec.training.zero == 3:
        # It moves to a GPU only what is the worker's share: the whole model need not fit there, and one worker has it.
        model = load_model(source, Loading(stored)) if rank == 0 else unfilled_model(source, dtype)
    else:
        model = load_model(source, Loading(stored, str(device)))
    if spec.lora is not None:
        set_precision(model, spec.training.precision)
    problem = why_not_packed(model, spec.max_tokens) if spec.packing else None
    partition(model, spec.training, device)
    tuned = prepared(model, spec, device)
    checkpoint = newest_checkpoint(run)
    start, n_parts = (checkpoint.n_steps, checkpoint.n_parts) if checkpoint else (0, 0)
    if checkpoint is not None:
        tuned.optimization.restore(read_states(run, checkpoint, tuned.trained), start)
    if rank == 0:
        keep_only(run, checkpoint)
        for part in run.parts("training"):
            if part >= n_parts:
                run.delete(f"training/{part_name(part)}")
    n_steps = n_tuning_steps(len(train), spec)
    steps = _Steps(run, spec, n_parts, is_writer=rank == 0)
    capacity = spec.max_tokens if spec.packing and problem is None else None
    step_seconds = 0.0
    for record in tuning_steps(
        tuned.optimization, train, held_out, spec, capacity=capacity, start=start, rank=rank, n_workers=n_workers
    ):
        step_seconds += record.seconds
        steps.add(record)
        if not record.is_finite:
            steps.flush()
            raise BiasevalError(
                f"training stopped at step {record.step}: loss {record.loss:.4g}, gradient norm {record.grad_norm}; "
                "lower training.learning_rate, or set training.precision to float32, in another --run-dir"
            )
        n_done = record.step + 1
        if n_done % spec.training.checkpoint_steps == 0 and n_done < n_steps:
            steps.flush()
            write_checkpoint(run, n_done, steps.n_parts, tuned.trained, tuned.optimization, rank, n_workers)
    steps.flush()
    if tuned.adapter is None:
        tokenizer = load_tokenizer(source)
        precision = spec.training.precision
        write_model(run, model, tokenizer, tuned.optimization, precision, rank, n_workers)
    else:
        with tuned.optimization.gathered():
            files = adapter_files(tuned.adapter)
        if rank == 0:
            run.delete(ADAPTER)  # what a killed process began
            for name, content in files.items():
                run.write_bytes(f"{ADAPTER}/{name}", content)
    return asdict(
        TuningOutcome(
            first_step=start,
            n_steps=n_steps,
            seconds=time.perf_counter() - started,
            step_seconds=step_seconds,
            why_not_packed=problem,
        )
    )


class _Steps:
    """Writes the steps between checkpoints as parts of the table, and says now and then how far it is."""

    def __init__(self, run: Run, spec: InstructSpec, n_parts: int, *, is_writer: bool) -> None:
        self.n_parts = n_parts
        self._run = run
        self._key = {"model": spec.name, "adapter": None if spec.lora is None else ADAPTER}
        self._is_writer = is_writer
        self._waiting: list[dict[str, Any]] = []
        self._said_at = 0.0

    def add(self, record: StepRecord) -> None:
        self._waiting.append({**self._key, **asdict(record)})
        if self._is_writer and time.monotonic() - self._said_at >= _SECONDS_BETWEEN_LOOKS:
            self._said_at = time.monotonic()
            said = {"n_steps": record.step + 1, "loss": record.loss, "seconds": record.seconds}
            self._run.write_text(PROGRESS, json.dumps(said) + "\n")

    def flush(self) -> None:
        if self._waiting and self._is_writer:
            self._run.write_part("training", self.n_parts, TRAINING.rows(self._waiting))
        self.n_parts += bool(self._waiting)
        self._waiting = []


def _encoded(conversations: pa.Table, role: str) -> list[EncodedConversation]:
    """Return the conversations of a role in tokens."""
    import pyarrow.compute as pc

    from biaseval.training.templates import EncodedConversation

    chosen = conversations.filter(pc.equal(conversations["role"], role)).combine_chunks()
    return [
        EncodedConversation(
            ids.values.to_numpy().astype("int64"), is_answer.values.to_numpy(zero_copy_only=False).astype(bool)
        )
        for ids, is_answer in zip(chosen["token_ids"], chosen["is_answer"], strict=True)
    ]
