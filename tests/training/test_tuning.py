"""Tuning in one process: as a plain loop does, however rows are packed, and behind a checkpoint as if nothing were."""

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
from biaseval.training.checkpoints import CHECKPOINTS, Checkpoint, newest_checkpoint, read_states, write_checkpoint
from biaseval.training.loop import StepRecord, training_steps
from biaseval.training.objectives import Conversations
from biaseval.training.outcome import Outcome, train
from biaseval.training.preparation import Prepared, load_base, prepared
from biaseval.training.recipe import tuning_recipe
from biaseval.training.schedule import planned_steps, step_rows
from biaseval.training.templates import EncodedConversation
from biaseval.training.work import Work
from tests.tinymodels import make_llama
from tests.training.trainingtexts import CPU, random_conversations

LORA = AdapterSpec(r=4, alpha=8)
CAPACITY = 64


def spec_of(model: Path, lora: AdapterSpec | None = None, **training: Any) -> InstructSpec:
    defaults = {"learning_rate": 2e-3, "precision": "float32", "gradient_checkpointing": False, "accumulation": 6}
    return InstructSpec.model_validate(
        {
            "kind": "instruct", "name": "tiny", "model": {"path": str(model)}, "data": {"path": "unused.jsonl"},
            "max_tokens": CAPACITY, "lora": None if lora is None else lora.model_dump(),
            "training": {**defaults, "epochs": 2, "warmup": 0.2, **training},
        }
    )  # fmt: skip


def tuned(spec: InstructSpec, objective: Conversations | None = None) -> tuple[Prepared, list[StepRecord]]:
    """Train on a fresh model; what is trained stays in the first value."""
    objective = objective or Conversations(random_conversations(), CAPACITY)
    recipe = tuning_recipe(spec)
    base = load_base(recipe, CPU)
    with prepared(base, recipe, objective) as ready:
        return ready, list(training_steps(ready.optimization, objective, recipe, base.share))


def tuned_weights(spec: InstructSpec, capacity: int | None = CAPACITY) -> dict[str, torch.Tensor]:
    trained = tuned(spec, Conversations(random_conversations(), capacity))[0].trained
    return {name: parameter.detach() for name, parameter in trained.items()}


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
    spec = spec_of(tiny_llama, lora, schedule=schedule)
    expected = plain_training(spec, random_conversations())
    assert furthest(tuned_weights(spec, None), expected) < 1e-6
    before = dict(load_model(ModelSource(str(tiny_llama))).named_parameters())
    moved = [
        value.abs().max() if "lora_B" in name else (value - before[name]).abs().max()
        for name, value in expected.items()
        if "lora_A" not in name
    ]
    assert min(moved) > 1e-4


@pytest.mark.parametrize("lora", [LORA, None])
def test_packing_and_memory_settings_change_nothing(tiny_llama: Path, lora: AdapterSpec | None) -> None:
    expected = tuned_weights(spec_of(tiny_llama, lora))
    together = {"batch_size": 2, "accumulation": 3}
    for capacity, training in ((None, {}), (30, together), (CAPACITY, {"gradient_checkpointing": True})):
        assert furthest(tuned_weights(spec_of(tiny_llama, lora, **training), capacity), expected) < 1e-5


def test_records_say_what_a_step_was(tiny_llama: Path) -> None:
    rows, held_out = random_conversations(), random_conversations(5, seed=1)
    spec = spec_of(tiny_llama)
    ready, records = tuned(spec, Conversations(rows, CAPACITY, Conversations(held_out, CAPACITY)))
    assert [record.step for record in records] == list(range(6))
    assert [record.epoch for record in records] == [0, 0, 0, 1, 1, 1]
    assert [record.eval_loss is None for record in records] == [True, True, False] * 2
    assert sum(record.n_tokens or 0 for record in records[:3]) == sum(len(one.token_ids) for one in rows)
    # The held-out loss is the plain mean over all their answer tokens, behind the last step.
    assert not ready.model.training
    losses: list[float] = []
    for one in held_out:
        ids = torch.from_numpy(one.token_ids)[None]
        logprobs = ready.model(input_ids=ids).logits[0].log_softmax(-1)
        losses += [-logprobs[place - 1, ids[0, place]].item() for place in np.flatnonzero(one.is_answer)]
    assert records[-1].eval_loss == pytest.approx(np.mean(losses), abs=1e-5)
    assert len(planned_steps(16, tuning_recipe(spec_of(tiny_llama, max_steps=4)))) == 4


class KilledError(Exception):
    """Stands for the death of a process."""


@pytest.mark.parametrize("lora", [LORA.model_copy(update={"dropout": 0.2}), None])
def test_behind_a_checkpoint_training_goes_on_as_if_nothing_were(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: AdapterSpec | None
) -> None:
    monkeypatch.setattr(checkpoints, "_FILE_BYTES", 20_000)
    recipe = tuning_recipe(spec_of(tiny_llama, lora, checkpoint_steps=2))
    work = Work(Conversations(random_conversations(), CAPACITY), {"model": "tiny"})
    # Of an adapter all is in one file, of a model in this tokenizer's.
    folder, file = ("adapter", "adapter_model.safetensors") if lora else ("model", "model.safetensors")

    def sitting(run: Run, killed_behind: int | None = None) -> tuple[Outcome, list[StepRecord]]:
        heard: list[StepRecord] = []

        def hear(record: StepRecord) -> None:
            heard.append(record)
            if record.step == killed_behind:
                raise KilledError

        return train(run, load_base(recipe, CPU), work, recipe, folder, hear), heard

    run, other = Run.open(str(tmp_path / "run")), Run.open(str(tmp_path / "other"))
    _, wanted = sitting(other)
    with pytest.raises(KilledError):
        sitting(run, killed_behind=4)
    [checkpoint] = (tmp_path / "run" / "checkpoints").iterdir()
    assert checkpoint.name == "step-00000004"
    assert len(list(checkpoint.glob("*.safetensors"))) > 1
    # What a killed process began is none: neither a checkpoint, nor a result, nor steps behind the checkpoint.
    run.write_text("checkpoints/step-00000005/state-00000.safetensors", "half")
    run.write_text(f"{folder}/half.safetensors", "half")
    # Older versions wrote a part of steps for each checkpoint.
    made = run.read_part("training", 0)
    assert made["step"].to_pylist() == [0, 1, 2, 3]
    for part, rows in enumerate((made.slice(0, 2), made.slice(2), other.read_table("training").slice(4, 1))):
        run.write_part("training", part, rows)
    run.delete("training/part-00001.parquet")
    with pytest.raises(BiasevalError, match=r"training has 2 of the 4 steps before the last checkpoint; restore it"):
        sitting(run)
    # A process that was killed while it made one part of all has left both.
    run.write_part("training", 0, made)
    run.write_part("training", 1, made.slice(2))
    outcome, found = sitting(run)
    assert (outcome.first_step, outcome.n_steps, outcome.is_complete) == (4, 6, True)
    assert [replace(record, seconds=0) for record in found] == [replace(record, seconds=0) for record in wanted[4:]]
    assert run.parts("training") == {0}
    assert [row["step"] for row in run.read_table("training").to_pylist()] == list(range(6))
    assert run.read_bytes(f"{folder}/{file}") == other.read_bytes(f"{folder}/{file}")
    assert run.files(folder) == other.files(folder)
    if lora is None:
        load_model(ModelSource(str(tmp_path / "run" / folder)))
        return
    adapted = load_model(ModelSource(str(tiny_llama), adapter=str(tmp_path / "run" / folder)))
    assert any("lora_A" in name for name, _ in adapted.named_parameters())
    with pytest.raises(InputError, match="adapter"):
        load_model(ModelSource(str(make_llama(tmp_path / "other", hidden=48)), adapter=str(tmp_path / "run" / folder)))


def test_checkpoints_that_do_not_fit_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    run = Run.open(str(tmp_path))
    assert newest_checkpoint(run) is None
    spec = spec_of(tiny_llama, LORA)
    recipe = tuning_recipe(spec)
    base = load_base(recipe, CPU)
    with prepared(base, recipe, Conversations([], None)) as ready:
        write_checkpoint(run, CHECKPOINTS, 1, ready, base.share)
    checkpoint = newest_checkpoint(run)
    assert checkpoint == Checkpoint(CHECKPOINTS, n_steps=1, n_files=1)
    with pytest.raises(BiasevalError, match="which is not trained here"):
        list(read_states(run, checkpoint, dict(load_model(ModelSource(str(tiny_llama))).named_parameters())))
    more = {**ready.trained, "another": torch.nn.Parameter(torch.zeros(1))}
    with pytest.raises(BiasevalError, match=r"lacks 1 parameters \(first: another\)"):
        list(read_states(run, checkpoint, more))
    run.write_bytes(checkpoint.file(0), run.read_bytes(checkpoint.file(0))[:-3])
    with pytest.raises(BiasevalError, match=r"state-00000.safetensors: cannot be read .*delete .*checkpoints"):
        list(read_states(run, checkpoint, ready.trained))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_written_model_loads_and_is_the_tuned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """The bundled model, whose output layer is tied to the embedding; in several shards."""
    monkeypatch.setattr(model_files, "_SHARD_BYTES", 500_000)
    recipe = tuning_recipe(spec_of(MODEL_PATH, precision=precision, max_steps=2))
    base = load_base(recipe, CPU)
    # Small updates would be lost in bfloat16.
    assert {parameter.dtype for parameter in base.model.parameters()} == {torch.float32}
    work = Work(Conversations(random_conversations(), CAPACITY), {"model": "tiny"})
    train(Run.open(str(tmp_path)), base, work, recipe, "model", lambda record: None)
    folder = tmp_path / "model"
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    stored = {name: value for shard in shards for name, value in load_file(shard).items()}
    assert index["weight_map"].keys() == stored.keys()
    assert "lm_head.weight" not in stored
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in stored.values())
    loaded = load_model(ModelSource(str(folder)), Loading(precision))
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    for name, parameter in base.model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter.to(loaded.dtype)), name
    assert json.loads((folder / "config.json").read_text())["dtype"] == precision
    found, expected = (load_tokenizer(ModelSource(str(path)))("a word") for path in (folder, MODEL_PATH))
    assert found["input_ids"] == expected["input_ids"]
    assert loaded.generation_config.eos_token_id == base.model.generation_config.eos_token_id


@pytest.mark.parametrize(("rank", "is_written"), [(0, True), (1, False), (2, False)])
def test_the_first_worker_alone_completes_a_model(
    rank: int, is_written: bool, tiny_llama: Path, tmp_path: Path
) -> None:
    base = load_base(tuning_recipe(spec_of(tiny_llama)), CPU)
    base = replace(base, share=replace(base.share, rank=rank, n_workers=3, pass_tokens=None))
    run = Run.open(str(tmp_path / "run"))
    run.create()
    model_files.complete_model(run, "model", base, "float32")
    assert run.has("model/config.json") is run.has("model/tokenizer.json") is is_written


def test_what_is_trained_is_never_in_bfloat16_alone(tiny_llama: Path) -> None:
    half, full = "bfloat16", "float32"
    for lora, zero, expected in ((None, None, full), (None, 0, full), (None, 2, half), (LORA, None, half)):
        recipe = tuning_recipe(spec_of(tiny_llama, lora, precision="bfloat16", zero=zero))
        assert recipe.weights_dtype == expected
    ready, records = tuned(spec_of(tiny_llama, LORA, precision="bfloat16", learning_rate=1e-2))
    assert {parameter.dtype for parameter in ready.trained.values()} == {torch.float32}
    assert ready.model.get_input_embeddings().weight.dtype == torch.bfloat16
    assert records[-1].loss < records[0].loss
    _, exact = tuned(spec_of(tiny_llama, LORA, learning_rate=1e-2))
    assert [record.loss for record in records] == pytest.approx([record.loss for record in exact], rel=0.02)


def test_a_model_without_weights_has_the_right_form_and_buffers(tiny_llama: Path) -> None:
    source = ModelSource(str(tiny_llama))
    bare, whole = unfilled_model(source, "bfloat16"), load_model(source, Loading("bfloat16"))
    shapes, wanted = (
        {name: (own.shape, own.dtype) for name, own in model.named_parameters()} for model in (bare, whole)
    )
    assert shapes == wanted
    assert all(torch.equal(own, dict(whole.named_buffers())[name]) for name, own in bare.named_buffers())
    assert dict(bare.named_buffers())
    with pytest.raises(InputError, match="no such directory"):
        unfilled_model(ModelSource(str(tiny_llama / "none")))
