"""Where the time of the scorer goes on a CPU, and how near its matrix products are to what the machine can do.

python -m tests.bench.gap --model DIR  # some minutes; prints a Markdown table
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

from biaseval.scoring import LabelScorer, prepare
from tests.bench.commands.scoring import TASKS
from tests.bench.flops import matrix_flops_per_s, useful_flops
from tests.bench.measure import unrelated
from tests.bench.texts import scenarios

_N_ROWS = 60
_N_TOKENS = 512
"""Of a pass."""
_KINDS = {
    "attention": {"aten::_scaled_dot_product_flash_attention_for_cpu"},
    "matrix products": {"aten::mm", "aten::addmm", "aten::bmm", "mkldnn::_linear_pointwise", "mkl::_mkl_linear"},
    "log-softmax": {"aten::logsumexp", "aten::exp", "aten::exp_", "aten::log", "aten::log_"},
}
_OTHERS = "norms, rotations, activations, copies"


def kinds_of(events: Any, vocabulary: int) -> Any:
    """Return the seconds that operations themselves take, by kind."""
    seconds: Any = Counter()
    for event in events:
        kind = next((kind for kind, names in _KINDS.items() if event.key in names), _OTHERS)
        if kind == "matrix products" and any(vocabulary in shape for shape in event.input_shapes if shape):
            kind = "head"
        seconds[kind] += event.self_cpu_time_total / 1e6
    return seconds


def rate_of_shapes(model: Any) -> float:
    """Return the operations per second of the layers' own products, each alone with the tokens of a pass."""
    head, work, seconds = model.get_output_embeddings(), 0, 0.0
    shapes = Counter(
        tuple(part.weight.shape) for part in model.modules() if isinstance(part, nn.Linear) and part is not head
    )
    for (n_out, n_in), count in shapes.items():
        states, weight = (torch.randn(n, n_in, dtype=model.dtype) for n in (_N_TOKENS, n_out))
        timed = []
        for _ in range(30):
            begun = time.perf_counter()
            F.linear(states, weight)
            timed.append(time.perf_counter() - begun)
        work += 2 * _N_TOKENS * n_out * n_in * count
        seconds += sorted(timed)[len(timed) // 2] * count
    return work / seconds


@torch.inference_mode()
def main() -> None:
    """Print a table of both dtypes and 0, 4 and 16 demonstrations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a real model")
    parser.add_argument("--texts", default="base", help="a scenario of tests/bench/texts.py (default: base)")
    arguments = parser.parse_args()
    tokenizer: Any = AutoTokenizer.from_pretrained(arguments.model)
    [scenario, *_] = scenarios(TASKS, [arguments.texts])
    chosen = {n_demos: replace(scenario, n_demos=n_demos) for n_demos in (0, 4, 16)}
    names = ["matrix products", "attention", "head", "log-softmax", _OTHERS, "Python", "tokenizing"]
    print(f"| dtype | k | rows/s | of matrix rate | of the rate of its shapes | {' | '.join(names)} |")
    print("|---" * (5 + len(names)) + "|")
    for dtype in ("float32", "bfloat16"):
        model: Any = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, dtype)).eval()
        for n_demos, scenario in chosen.items():
            prompts, scorer = scenario.prompts(_N_ROWS), LabelScorer(model, tokenizer)
            scorer.score(prompts)  # with its self-test
            scorer.score(unrelated(prompts))  # what it keeps of one call must not help the next
            rate, own_rate = matrix_flops_per_s(dtype, "cpu"), rate_of_shapes(model)
            begun = time.perf_counter()
            prepared = prepare(tokenizer, prompts)
            tokenizing = time.perf_counter() - begun
            scorer.score_prepared(prepared)
            whole = time.perf_counter() - begun
            rate, own_rate = max(rate, matrix_flops_per_s(dtype, "cpu")), max(own_rate, rate_of_shapes(model))
            scorer.score(unrelated(prompts))
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as seen:
                begun = time.perf_counter()
                scorer.score_prepared(prepared)
                profiled = time.perf_counter() - begun
            seconds = kinds_of(seen.key_averages(group_by_input_shape=True), model.config.vocab_size)
            seconds["Python"] = profiled - seconds.total()
            shares = {name: seconds[name] / profiled * (1 - tokenizing / whole) for name in names[:-1]}
            shares["tokenizing"] = tokenizing / whole
            useful = useful_flops(model, prepared.trie) / (whole - tokenizing)
            cells = [f"{len(prompts) / whole:.1f}", f"{useful / rate:.0%}", f"{useful / own_rate:.0%}"]
            print("|", " | ".join([dtype, str(n_demos), *cells, *(f"{shares[name]:.0%}" for name in names)]), "|",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
