"""What a step saw, and what losses are multiplied by in float16."""

import math
from dataclasses import dataclass

from biaseval.spec import TrainingSpec

_FIRST_SCALE = 2.0**16

_GROWTH_STEPS, _MOST_SKIPPED = 2000, 20
"""Steps in a row after which a loss is scaled by more, as torch's GradScaler does; and those that end a training where
none of them was made."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step saw; the same in all workers."""

    loss: float
    """Mean over the step's rows before the step, in nats."""
    grad_norm: float | None
    """Of the whole gradient before clipping; None if the loss was not finite, so that no step was made."""
    is_skipped: bool = False
    """The scaled gradient was too large for float16, so that no step was made, and the next one is worth trying;
    ``grad_norm`` is infinite."""


@dataclass
class LossScale:
    """What losses are multiplied by in float16, so that small gradients are not lost: as torch's GradScaler does it.

    It halves where a gradient overflows, and doubles after 2,000 steps in a row without that.
    """

    value: float = _FIRST_SCALE
    n_made: int = 0
    """Steps in a row, since the value last changed."""
    n_skipped: int = 0
    """Steps of all."""
    n_skipped_now: int = 0
    """In a row."""

    def step(self, loss: float, grad_norm: float) -> Step:
        """Hear of a step's unscaled gradient, and return the step, which is made if the norm is finite."""
        if math.isfinite(grad_norm):
            self.n_made, self.n_skipped_now = self.n_made + 1, 0
            if self.n_made == _GROWTH_STEPS:
                self.value, self.n_made = 2 * self.value, 0
            return Step(loss, grad_norm)
        self.value, self.n_made = self.value / 2, 0
        self.n_skipped, self.n_skipped_now = self.n_skipped + 1, self.n_skipped_now + 1
        return Step(loss, math.inf, is_skipped=self.n_skipped_now < _MOST_SKIPPED)


def loss_scale_of(training: TrainingSpec) -> LossScale | None:
    """Return what a training's losses are scaled by at first; None where they are not."""
    return LossScale(_FIRST_SCALE) if training.precision == "float16" else None


def step_of(loss_scale: LossScale | None, loss: float, grad_norm: float) -> Step:
    """Return what a step saw; the scale, where there is one, hears of its gradient."""
    return Step(loss, grad_norm) if loss_scale is None else loss_scale.step(loss, grad_norm)


def steps_made(n_steps: int, loss_scale: LossScale | None) -> int:
    """Return how many of a training's steps Adam made."""
    return n_steps - (0 if loss_scale is None else loss_scale.n_skipped)
