"""The scorer gives the plain forward pass's numbers, whatever it shares, packs or cuts."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from accelerate import dispatch_model
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, Phi3Config, PreTrainedTokenizerBase
from transformers.integrations import sdpa_attention

from biaseval.errors import BiasevalError, InputError
from biaseval.models import Loading, ModelSource, load_model, load_tokenizer
from biaseval.scoring import LabelScorer, attention, batched, encode, scorer
from tests.bench.causaltypes import small_config
from tests.scoring.families import (
    EXACT,
    FAMILIES,
    PACKED,
    VOCABULARY,
    by_the_rule,
    few_shot_prompts,
    largest_difference,
    llama_like,
    random_model,
)

PATHS = ("packed", "prefix_cache", "full_text")


# ---- golden values ---------------------------------------------------------------------------------------------------


def golden_prompts(golden: pa.Table) -> pa.Table:
    names = [str(row) for row in range(len(golden))]
    return pa.table({"prompt_id": names, "text": golden["prompt"], "labels": golden["labels"]})


@pytest.mark.parametrize("path", PATHS)
def test_golden_scores_of_the_reference_code(path: str, shared: Path) -> None:
    golden = pq.read_table(shared / "golden/superni/expected/scores.parquet")
    golden = golden.take(list(range(0, golden.num_rows, 2)))
    prompts = golden_prompts(golden)
    model = str(shared / "golden/tiny-llama")
    scoring = LabelScorer(load_model(ModelSource(model)), load_tokenizer(ModelSource(model)), path=path)
    scores = scoring.score(prompts)
    assert scoring.path == path
    expected = [own for row in golden["full_token_logprobs"].to_pylist() for own in row]
    assert largest_difference(scores, expected) < 2e-4
    n_completion = [n for row in golden["completion_tokens"].to_pylist() for n in row]
    assert [n + 1 for n in scores["n_label_tokens"].to_pylist()] == n_completion
    assert scores["label"].to_pylist() == [label for row in golden["labels"].to_pylist() for label in row]


@pytest.mark.parametrize(("dtype", "largest", "mean"), [("float16", 0.3, 0.02), ("bfloat16", 2.0, 0.15)])
def test_golden_scores_in_16_bits_are_off_by_the_dtype_and_not_by_packing(
    dtype: str, largest: float, mean: float, shared: Path
) -> None:
    # All of them: float16 0.16 and 0.008 nats, bfloat16 1.0 and 0.066, as by the plain forward pass (README).
    golden = pq.read_table(shared / "golden/superni/expected/scores.parquet")
    golden = golden.take(list(range(0, golden.num_rows, 40 if dtype == "float16" else 4)))  # CPUs emulate float16
    prompts = golden_prompts(golden)
    expected = np.concatenate([own for row in golden["full_token_logprobs"].to_pylist() for own in row])
    model = str(shared / "golden/tiny-llama")
    found = {}
    for path in ("packed", "full_text"):
        scoring = LabelScorer(
            load_model(ModelSource(model), Loading(dtype=dtype)), load_tokenizer(ModelSource(model)), path=path
        )
        scores = np.concatenate(scoring.score(prompts)["token_logprobs"].to_pylist())
        assert scoring.path == path
        found[path] = np.abs(scores - expected)
    assert 1e-4 < found["packed"].max() < largest
    assert found["packed"].mean() < min(mean, 1.2 * found["full_text"].mean())


# ---- the paths that the families take --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_takes_its_fastest_path(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(FAMILIES[name]())
    prompts = few_shot_prompts()
    scoring = LabelScorer(model, tokenizer, token_budget=300)
    scores = scoring.score(prompts)
    assert scoring.path == ("packed" if name in PACKED else "prefix_cache")
    assert 0 <= scoring.facts()["self_test_difference"] < EXACT
    assert largest_difference(scores, by_the_rule(model, tokenizer, prompts)) < EXACT


@pytest.mark.parametrize("name", ["llama, grouped queries", "qwen3", "falcon 7b", "opt", "gpt_neox", "gemma3"])
def test_packs_need_neither_a_dense_mask_nor_repeated_keys(
    name: str, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*_: object) -> torch.Tensor:
        raise AssertionError

    model, prompts = random_model(PACKED[name]()), few_shot_prompts()
    scoring = LabelScorer(model, tokenizer, token_budget=300)
    scores = scoring.score(prompts)  # the self-test is over
    monkeypatch.setattr(attention, "dense_mask", unwanted)
    monkeypatch.setattr(sdpa_attention, "repeat_kv", unwanted)
    assert scoring.score(prompts).equals(scores)


@pytest.mark.parametrize("name", ["falcon_mamba", "jamba", "mamba", "zamba"])
@pytest.mark.parametrize("budget", [20, 300])
def test_layers_that_begin_anew_behind_a_cache_go_on_token_by_token(
    name: str, budget: int, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched, "_COST_OF_A_PASS", 0.1)  # small texts do not pay for so many passes
    config = small_config(name, vocab_size=VOCABULARY)
    model, prompts, passes = random_model(config), few_shot_prompts(), []
    assert batched._tokens_behind(random_model(config).to(torch.bfloat16)) in (0, 1)  # rounding may hide that one works
    expected, scoring = by_the_rule(model, tokenizer, prompts), LabelScorer(model, tokenizer, token_budget=budget)
    model.register_forward_pre_hook(lambda *own: passes.append(own[2]["input_ids"].shape), with_kwargs=True)
    scores = scoring.score(prompts)
    assert scoring.path == "prefix_cache"
    assert sum(width == 1 and n > 1 for n, width in passes) > 20
    assert largest_difference(scores, expected) < EXACT


def test_a_model_that_keeps_its_states_to_itself_is_scored_from_whole_texts(tokenizer: PreTrainedTokenizerBase) -> None:
    model, prompts = random_model(small_config("recurrent_gemma", vocab_size=VOCABULARY)), few_shot_prompts()
    scoring = LabelScorer(model, tokenizer, token_budget=300)
    assert scoring.path == "full_text"
    assert largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts)) < EXACT


@pytest.mark.parametrize("name", ["llama, grouped queries", "falcon 7b", "mpt"])
def test_a_model_over_several_devices_gives_the_same_scores(
    name: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    # Half of the layers lie in memory and half on disk: what device_map does with GPUs, hooks and all.
    model = random_model(FAMILIES[name]())
    prompts = few_shot_prompts()
    expected = by_the_rule(model, tokenizer, prompts)
    layers = [module for module, _ in model.named_modules() if re.fullmatch(r".*\.(layers|h|blocks)\.\d+", module)]
    places = dict.fromkeys(_top_modules(model, layers), "cpu") | dict.fromkeys(layers, "cpu")
    places[layers[-1]] = "disk"
    dispatched = dispatch_model(model, places, main_device="cpu", offload_dir=str(tmp_path), force_hooks=True)
    assert len(set(dispatched.hf_device_map.values())) == 2
    scoring = LabelScorer(dispatched, tokenizer, token_budget=64)
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert scoring.path == ("packed" if name in PACKED else "prefix_cache")
    assert scoring.generate(prompts, 2).num_rows == prompts.num_rows


def _top_modules(model: torch.nn.Module, layers: list[str]) -> list[str]:
    """Return the modules that with ``layers`` make up the whole model."""
    inner = layers[0].rsplit(".", 1)[0]
    outer = inner.rsplit(".", 1)[0]
    beside = [f"{outer}.{name}" for name, _ in model.get_submodule(outer).named_children()]
    return [name for name, _ in model.named_children() if name != outer] + [name for name in beside if name != inner]


def test_the_beginning_that_parts_share_is_run_once_and_bit_for_bit_the_same(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    model = random_model(PACKED["llama, grouped queries"]())
    context = "case " * 150
    texts = [f"{context}Input: {word} new.\n\nOutput:" for word in ("very", "not", "sure", "the", "yes", "other")]
    labels = [["no", "yes"]] * len(texts)
    prompts = pa.table({"prompt_id": list("abcdef"), "text": texts, "labels": labels})
    parts = [prompts.slice(0, 3), prompts.slice(3, 3)]
    scoring = LabelScorer(model, tokenizer, token_budget=64)
    scoring.score(parts[0])
    n_run: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: n_run.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    behind = scoring.score(parts[1])
    assert sum(n_run) < 60 < len(tokenizer(context)["input_ids"])
    # A resumed run starts with this part: the same bytes.
    assert LabelScorer(model, tokenizer, token_budget=64).score(parts[1]).equals(behind)
    # Another beginning, and another budget, take nothing from the cache.
    other = parts[1].set_column(1, "text", [[text.replace("case", "new") for text in parts[1]["text"].to_pylist()]])
    assert scoring.score(other).equals(LabelScorer(model, tokenizer, token_budget=64).score(other))


def test_a_prompt_that_begins_others_is_scored_although_its_beginning_is_in_the_cache(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    model = random_model(PACKED["llama"]())
    context = "case " * 150
    long = pa.table({"prompt_id": ["a", "b"], "text": [context + "new", context + "the"], "labels": [["no"]] * 2})
    scoring = LabelScorer(model, tokenizer, token_budget=40)
    scoring.score(long)
    short = pa.table({"prompt_id": ["c"], "text": [context[:499]], "labels": [["case"]]})
    assert largest_difference(scoring.score(short), by_the_rule(model, tokenizer, short)) < EXACT


# ---- when something is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["weights", "adapter", "dtype"])
def test_a_model_that_changes_between_calls_is_scored_as_it_is(change: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama, grouped queries"]())
    context = "case " * 150
    texts = [f"{context}Input: {word} new.\n\nOutput:" for word in ("very", "not", "sure")]
    prompts = pa.table({"prompt_id": list("abc"), "text": texts, "labels": [["no", "yes"]] * 3})
    scoring = LabelScorer(model, tokenizer, token_budget=64)
    before = scoring.score(prompts)["token_logprobs"].to_pylist()
    if change == "weights":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.05)
    elif change == "adapter":
        adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
        scoring.score(prompts)
        adapted.disable_adapter_layers()
        assert largest_difference(scoring.score(prompts), before) < EXACT
        adapted.enable_adapter_layers()
    else:
        model.to(torch.bfloat16)
    scores = scoring.score(prompts)
    assert largest_difference(scores, by_the_rule(model, tokenizer, prompts)) < (0.5 if change == "dtype" else EXACT)
    assert largest_difference(scores, before) > (1e-4 if change == "dtype" else 0.05)
    assert scoring.path == "packed"


@pytest.mark.parametrize("rope_type", ["longrope", "dynamic", "yarn"])
def test_rotary_embeddings_that_follow_the_longest_text_of_a_batch(
    rope_type: str, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pass with a longer text leaves its frequencies in the model ("dynamic"): the expected scores are of new models.
    rope: dict[str, object] = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 4.0}
    sizes: dict[str, object] = {"max_position_embeddings": 40 if rope_type == "dynamic" else 4096}
    make = LlamaConfig
    if rope_type == "yarn":  # does not follow the text
        rope |= {"original_max_position_embeddings": 40}
    if rope_type == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "original_max_position_embeddings": 40}
        sizes = {"max_position_embeddings": 4096, "original_max_position_embeddings": 40, "sliding_window": None}
        make = Phi3Config
    model = random_model(make(**llama_like(rope_parameters=rope, **sizes)))
    prompts = few_shot_prompts()
    assert {39, 41} < {*encode_lengths(tokenizer, prompts)}
    expected = [own for row in rows_of(prompts) for own in by_the_rule(copy.deepcopy(model), tokenizer, row)]
    monkeypatch.setattr(scorer.models, "model_window", lambda config: None)  # it ends where "dynamic" begins
    for path in PATHS:
        scoring = LabelScorer(copy.deepcopy(model), tokenizer, path=path)
        assert scoring.path_beyond_window == (None if rope_type == "yarn" else "one_by_one")
        for _ in range(2):  # what longer texts left changes nothing
            assert largest_difference(scoring.score(prompts), expected) < EXACT
        assert scoring.path == path


def rows_of(prompts: pa.Table) -> list[pa.Table]:
    """Return a table for each prompt with each of its labels."""
    schema = prompts.schema
    rows = [{**row, "labels": [label]} for row in prompts.to_pylist() for label in row["labels"]]
    return [pa.Table.from_pylist([row], schema) for row in rows]


def encode_lengths(tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> list[int]:
    return [len(ids) for ids in encode(tokenizer, prompts)["token_ids"].to_pylist()]


@pytest.mark.parametrize("path", PATHS)
def test_a_score_that_is_no_number_is_an_error_with_the_prompt(path: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"]())
    rare = tokenizer("z", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        model.get_input_embeddings().weight[rare] = float("nan")
    scoring = LabelScorer(model, tokenizer, path=path)
    scoring.score(few_shot_prompts())  # the self-test is over
    prompts = pa.table({"prompt_id": ["fine", "bad"], "text": ["b b", "a z"], "labels": [["no", "yes"]] * 2})
    with pytest.raises(BiasevalError, match=r"prompt 'bad', label 'no'.*not finite"):
        scoring.score(prompts)
    fine = prompts.slice(0, 1)
    assert largest_difference(scoring.score(fine), by_the_rule(model, tokenizer, fine)) < EXACT


def test_a_tokenizer_of_another_model_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(LlamaConfig(**llama_like(vocab_size=50)))
    with pytest.raises(InputError, match="outside the model's vocabulary of 50"):
        LabelScorer(model, tokenizer).score(few_shot_prompts())


# ---- the package -----------------------------------------------------------------------------------------------------


def test_the_scorer_needs_neither_ray_nor_duckdb_nor_pydantic() -> None:
    code = "import sys, biaseval.scoring\nprint({'ray', 'duckdb', 'pydantic', 'peft', 'bitsandbytes'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_adapter_changes_the_scores_to_those_of_the_adapted_model(tiny_llama: Path, tmp_path: Path) -> None:
    adapted = get_peft_model(
        load_model(ModelSource(str(tiny_llama))), LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    )
    torch.manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    adapted.eval().save_pretrained(tmp_path)
    prompts = few_shot_prompts()
    scoring = LabelScorer.load(str(tiny_llama), adapter=str(tmp_path))
    assert largest_difference(scoring.score(prompts), by_the_rule(adapted, scoring.tokenizer, prompts)) < EXACT
    assert scoring.path == "packed"
    plain = LabelScorer.load(str(tiny_llama)).score(prompts)["token_logprobs"].to_pylist()
    assert largest_difference(scoring.score(prompts), plain) > 0.1
