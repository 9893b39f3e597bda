"""Where memory runs out passes take less, and no path is left for it."""

import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import BiasevalError
from biaseval.scoring import LabelScorer, memory, packed
from biaseval.scoring.memory import is_out_of_memory
from tests.scoring.families import EXACT, PACKED, by_the_rule, few_shot_prompts, largest_difference, random_model

# What torch, CUDA and its libraries raise.
OUT_OF_MEMORY = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cuda": torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", 2),
    "driver": RuntimeError("CUDA driver error: out of memory"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cudnn": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cudnn 9": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
}


def refuse_large(model: PreTrainedModel, error: str) -> None:
    def refuse(module: torch.nn.Module, args: tuple[()], kwargs: dict[str, torch.Tensor]) -> None:
        if kwargs["input_ids"].numel() > 150:
            raise OUT_OF_MEMORY[error]

    model.register_forward_pre_hook(refuse, with_kwargs=True)


@pytest.mark.parametrize("error", ["torch", "cublas"])
def test_a_self_test_that_does_not_fit_is_left_for_later(error: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"]())
    context = "case " * 200
    texts = [f"{context}Input: {word} new.\n\nOutput:" for word in ("very", "not", "sure")]
    prompts = pa.table({"prompt_id": list("abc"), "text": texts, "labels": [["no", "yes"]] * 3})
    expected = by_the_rule(model, tokenizer, prompts)

    refuse_large(model, error)
    scoring = LabelScorer(model, tokenizer, token_budget=100)
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert scoring.token_budget == 100
    assert scoring.facts()["self_test_difference"] is None
    scoring.score(few_shot_prompts())
    assert scoring.facts()["self_test_difference"] < EXACT


@pytest.mark.parametrize(("path", "error"), [("packed", "cuda"), ("prefix_cache", "torch"), ("full_text", "cublas")])
def test_memory_running_out_halves_the_budget_and_goes_on(
    path: str, error: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = random_model(PACKED["llama"]())
    prompts = few_shot_prompts()
    expected = by_the_rule(model, tokenizer, prompts)

    refuse_large(model, error)
    scoring = LabelScorer(model, tokenizer, token_budget=1024, cache_budget=4096, path=path)
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert (scoring.path, scoring.facts()["paths_left"]) == (path, {})
    assert scoring.token_budget == 128
    assert scoring.facts()["token_budget"] == 128


def test_what_libraries_and_the_allocator_of_the_cpu_say_is_known_and_other_errors_are_not() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert not isinstance(caught.value, torch.OutOfMemoryError)
    assert is_out_of_memory(caught.value)
    assert all(is_out_of_memory(error) for error in OUT_OF_MEMORY.values())
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_out_of_memory(ValueError("a mask of the wrong shape"))


@pytest.mark.parametrize(
    ("gib", "attention_of", "expected"),
    [(10, "sdpa", 4464), (66, "sdpa", 16_384), (66, "eager", 4096), (0, "sdpa", 32)],
)
def test_a_gpu_takes_as_many_tokens_as_its_memory_holds(
    gib: int, attention_of: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a model of 7B leaves free in bfloat16 on 24 and 80 GB. A token takes 524,288 bytes of keys and values,
    # 16 x 14,336 of activations and 12 x 32,000 / 8 of logits.
    config = MistralConfig()
    config._attn_implementation = attention_of
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    assert memory.token_budget_of(model) == 512
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(memory, "_third_of_free", lambda _: gib * (1 << 30) // 3)
    assert memory.token_budget_of(model) == expected
    assert memory.cache_budget_of(model) == {10: 6826, 66: 45_056, 0: 1}[gib]


def test_memory_that_never_suffices_is_said(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"]())

    def refuse(module: torch.nn.Module, args: tuple[()]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(refuse)
    prompts = pa.table({"prompt_id": ["short", "long"], "text": ["a", "z" + " z" * 80], "labels": [["no"], ["no"]]})
    with pytest.raises(BiasevalError, match=r"memory runs out .* the longest text is prompt 'long', label 'no' \(\d+ "):
        LabelScorer(model, tokenizer).score(prompts)


def test_keys_and_values_are_given_their_room_once(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    grown = packed._grown
    monkeypatch.setattr(packed, "_grown", lambda *given: made.append(given[-1]) or grown(*given))
    model = random_model(PACKED["llama, grouped queries"]())
    prompts = few_shot_prompts()
    for path_tokens in (30, 300):
        scoring = LabelScorer(model, tokenizer, token_budget=path_tokens)
        scoring.score(prompts)
        scoring.score(prompts.slice(0, 5))
    assert made == [512] * 2 * 2 * 2  # keys and values of two layers, of two scorers
    made.clear()
    LabelScorer(model, tokenizer, token_budget=300).generate(prompts, 40)
    assert len(made) == 2 * 2 * 2  # to score, which tests the path, and to generate
