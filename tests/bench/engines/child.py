"""Another engine scores labels in an environment of its own: ``python child.py ENGINE MODEL DTYPE THREADS``.

Imports nothing of biaseval. Each line of standard input is JSON: ``way`` and ``rows``, each with ``context`` (token ids
of the prompt) and ``endings`` (ids of each label with EOS). A line of JSON answers: ``scores`` (sums of
log-probabilities in nats, one per row and label; NaN: none) and ``n_tokens`` (computed).
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_MOST_TOKENS = 2048
"""Of a batch of llama.cpp."""
_MOST_SEQUENCES = 64

Run = Callable[[list[Any], str], tuple[list[float], int]]
"""Takes rows and the way; returns scores and the number of computed tokens."""


def vllm(model: str, dtype: str, threads: int) -> Run:
    """Return vLLM as lm-evaluation-harness drives it: a request per text, log-probabilities of all prompt tokens.

    The way ``cached`` reads the cache of prefixes, which such requests skip by default. A label's first token that lies
    in a cached block has no score then.
    """
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1",
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(threads)}  # fmt: skip
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

    engine = LLM(model, dtype=dtype, max_model_len=4096, seed=0, disable_log_stats=True)

    def run(rows: list[Any], way: str) -> tuple[list[float], int]:
        how = SamplingParams(temperature=0, prompt_logprobs=1, max_tokens=1, detokenize=False)
        how.skip_reading_prefix_cache = way != "cached"
        engine.reset_prefix_cache()
        texts = [(len(row["context"]), row["context"] + ending) for row in rows for ending in row["endings"]]
        found = engine.generate([{"prompt_token_ids": ids} for _, ids in texts], how, use_tqdm=False)
        sums = [
            sum(_logprob(one, place, ids[place]) for place in range(n, len(ids)))
            for (n, ids), one in zip(texts, found, strict=True)
        ]
        return sums, sum(len(ids) - (one.num_cached_tokens or 0) for (_, ids), one in zip(texts, found, strict=True))

    return run


def llama(model: str, dtype: str, threads: int) -> Run:
    """Return llama.cpp's scoring of multiple choice: labels of a row are sequences of one batch behind their prompt.

    The way ``shared`` computes what all rows begin with once, which llama.cpp's own program does not.
    """
    import llama_cpp as cpp  # type: ignore[import-not-found]

    cpp.llama_backend_init()
    run_silent = cpp.llama_log_callback(lambda level, text, data: None)
    cpp.llama_log_set(run_silent, None)
    weights = cpp.llama_model_load_from_file(model.encode(), cpp.llama_model_default_params())
    params = cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 8192, _MOST_TOKENS, 512, _MOST_SEQUENCES
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True
    if dtype == "float32":
        params.type_k = params.type_v = cpp.GGML_TYPE_F32
    context = cpp.llama_init_from_model(weights, params)
    memory = cpp.llama_get_memory(context)
    n_vocabulary = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(weights))
    batch = cpp.llama_batch_init(_MOST_TOKENS, 0, _MOST_SEQUENCES)

    def add(token: int, position: int, sequences: list[int], *, is_asked: bool) -> int:
        at = int(batch.n_tokens)
        if at >= _MOST_TOKENS or len(sequences) > _MOST_SEQUENCES:
            raise ValueError("a row does not fit a batch")
        batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, position, len(sequences), is_asked
        for place, one in enumerate(sequences):
            batch.seq_id[at][place] = one
        batch.n_tokens += 1
        return at

    def compute() -> int:
        if cpp.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        return int(batch.n_tokens)

    def logprobs(at: int, tokens: list[int]) -> dict[int, float]:
        logits = np.ctypeslib.as_array(cpp.llama_get_logits_ith(context, at), shape=(n_vocabulary,))
        top = logits.max()
        normalizer = top + np.log(np.exp(logits - top).sum(dtype=np.float64))
        return {token: float(logits[token] - normalizer) for token in tokens}

    def of_group(group: list[Any], n_shared: int) -> list[float]:
        batch.n_tokens, first = 0, 0
        asked: list[list[tuple[int, int]]] = []
        for row in group:
            begin, own = row["context"], list(range(first, first + len(row["endings"])))
            first += len(own)
            for position in range(n_shared, len(begin)):
                last = add(begin[position], position, own, is_asked=position == len(begin) - 1)
            for sequence, ending in zip(own, row["endings"], strict=True):
                places = [add(token, len(begin) + step, [sequence], is_asked=True)
                          for step, token in enumerate(ending[:-1])]  # fmt: skip
                asked.append(list(zip([last, *places], ending, strict=True)))
        compute()
        needed: dict[int, list[int]] = {}
        for pairs in asked:
            for place, token in pairs:
                needed.setdefault(place, []).append(token)
        found = {place: logprobs(place, tokens) for place, tokens in needed.items()}
        for sequence in range(first):
            cpp.llama_memory_seq_rm(memory, sequence, n_shared, -1)
        return [sum(found[place][token] for place, token in pairs) for pairs in asked]

    def run(rows: list[Any], way: str) -> tuple[list[float], int]:
        cpp.llama_memory_clear(memory, True)
        contexts = [row["context"] for row in rows]
        n_shared = min(_common(contexts), *(len(own) - 1 for own in contexts)) if way == "shared" else 0
        n_tokens = n_shared
        for start in range(0, n_shared, _MOST_TOKENS):
            batch.n_tokens = 0
            for position in range(start, min(start + _MOST_TOKENS, n_shared)):
                add(contexts[0][position], position, list(range(_MOST_SEQUENCES)), is_asked=False)
            compute()
        scores = []
        for group in _groups(rows, n_shared):
            scores += of_group(group, n_shared)
            n_tokens += sum(_n_own(row, n_shared) for row in group)
        return scores, n_tokens

    return run


def _logprob(found: Any, place: int, token: int) -> float:
    """Return a token's log-probability; NaN where vLLM read the token before it from the cache, which keeps none."""
    if place <= (found.num_cached_tokens or 0):
        return float("nan")
    return float(found.prompt_logprobs[place][token].logprob)


def _n_own(row: Any, n_shared: int) -> int:
    return len(row["context"]) - n_shared + sum(len(ending) - 1 for ending in row["endings"])


def _groups(rows: list[Any], n_shared: int) -> Iterator[list[Any]]:
    """Yield as many rows as fit into a batch."""
    group: list[Any] = []
    tokens = sequences = 0
    for row in rows:
        own = _n_own(row, n_shared)
        if group and (tokens + own > _MOST_TOKENS or sequences + len(row["endings"]) > _MOST_SEQUENCES):
            yield group
            group, tokens, sequences = [], 0, 0
        group.append(row)
        tokens, sequences = tokens + own, sequences + len(row["endings"])
    yield group


def _common(texts: list[list[int]]) -> int:
    least, most = min(texts), max(texts)
    pairs = enumerate(zip(least, most, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(least), len(most)))


ENGINES = {"vllm": vllm, "llama.cpp": llama}


def main(engine: str, model: str, dtype: str, threads: str) -> None:
    """Answer each line until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print
    run = ENGINES[engine](model, dtype, int(threads))
    for line in sys.stdin:
        asked = json.loads(line)
        scores, n_tokens = run(asked["rows"], asked["way"])
        answer = {"scores": scores, "n_tokens": n_tokens}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
