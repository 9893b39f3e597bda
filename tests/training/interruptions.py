"""Trainings that stop, die or wait at a step of their own, so that no test depends on how fast a machine is."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from biaseval.store import Run
from biaseval.training.objectives import Objective, Share
from biaseval.training.preparation import Base
from biaseval.training.work import Work, few_shot_adapter, tuned_model

MARKER = "BIASEVAL_TEST_MARKER"
"""The environment variable that names the file that a waiting training makes."""


class Interrupted:
    """An objective; something happens before one of its steps, counted from where training began or went on."""

    def __init__(self, objective: Objective, step: int, happens: Callable[[Share], None]) -> None:
        self._objective, self._step, self._happens = objective, step, happens
        self._n = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def batches(self, rows: Sequence[int], share: Share) -> Sequence[Any]:
        if self._n == self._step:
            self._happens(share)
        self._n += 1
        return self._objective.batches(rows, share)


class NotFinite(Interrupted):
    """An objective whose loss is not finite from one of its steps on."""

    def __init__(self, objective: Objective, step: int) -> None:
        super().__init__(objective, step, lambda share: None)

    def loss(self, model: PreTrainedModel, batch: Any, device: torch.device) -> torch.Tensor:
        loss: torch.Tensor = self._objective.loss(model, batch, device)
        return loss * torch.nan if self._n > self._step else loss


def troubled_adapter(
    run: Run, unit: Mapping[str, Any], base: Base, *, stops: str, dies: str, marker: str, **arguments: Any
) -> Work:
    """Return `few_shot_adapter`; one adapter's loss is not finite, and one loses its last worker, once.

    Args:
        run: the run directory.
        unit: the adapter.
        base: the base model.
        stops: the adapter whose second step is not finite.
        dies: the adapter before whose second step the worker dies.
        marker: a file that it makes before.
        **arguments: of `few_shot_adapter`.
    """

    def die(share: Share) -> None:
        if share.rank == share.n_workers - 1:
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    work = few_shot_adapter(run, unit, base, **arguments)
    if unit["adapter"] == stops:
        return replace(work, objective=NotFinite(work.objective, 1))
    if unit["adapter"] == dies and not Path(marker).exists():
        return replace(work, objective=Interrupted(work.objective, 1, die))
    return work


def waiting_model(run: Run, unit: Mapping[str, Any], base: Base, **arguments: Any) -> Work:
    """Return `tuned_model`, which waits for ever before its seventh step, and makes the file `MARKER` before."""

    def wait(share: Share) -> None:
        Path(os.environ[MARKER]).touch()
        time.sleep(3600)

    work = tuned_model(run, unit, base, **arguments)
    return replace(work, objective=Interrupted(work.objective, 6, wait))


def waiting_command() -> None:
    """Run ``biaseval`` with `waiting_model` in place of `tuned_model`."""
    from biaseval.cli import main
    from biaseval.pipelines import instruct

    instruct.tune_model = waiting_model
    main()
