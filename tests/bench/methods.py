"""The other ways to score labels, each as fast as its design allows.

A method takes prompts (of one label set) and returns, per (prompt, label) in order, the sum in nats of the
log-probabilities of label tokens and EOS. Tokenising is part of the work.
"""

import importlib.util
import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerFast

Scores = npt.NDArray[np.float64]
"""``[n_prompts * n_labels]`` in nats."""

Batched = Callable[[pa.Table, int], Scores]
"""Takes prompts and a batch size."""


def has_harness() -> bool:
    """Return whether lm-evaluation-harness is installed (the ``bench`` extra)."""
    return importlib.util.find_spec("lm_eval") is not None


def harness(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Batched:
    """Return lm-evaluation-harness' HF backend on this model.

    It computes every text in full. Labels of one token would share a forward pass there if they were scored alone;
    with EOS behind them, as in P1, no two continuations differ in their last token only.
    """
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    backends: dict[int, Any] = {}

    def run(prompts: pa.Table, batch_size: int) -> Scores:
        if batch_size not in backends:
            backends[batch_size] = HFLM(
                pretrained=model, tokenizer=tokenizer, batch_size=batch_size, add_bos_token=True
            )
        requests = [
            Instance(request_type="loglikelihood", doc={}, arguments=(text, ending), idx=0)
            for text, endings in texts_and_endings(tokenizer, prompts)
            for ending in endings
        ]
        answers = backends[batch_size].loglikelihood(requests, disable_tqdm=True)
        return np.array([score for score, _ in answers])

    return run


def full_texts(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Batched:
    """Return plain transformers: padded batches of full texts, sorted by length, logits where they are needed."""

    @torch.inference_mode()
    def run(prompts: pa.Table, batch_size: int) -> Scores:
        texts = _tokenised(tokenizer, prompts)
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i][1]))
        sums = []
        for start in range(0, len(order), batch_size):
            batch = [texts[i] for i in order[start : start + batch_size]]
            width = len(batch[0][1])
            ids = torch.tensor([own + [0] * (width - len(own)) for _, own in batch], device=model.device)
            n_tokens = torch.tensor([len(own) for _, own in batch], device=model.device)[:, None]
            n_context = torch.tensor([n for n, _ in batch], device=model.device)[:, None]
            position = torch.arange(width, device=model.device)[None]
            first = min(n for n, _ in batch)
            logits = model(
                input_ids=ids[:, :-1],  # the last token is only predicted
                attention_mask=(position < n_tokens)[:, :-1].long(),
                use_cache=False,
                logits_to_keep=width - first,
            ).logits
            logprobs = logits.float().log_softmax(dim=-1).gather(-1, ids[:, first:, None])[..., 0]
            is_target = (position >= n_context) & (position < n_tokens)
            sums.append(torch.where(is_target[:, first:], logprobs, 0).sum(dim=-1))
        scores = np.empty(len(texts))
        scores[order] = torch.cat(sums).cpu().numpy()
        return scores

    return run


@torch.inference_mode()
def prefix_loop(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, prompts: pa.Table) -> Scores:
    """Score one text after the other behind the cached keys and values of what all texts begin with, as P1's code does.

    The cache is cropped and used again; nothing waits for the device before the end.
    """
    texts = _tokenised(tokenizer, prompts)
    n_shared = min(_common_length(texts[0][1], ids) for _, ids in texts)
    n_shared = min(n_shared, *(n - 1 for n, _ in texts))  # the last token of a prompt predicts the first of its label
    flat = torch.tensor(list(chain.from_iterable(ids for _, ids in texts)), device=model.device)[None]
    cache = DynamicCache(config=model.config)
    if n_shared:
        model(input_ids=flat[:, :n_shared], past_key_values=cache, use_cache=True, logits_to_keep=1)
    sums, start = [], 0
    for n_context, ids in texts:
        stop = start + len(ids)
        logits = model(
            input_ids=flat[:, start + n_shared : stop - 1],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=len(ids) - n_context,
        ).logits[0]
        targets = flat[0, start + n_context : stop, None]
        sums.append(logits.float().log_softmax(dim=-1).gather(-1, targets).sum())
        cache.crop(n_shared - (len(ids) - 1))
        start = stop
    return np.asarray(torch.stack(sums).cpu().numpy(), dtype=np.float64)


def texts_and_endings(tokenizer: PreTrainedTokenizerFast, prompts: pa.Table) -> list[tuple[str, list[str]]]:
    """Return each prompt with what follows it; prompts here end in "Output:" and labels begin with a word."""
    return [
        (text, [f" {label}{tokenizer.eos_token}" for label in labels])
        for text, labels in zip(prompts["text"].to_pylist(), prompts["labels"].to_pylist(), strict=True)
    ]


def _tokenised(tokenizer: PreTrainedTokenizerFast, prompts: pa.Table) -> list[tuple[int, list[int]]]:
    """Return, per (prompt, label), the number of the prompt's tokens and the ids of the whole text."""
    pairs = texts_and_endings(tokenizer, prompts)
    n_context = [len(ids) for ids in tokenizer([text for text, _ in pairs])["input_ids"]]
    whole = tokenizer([text + ending for text, endings in pairs for ending in endings])["input_ids"]
    counts = [n for n, (_, endings) in zip(n_context, pairs, strict=True) for _ in endings]
    return list(zip(counts, whole, strict=True))


def n_computed(method: str, tokenizer: PreTrainedTokenizerFast, prompts: pa.Table) -> int:
    """Return the tokens that one of these methods computes, without padding."""
    texts = [ids for _, ids in _tokenised(tokenizer, prompts)]
    n_shared = min(_common_length(texts[0], ids) for ids in texts) if method == "prefix-cached loop" else 0
    return n_shared + sum(len(ids) - 1 - n_shared for ids in texts)  # the last token is only predicted


def _common_length(left: list[int], right: list[int]) -> int:
    n = min(len(left), len(right))
    return next((i for i in range(n) if left[i] != right[i]), n)
