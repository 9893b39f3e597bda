"""Loading, describing and identifying models: on real files that the tests write."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import processors

from biaseval import models
from biaseval.errors import InputError
from biaseval.scoring import LabelScorer
from tests.bench.models_page import PROMPTS
from tests.scoring.families import EXACT, by_the_rule, largest_difference
from tests.tinymodels import make_llama, make_tokenizer

HAS_BITSANDBYTES = importlib.util.find_spec("bitsandbytes") is not None
WITHOUT_BITSANDBYTES = pytest.mark.skipif(HAS_BITSANDBYTES, reason="bitsandbytes is installed")


@pytest.fixture
def model_copy(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def save_random(config: hf.PretrainedConfig, folder: Path) -> Path:
    hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


def test_description_equals_what_is_counted_on_the_loaded_model(tiny_llama: Path) -> None:
    facts = models.describe_model(models.ModelSource(str(tiny_llama)))
    model = models.load_model(models.ModelSource(str(tiny_llama)))
    assert (facts.family, facts.n_parameters) == ("llama", model.num_parameters())
    assert (facts.n_layers, facts.hidden_size, facts.window) == (2, 32, 2048)
    assert facts.vocabulary == model.config.vocab_size


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (hf.MistralConfig(**SMALL, num_key_value_heads=1, intermediate_size=48, sliding_window=16,
                          max_position_embeddings=4096), 4096),
        (hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=77), 77),
        (hf.OPTConfig(**SMALL, ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=99), 99),
        (hf.GPTNeoXConfig(**SMALL, intermediate_size=48, max_position_embeddings=88), 88),
        (hf.FalconConfig(**SMALL, alibi=False, multi_query=True, max_position_embeddings=66), 66),
        (hf.FalconConfig(**SMALL, alibi=True, multi_query=False), None),
        (hf.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=50), None),
        (hf.MptConfig(d_model=32, n_layers=2, n_heads=4, vocab_size=50, max_seq_len=55), 55),
    ],
    ids=lambda value: f"{value.model_type}" if isinstance(value, hf.PretrainedConfig) else None,
)  # fmt: skip
def test_window_of_families(config: hf.PretrainedConfig, window: int | None, tmp_path: Path) -> None:
    assert models.describe_model(models.ModelSource(str(save_random(config, tmp_path)))).window == window


@pytest.mark.parametrize(("path", "what"), [
    ("/no/such/model", "no such directory"), ("./nowhere", "no such directory"),
    ("~/nowhere-at-all", "no such directory"), ("some/where/deep", "no such directory"),
    ("nobody/such-model", "neither a local directory"),
])  # fmt: skip
def test_a_path_without_model_is_refused_by_name(path: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for read in (models.describe_model, models.load_tokenizer, models.load_model, models.fingerprint_model):
        with pytest.raises(InputError, match=what) as caught:
            read(models.ModelSource(path))
        assert str(caught.value).startswith(path)


def test_incomplete_directories_are_refused(model_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"without config\.json"):
        models.describe_model(models.ModelSource(str(tmp_path)))
    (model_copy / "model.safetensors").unlink()
    with pytest.raises(InputError, match="without weights"):
        models.load_model(models.ModelSource(str(model_copy)))
    (model_copy / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InputError, match="only as pickle"):
        models.load_model(models.ModelSource(str(model_copy)))
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (model_copy / "model.safetensors.index.json").write_text(json.dumps(index))
    (model_copy / "model-00001-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="1 of 2 weights files missing"):
        models.load_model(models.ModelSource(str(model_copy)))
    (model_copy / "tokenizer.json").unlink()
    (model_copy / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match="no usable tokenizer"):
        models.load_tokenizer(models.ModelSource(str(model_copy)))
    with pytest.raises(InputError, match="a file"):
        models.describe_model(models.ModelSource(str(model_copy / "config.json")))


@pytest.mark.parametrize(("how", "missing"), [
    ({"quant_method": "gptq", "bits": 4}, "optimum"), ({"quant_method": "awq", "bits": 4}, "gptqmodel"),
    pytest.param({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", marks=WITHOUT_BITSANDBYTES),
])  # fmt: skip
def test_a_quantized_checkpoint_is_refused_by_the_package_that_it_lacks(
    model_copy: Path, how: dict[str, Any], missing: str
) -> None:
    config = json.loads((model_copy / "config.json").read_text())
    (model_copy / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    for read in (models.describe_model, models.load_model):
        with pytest.raises(InputError, match=rf"quantized \({how['quant_method']}\): .*{missing}"):
            read(models.ModelSource(str(model_copy)))


def test_a_quantization_that_nobody_knows_is_ignored_and_one_without_a_name_is_refused(model_copy: Path) -> None:
    config = json.loads((model_copy / "config.json").read_text())
    (model_copy / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "own"}}))
    assert models.load_model(models.ModelSource(str(model_copy))).config.model_type == "llama"
    (model_copy / "config.json").write_text(json.dumps(config | {"quantization_config": {"bits": 4}}))
    with pytest.raises(InputError, match=r"quantized \(None\): .*quant_method"):
        models.load_model(models.ModelSource(str(model_copy)))


def compressed(how: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": {"symmetric": True, **weights}}}
    own = {"config_groups": groups, "format": how, "ignore": ["lm_head"], "quantization_status": "compressed"}
    return {"quant_method": "compressed-tensors", **own}


@pytest.mark.parametrize(("how", "suffix"), [
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, "_scale_inv"),
    (compressed("float-quantized", num_bits=8, type="float", strategy="channel"), "_scale"),
    (compressed("int-quantized", num_bits=8, type="int", strategy="channel"), "_scale"),
    (compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16), "_scale"),
])  # fmt: skip
def test_quantized_weights_are_unpacked_as_they_are_read(model_copy: Path, how: dict[str, Any], suffix: str) -> None:
    weights, expected = load_file(model_copy / "model.safetensors"), {}
    for name in [name for name in weights if name.endswith("proj.weight")]:
        own = weights.pop(name)
        if how.get("format") == "pack-quantized":
            scale = own.unflatten(1, (-1, 16)).abs().amax(2) / 7
            numbers = (own / scale.repeat_interleave(16, 1)).round().to(torch.int8)
            weights[f"{name}_packed"] = pack_to_int32(numbers, 4)
            weights[f"{name}_shape"] = torch.tensor(own.shape)
        else:
            is_float = how.get("format") != "int-quantized"
            scale = own.abs().amax().reshape(1, 1) if "format" not in how else own.abs().amax(1, keepdim=True)
            scale = scale / (448 if is_float else 127)
            numbers = (own / scale).to(torch.float8_e4m3fn) if is_float else (own / scale).round().to(torch.int8)
            weights[name] = numbers
        weights[f"{name}{suffix}"] = scale
        weights[name.replace("weight", "input_scale")] = torch.ones(1)  # of activations
        expected[name] = numbers.float() * scale.repeat_interleave(own.shape[1] // scale.shape[1], 1)
    save_file(weights, model_copy / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((model_copy / "config.json").read_text())
    (model_copy / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    source = models.ModelSource(str(model_copy))
    assert models.describe_model(source).family == "llama"
    loaded = models.load_model(source)
    assert loaded.dtype == torch.float32
    for name, own in expected.items():
        torch.testing.assert_close(loaded.get_parameter(name), own, rtol=2**-8, atol=0)
    with pytest.raises(InputError, match=r"would quantize them again; set model.quantization to null"):
        models.sources.refuse_quantized("m", models.sources.load_config(source), added="8bit")
    if groups := how.get("config_groups"):
        groups = {**groups, "group_1": {"targets": ["re:.*mlp"], "weights": {"num_bits": 2}}}
        config["quantization_config"] = how | {"config_groups": groups}
        (model_copy / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match=r"quantized \(compressed-tensors\) in several ways"):
            models.describe_model(source)
        config["quantization_config"] = how | {"config_groups": ["no group"]}
        (model_copy / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match=r"quantized \(compressed-tensors\): "):
            models.load_model(source)


@pytest.mark.skipif(not HAS_BITSANDBYTES, reason="bitsandbytes (the extra gpu) is not installed")
def test_four_bit_weights_of_bitsandbytes_are_scored_as_plain_passes_do(tmp_path: Path) -> None:
    source, how = make_llama(tmp_path / "plain", hidden=128), hf.BitsAndBytesConfig(load_in_4bit=True)
    model = hf.AutoModelForCausalLM.from_pretrained(source, quantization_config=how, device_map={"": "cpu"})
    model.save_pretrained(tmp_path / "quantized")
    hf.AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "quantized")
    source_of = models.ModelSource(str(tmp_path / "quantized"))
    loaded, tokenizer = models.load_model(source_of), models.load_tokenizer(source_of)
    scorer = LabelScorer(loaded, tokenizer)
    assert largest_difference(scorer.score(PROMPTS), by_the_rule(loaded, tokenizer, PROMPTS)) < EXACT
    assert scorer.path == "packed"


def test_gguf_alone_is_refused(model_copy: Path) -> None:
    (model_copy / "model.safetensors").rename(model_copy / "small.gguf")
    with pytest.raises(InputError, match=r"only as GGUF \(small.gguf\); give the model as safetensors"):
        models.load_model(models.ModelSource(str(model_copy)))


def test_weights_that_miss_a_part_of_the_model_or_are_none_are_refused(model_copy: Path) -> None:
    weights = load_file(model_copy / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, model_copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"1 weights of LlamaForCausalLM missing.*up_proj"):
        models.load_model(models.ModelSource(str(model_copy)))
    (model_copy / "model.safetensors").write_bytes(b"\x08" + bytes(40))
    with pytest.raises(InputError, match="no usable causal language model"):
        models.load_model(models.ModelSource(str(model_copy)))


def test_a_tokenizer_without_eos_or_that_appends_it_is_refused(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    appended = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.backend_tokenizer.post_processor = appended
    for message in ("appends special tokens", "no EOS"):
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(InputError, match=message):
            models.load_tokenizer(models.ModelSource(str(tmp_path)))
        tokenizer.eos_token = None


@pytest.fixture
def adapter(tiny_llama: Path, tmp_path: Path) -> Path:
    base = models.load_model(models.ModelSource(str(tiny_llama)))
    get_peft_model(base, LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("key", "size", "message"),
    [("hidden_size", 64, "size mismatch"), ("num_hidden_layers", 1, "the model has no place for 2 of its weights")],
)
def test_adapters_of_other_models_are_refused(adapter: Path, tmp_path: Path, key: str, size: int, message: str) -> None:
    other = save_random(hf.LlamaConfig(**{**SMALL, key: size}, intermediate_size=48), tmp_path / "other")
    with pytest.raises(InputError, match=rf"does not fit the model .*{message}"):
        models.load_model(models.ModelSource(str(other), adapter=str(adapter)))


@pytest.mark.parametrize("changes", [{"rank_pattern": []}, {"bias": "some"}, {"r": "x"}, {"peft_type": 3}, []])
def test_a_damaged_configuration_of_an_adapter_is_refused(adapter: Path, tiny_llama: Path, changes: Any) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes} if changes else changes))
    with pytest.raises(InputError, match=r"does not fit the model .* trained on, or restore adapter_config\.json"):
        models.load_model(models.ModelSource(str(tiny_llama), adapter=str(adapter)))


def test_settings_that_cannot_work_are_refused(tiny_llama: Path) -> None:
    with pytest.raises(InputError, match="dtype 'float64'"):
        models.torch_dtype("float64")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"quantization": "8bit"}, "needs a CUDA GPU"),
        ({"quantization": "3bit"}, "quantization '3bit': unknown"),
        ({"device": "tpu"}, "device 'tpu': unknown"),
        *[({"device": "cuda:0"}, "no usable CUDA GPU")] * (not torch.cuda.is_available()),
    ]
    for settings, message in cases:
        with pytest.raises(InputError, match=message):
            models.load_model(models.ModelSource(str(tiny_llama)), models.Loading(**settings))
    with pytest.raises(InputError, match="/no/adapter"):
        models.load_model(models.ModelSource(str(tiny_llama), adapter="/no/adapter"))


@pytest.fixture
def two_small_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend two GPUs of 40 GiB; accelerate, which finds none, lays a model out over memory and disk."""
    monkeypatch.setattr(models.loading, "_resolved_device", lambda device: device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 40 << 30))


@pytest.mark.parametrize(("max_memory", "where"), [(None, "cpu"), ({"cpu": "90KB"}, "disk")])
@pytest.mark.usefixtures("two_small_gpus")
def test_a_model_that_does_not_fit_its_gpus_is_refused(
    max_memory: dict[int | str, int | str] | None, where: str, tiny_llama: Path
) -> None:
    with pytest.raises(InputError) as caught:
        models.load_model(models.ModelSource(str(tiny_llama)), models.Loading(device="cuda", max_memory=max_memory))
    assert str(caught.value) == (
        f"{tiny_llama}: 0.0 GiB of weights do not fit 2 GPUs of 40 GiB: a part would lie on {where}, at a fraction of "
        "the speed; set execution.gpus_per_actor to 3, or model.quantization to 8bit or 4bit"
    )


@pytest.mark.usefixtures("two_small_gpus")
def test_a_model_may_lie_where_somebody_asked_for_it(tiny_llama: Path) -> None:
    spread = models.load_model(
        models.ModelSource(str(tiny_llama)), models.Loading(device="cuda", max_memory={"cpu": "90KB", "disk": "1GB"})
    )
    assert "disk" in spread.hf_device_map.values()


@pytest.mark.parametrize(("quantization", "of_a_weight"), [(None, 2), ("8bit", 1), ("4bit", 0.5)])
def test_what_fits_one_gpu_is_not_spread(
    quantization: str | None, of_a_weight: float, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_weights = models.describe_model(models.ModelSource(str(tiny_llama))).n_parameters
    asked: list[Any] = []

    def from_pretrained(path: str, **options: Any) -> Any:
        asked.append(options["device_map"])
        return SimpleNamespace(hf_device_map={"": 0}, device="cuda:0"), {"missing_keys": []}

    monkeypatch.setattr(models.loading, "_resolved_device", lambda device: device)
    monkeypatch.setattr(models.loading, "_quantization_config", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(hf.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    for spare in (1.2, 1.3):  # a fifth of the memory stays free
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda spare=spare: (spare * of_a_weight * n_weights, 0))
        loaded = models.Loading("bfloat16", "cuda", quantization)
        models.loading.read_model(hf.AutoModelForCausalLM, "model", models.ModelSource(str(tiny_llama)), loaded)
    assert asked == ["auto", {"": "cuda"}]


def test_fingerprint_follows_content_and_not_place(tiny_llama: Path, model_copy: Path) -> None:
    here, there = (
        models.fingerprint_model(models.ModelSource(str(tiny_llama))),
        models.fingerprint_model(models.ModelSource(str(model_copy))),
    )
    assert here == there
    assert str(tiny_llama) not in json.dumps(here)
    (model_copy / "README.md").write_text("a new word")
    assert models.fingerprint_model(models.ModelSource(str(model_copy))) == here
    weights = bytearray((model_copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model_copy / "model.safetensors").write_bytes(weights)
    changed = models.fingerprint_model(models.ModelSource(str(model_copy)))
    assert changed["digest"] != here["digest"]
    assert changed["model"]["files"] == here["model"]["files"]
    tokenizer = json.loads((model_copy / "tokenizer.json").read_text())
    (model_copy / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1))
    assert models.fingerprint_model(models.ModelSource(str(model_copy)))["model"]["files"] != here["model"]["files"]


@pytest.fixture
def qa_bert(tmp_path: Path) -> Path:
    config = hf.BertConfig(**SMALL, intermediate_size=48)
    hf.AutoModelForQuestionAnswering.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / "qa")
    return tmp_path / "qa"


def test_a_question_answering_model_keeps_its_head_and_its_body_misses_nothing(qa_bert: Path) -> None:
    model = models.load_extractive_model(models.ModelSource(str(qa_bert)), models.Loading(dtype="bfloat16"))
    weights = load_file(qa_bert / "model.safetensors")
    assert torch.equal(model.qa_outputs.weight, weights["qa_outputs.weight"].to(torch.bfloat16))
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    del weights["bert.encoder.layer.1.output.dense.weight"], weights["qa_outputs.weight"]
    save_file(weights, qa_bert / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"1 weights of BertForQuestionAnswering missing.*output\.dense"):
        models.load_extractive_model(models.ModelSource(str(qa_bert)), allow_untrained_head=True)


def test_a_head_may_come_with_the_adapter(qa_bert: Path, tmp_path: Path) -> None:
    body = tmp_path / "body"
    hf.AutoModel.from_pretrained(qa_bert).save_pretrained(body)
    whole = models.ModelSource(str(qa_bert))
    lora = LoraConfig(task_type="QUESTION_ANS", target_modules=["query"], modules_to_save=["qa_outputs"])
    for config, name in ((lora, "with_head"), (LoraConfig(target_modules=["query"]), "without_head")):
        get_peft_model(models.load_extractive_model(whole), config).save_pretrained(tmp_path / name)
    ids = torch.arange(5, 20)[None]
    adapted = models.load_extractive_model(models.ModelSource(str(body), adapter=str(tmp_path / "with_head")))
    assert torch.equal(adapted(ids).start_logits, models.load_extractive_model(whole)(ids).start_logits)
    for source in (
        models.ModelSource(str(body)),
        models.ModelSource(str(body), adapter=str(tmp_path / "without_head")),
    ):
        with pytest.raises(InputError, match="no question answering head"):
            models.load_extractive_model(source)


def test_models_without_a_question_answering_form_are_refused(tmp_path: Path) -> None:
    config = hf.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    hf.AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / "t5")
    assert models.is_sequence_model(models.ModelSource(str(tmp_path / "t5")))
    assert models.load_sequence_model(models.ModelSource(str(tmp_path / "t5"))).config.model_type == "t5"
    save_random(hf.GemmaConfig(**SMALL, intermediate_size=48, head_dim=8), tmp_path / "gemma")
    assert not models.is_sequence_model(models.ModelSource(str(tmp_path / "gemma")))
    with pytest.raises(InputError, match="no usable question answering model"):
        models.load_extractive_model(models.ModelSource(str(tmp_path / "gemma")))
    with pytest.raises(InputError, match="no usable sequence-to-sequence model"):
        models.load_sequence_model(models.ModelSource(str(tmp_path / "gemma")))


def loaded_by(code: str) -> str:
    heavy = "{'torch', 'transformers', 'peft', 'pydantic', 'ray'}"
    code = f"import sys, biaseval.models as models\n{code}\nprint(sorted({heavy} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_models_are_identified_without_torch_and_read_without_peft_and_pydantic(tiny_llama: Path) -> None:
    assert loaded_by(f"models.fingerprint_model(models.ModelSource({str(tiny_llama)!r}))") == "[]"
    assert loaded_by("assert all(hasattr(models, name) for name in models.__all__)") == "['torch', 'transformers']"
    assert not hasattr(models, "load_modell")
