"""Evaluations on the way, and early stops."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from biaseval.models import ModelSource, load_extractive_model, load_reader_tokenizer
from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.qa_models import ExtractiveReader
from biaseval.store import Run
from biaseval.training.checkpoints import newest_checkpoint
from biaseval.training.evaluation import Scores, Selection, Watch
from biaseval.training.objectives import Share
from biaseval.training.optimization import Asked
from biaseval.training.preparation import load_base
from biaseval.training.questions import Questions
from tests.training.questions.objectives import INPUTS, features_of, questions, recipe
from tests.training.questions.sittings import SETTINGS, KilledError, asked_of, sitting
from tests.training.trainingtexts import CPU

OTHER: dict[str, Any] = {"dataset": "b", "loss": 9.0, "exact_match": 1.0, "f1": 1.0}


def test_scores_on_the_way_are_those_of_the_reader_that_is_kept(bert: Path, windows: pa.Table, tmp_path: Path) -> None:
    outcome, _ = sitting(bert, windows, tmp_path)
    assert (outcome.n_steps, outcome.is_complete) == (10, True)
    rows = Run.open(str(tmp_path)).read_table("evaluations").to_pylist()
    assert [(row["model"], row["step"], row["dataset"]) for row in rows] == [
        ("reader", step, dataset) for step in (2, 5, 8, 9) for dataset in ("squad", "other")
    ]
    losses = {row["step"]: row["loss"] for row in rows if row["dataset"] == "squad"}
    assert outcome.best_step == min(losses, key=losses.__getitem__)
    model = load_extractive_model(ModelSource(str(tmp_path / "model")))
    reader = ExtractiveReader(model, load_reader_tokenizer(ModelSource(str(bert))), SETTINGS)
    for dataset, numbers in (("squad", range(6)), ("other", range(20, 25))):
        [row] = [own for own in rows if (own["step"], own["dataset"]) == (outcome.best_step, dataset)]
        shown = questions(numbers)
        predictions = reader.read(shown)["prediction"].to_pylist()
        answers = shown["answers"].to_pylist()
        for name, metric in (("exact_match", exact_match), ("f1", f1)):
            assert row[name] == pytest.approx(np.mean(list(map(metric, predictions, answers))), abs=1e-9)
        what = Questions(features_of(bert, numbers), INPUTS, 0)
        with torch.no_grad():
            alone = [float(what.loss(model, what.batch([number]), CPU)) for number in range(what.n_rows)]
        assert row["loss"] == pytest.approx(np.mean(alone), abs=1e-5)


@pytest.mark.parametrize(("watched", "best_step"), [({}, 9), ({"learning_rate": 2e-2, "criterion": "exact_match"}, 2)])
def test_a_killed_training_goes_on_to_the_same_reader(
    bert: Path, windows: pa.Table, tmp_path: Path, watched: dict[str, Any], best_step: int
) -> None:
    """The best weights may be those before the checkpoint; what came behind it goes."""
    wanted, heard = sitting(bert, windows, tmp_path / "whole", **watched)
    assert wanted.best_step == best_step
    with pytest.raises(KilledError):
        sitting(bert, windows, tmp_path / "run", killed_behind=6, **watched)
    (tmp_path / "run" / "checkpoints" / "best-00000005").mkdir(exist_ok=True)
    (tmp_path / "run" / "checkpoints" / "best-00000005" / "model.safetensors").write_text("half")
    (tmp_path / "run" / "model").mkdir()
    (tmp_path / "run" / "model" / "config.json").write_text("{}")  # as one that ended, and died before it said so
    again, left = sitting(bert, windows, tmp_path / "run", **watched)
    assert (again.first_step, again.best_step) == (4, best_step)
    assert [replace(record, seconds=0) for record in left] == [replace(record, seconds=0) for record in heard[4:]]
    run, whole = (Run.open(str(tmp_path / name)) for name in ("run", "whole"))
    found, expected = (own.read_table("evaluations").drop_columns("seconds") for own in (run, whole))
    assert found.equals(expected)
    assert run.read_bytes("model/model.safetensors") == whole.read_bytes("model/model.safetensors")
    assert run.files("model") == whole.files("model")
    for folder in ("run", "whole"):
        assert not list((tmp_path / folder / "checkpoints").glob("best-*"))


def test_a_reader_that_is_given_up_leaves_its_last_checkpoint_and_weights(
    bert: Path, windows: pa.Table, tmp_path: Path
) -> None:
    outcome, _ = sitting(bert, windows, tmp_path, broken_behind=6)
    assert (outcome.is_complete, outcome.n_steps) == (False, 8)
    assert outcome.problem.startswith("loss nan, gradient norm unknown at step 7 (questions ")
    assert outcome.problem.endswith("; look closer")
    run = Run.open(str(tmp_path))
    assert newest_checkpoint(run, "checkpoints").n_steps == 4
    assert [own.name for own in sorted((tmp_path / "checkpoints").glob("best-*"))] == ["best-00000002", "best-00000005"]
    assert not run.has("model/config.json")


class Asking:
    """Stands for what makes steps: a reader that is only asked."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.n_windows: list[int] = []

    @torch.no_grad()
    def ask(self, batch: Any, work: Asked) -> torch.Tensor:
        self.n_windows.append(len(batch.is_token))
        return work(self._model, batch, CPU)


def test_windows_of_a_question_may_be_in_several_passes(bert: Path) -> None:
    base, shown = load_base(recipe(bert), CPU), questions(range(6))
    own = asked_of(base, range(6))
    predictions = ExtractiveReader(base.model, base.tokenizer, SETTINGS).read(shown)["prediction"].to_pylist()
    with torch.no_grad():
        alone = [float(own.shown.loss(base.model, own.shown.batch([row]), CPU)) for row in range(own.shown.n_rows)]
    for batch_size in (1, 4, 100):
        optimization: Any = Asking(base.model)
        scores = own.scores(optimization, Share(batch_size))
        assert sum(optimization.n_windows) == own.shown.n_rows > 6
        assert len(optimization.n_windows) == -(-own.shown.n_rows // batch_size)
        assert max(optimization.n_windows) == min(batch_size, own.shown.n_rows)
        for name, metric in (("exact_match", exact_match), ("f1", f1)):
            expected = np.mean(list(map(metric, predictions, shown["answers"].to_pylist())))
            assert getattr(scores, name) == pytest.approx(expected, abs=1e-9)
        assert scores.loss == pytest.approx(np.mean(alone), abs=1e-6)


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
        == "stopped early after 10 steps: F1 0.4000 on validation, and the search asks for 0.5000"
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


def test_of_equal_evaluations_the_first_is_kept_and_patience_counts_those_that_are_not() -> None:
    selection = Selection(Watch([], every=3, criterion="f1", deciding=frozenset("a"), patience=2))
    f1 = (0.4, 0.5, 0.5, 0.6, 0.2, 0.1)
    kept = [selection.add(step, [Scores("a", 1.0, 0.0, value)]) for step, value in enumerate(f1)]
    assert (kept, selection.best_step, selection.is_over) == ([True, True, False, True, False, False], 3, True)


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
