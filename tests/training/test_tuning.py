"""Tuning in one process: as a plain loop does, however rows are packed, and behind a checkpoint as if nothing were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from biaseval.demo import MODEL_PATH
from biaseval.errors import BiasevalError, InputError
from biaseval.models import Loading, ModelSource, load_model, load_tokenizer, unfilled_model
from biaseval.spec import AdapterSpec, InstructSpec
from biaseval.store import Run
from biaseval.training import checkpoints, model_files
from biaseval.training.checkpoints import in_files, keep_only, newest_checkpoint, read_states, write_checkpoint
from biaseval.training.model_files import write_model
from biaseval.training.schedule import step_rows
from biaseval.training.templates import EncodedConversation
from biaseval.training.trainer import StepRecord
from biaseval.training.tuning import Tuned, n_tuning_steps, prepared, tuning_steps, weights_dtype

CPU = torch.device("cpu")
LORA = AdapterSpec(r=4, alpha=8)
CAPACITY = 64


def spec_of(model: Path, lora: AdapterSpec | None = None, **training: Any) -> InstructSpec:
    defaults = {"learning_rate": 2e-3, "precision": "float32", "gradient_checkpointing": False, "accumulation": 6}
    return InstructSpec.model_validate(
        {
            "kind": "instruct",
            "name": "tiny",
            "model": {"path": str(model)},
            "data": {"path": "unused.jsonl"},
            "max_tokens": CAPACITY,
            "lora": None if lora is None else lora.model_dump(),
            "training": {**defaults, "epochs": 2, "warmup": 0.2, **training},
        }
    )


def some(n: int = 16, seed: int = 0) -> list[EncodedConversation]:
    generator = np.random.default_rng(seed)
    found = []
    for length in generator.integers(8, 30, size=n):
        is_answer = generator.random(length) < 0.5
        is_answer[:2], is_answer[-1] = False, True
        found.append(EncodedConversation(generator.integers(2, 250, size=length), is_answer))
    return found


def ready(spec: InstructSpec) -> Tuned:
    model = load_model(ModelSource(spec.model.path), Loading(dtype=weights_dtype(spec)))
    return prepared(model, spec, CPU)


def steps(tuned: Tuned, spec: InstructSpec, train: list[EncodedConversation], **how: Any) -> list[StepRecord]:
    how = {"capacity": CAPACITY, **how}
    return list(tuning_steps(tuned.optimization, train, how.pop("held_out", []), spec, **how))


def tuned_weights(spec: InstructSpec, train: list[EncodedConversation], **how: Any) -> dict[str, torch.Tensor]:
    tuned = ready(spec)
    steps(tuned, spec, train, **how)
    return {name: parameter.detach().clone() for name, parameter in tuned.trained.items()}


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - value).abs().max().item() for name, value in other.items())


def plain_training(spec: InstructSpec, train: list[EncodedConversation]) -> dict[str, torch.Tensor]:
    """Train with nothing but PyTorch, transformers' schedules and PEFT, one conversation at a time."""
    own: Any = AutoModelForCausalLM.from_pretrained(spec.model.path, dtype=torch.float32)
    if spec.lora is not None:
        torch.manual_seed(spec.seed)
        layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
        own = get_peft_model(own, LoraConfig(r=4, lora_alpha=8, target_modules=sorted(layers)))
    own.train()
    parameters = {name: parameter for name, parameter in own.named_parameters() if parameter.requires_grad}
    optimizer = torch.optim.AdamW(parameters.values(), lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    is_cosine = spec.training.schedule == "cosine"
    scheduled = get_cosine_schedule_with_warmup if is_cosine else get_linear_schedule_with_warmup
    schedule = scheduled(optimizer, num_warmup_steps=2, num_training_steps=6)
    for _, chosen in step_rows(len(train), spec.training, spec.seed):
        losses = []
        for number in chosen:
            ids = torch.from_numpy(train[number].token_ids)[None]
            logprobs = own(input_ids=ids).logits[0].log_softmax(-1)
            losses += [-logprobs[place - 1, ids[0, place]] for place in np.flatnonzero(train[number].is_answer)]
        torch.stack(losses).mean().backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {name.removeprefix("base_model.model."): value.detach() for name, value in parameters.items()}


@pytest.mark.parametrize(("lora", "schedule"), [(LORA, "linear"), (None, "cosine")])
def test_the_result_is_that_of_a_plain_loop(tiny_llama: Path, lora: AdapterSpec | None, schedule: str) -> None:
    spec, train = spec_of(tiny_llama, lora, schedule=schedule), some()
    found = tuned_weights(spec, train, capacity=None)
    expected = plain_training(spec, train)
    assert furthest(found, expected) < 1e-6
    before = dict(load_model(ModelSource(str(tiny_llama))).named_parameters())
    moved = [
        value.abs().max() if "lora_B" in name else (value - before[name]).abs().max()
        for name, value in expected.items()
        if "lora_A" not in name
    ]
    assert min(moved) > 1e-4


@pytest.mark.parametrize("lora", [LORA, None])
def test_packing_and_memory_settings_change_nothing(tiny_llama: Path, lora: AdapterSpec | None) -> None:
    train = some()
    expected = tuned_weights(spec_of(tiny_llama, lora), train)
    for how, training in (
        ({"capacity": None}, {}),
        ({"capacity": 30}, {}),
        ({}, {"batch_size": 2, "accumulation": 3}),
        ({}, {"gradient_checkpointing": True}),
    ):
        assert furthest(tuned_weights(spec_of(tiny_llama, lora, **training), train, **how), expected) < 1e-5


def test_records_say_what_a_step_was(tiny_llama: Path) -> None:
    spec, train, held_out = spec_of(tiny_llama), some(), some(5, seed=1)
    tuned = ready(spec)
    records = steps(tuned, spec, train, held_out=held_out)
    assert [record.step for record in records] == list(range(6)) == list(range(n_tuning_steps(16, spec)))
    assert [record.epoch for record in records] == [0, 0, 0, 1, 1, 1]
    assert [record.eval_loss is None for record in records] == [True, True, False] * 2
    total = sum(len(one.token_ids) for one in train)
    assert sum(record.n_tokens or 0 for record in records[:3]) == total
    # The held-out loss is the plain mean over all their answer tokens, behind the last step.
    model = tuned.model.eval()
    losses: list[float] = []
    for one in held_out:
        ids = torch.from_numpy(one.token_ids)[None]
        logprobs = model(input_ids=ids).logits[0].log_softmax(-1)
        losses += [-logprobs[place - 1, ids[0, place]].item() for place in np.flatnonzero(one.is_answer)]
    assert records[-1].eval_loss == pytest.approx(np.mean(losses), abs=1e-5)
    assert tuned.model.training is False
    assert len(steps(ready(spec), spec_of(tiny_llama, max_steps=4), train)) == 4


@pytest.mark.parametrize("lora", [LORA.model_copy(update={"dropout": 0.2}), None])
def test_behind_a_checkpoint_training_goes_on_as_if_nothing_were(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: AdapterSpec | None
) -> None:
    monkeypatch.setattr(checkpoints, "_FILE_BYTES", 20_000)
    spec, train, run = spec_of(tiny_llama, lora), some(), Run.open(str(tmp_path))
    undisturbed = ready(spec)
    wanted = steps(undisturbed, spec, train)
    tuned = ready(spec)
    for record in tuning_steps(tuned.optimization, train, [], spec, capacity=CAPACITY):
        if record.step in (1, 3):
            write_checkpoint(run, record.step + 1, 1, tuned.trained, tuned.optimization, 0, 1)
        if record.step == 3:
            break
    [folder] = (tmp_path / "checkpoints").iterdir()
    assert folder.name == "step-00000004"
    assert len(list(folder.glob("*.safetensors"))) > 1
    # One that was killed half-way is none.
    run.write_text("checkpoints/step-00000005/state-00000.safetensors", "half")
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    assert checkpoint.n_steps == 4
    keep_only(run, checkpoint)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    again = ready(spec)
    again.optimization.restore(read_states(run, checkpoint, again.trained), checkpoint.n_steps)
    found = steps(again, spec, train, start=4)
    assert [replace(record, seconds=0) for record in found] == [replace(record, seconds=0) for record in wanted[4:]]
    assert all(torch.equal(again.trained[name], value) for name, value in undisturbed.trained.items())


def test_checkpoints_that_do_not_fit_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    run, spec = Run.open(str(tmp_path)), spec_of(tiny_llama, LORA, max_steps=1)
    assert newest_checkpoint(run) is None
    tuned = ready(spec)
    steps(tuned, spec, some())
    write_checkpoint(run, 1, 1, tuned.trained, tuned.optimization, 0, 1)
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    with pytest.raises(BiasevalError, match="which is not trained here"):
        list(read_states(run, checkpoint, ready(spec_of(tiny_llama)).trained))
    more = {**tuned.trained, "another": torch.nn.Parameter(torch.zeros(1))}
    with pytest.raises(BiasevalError, match=r"lacks 1 parameters \(first: another\)"):
        list(read_states(run, checkpoint, more))
    run.write_bytes(checkpoint.file(0), run.read_bytes(checkpoint.file(0))[:-3])
    with pytest.raises(BiasevalError, match=r"state-00000.safetensors: cannot be read .*delete .*checkpoints"):
        list(read_states(run, checkpoint, tuned.trained))


def test_files_share_what_fits() -> None:
    sizes = {"a": 4, "b": 5, "c": 20, "d": 1, "e": 9, "f": 1}
    assert list(in_files(sizes, 10)) == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    assert list(in_files({}, 10)) == []


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_written_model_loads_and_is_the_tuned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """The bundled model, whose output layer is tied to the embedding; in several shards."""
    monkeypatch.setattr(model_files, "_SHARD_BYTES", 500_000)
    spec = spec_of(MODEL_PATH, precision=precision, max_steps=2)
    tuned = ready(spec)
    # Small updates would be lost in bfloat16.
    assert {parameter.dtype for parameter in tuned.model.parameters()} == {torch.float32}
    steps(tuned, spec, some())
    run = Run.open(str(tmp_path))
    run.write_text("model/left.txt", "what a killed process began")
    write_model(run, tuned.model, load_tokenizer(ModelSource(str(MODEL_PATH))), tuned.optimization, precision, 0, 1)
    folder = tmp_path / "model"
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert not (folder / "left.txt").exists()
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    stored = {name: value for shard in shards for name, value in load_file(shard).items()}
    assert index["weight_map"].keys() == stored.keys()
    assert "lm_head.weight" not in stored
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in stored.values())
    loaded = load_model(ModelSource(str(folder)), Loading(dtype=precision))
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    for name, parameter in tuned.model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter.to(loaded.dtype)), name
    assert json.loads((folder / "config.json").read_text())["dtype"] == precision
    assert (
        load_tokenizer(ModelSource(str(folder)))("a word")["input_ids"]
        == load_tokenizer(ModelSource(str(MODEL_PATH)))("a word")["input_ids"]
    )
    assert loaded.generation_config.eos_token_id == tuned.model.generation_config.eos_token_id


def test_what_is_trained_is_never_in_bfloat16_alone(tiny_llama: Path) -> None:
    for lora, zero, expected in (
        (None, None, "float32"),
        (None, 0, "float32"),
        (None, 2, "bfloat16"),
        (LORA, None, "bfloat16"),
    ):
        assert weights_dtype(spec_of(tiny_llama, lora, precision="bfloat16", zero=zero)) == expected
    spec = spec_of(tiny_llama, LORA, precision="bfloat16", learning_rate=1e-2)
    tuned = ready(spec)
    assert {parameter.dtype for parameter in tuned.trained.values()} == {torch.float32}
    assert tuned.model.get_input_embeddings().weight.dtype == torch.bfloat16
    records = steps(tuned, spec, some())
    assert records[-1].loss < records[0].loss
    exact = steps(
        ready(spec_of(tiny_llama, LORA, learning_rate=1e-2)), spec_of(tiny_llama, LORA, learning_rate=1e-2), some()
    )
    assert [record.loss for record in records] == pytest.approx([record.loss for record in exact], rel=0.02)


def test_a_loss_that_is_not_finite_ends_training(tiny_llama: Path) -> None:
    spec = spec_of(tiny_llama, learning_rate=1e30, warmup=0.0)
    records = steps(ready(spec), spec, some())
    assert 1 < len(records) < 6
    assert [record.is_finite for record in records] == [True] * (len(records) - 1) + [False]


def test_a_model_without_weights_has_the_right_form_and_buffers(tiny_llama: Path) -> None:
    bare, whole = (
        unfilled_model(ModelSource(str(tiny_llama)), "bfloat16"),
        load_model(ModelSource(str(tiny_llama)), Loading(dtype="bfloat16")),
    )
    shapes, wanted = (
        {name: (own.shape, own.dtype) for name, own in model.named_parameters()} for model in (bare, whole)
    )
    assert shapes == wanted
    assert all(torch.equal(own, dict(whole.named_buffers())[name]) for name, own in bare.named_buffers())
    assert dict(bare.named_buffers())
    with pytest.raises(InputError, match="no such directory"):
        unfilled_model(ModelSource(str(tiny_llama / "none")))
