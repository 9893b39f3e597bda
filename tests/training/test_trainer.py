"""Training one adapter after another: as a plain loop does, without residue on the model."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from biaseval.demo import MODEL_PATH
from biaseval.models import WEIGHTS_FILE, Loading, ModelSource, bare_model, load_model, target_names, target_shapes
from biaseval.spec import LoraSpec, ModelSpec
from biaseval.training.batches import EncodedRow
from biaseval.training.objectives import LabelledPrompts
from biaseval.training.preparation import prepared, set_precision
from biaseval.training.recipe import adapters_recipe
from biaseval.training.schedule import learning_rate_at, n_steps_of, step_rows
from tests.training.trainingtexts import SMALL, TrainedAdapter, base_of, plain_training, random_rows, train_adapter

RECIPE = adapters_recipe(ModelSpec(path="in memory"), SMALL)


@pytest.fixture
def model(tiny_llama: Path) -> PreTrainedModel:
    return load_model(ModelSource(str(tiny_llama)))


def train(model: PreTrainedModel, rows: list[EncodedRow], **changes: Any) -> TrainedAdapter:
    """Train an adapter for four steps, if the rows are sixteen."""
    return train_adapter(model, rows, SMALL.model_copy(update={"epochs": 2, **changes}))


def weights(trained: TrainedAdapter) -> dict[str, torch.Tensor]:
    return load(trained.files[WEIGHTS_FILE])


def hooks(model: torch.nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@pytest.mark.parametrize("n_rows", [16, 11])
def test_the_adapter_is_that_of_a_plain_loop(tiny_llama: Path, model: PreTrainedModel, n_rows: int) -> None:
    rows = random_rows(n_rows)
    lora = SMALL.model_copy(update={"learning_rate": LoraSpec().learning_rate})
    trained = train_adapter(model, rows, lora)
    expected = plain_training(tiny_llama, rows, lora)
    found = weights(trained)
    assert set(found) == set(expected)
    assert any("lm_head" in name for name in found)
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=0, atol=1e-6), name
    moved = max(value.abs().max().item() for name, value in expected.items() if "lora_B" in name)
    assert moved > 5e-4
    assert len(trained.steps) == 10


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_model_is_left_without_residue(model: PreTrainedModel, checkpointing: bool) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modules, n_hooks, attributes = [type(module) for module in model.modules()], hooks(model), set(vars(model))
    rows = random_rows()
    first = train(model, rows, gradient_checkpointing=checkpointing)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert [type(module) for module in model.modules()] == modules
    assert hooks(model) == n_hooks
    assert not any("peft" in name for name in set(vars(model)) - attributes)
    assert not model.training
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in model.parameters())
    # So an adapter does not depend on those trained before it.
    train(model, random_rows(seed=1), epochs=1)
    assert train(model, rows, gradient_checkpointing=checkpointing).files == first.files


def test_a_model_is_whole_again_after_an_error(model: PreTrainedModel) -> None:
    names = [name for name, _ in model.named_parameters()]

    def fail() -> None:
        assert [name for name, _ in model.named_parameters()] != names
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), prepared(base_of(model), RECIPE, LabelledPrompts(random_rows(1))):
        fail()
    assert [name for name, _ in model.named_parameters()] == names


def written(trained: TrainedAdapter, folder: Path) -> str:
    for name, content in trained.files.items():
        (folder / name).write_bytes(content)
    return str(folder)


def test_a_tied_output_layer_is_changed_and_its_embedding_is_not(tmp_path: Path) -> None:
    model = load_model(ModelSource(str(MODEL_PATH)))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    before = model.get_input_embeddings().weight.clone()
    trained = train(model, random_rows(), learning_rate=0.01)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert torch.equal(model.get_input_embeddings().weight, before)
    # The head itself, as large as the embedding, is in no adapter.
    assert {name.split(".")[-2] for name in weights(trained)} == {"lora_A", "lora_B"}
    adapted = load_model(ModelSource(str(MODEL_PATH), adapter=written(trained, tmp_path)))
    assert adapted.get_input_embeddings().weight is adapted.get_output_embeddings().get_base_layer().weight
    assert torch.equal(adapted.get_input_embeddings().weight, before)


def test_the_rate_falls_linearly_and_rises_before_over_the_warm_up() -> None:
    lora = LoraSpec(learning_rate=1.0)
    assert [learning_rate_at(step, 10, lora) for step in (0, 1, 9)] == pytest.approx([1, 0.9, 0.1])
    warm = LoraSpec(learning_rate=1.0, warmup=0.2)
    assert [learning_rate_at(step, 10, warm) for step in (0, 1, 2, 3, 9)] == pytest.approx([0, 0.5, 1, 0.875, 0.125])


def test_sixteen_rows_make_ten_steps_and_each_row_counts_once_an_epoch() -> None:
    steps = list(step_rows(16, LoraSpec(), 42))
    assert [epoch for epoch, _ in steps] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for epoch in range(5):
        assert sorted(row for own, rows in steps if own == epoch for row in rows) == list(range(16))
    assert steps[0][1] != steps[2][1]
    assert steps == list(step_rows(16, LoraSpec(), 42))
    assert [len(rows) for _, rows in step_rows(11, LoraSpec(epochs=1), 42)] == [8, 3]
    assert n_steps_of(11, LoraSpec()) == 10


def test_a_loss_that_is_not_finite_ends_the_adapter_and_not_the_next(model: PreTrainedModel) -> None:
    trained = train(model, random_rows(), learning_rate=1e30)
    assert trained.files is None
    last = trained.steps[-1]
    assert len(trained.steps) < 4
    assert not np.isfinite(last.loss) or last.grad_norm is None or not np.isfinite(last.grad_norm)
    assert all(np.isfinite(step.loss) for step in trained.steps[:-1])
    assert train(model, random_rows()).files is not None


def test_bfloat16_leaves_norms_in_float32_and_trains() -> None:
    model = load_model(ModelSource(str(MODEL_PATH)), Loading("bfloat16"))
    set_precision(model, "bfloat16")
    dtypes = {name.split(".")[-2]: value.dtype for name, value in model.named_parameters()}
    assert dtypes["input_layernorm"] == dtypes["norm"] == torch.float32
    assert dtypes["q_proj"] == dtypes["embed_tokens"] == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    trained = train(model, random_rows(), precision="bfloat16")
    expected = train(load_model(ModelSource(str(MODEL_PATH))), random_rows())
    assert {value.dtype for value in weights(trained).values()} == {torch.bfloat16}
    losses, wanted = ([step.loss for step in each.steps] for each in (trained, expected))
    assert losses == pytest.approx(wanted, rel=0.05)


def test_norms_keep_what_their_files_have(tmp_path: Path, tiny_llama: Path) -> None:
    stored = load_model(ModelSource(str(tiny_llama)), Loading("float16"))
    for name, value in stored.named_parameters():
        if "norm" in name:
            value.data.fill_(1 + 2**-10)
    stored.save_pretrained(tmp_path)
    model = load_model(ModelSource(str(tmp_path)), Loading(None))
    assert model.dtype == torch.float16
    set_precision(model, "bfloat16")
    parameters = dict(model.named_parameters())
    norms = {name for name in parameters if "norm" in name}
    assert len(norms) == 5
    for name, value in parameters.items():
        assert value.dtype == (torch.float32 if name in norms else torch.bfloat16)
        assert name not in norms or (value == 1 + 2**-10).all()


def test_layers_with_transposed_weights_are_trained(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 300, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=1, initializer_range=0.3, tie_word_embeddings=False)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    model = load_model(ModelSource(str(tmp_path / "gpt2")))
    assert target_names(model, SMALL) == ["c_attn", "c_fc", "c_proj", "lm_head"]
    shapes = target_shapes(bare_model(ModelSource(str(tmp_path / "gpt2"))), SMALL)
    assert sorted(shapes) == [(16, 16), (16, 48), (16, 64), (16, 300), (64, 16)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trained = train(model, random_rows(), learning_rate=0.01)
    found = weights(trained)
    assert sum(value.numel() for value in found.values()) == 4 * sum(map(sum, shapes))
    assert all(value.abs().max() > 0 for value in found.values())
    ids = torch.arange(2, 20)[None]
    bare = model(input_ids=ids).logits
    adapted: Any = PeftModel.from_pretrained(model, written(trained, tmp_path))
    kept = adapted(input_ids=ids).logits
    assert (kept - bare).abs().max() > 0.01
    assert torch.allclose(adapted.merge_and_unload()(input_ids=ids).logits, kept, atol=1e-4)
