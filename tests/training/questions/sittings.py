"""A training that is watched on the way, and may die or break."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from biaseval.qa_models import WindowSettings
from biaseval.store import Run
from biaseval.training.evaluation import Evaluated, Watch
from biaseval.training.loop import StepRecord
from biaseval.training.outcome import Outcome, train
from biaseval.training.preparation import Base, load_base
from biaseval.training.questions import Reading, Standard
from biaseval.training.work import Work
from tests.training.questions.objectives import INPUTS, MAX_TOKENS, STRIDE, objective, questions, recipe
from tests.training.trainingtexts import CPU


class KilledError(Exception):
    """Stands for the death of a process."""


SETTINGS = WindowSettings(max_tokens=MAX_TOKENS, stride=STRIDE, n_best=5, max_answer_tokens=8)


def asked_of(base: Base, numbers: range, name: str = "squad") -> Evaluated:
    return Evaluated.of(name, questions(numbers), base, INPUTS, SETTINGS)


@dataclass(frozen=True)
class Breaking(Standard):
    """Standard training whose loss is no number from some step on."""

    is_broken: list[bool]

    def loss(self, reading: Reading) -> torch.Tensor:
        return super().loss(reading) * (math.nan if self.is_broken else 1)


def sitting(
    bert: Path, windows: pa.Table, folder: Path, killed_behind: int | None = None, learning_rate: float = 5e-3,
    broken_behind: int | None = None, **watched: Any,
) -> tuple[Outcome, list[StepRecord]]:  # fmt: skip
    """Train, watched on two sets of which one decides; ten steps, checkpoints every four."""
    how = replace(recipe(bert, learning_rate=learning_rate, epochs=6), checkpoint_steps=4, max_steps=10)
    base = load_base(how, CPU)
    heard: list[StepRecord] = []
    sets = [asked_of(base, range(6)), asked_of(base, range(20, 25), "other")]
    watch = Watch(sets, **{"every": 3, "criterion": "loss", "deciding": frozenset({"squad"}), **watched})

    def hear(record: StepRecord) -> None:
        heard.append(record)
        if record.step == killed_behind:
            raise KilledError

        kept = list((folder / "checkpoints").glob("best-*"))
        assert len(kept) <= 2, "the best weights, and those that the checkpoint knows"
        if record.step == broken_behind:
            method.is_broken.append(True)

    run, method = Run.open(str(folder)), Breaking([])
    work = Work(objective(windows, method), {"model": "reader"}, watch=watch, hint="look closer")
    return train(run, base, work, how, "model", hear), heard
