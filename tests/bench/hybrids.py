"""Time per row of the scorer's `prefix_cache` and `full_text` on hybrid models with random weights.

python -m tests.bench.hybrids  # some minutes; prints a Markdown table
"""

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import transformers

from biaseval.scoring import LabelScorer
from biaseval.scoring.runner import Path
from tests.scoring.families import by_the_rule, largest_difference, random_model
from tests.tinymodels import make_tokenizer

_WORDS = ["case", "new", "very", "sure", "meal", "soup", "machine", "drum", "letter", "harbour", "garden", "stone"]
_LAYERS: dict[str, Any] = {"layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2}
_SIZES: dict[str, Any] = {
    "vocab_size": 420, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 1024, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1,
    "max_position_embeddings": 8192,
}  # fmt: skip
_MAMBA: dict[str, Any] = {"mamba_n_heads": 24, "mamba_d_head": 32, "mamba_d_state": 64, "mamba_chunk_size": 64}

CONFIGS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "Qwen 3.5 (gated delta)": lambda: transformers.Qwen3_5TextConfig(
        **_SIZES, **_LAYERS, head_dim=64, linear_key_head_dim=64, linear_value_head_dim=64, linear_num_key_heads=6,
        linear_num_value_heads=6,
    ),
    "Granite 4 (Mamba 2)": lambda: transformers.GraniteMoeHybridConfig(
        **_SIZES, **_LAYERS, **_MAMBA, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=1024
    ),
    "Falcon Mamba (Mamba 1)": lambda: transformers.FalconMambaConfig(
        vocab_size=420, hidden_size=384, num_hidden_layers=6, state_size=16, use_mambapy=False
    ),
    "Jamba (Mamba 1 and attention)": lambda: transformers.JambaConfig(
        **_SIZES, attn_layer_period=3, attn_layer_offset=2, num_experts=1, num_experts_per_tok=1, mamba_d_state=16
    ),
    "Falcon-H1 (Mamba 2 beside attention)": lambda: transformers.FalconH1Config(**_SIZES, **_MAMBA, mamba_d_ssm=768),
}  # fmt: skip


def prompts(n_demos: int, n_rows: int) -> pa.Table:
    """Return rows behind the same generated demonstrations, with three labels each."""
    rng = random.Random(0)

    def text() -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(12))

    demos = [f"Input: {text()}.\nOutput: {('sure', 'not sure')[number % 2]}\n\n" for number in range(n_demos)]
    texts = [f"Say whether it is sure.\n\n{''.join(demos)}Input: {text()}.\nOutput:" for _ in range(n_rows)]
    labels = [["sure", "not sure", "not at all"]] * n_rows
    return pa.table({"prompt_id": [str(row) for row in range(n_rows)], "text": texts, "labels": labels})


def main() -> None:
    """Print rows per second of both paths, medians of three, and the largest difference from plain passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60, help="of prefix_cache; full_text gets 12 (default: 60)")
    rows = parser.parse_args().rows
    tokenizer = make_tokenizer()
    print("| model | k | prompt tokens | prefix_cache, rows/s | full_text, rows/s | ratio | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for name, config in CONFIGS.items():
        model = random_model(config())
        for n_demos in (0, 4, 16):
            table, speeds, difference = prompts(n_demos, rows), [], 0.0
            few = table.slice(0, 4)
            timed: list[tuple[Path, pa.Table]] = [("prefix_cache", table), ("full_text", table.slice(0, 12))]
            for path, own in timed:
                scorer, seconds = LabelScorer(model, tokenizer, path=path), []
                found = scorer.score(few)  # with its self-test
                difference = max(difference, largest_difference(found, by_the_rule(model, tokenizer, few)))
                for _ in range(3):
                    begun = time.perf_counter()
                    scorer.score(own)
                    seconds.append(time.perf_counter() - begun)
                assert scorer.path == path
                speeds.append(own.num_rows / sorted(seconds)[1])
            n_tokens = len(tokenizer(table["text"][0].as_py())["input_ids"])
            ratio = speeds[0] / speeds[1]
            row = f"{speeds[0]:.1f} | {speeds[1]:.2f} | {ratio:.1f}x | {difference:.1e}"
            print(f"| {name} | {n_demos} | {n_tokens} | {row} |", flush=True)


if __name__ == "__main__":
    main()
