"""Steps and weights of readers."""

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn
from transformers import AutoModelForQuestionAnswering, get_linear_schedule_with_warmup

from biaseval.execute.cluster import Cluster
from biaseval.execute.training import Training
from biaseval.models import ModelSource, load_extractive_model, new_reader
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.training.checkpoints import newest_checkpoint, place_of
from biaseval.training.debias import confidence_regularization_loss, learned_mixin_loss, product_of_experts_loss
from biaseval.training.loop import training_steps
from biaseval.training.objectives import Loss, Share
from biaseval.training.outcome import train
from biaseval.training.preparation import Base, load_base, prepared
from biaseval.training.questions import ConfidenceRegularization, LearnedMixin, ProductOfExperts, Standard
from biaseval.training.schedule import planned_steps
from biaseval.training.work import Work
from biaseval.units import Unit
from tests.test_qa_pipeline import make_bert
from tests.training.questions.objectives import MAX_TOKENS, METHODS, objective, recipe, weights_of
from tests.training.trainingtexts import CPU


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
            own_loss = learned_mixin_loss(logits, others["bias"], states, labels, method.layers, **settings)
        elif isinstance(method, ConfidenceRegularization):
            own_loss = confidence_regularization_loss(logits, others["teacher"], others["bias"], labels, bias_scale=0.3)
        elif isinstance(method, ProductOfExperts):
            own_loss = product_of_experts_loss(logits, others["bias"], labels, bias_scale=0.5)
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
        assert checkpoint.n_steps == len(losses[name]) - 1 - (len(losses[name]) - 1) % 2
