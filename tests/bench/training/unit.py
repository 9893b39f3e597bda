"""What a unit of training, with checkpoints and evaluations, costs around its steps."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biaseval.errors import BiasevalError
from biaseval.pipelines.qa.trained_models import readers_of
from biaseval.store import Run
from biaseval.training.outcome import train
from biaseval.training.preparation import load_base
from biaseval.training.recipe import reader_recipe
from biaseval.training.trained_readers import AskedSet, HowReadersTrain, reader_work
from tests.bench.training.settings import BATCH_SIZE, SEED, Settings, train_spec

_N_ASKED = 64
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Around:
    """What a unit of training, with checkpoints and evaluations, costs around its steps."""

    shape: str
    threads: int
    n_windows: int
    """In the set that it is trained on."""
    n_steps: int
    seconds: float
    """Of the unit, from the parts of its windows to the reader that is kept."""
    step_seconds: float
    evaluation_seconds: float
    share: float
    """Of the seconds outside steps and evaluations."""
    batch_s: float
    """To make the batch of a step, which is part of the step; a median."""


def around_steps(run: Run, base: Path, shape: str, n_parts: int, settings: Settings) -> Around:
    """Train a reader on all windows as a run does, and return what that took around its steps."""
    every = {"checkpoint_steps": settings.unit_every, "evaluation_steps": settings.unit_every}
    own = train_spec(base, max_steps=settings.n_unit_steps, evaluation_questions=_N_ASKED, patience=None, **every)
    [reader] = readers_of(own)
    recipe = reader_recipe(own, own.bases[0], reader.method, reader.seed)
    unit = {
        "row": reader.row,
        "folder": reader.folder,
        "checkpoints": f"checkpoints/{shape}",
        "features": list(range(n_parts)),
        "values": [],
        "guides": {},
    }
    asked = AskedSet("squad", "qa_training_examples", (0,), decides=True)
    held = load_base(recipe, _CPU)
    started = time.perf_counter()
    work = reader_work(run, unit, held, how=HowReadersTrain(own, settings.windows, "paper", (asked,)))
    outcome = train(run, held, work, recipe, reader.folder, lambda record: None)
    seconds = time.perf_counter() - started
    if not outcome.is_complete:
        raise BiasevalError(f"{shape}: the reader was given up ({outcome.problem}); report this")
    inside = outcome.step_seconds + outcome.evaluation_seconds
    return Around(
        shape=shape,
        threads=torch.get_num_threads(),
        n_windows=work.objective.n_rows,
        n_steps=outcome.n_steps,
        seconds=seconds,
        step_seconds=outcome.step_seconds,
        evaluation_seconds=outcome.evaluation_seconds,
        share=1 - inside / seconds,
        batch_s=_batch_seconds(lambda rows: work.objective.batches(rows, held.share), work.objective.n_rows),
    )


def _batch_seconds(make: Callable[[list[int]], Any], n_rows: int) -> float:
    draw, found = np.random.default_rng(SEED), []
    for _ in range(25):
        rows = draw.integers(0, n_rows, BATCH_SIZE).tolist()
        started = time.perf_counter()
        make(rows)
        found.append(time.perf_counter() - started)
    return statistics.median(found)
