"""The weights that a reader begins with, and those that are kept of it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from biaseval.execute.cluster import Cluster
from biaseval.execute.training import Training
from biaseval.models import ModelSource, load_extractive_model, new_reader
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.training.checkpoints import newest_checkpoint, place_of
from biaseval.training.outcome import train
from biaseval.training.preparation import Base, load_base
from biaseval.training.questions import Standard
from biaseval.training.work import Work
from biaseval.units import Unit
from tests.test_qa_pipeline import make_bert
from tests.training.questions.objectives import METHODS, objective, recipe, weights_of
from tests.training.trainingtexts import CPU


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
