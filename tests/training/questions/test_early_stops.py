"""Trainings that a search stops early."""

from pathlib import Path

import pyarrow as pa
import pytest

from biaseval.store import Run
from biaseval.training.evaluation import Scores, Watch
from tests.training.questions.sittings import KilledError, sitting


def stops(cutoffs: dict[int, float], before: int, n_steps: int, **f1: float) -> str | None:
    """Return why a training ends at an evaluation with these F1; ``a`` and ``b`` decide, ``other`` does not."""
    watch = Watch([], every=3, criterion="loss", deciding=frozenset("ab"), cutoffs=cutoffs)
    return watch.stops(before, n_steps, [Scores(name, 1.0, 0.0, value) for name, value in f1.items()])


def test_a_search_stops_what_is_behind_at_the_first_evaluation_that_a_rung_asks_for() -> None:
    asked = {10: 0.5}
    assert stops(asked, 0, 9, a=0.1) is None  # it is not there yet
    assert stops(asked, 9, 10, a=0.5) is None  # what is as good as the cutoff goes on
    assert (
        stops(asked, 9, 10, a=0.4)
        == "stopped early behind 10 steps: F1 0.4000 on validation, and the search asks for 0.5000"
    )
    assert stops(asked, 9, 12, a=0.4) is not None
    assert stops(asked, 10, 12, a=0.4) is None  # the one before was asked
    # The mean over the sets that decide, and of no other.
    assert stops(asked, 0, 10, a=0.3, b=0.75, other=0.0) is None
    assert stops(asked, 0, 10, a=0.3, b=0.5, other=1.0) is not None
    # Behind two rungs at once it must have reached both.
    assert stops({10: 0.3, 20: 0.5}, 9, 20, a=0.4) is not None
    assert stops({10: 0.5, 20: 0.3}, 9, 20, a=0.4) is not None
    assert stops({10: 0.3, 20: 0.4}, 9, 20, a=0.4) is None
    assert stops({}, 0, 10, a=0.0) is None


def test_a_training_that_a_search_stops_is_no_reader(bert: Path, windows: pa.Table, tmp_path: Path) -> None:
    outcome, heard = sitting(bert, windows, tmp_path, cutoffs={4: 1.5})
    assert (outcome.n_steps, len(heard)) == (6, 6)  # behind step 4 it is evaluated at step 6
    assert (outcome.is_stopped, outcome.is_complete) == (True, False)
    assert outcome.problem.startswith("stopped early behind 6 steps: F1 ")
    run = Run.open(str(tmp_path))
    assert {row["step"] for row in run.read_table("evaluations").to_pylist()} == {2, 5}
    assert not run.has("model/config.json")
    # It will never go on: nothing is kept of it.
    assert not list((tmp_path / "checkpoints").glob("best-*"))


@pytest.mark.parametrize("later", [{}, {8: 1.5}])
def test_a_killed_training_is_not_asked_again_for_what_it_has_reached(
    bert: Path, windows: pa.Table, tmp_path: Path, later: dict[int, float]
) -> None:
    """At a rung before the checkpoint it was good enough; behind it, it may have fallen below that."""
    reached = {2: -1.0, **later}
    wanted, _ = sitting(bert, windows, tmp_path / "whole", cutoffs=reached)
    with pytest.raises(KilledError):
        sitting(bert, windows, tmp_path / "run", killed_behind=6, cutoffs=reached)
    again, _ = sitting(bert, windows, tmp_path / "run", cutoffs={**reached, 2: 1.5})
    assert again.first_step == 4
    assert (again.n_steps, again.is_stopped, again.problem) == (wanted.n_steps, wanted.is_stopped, wanted.problem)
    assert wanted.n_steps == (9 if later else 10)
