"""Greedy continuations are those of ``model.generate``, token for token, whatever the texts share."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import BiasevalError
from biaseval.models import ModelSource, load_model, load_tokenizer
from biaseval.scoring import LabelScorer
from tests.scoring.families import FAMILIES, PACKED, few_shot_prompts, random_model

pytestmark = pytest.mark.slow


def by_generate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], n_tokens: int
) -> list[list[int]]:
    found = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        whole = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_tokens, do_sample=False, pad_token_id=0
        )
        found.append(whole[0, ids.shape[1] :].tolist())
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_continuations_are_those_of_generate(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(FAMILIES[name]())
    prompts = few_shot_prompts()
    expected = by_generate(model, tokenizer, prompts["text"].to_pylist(), 7)
    for budget, n_tokens in ((30, 1), (30, 7), (1000, 7)):
        scorer = LabelScorer(model, tokenizer, token_budget=budget)
        found = scorer.generate(prompts, n_tokens)
        assert found["token_ids"].to_pylist() == [own[:n_tokens] for own in expected]
        assert scorer.path == ("packed" if name in PACKED else "prefix_cache")
    assert found["prompt_id"].to_pylist() == prompts["prompt_id"].to_pylist()
    texts = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in expected]
    assert found["text"].to_pylist() == texts


def test_logits_that_are_no_numbers_are_an_error_with_the_prompt(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"]())
    rare = tokenizer("z", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        model.get_input_embeddings().weight[rare] = float("nan")
    scorer = LabelScorer(model, tokenizer)
    scorer.generate(few_shot_prompts(), 2)
    prompts = pa.table({"prompt_id": ["bad"], "text": ["a z"]})
    with pytest.raises(BiasevalError, match="prompt 'bad': the model gives logits that are not numbers"):
        scorer.generate(prompts, 2)


def test_the_shared_beginning_runs_once(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"]())
    context = "case " * 200
    texts = [f"{context}Input: {'very ' * row}new.\n\nOutput:" for row in range(6)]
    prompts = pa.table({"prompt_id": [str(row) for row in range(6)], "text": texts})
    scorer = LabelScorer(model, tokenizer)
    expected = scorer.generate(prompts, 3)
    n_run: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: n_run.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    assert scorer.generate(prompts, 3).equals(expected)
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    unique = len({tuple(tokenizer(text)["input_ids"][: i + 1]) for text in texts for i in range(max(lengths))})
    assert 0 < sum(n_run) <= unique - len(tokenizer(context)["input_ids"]) + 2 + 2 * 6
    # (the context's keys and values are still there; of the new tokens the last is only predicted)
    assert sum(n_run) < 0.5 * np.sum(lengths)


@pytest.mark.parametrize("path", ["packed", "prefix_cache", "full_text"])
def test_continuations_of_the_golden_model(path: str, shared: Path) -> None:
    folder = str(shared / "golden/tiny-llama")
    model, tokenizer = load_model(ModelSource(folder)), load_tokenizer(ModelSource(folder))
    texts = pq.read_table(shared / "golden/superni/expected/scores.parquet")["prompt"].to_pylist()[::60]
    prompts = pa.table({"prompt_id": [str(row) for row in range(len(texts))], "text": texts})
    scorer = LabelScorer(model, tokenizer, path=path)
    assert scorer.generate(prompts, 5)["token_ids"].to_pylist() == by_generate(model, tokenizer, texts, 5)
    assert scorer.path == path
