"""For any model, texts and labels, every path gives the plain forward pass of the whole text (hypothesis)."""

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import InputError
from biaseval.scoring import LabelScorer, encode
from tests.scoring.families import EXACT, FAMILIES, PREFIX_CACHE, by_the_rule, largest_difference, random_model
from tests.scoring.test_encoding import trained
from tests.tinymodels import make_tokenizer

pytestmark = pytest.mark.slow

PATHS = ("packed", "prefix_cache", "full_text")

# Few examples for each of many families; the seed is fixed, so that a run is the same everywhere.
PROPERTY = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

WORDS = ["case", "new", "the", "very", "not", "sure", "yes", "no", "naïve", "你好", "🙂", "e\u0301", "x.", "7", "'s"]
# Shared first tokens, one label that begins another, whitespace of a label's own, unicode.
LABELS = ["no", "no way", "not", "not sure", "yes", "yes, yes", " Yes", "ja ☂", "7", "77", "\nno", "é"]


@lru_cache
def tokenizers() -> list[PreTrainedTokenizerBase]:
    """Return one that ends words at spaces, and one whose tokens may span any boundary."""
    return [make_tokenizer(), trained(None, texts=["ab. c no way yes the case. "] * 30, vocab_size=420)]


@lru_cache(maxsize=64)
def tiny_model(name: str, n_layers: int, n_heads: int, seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    return random_model(FAMILIES[name](**sizes(name, n_layers, n_heads)), seed=seed)


def sizes(name: str, n_layers: int, n_heads: int) -> dict[str, int]:
    return {"num_hidden_layers": n_layers, "num_attention_heads": n_heads, "hidden_size": 8 * n_heads}


@st.composite
def prompts(draw: st.DrawFn) -> pa.Table:
    """Texts that share their beginnings at several levels, with label sets of their own or in common."""
    words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
    definition = draw(words)
    demonstrations = draw(st.lists(words, max_size=3))
    endings = st.sampled_from(["\n\nOutput:", " Output:", " ", "\t", "", "."])
    ending = draw(endings)
    texts = []
    for _ in range(draw(st.integers(1, 3))):
        shown = demonstrations[: draw(st.integers(0, len(demonstrations)))]
        context = "\n\n".join([definition, *shown])
        texts += [context + "\n\n" + own + ending for own in draw(st.lists(words, min_size=1, max_size=4))]
    texts += draw(st.lists(st.text(max_size=12), max_size=2))
    label_sets = st.lists(st.sampled_from(LABELS), min_size=1, max_size=5, unique=True)
    common = draw(label_sets)
    labels = [common if draw(st.booleans()) else draw(label_sets) for _ in texts]
    return pa.table({"prompt_id": [str(row) for row in range(len(texts))], "text": texts, "labels": labels})


def scorable(tokenizer: PreTrainedTokenizerBase, table: pa.Table) -> pa.Table:
    """Leave out what the rule itself cannot score: labels without a token of their own, or like another's."""
    kept = []
    for row in range(table.num_rows):
        one = table.slice(row, 1)
        try:
            encoded = encode(tokenizer, one)
        except (InputError, UnicodeEncodeError):
            continue
        n_prompt = len(tokenizer(one["text"][0].as_py())["input_ids"])
        if set(encoded["n_context_tokens"].to_pylist()) == {n_prompt}:
            kept.append(row)
    assume(kept)
    return table.take(kept)


@pytest.mark.parametrize("name", FAMILIES)
@PROPERTY
@given(data=st.data())
def test_all_paths_give_the_plain_forward_pass(name: str, data: st.DataObject) -> None:
    tokenizer = data.draw(st.sampled_from(tokenizers()))
    table = scorable(tokenizer, data.draw(prompts()))
    n_heads = data.draw(st.sampled_from([2, 4]) if "one key head" not in name else st.just(4))
    n_least = 2 if "and attention" in name else 1
    model = tiny_model(name, data.draw(st.integers(n_least, 3)), n_heads, data.draw(st.integers(0, 3)))
    budget, cache_budget = data.draw(st.integers(8, 300)), data.draw(st.integers(100, 5000))
    expected = by_the_rule(model, tokenizer, table)
    n_paths = 0
    for path in PATHS:
        try:
            scorer = LabelScorer(model, tokenizer, token_budget=budget, cache_budget=cache_budget, path=path)
        except InputError:
            assert path == "packed"
            assert name in PREFIX_CACHE
            continue
        assert largest_difference(scorer.score(table), expected) < EXACT
        assert scorer.path == path
        n_paths += 1
    assert n_paths >= 2


@pytest.mark.parametrize("name", ["llama, grouped queries", "falcon 7b", "opt", "mpt", "mistral, beyond its window"])
@PROPERTY
@given(data=st.data())
def test_scores_do_not_depend_on_parts_budget_or_order(name: str, data: st.DataObject) -> None:
    tokenizer = tokenizers()[0]
    table = scorable(tokenizer, data.draw(prompts()))
    model = tiny_model(name, 2, 4, 0)
    whole = by_prompt(LabelScorer(model, tokenizer).score(table))
    order = data.draw(st.permutations(range(table.num_rows)))
    part_rows = data.draw(st.integers(1, table.num_rows))
    scorer = LabelScorer(model, tokenizer, token_budget=data.draw(st.integers(1, 200)))
    for start in range(0, table.num_rows, part_rows):
        part = by_prompt(scorer.score(table.take(list(order[start : start + part_rows]))))
        for key, found in part.items():
            assert np.abs(np.array(found) - np.array(whole[key])).max() < EXACT


def by_prompt(scores: pa.Table) -> dict[tuple[str, str], Any]:
    return {(row["prompt_id"], row["label"]): row["token_logprobs"] for row in scores.to_pylist()}
