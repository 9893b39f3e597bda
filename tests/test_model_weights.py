"""Weights and configurations that do not belong together, and configurations that are none, are refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, PretrainedConfig

from biaseval.errors import InputError
from biaseval.models import ModelSource, causal, describe_model, describe_reader, load_model
from biaseval.pipelines.labels.score import score_spec
from biaseval.qa_models import GenerativeReader
from biaseval.runs import describe
from biaseval.scoring import LabelScorer
from biaseval.spec import ExecutionSpec, ModelSpec
from tests.bench.causaltypes import save_small, small_config
from tests.scoring.families import few_shot_prompts
from tests.tinymodels import make_tokenizer

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SMALL = {"vocab_size": 420, **SIZES}
UNUSED = r": 9 weights have no place in LlamaForCausalLM .*first: model\.layers\.1\.input_layernorm\.weight"


@pytest.fixture
def llama(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def configure(folder: Path, **settings: Any) -> ModelSource:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return ModelSource(str(folder))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> ModelSource:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return ModelSource(str(folder))


def saved(auto: Any, config: PretrainedConfig, folder: Path) -> Path:
    torch.manual_seed(0)
    auto.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


# ---- weights without a place -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_configuration_with_fewer_layers_than_the_weights_is_refused(llama: Path, is_sharded: bool) -> None:
    if is_sharded:
        model = AutoModelForCausalLM.from_pretrained(llama)
        (llama / "model.safetensors").unlink()
        model.save_pretrained(llama, max_shard_size="60KB")
        assert len(list(llama.glob("model-*.safetensors"))) > 1
    source = configure(llama, num_hidden_layers=1)
    readers = (lambda own: describe_reader(own, "generative"), GenerativeReader.load)
    for read in (describe_model, load_model, lambda own: LabelScorer.load(own.path), *readers):
        with pytest.raises(InputError, match=UNUSED):
            read(source)


def test_buffers_and_towers_that_no_score_needs_are_passed_over(llama: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = load_model(ModelSource(str(llama)))
    names = """
        model.layers.0.self_attn.rotary_emb.inv_freq model.rotary_emb.inv_freq model.layers.1.attn.bias
        model.layers.1.attn.masked_bias vision_tower.encoder.layers.0.weight multi_modal_projector.linear.weight
        model.visual.blocks.0.attn.qkv.weight model.embed_audio.projection.weight
    """
    source = change_weights(llama, lambda weights: weights.update({name: torch.zeros(4) for name in names.split()}))
    assert describe_model(source).n_parameters == before.num_parameters()
    ids = torch.arange(5, 30)[None]
    assert torch.equal(load_model(source)(ids).logits, before(ids).logits)
    assert "LOAD REPORT" not in capfd.readouterr().err


@pytest.mark.parametrize("is_alike", [True, False])
def test_an_output_layer_that_is_saved_beside_what_it_is_tied_to_is_used(llama: Path, is_alike: bool) -> None:
    ids = torch.arange(5, 30)[None]
    if is_alike:
        change_weights(llama, lambda own: own.update({"lm_head.weight": own["model.embed_tokens.weight"].clone()}))
    expected = load_model(ModelSource(str(llama)))(ids).logits
    source = configure(llama, tie_word_embeddings=True)
    describe_model(source)
    assert torch.equal(load_model(source)(ids).logits, expected)


# ---- weights that are missing or do not fit --------------------------------------------------------------------------


def test_a_configuration_with_more_layers_is_refused_before_weights_are_read(llama: Path) -> None:
    source = configure(llama, num_hidden_layers=11)
    with pytest.raises(InputError, match=r"81 weights of LlamaForCausalLM missing \(first: model\.layers\.2\."):
        describe_model(source)


def test_a_shape_that_does_not_fit_is_refused_by_plan_and_by_loading(llama: Path) -> None:
    source = configure(llama, intermediate_size=48)
    shapes = r"model\.layers\.0\.mlp\.down_proj\.weight has the shape \[32, 64\] and should have \[32, 48\]"
    for read in (describe_model, load_model):
        with pytest.raises(InputError, match=rf": 6 weights do not fit LlamaForCausalLM .*first: {shapes}"):
            read(source)


@pytest.mark.parametrize("is_missing", [True, False])
def test_an_expert_that_does_not_fit_the_others_is_named(tmp_path: Path, is_missing: bool) -> None:
    save_small(small_config("mixtral"), tmp_path)
    name = "model.layers.0.block_sparse_moe.experts.1.w1.weight"
    odd = {name: torch.zeros(3, 5)}
    source = change_weights(tmp_path, lambda own: own.pop(name) if is_missing else own.update(odd))
    message = r"weights of the causal language model cannot be.*first: model\.layers\.0\.mlp\.experts\.gate_up_proj"
    for read in (describe_model, load_model):
        with pytest.raises(InputError, match=message):
            read(source)


# ---- configurations that are none ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ['"llama"', "7", "{", "", '{"model_type": 5}', '{"model_type": []}'])
def test_a_file_that_is_no_configuration_is_a_message(llama: Path, content: str) -> None:
    (llama / "config.json").write_text(content)
    source = ModelSource(str(llama))
    scorer, reader = (lambda own: LabelScorer.load(own.path)), (lambda own: describe_reader(own, "extractive"))
    for read in (describe_model, load_model, scorer, reader):
        with pytest.raises(InputError, match=r"config\.json"):
            read(source)


# ---- windows and sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [-1, 0, 10**30])
def test_a_window_that_is_no_number_of_tokens_sets_no_limit(llama: Path, tmp_path: Path, window: int) -> None:
    source = configure(llama, max_position_embeddings=window)
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(llama)
    assert describe_model(source).window == (window if window > 0 else None)
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt_id": "a", "text": "Say which.\nOutput:", "labels": ["yes", "no"]}))
    assert describe(score_spec(ModelSpec(path=str(llama)), ExecutionSpec(), file)).facts["n_prompts"] == 1
    assert LabelScorer.load(str(llama)).score(few_shot_prompts()).num_rows


def test_sizes_that_cannot_be_are_refused_or_planned(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    before = (llama / "config.json").read_text()
    for settings in (
        *({"max_position_embeddings": None}, {"max_position_embeddings": "long"}, {"num_attention_heads": 0}),
        *({"num_attention_heads": 5}, {"num_key_value_heads": 3}, {"hidden_size": -32}, {"hidden_size": 0}),
        *({"vocab_size": 0}, {"num_hidden_layers": -1}, {"hidden_act": "no such"}, {"head_dim": 7}),
        *({"rope_parameters": {"rope_type": "no such"}}, {"rope_parameters": 3}, {"dtype": "no such"}),
    ):
        (llama / "config.json").write_text(before)
        refused = str(llama)
        try:
            describe_model(configure(llama, **settings))
        except InputError as error:  # no other error
            refused = str(error)
        assert str(llama) in refused, settings


# ---- a plain pass that is none ---------------------------------------------------------------------------------------


def test_a_failing_self_test_asks_whether_the_model_is_causal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = AutoModelForCausalLM.from_config(BertConfig(**SMALL, initializer_range=0.3)).eval()
    with pytest.raises(InputError, match=r"no causal language model \(bert\)"):
        LabelScorer(bert, make_tokenizer())
    monkeypatch.setattr(causal, "_ENCODERS", set())
    scoring = LabelScorer(bert, make_tokenizer())
    with pytest.raises(InputError, match="changes with later tokens"):
        scoring.score(few_shot_prompts())
