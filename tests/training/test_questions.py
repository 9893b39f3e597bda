"""Readers are trained as a plain loop trains them; every method's step is the mean of its windows, however shared."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from torch import nn
from transformers import AutoModelForQuestionAnswering, get_linear_schedule_with_warmup

from biaseval.execute.cluster import Cluster
from biaseval.execute.training import Training
from biaseval.models import ModelSource, load_extractive_model, load_reader_tokenizer, new_reader
from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.reading import ExtractiveReader, WindowSettings
from biaseval.spec import ExecutionSpec, InstructTrainingSpec
from biaseval.store import Run
from biaseval.training import preparation
from biaseval.training.checkpoints import newest_checkpoint, place_of
from biaseval.training.debias import confidence_regularization_loss, learned_mixin_loss, product_of_experts_loss
from biaseval.training.evaluation import Evaluated, Scores, Selection, Watch
from biaseval.training.features import question_features
from biaseval.training.loop import StepRecord, training_steps
from biaseval.training.objectives import Loss, Share
from biaseval.training.outcome import Outcome, train
from biaseval.training.preparation import Base, load_base, prepared
from biaseval.training.questions import (
    ConfidenceRegularization,
    Guide,
    LearnedMixin,
    Method,
    ProductOfExperts,
    Questions,
    Reading,
    Standard,
)
from biaseval.training.recipe import Recipe
from biaseval.training.schedule import planned_steps
from biaseval.training.work import Work
from biaseval.units import Unit
from tests.test_qa_pipeline import make_bert, question
from tests.training.trainingtexts import CPU

MAX_TOKENS, STRIDE, N_QUESTIONS, WIDTH = 40, 12, 9, 16
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
METHODS: dict[str, Any] = {
    "standard": Standard,
    "learned_mixin": lambda: LearnedMixin.new(WIDTH, 3, bias_scale=0.3, entropy_penalty=0.4),
    "learned_mixin, head": lambda: LearnedMixin.new(WIDTH, 3, bias_scale=0.3, entropy_penalty=0.4, variant="head"),
    "confidence_regularization": lambda: ConfidenceRegularization(0.3),
    "product_of_experts": lambda: ProductOfExperts(0.5),
}


OTHER: dict[str, Any] = {"dataset": "b", "loss": 9.0, "exact_match": 1.0, "f1": 1.0}


class KilledError(Exception):
    """Stands for the death of a process."""


def questions(numbers: range) -> pa.Table:
    rows = [
        {
            **{name: own[name] for name in ("question", "context")},
            "example_id": own["id"],
            "answers": own["answers"]["text"],
            "answer_starts": own["answers"]["answer_start"],
        }
        for own in (question(number, "squad") for number in numbers)
    ]
    return pa.Table.from_pylist(rows)


def features_of(bert: Path, numbers: range) -> pa.Table:
    tokenizer = load_reader_tokenizer(ModelSource(str(bert)))
    return question_features(tokenizer, questions(numbers), max_tokens=MAX_TOKENS, stride=STRIDE)


@pytest.fixture(autouse=True)
def _cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut steps into passes wherever that saves a token: these windows are too short to be cut otherwise."""
    monkeypatch.setattr(preparation, "_PASS_TOKENS", 0)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a BERT without dropout, as results of several shares are compared."""
    folder = make_bert(tmp_path_factory.mktemp("models") / "bert")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('_dropout_prob": 0.1', '_dropout_prob": 0.0'))
    return folder


@pytest.fixture(scope="module")
def windows(bert: Path) -> pa.Table:
    found = features_of(bert, range(N_QUESTIONS))
    assert len({len(own) for own in found["token_ids"]}) > 2
    assert 3 < sum(found["has_answer"].to_pylist()) < found.num_rows
    return found


def guides(windows: pa.Table) -> dict[str, list[Guide]]:
    draw = np.random.default_rng(5)
    return {
        name: [
            (draw.normal(size=len(own)).astype(np.float32), draw.normal(size=len(own)).astype(np.float32))
            for own in windows["token_ids"]
        ]
        for name in ("bias", "teacher")
    }


def objective(windows: pa.Table, method: Method, **options: Any) -> Questions:
    return Questions(windows, INPUTS, 0, method, guides(windows), **options)


def recipe(bert: Path, **training: Any) -> Recipe:
    settings = {"learning_rate": 2e-3, "epochs": 2, "batch_size": 4, "accumulation": 2, "warmup": 0.0}
    settings |= {"precision": "float32", "gradient_checkpointing": False}
    section = InstructTrainingSpec(**{**settings, **training})
    return Recipe(model=ModelSource(str(bert)), task="extractive", training=section, adapter=None, seed=7)


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def test_standard_training_is_that_of_a_plain_loop(bert: Path, windows: pa.Table) -> None:
    """All rows of one length, as published: then transformers' own loss is the mean over a step's windows."""
    how, what = recipe(bert), objective(windows, Standard(), padded_to=MAX_TOKENS)
    base = load_base(how, CPU)
    with prepared(base, how, what) as ready:
        records = list(training_steps(ready.optimization, what, how, base.share))
    plain: Any = AutoModelForQuestionAnswering.from_pretrained(bert)
    plain.train()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=2e-3, weight_decay=0.0)
    planned = planned_steps(windows.num_rows, how)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, len(planned))
    for record, (_, rows) in zip(records, planned, strict=True):
        chosen = windows.take(rows).to_pylist()
        padded = {
            name: torch.tensor([own[key] + [filling] * (MAX_TOKENS - len(own[key])) for own in chosen])
            for name, key, filling in (("input_ids", "token_ids", 0), ("token_type_ids", "token_types", 0))
        }
        mask = [[1] * len(own["token_ids"]) + [0] * (MAX_TOKENS - len(own["token_ids"])) for own in chosen]
        loss = plain(
            **padded,
            attention_mask=torch.tensor(mask),
            start_positions=torch.tensor([own["start_position"] for own in chosen]),
            end_positions=torch.tensor([own["end_position"] for own in chosen]),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        assert record.loss == pytest.approx(loss.item(), abs=1e-5)
        assert record.n_tokens == sum(len(own["token_ids"]) for own in chosen)
    # Not their weights: those that move all logits alike have a gradient of rounding, which Adam makes steps of.
    batch = what.batches(range(4), Share(4))[0]
    inputs = {name: torch.tensor(values) for name, values in batch.inputs.items()}
    with torch.no_grad():
        found, expected = (
            torch.stack([own.start_logits, own.end_logits]).log_softmax(dim=-1)
            for own in (model.eval()(**inputs) for model in (base.model, plain))
        )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert (found - found.mean()).abs().max() > 0.1


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_every_window_counts_the_same_without_its_padding(name: str, bert: Path, windows: pa.Table) -> None:
    """The loss of a step is the mean of those of its windows, each alone, where nothing is padded."""
    method = METHODS[name]()
    what = objective(windows, method)
    model: Any = load_extractive_model(ModelSource(str(bert)))
    loss = Loss(model, what, "float32", CPU)
    rows = list(range(windows.num_rows))
    found, cut = (
        sum(float(loss(batch)) for batch in what.batches(rows, share)) for share in (Share(4), Share(4, pass_tokens=0))
    )
    alone = []
    for row, own in enumerate(windows.to_pylist()):
        given = {"input_ids": torch.tensor([own["token_ids"]]), "token_type_ids": torch.tensor([own["token_types"]])}
        outputs = model(**given, output_hidden_states=True)
        logits, labels = (
            [outputs.start_logits, outputs.end_logits],
            [torch.tensor([own["start_position"]]), torch.tensor([own["end_position"]])],
        )
        others = {key: [torch.tensor(side)[None] for side in what.guides[key][row]] for key in what.guides}
        if isinstance(method, LearnedMixin):
            states = outputs.hidden_states[-1]
            settings = {"bias_scale": 0.3, "entropy_penalty": 0.4, "variant": method.variant}
            own_loss = learned_mixin_loss(*logits, *others["bias"], states, *labels, method.layers, **settings)
        elif isinstance(method, ConfidenceRegularization):
            own_loss = confidence_regularization_loss(
                *logits, *others["teacher"], *others["bias"], *labels, bias_scale=0.3
            )
        elif isinstance(method, ProductOfExperts):
            own_loss = product_of_experts_loss(*logits, *others["bias"], *labels, bias_scale=0.5)
        else:
            sides = [nn.functional.cross_entropy(*side) for side in zip(logits, labels, strict=True)]
            own_loss = torch.stack(sides).mean()
        alone.append(float(own_loss))
    assert found == pytest.approx(np.mean(alone), abs=1e-5)
    assert cut == pytest.approx(np.mean(alone), abs=1e-5)


@pytest.mark.parametrize("pass_tokens", [0, 1, 6, 40])
def test_a_step_is_cut_where_that_is_least_work(pass_tokens: int) -> None:
    """Of all ways to cut a batch, from the longest row on, none has fewer padded tokens and passes."""
    draw = random.Random(pass_tokens)
    for _ in range(20):
        lengths = [draw.randrange(3, 20) for _ in range(draw.randrange(1, 8))]
        found = Share(8, pass_tokens=pass_tokens).batches_of_like_length(range(len(lengths)), lengths)
        ordered = sorted(lengths, reverse=True)
        assert [lengths[row] for own in found for row in own] == ordered
        places = range(1, len(lengths))
        ways = [cut for n in range(len(lengths)) for cut in combinations(places, n)]
        costs = [
            sum((stop - start) * ordered[start] + pass_tokens for start, stop in pairwise([0, *way, len(lengths)]))
            for way in ways
        ]
        assert sum(len(own) * max(lengths[row] for row in own) + pass_tokens for own in found) == min(costs)


def test_a_step_that_is_not_cut_has_its_longest_rows_together() -> None:
    assert Share(2).batches_of_like_length("abcde", [3, 9, 4, 9, 1]) == [["b", "d"], ["c", "a"], ["e"]]
    assert Share(2, 1, 2).batches_of_like_length("abcde", [3, 9, 4, 9, 1]) == [["c", "a"], []]


def test_one_worker_alone_cuts_its_steps(bert: Path, windows: pa.Table) -> None:
    share = load_base(recipe(bert), CPU).share
    assert len(objective(windows, Standard()).batches(range(4), share)) > 1
    assert load_base(recipe(bert), CPU, rank=1, n_workers=2).share == Share(4, 1, 2)
    with pytest.raises(ValueError, match="several workers"):
        Share(4, 1, 2, pass_tokens=0)


def test_padding_that_takes_part_is_not_cut_away(windows: pa.Table) -> None:
    """As in the published code all rows of a step go through the reader at once, however long they are."""
    rows = range(windows.num_rows)
    share = Share(len(rows), pass_tokens=0)
    lengths = pc.list_value_length(windows["token_ids"]).to_pylist()
    assert len(objective(windows, Standard()).batches(rows, share)) > 1
    [batch] = Questions(windows, ("input_ids",), 0, padded_to=max(lengths) + 3).batches(rows, share)
    assert batch.is_token.shape == (len(rows), max(lengths) + 3)


@torch.no_grad()
def test_workers_share_a_step(bert: Path, windows: pa.Table) -> None:
    """Their losses add up to that of one worker, also where one has nothing left to do."""
    what = objective(windows, METHODS["learned_mixin"]())
    loss = Loss(load_extractive_model(ModelSource(str(bert))), what, "float32", CPU)
    for rows in ([0, 1, 2, 3, 4, 5, 6], [2]):
        alone = sum(float(loss(batch)) for batch in what.batches(rows, Share(2)))
        shares = [what.batches(rows, Share(2, rank, 2)) for rank in range(2)]
        assert len(shares[0]) == len(shares[1])
        assert sum(float(loss(batch)) for own in shares for batch in own) == pytest.approx(alone, abs=1e-6)


def test_what_is_trained_beside_the_reader_is_no_part_of_it(bert: Path, windows: pa.Table, tmp_path: Path) -> None:
    method = METHODS["learned_mixin"]()
    before = weights_of(method.layers)
    how, run = recipe(bert), Run.open(str(tmp_path))
    run.create()
    base = load_base(how, CPU)
    outcome = train(run, base, Work(objective(windows, method), {"model": "reader"}), how, "model", lambda record: None)
    assert outcome.is_complete
    changed = {name: (value - before[name]).abs().max() for name, value in weights_of(method.layers).items()}
    assert all(value > 0 for value in changed.values())
    found = load_extractive_model(ModelSource(str(tmp_path / "model")))
    assert weights_of(found).keys() == weights_of(base.model).keys()
    losses = run.read_table("training")["loss"].to_pylist()
    assert losses[-1] < 0.9 * losses[0]


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
    bert: Path,
    windows: pa.Table,
    folder: Path,
    killed_behind: int | None = None,
    learning_rate: float = 5e-3,
    broken_behind: int | None = None,
    **watched: Any,
) -> tuple[Outcome, list[StepRecord]]:
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
    assert outcome.problem is not None
    assert outcome.problem.startswith("loss nan, gradient norm unknown at step 7 (questions ")
    assert outcome.problem.endswith("; look closer")
    run = Run.open(str(tmp_path))
    left = newest_checkpoint(run, "checkpoints")
    assert left is not None
    assert left.n_steps == 4
    assert [own.name for own in sorted((tmp_path / "checkpoints").glob("best-*"))] == ["best-00000002", "best-00000005"]
    assert not run.has("model/config.json")


def test_training_ends_when_patience_does(bert: Path, windows: pa.Table, tmp_path: Path) -> None:
    outcome, heard = sitting(bert, windows, tmp_path, every=1, criterion="exact_match", patience=1)
    rows = Run.open(str(tmp_path)).read_table("evaluations").to_pylist()
    matches = [row["exact_match"] for row in rows if row["dataset"] == "squad"]
    assert all(later > earlier for earlier, later in pairwise(matches[:-1]))
    assert matches[-1] <= matches[-2]
    assert outcome.best_step == len(matches) - 2
    assert outcome.n_steps == len(heard) == len(matches) < 10
    assert outcome.is_complete


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
    assert outcome.problem is not None
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


def test_the_first_of_equal_evaluations_is_the_best() -> None:
    def hear(selection: Selection, values: Sequence[float]) -> list[bool]:
        names = ("loss", "exact_match", "f1")
        sets = [[{"dataset": "a", **dict.fromkeys(names, value)}, OTHER] for value in values]
        return [selection.add(step, scores) for step, scores in enumerate(sets)]

    falling, rising = Selection("loss", frozenset({"a"}), 2), Selection("f1", frozenset({"a"}), 2)
    assert hear(falling, [3.0, 2.0, 2.0, 1.0, math.nan]) == [True, True, False, True, False]
    assert (falling.best_step, falling.is_over) == (3, False)
    assert hear(rising, [0.5, 0.5, 0.4]) == [True, False, False]
    assert (rising.best_step, rising.is_over) == (0, True)
    both = Selection("f1", frozenset({"a", "b"}), None)
    assert hear(both, [0.5, 0.25, 0.75]) == [True, False, True]
    broken = Selection("f1", frozenset({"a"}), None)
    assert not broken.add(0, [{"dataset": "a", "loss": math.nan, "exact_match": 1.0, "f1": 1.0}])
    assert broken.best_step is None


def test_heads_and_new_readers_are_drawn_from_the_seed(tmp_path: Path) -> None:
    headless = ModelSource(str(make_bert(tmp_path / "headless", has_head=False)))
    heads = [
        load_extractive_model(headless, allow_untrained_head=True, seed=seed).qa_outputs.weight for seed in (0, 0, 1)
    ]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    new = [weights_of(new_reader(headless, seed=seed)) for seed in (0, 0, 1)]
    own = weights_of(load_extractive_model(headless, allow_untrained_head=True))
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(new[0][name], new[1][name])
    assert not torch.equal(new[0][name], new[2][name])
    assert not torch.equal(new[0][name], own[name])


def read_anew(run: Run, unit: Mapping[str, Any], base: Base, *, windows: pa.Table) -> Work:
    """Return what a worker trains for a unit: the same for each, with a place of its own for checkpoints."""
    key = {"model": unit["model"]}
    return Work(objective(windows, Standard()), key, unit["part"], checkpoints=place_of(unit))


def test_each_reader_of_a_group_begins_with_the_weights_of_its_base(
    bert: Path, windows: pa.Table, tmp_path: Path, here: None
) -> None:
    units = [
        Unit(number, 5, (f"models/{name}/config.json",), {"model": name, "part": number, "checkpoints": f"kept/{name}"})
        for number, name in enumerate(("one", "two"))
    ]
    run, execution = Run.open(str(tmp_path)), ExecutionSpec()
    run.create()
    stage = Training(
        name="training", verb="trained", noun="readers", units=units, execution=execution,
        recipe=replace(recipe(bert), checkpoint_steps=2), work=read_anew, arguments={"windows": windows},
    )  # fmt: skip
    with Cluster(execution) as cluster:
        done = list(stage.make(run, units, cluster))
    assert [(own.facts["first_step"], own.is_complete) for own in done] == [(0, True)] * 2
    one, two = (run.read_bytes(f"models/{name}/model.safetensors") for name in ("one", "two"))
    assert one == two
    steps = run.read_table("training").to_pylist()
    losses = {name: [row["loss"] for row in steps if row["model"] == name] for name in ("one", "two")}
    assert losses["one"] == losses["two"]
    for name in ("one", "two"):
        checkpoint = newest_checkpoint(run, f"kept/{name}")
        assert checkpoint is not None
        assert checkpoint.n_steps == len(losses[name]) - 1 - (len(losses[name]) - 1) % 2
