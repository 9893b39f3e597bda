"""What came of training readers, for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biaseval.errors import BiasevalError
from biaseval.pipelines.readers import TrainingStages, trained_rows
from biaseval.pipelines.study import READERS, readers_of
from biaseval.store import Run
from biaseval.units import Done


@dataclass(frozen=True)
class ReadersSummary:
    """What a sitting of training did, and what the run's readers are."""

    uri: str
    n_readers: int
    """Complete, of the whole run, bias models among them."""
    n_planned: int
    n_trained: int
    """In this sitting."""
    n_steps: int
    """Of the complete ones."""
    seconds: float
    """Sum over the readers of this sitting, without starting workers."""
    overhead_share: float | None
    """Part of these seconds outside optimizer steps and evaluations, in [0, 1]; None if nothing was trained."""
    left_out: Mapping[str, str]
    """Readers that are not there, and why."""
    run: Run
    folder: str = READERS

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Names and values, for a person."""
        lines = [
            ("readers", f"{self.n_readers:,} of {self.n_planned:,} ({self.n_trained:,} trained now)"),
            ("steps", f"{self.n_steps:,}"),
        ]
        if self.overhead_share is not None:
            lines += [
                ("seconds of trainings", f"{self.seconds:,.1f}"),
                ("outside steps, evaluations", f"{self.overhead_share:.1%} of them"),
            ]
        return lines

    def refuse_given_up(self) -> None:
        """Make sure that no reader was given up; Raises: as `refuse_left_out`."""
        refuse_left_out(self.run, self.left_out)


def readers_summary(stages: TrainingStages, made: Sequence[Done]) -> ReadersSummary:
    """Return what a sitting of training did."""
    rows = trained_rows(stages.run)
    trained = [done for done in made if "step_seconds" in done.facts]
    seconds = sum(done.facts["seconds"] for done in trained)
    inside = sum(done.facts["step_seconds"] + done.facts["evaluation_seconds"] for done in trained)
    return ReadersSummary(
        uri=stages.run.uri,
        n_readers=sum(row["problem"] is None for row in rows),
        n_planned=len(readers_of(stages.train)),
        n_trained=sum(done.facts["problem"] is None for done in trained),
        n_steps=sum(row["steps"] for row in rows if row["problem"] is None),
        seconds=seconds,
        overhead_share=1 - inside / seconds if trained else None,
        left_out=stages.left_out,
        run=stages.run,
    )


def refuse_left_out(run: Run, left_out: Mapping[str, str]) -> None:
    """Make sure that all readers are there, once all else is made.

    Raises:
        BiasevalError: some were given up; the message says why.
    """
    if left_out:
        lines = "".join(f"\n  - {name}: {why}" for name, why in left_out.items())
        raise BiasevalError(
            f"{run.uri}: {len(left_out)} readers were given up, the others are there; lower the learning rate they "
            "were trained with (train.learning_rate, of bias models train.bias_model.learning_rate) or choose another "
            f"train.precision, in another --run-dir:{lines}"
        )
