"""Readers in 16 bits: float16 is as in a plain loop with torch's GradScaler, and goes on with its scale if killed."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from biaseval.errors import InputError
from biaseval.models import ModelSource, load_extractive_model, load_reader_tokenizer
from biaseval.spec import QaTrainSpec
from biaseval.store import Run
from biaseval.training import loss_scale, optimization, preparation
from biaseval.training.checkpoints import newest_checkpoint
from biaseval.training.deepspeed_config import deepspeed_config
from biaseval.training.features import question_features
from biaseval.training.loop import StepRecord, training_steps
from biaseval.training.loss_scale import LossScale
from biaseval.training.optimization import plain_restore
from biaseval.training.outcome import Outcome, train
from biaseval.training.preparation import load_base, prepared
from biaseval.training.questions import Questions
from biaseval.training.recipe import Recipe, reader_recipe
from biaseval.training.schedule import planned_steps
from biaseval.training.work import Work
from tests.training.test_readers_together import INPUTS, make_reader, questions
from tests.training.trainingtexts import CPU

N_STEPS = 10
FITTING = 2.0**10
"""A scale with which no gradient overflows; those of the first steps do so from about 2^16 on."""


class KilledError(Exception):
    """Stands for the death of a process."""


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_reader(tmp_path_factory.mktemp("models") / "bert"))


@pytest.fixture(scope="module")
def what(bert: str) -> Questions:
    tokenizer = load_reader_tokenizer(ModelSource(bert))
    return Questions(question_features(tokenizer, questions(range(7)), max_tokens=60, stride=12), INPUTS, 0)


def recipe(bert: str, precision: str, **changes: Any) -> Recipe:
    content = {
        "bases": [{"name": "bert", "path": bert}], "data": {"squad": "unused"}, "validation": {"squad": "unused"},
        "precision": precision, "learning_rate": 2e-3, "epochs": 4, "batch_size": 4, "accumulation": 2,
        "max_steps": N_STEPS, "checkpoint_steps": 4,
    }  # fmt: skip
    section = QaTrainSpec.model_validate({**content, **changes})
    return reader_recipe(section, section.bases[0], "standard", 7)


@pytest.fixture(autouse=True)
def _cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut steps into passes wherever that saves a token."""
    monkeypatch.setattr(preparation, "_PASS_TOKENS", 0)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what says by how much losses are scaled at first."""

    def begin_with(scale: float) -> None:
        monkeypatch.setattr(loss_scale, "_FIRST_SCALE", scale)

    return begin_with


def trained(
    what: Questions, how: Recipe, folder: Path, killed_behind: int | None = None
) -> tuple[Outcome, list[StepRecord]]:
    heard: list[StepRecord] = []

    def hear(record: StepRecord) -> None:
        heard.append(record)
        if record.step == killed_behind:
            raise KilledError

    run = Run.open(str(folder))
    return train(run, load_base(how, CPU), Work(what, {"model": "reader"}), how, "model", hear), heard


@pytest.mark.parametrize("scale", [FITTING, 2.0**19])
def test_float16_is_a_plain_loop_with_a_grad_scaler(
    bert: str, what: Questions, begin: Callable[[float], None], scale: float
) -> None:
    begin(scale)
    how = recipe(bert, "float16")
    base = load_base(how, CPU)
    assert base.model.dtype == torch.float32
    with prepared(base, how, what) as ready:
        records = list(training_steps(ready.optimization, what, how, base.share))
        found = ready.optimization.loss_scale
    plain: Any = load_extractive_model(ModelSource(bert)).requires_grad_(True).train()
    optimizer = torch.optim.AdamW(plain.parameters(), weight_decay=0.0, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    for record, (_, rows) in zip(records, planned_steps(what.n_rows, how), strict=True):
        optimizer.param_groups[0]["lr"] = record.learning_rate
        optimizer.zero_grad()
        losses = []
        for batch in what.batches(rows, base.share):
            with torch.autocast("cpu", dtype=torch.float16):
                outputs = plain(**{name: torch.from_numpy(own) for name, own in batch.inputs.items()})
            assert outputs.start_logits.dtype == torch.float16
            is_padding = torch.from_numpy(batch.is_token) == 0
            sides = [
                F.cross_entropy(logits.float().masked_fill(is_padding, -math.inf), torch.from_numpy(positions))
                for logits, positions in zip(
                    (outputs.start_logits, outputs.end_logits),
                    (batch.start_positions, batch.end_positions),
                    strict=True,
                )
            ]
            losses.append((sides[0] + sides[1]) / 2 * batch.weight)
            scaler.scale(losses[-1]).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert record.loss == pytest.approx(torch.stack(losses).sum().item(), rel=1e-5)
        assert record.is_skipped == (not norm.isfinite())
        assert record.grad_norm == (math.inf if record.is_skipped else pytest.approx(norm.item(), rel=1e-5))
    n_skipped = [record.is_skipped for record in records].count(True)
    assert (n_skipped == 0) == (scale == FITTING)
    assert n_skipped < N_STEPS - 2
    expected = scaler.state_dict()
    assert (found.value, found.n_made, found.n_skipped) == (expected["scale"], expected["_growth_tracker"], n_skipped)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(base.model.get_parameter(name).detach(), parameter.detach(), rtol=1e-5, atol=1e-7)


def test_gradients_are_summed_in_messages_of_one_dtype_and_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization, "_BUCKET", 10)
    sizes = [4, 6, 1, 20, 3, 3]
    gradients = [torch.zeros(size, dtype=torch.float64 if place == 5 else None) for place, size in enumerate(sizes)]
    found = [[gradient.numel() for gradient in bucket] for bucket in optimization._buckets(gradients)]
    assert found == [[4, 6], [1], [20], [3], [3]]


def test_the_scale_halves_where_a_gradient_overflows_and_doubles_where_none_does() -> None:
    assert LossScale().value == torch.amp.GradScaler("cpu").get_scale() == 65536.0
    scale = LossScale(8.0)
    for _ in range(1999):
        assert not scale.step(1.0, 0.5).is_skipped
    assert scale.value == 8.0
    scale.step(1.0, 0.5)
    assert scale == LossScale(16.0)
    skipped = scale.step(1.0, math.nan)
    assert (skipped.is_skipped, skipped.grad_norm) == (True, math.inf)
    assert scale == LossScale(8.0, 0, 1, 1)
    made = scale.step(1.0, 0.5)
    assert (made.is_skipped, made.grad_norm) == (False, 0.5)
    assert scale == LossScale(8.0, 1, 1, 0)


def test_twenty_skipped_steps_in_a_row_end_a_training(
    bert: str, what: Questions, tmp_path: Path, begin: Callable[[float], None]
) -> None:
    begin(2.0**100)
    outcome, heard = trained(what, replace(recipe(bert, "float16", epochs=9), max_steps=25), tmp_path)
    assert [record.is_skipped for record in heard] == [True] * 19 + [False]
    assert not outcome.is_complete
    assert "gradient norm inf at step 19" in outcome.problem
    norms = Run.open(str(tmp_path)).read_table("training")["grad_norm"].to_pylist()
    assert norms == [math.inf] * 20


@pytest.mark.parametrize("scale", [2.0**17, 2.0**22])
def test_a_killed_training_goes_on_with_its_scale(
    bert: str, what: Questions, tmp_path: Path, begin: Callable[[float], None], scale: float
) -> None:
    """Of the checkpoint's four steps some or all were skipped."""
    begin(scale)
    how = recipe(bert, "float16", epochs=6, max_steps=14)
    wanted, heard = trained(what, how, tmp_path / "whole")
    n_skipped = [record.is_skipped for record in heard[:4]].count(True)
    assert n_skipped in {2.0**17: [1, 2, 3], 2.0**22: [4]}[scale]
    with pytest.raises(KilledError):
        trained(what, how, tmp_path / "run", killed_behind=6)
    run, whole = (Run.open(str(tmp_path / name)) for name in ("run", "whole"))
    assert newest_checkpoint(run).loss_scale.value == scale / 2**n_skipped
    again, left = trained(what, how, tmp_path / "run")
    assert (again.first_step, again.is_complete) == (4, True)
    assert [replace(record, seconds=0) for record in left] == [replace(record, seconds=0) for record in heard[4:]]
    assert run.read_bytes("model/model.safetensors") == whole.read_bytes("model/model.safetensors")
    tables = [own.read_table("training").drop_columns("seconds") for own in (run, whole)]
    assert tables[0].equals(tables[1])
    assert wanted.is_complete


def test_deepspeed_scales_losses_in_float16_by_what_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    zero = {"zero": 2, "deepspeed_config": str(file)}
    section = recipe("unused", "float16", **zero).training
    for content in ({"fp16": {"enabled": True}}, {"fp16": {"enabled": "auto", "loss_scale": "auto"}}, {}):
        file.write_text(json.dumps(content))
        assert deepspeed_config(section, 100)["fp16"] == {"enabled": True, "loss_scale": 1.0}
    assert "fp16" not in deepspeed_config(recipe("unused", "float16", zero=0).training, 100)
    assert "fp16" not in deepspeed_config(recipe("unused", "bfloat16", zero=2).training, 100)
    file.write_text(json.dumps({"fp16": {"enabled": False, "hysteresis": 2, "loss_scale": 128}}))
    with pytest.raises(InputError) as refused:
        deepspeed_config(section, 100)
    for text in ("fp16.enabled False contradicts train.precision float16", "fp16.hysteresis: ", "fp16.loss_scale: "):
        assert text in str(refused.value)
    file.write_text(json.dumps({"fp16": {"enabled": True}}))
    with pytest.raises(InputError, match=r"fp16\.enabled contradicts train\.precision bfloat16"):
        deepspeed_config(recipe("unused", "bfloat16", **zero).training, 100)


@pytest.mark.parametrize(("is_fused", "device"), [(True, "meta"), (False, "cpu")])
def test_a_fused_kernel_finds_the_number_of_steps_where_the_parameter_is(is_fused: bool, device: str) -> None:
    """Torch's other kernels want it on the CPU; ``meta`` stands for a device of its own."""
    parameter = torch.nn.Parameter(torch.zeros(2, device="meta"))
    optimizer = torch.optim.AdamW([parameter])
    optimizer.param_groups[0]["fused"] = is_fused
    state = {name: torch.zeros(2) for name in ("weight", "exp_avg", "exp_avg_sq")}
    plain_restore(parameter, state, 7, optimizer)
    assert optimizer.state[parameter]["step"].device.type == device
    assert optimizer.state[parameter]["exp_avg"].device.type == "meta"
