"""Measures the scorer against lm-evaluation-harness and plain transformers: same weights, texts, machine, one run.

    python tests/benchmarks/bench_scoring.py [--task FILE] [--rows 300] [--out table.json]

Prints a Markdown table and writes it with the machine and the versions as JSON. A Llama of about 30M random parameters
and a byte-level BPE of 8,192 tokens, trained here on the task files, make the amounts of work those of a real model
without one. Baselines that would take longer than about 100 seconds are timed on fewer rows, as the table says. Needs
the ``bench`` extra (lm_eval) for the harness; without it those rows are left out. On a machine that is busy with other
things run with OMP_NUM_THREADS=1 and read the CPU column.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from biaseval.scoring import LabelScorer
from biaseval.scoring.encoding import separator

SHARED = Path(os.environ.get("BIASEVAL_SHARED", Path(__file__).resolve().parents[3] / "shared"))
DEFAULT_TASK = SHARED / "data/superni/tasks/task1495_adverse_drug_event_classification.json"
N_DEMOS = (0, 4, 16)
BASELINE_S = 100
VOCABULARY = 8192


def dot(text: str) -> str:
    """End a piece of a prompt with a full stop, unless it ends in ASCII punctuation (P1)."""
    return text if text[-1:] in set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") else text + "."


def build_prompts(task: dict[str, Any], n_demos: int, n_rows: int) -> pa.Table:
    """Return P1's prompts for ``n_rows`` instances after the first 96, which serve as demonstrations."""
    instances = task["Instances"]
    labels = sorted({instance["output"][0] for instance in instances})
    context = dot(task["Definition"][0].strip()) + "\n\n"
    for demo in instances[:n_demos]:
        context += dot(dot("Input: " + demo["input"].strip()) + "\n Output: " + demo["output"][0].strip()) + "\n\n"
    rows = instances[96 : 96 + n_rows]
    return pa.table(
        {
            "prompt_id": [f"{n_demos}-{row}" for row in range(len(rows))],
            "text": [context + dot("Input: " + instance["input"].strip()) + "\n\nOutput:" for instance in rows],
            "labels": [labels] * len(rows),
        }
    )


def make_model(folder: Path, files: Sequence[Path]) -> None:
    """Train the tokenizer on the task files and write it with a random Llama."""
    texts = []
    for file in files:
        task = json.loads(file.read_text(encoding="utf-8"))
        texts += task["Definition"] + [instance["input"] for instance in task["Instances"][:300]]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.05,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def sums(scores: pa.Table) -> np.ndarray:
    """Return one log-likelihood per (prompt, label)."""
    return np.array([sum(own) for own in scores["token_logprobs"].to_pylist()])


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what ``run`` returns, its wall-clock seconds and its processor seconds (all threads)."""
    start, start_cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - start, time.process_time() - start_cpu


def harness(scorer: LabelScorer) -> Callable[[pa.Table, int], np.ndarray]:
    """Return lm-evaluation-harness' HF backend on the same model and tokenizer."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)

    def run(prompts: pa.Table, batch_size: int) -> np.ndarray:
        backend = HFLM(pretrained=scorer.model, tokenizer=scorer.tokenizer, batch_size=batch_size, add_bos_token=True)
        requests = [
            Instance(
                request_type="loglikelihood",
                doc={},
                arguments=(text, separator(text, label) + label + scorer.tokenizer.eos_token),
                idx=0,
            )
            for text, labels in zip(prompts["text"].to_pylist(), prompts["labels"].to_pylist(), strict=True)
            for label in labels
        ]
        return np.array([score for score, _ in backend.loglikelihood(requests, disable_tqdm=True)])

    return run


@torch.inference_mode()
def padded_batches(scorer: LabelScorer, prompts: pa.Table, batch_size: int) -> np.ndarray:
    """Plain transformers: per label, padded batches of full texts, scored from the model's whole logits."""
    tokenizer = scorer.tokenizer
    texts, labels = prompts["text"].to_pylist(), prompts["labels"].to_pylist()[0]
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    results = np.empty((len(texts), len(labels)))
    for column, label in enumerate(labels):
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            n_context = [len(tokenizer(texts[row])["input_ids"]) for row in rows]
            full = [texts[row] + separator(texts[row], label) + label + tokenizer.eos_token for row in rows]
            batch = tokenizer(full, return_tensors="pt", padding=True, padding_side="right")
            logprobs = scorer.model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits.log_softmax(-1)
            chosen = logprobs[:, :-1].gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
            for i, row in enumerate(rows):
                n = int(batch["attention_mask"][i].sum())
                results[row, column] = chosen[i, n_context[i] - 1 : n - 1].sum().item()
    return results.reshape(-1)


def fastest(run: Callable[[pa.Table, int], np.ndarray], prompts: pa.Table) -> tuple[int, int]:
    """Return the batch size that is fastest on a few rows, and how many rows take about ``BASELINE_S`` with it."""
    trial = prompts.slice(0, 8)
    trials = {size: min(timed(lambda s=size: run(trial, s))[1] for _ in range(2)) for size in (1, 4, 16)}
    size = min(trials, key=trials.__getitem__)
    return size, min(len(prompts), max(16, int(BASELINE_S / (trials[size] / len(trial)))))


def measure(scorer: LabelScorer, task: dict[str, Any], n_rows: int) -> list[dict[str, Any]]:
    """Return one record per number of demonstrations and method, ours (median of three runs) first."""
    methods: dict[str, Callable[[pa.Table, int], np.ndarray]] = {}
    if importlib.util.find_spec("lm_eval") is not None:
        methods["lm-eval HF"] = harness(scorer)
    methods["padded batches"] = lambda prompts, size: padded_batches(scorer, prompts, size)
    records = []
    for n_demos in N_DEMOS:
        prompts = build_prompts(task, n_demos, n_rows)
        scorer.score(prompts.slice(0, 8))  # the start-up comparison with the plain forward pass happens here, once
        ours, seconds, cpu_seconds = sorted((timed(lambda p=prompts: scorer.score(p)) for _ in range(3)), key=_wall)[1]
        runs = [("biaseval " + scorer.path, len(prompts), sums(ours), seconds, cpu_seconds)]
        for method, run in methods.items():
            size, n_timed = fastest(run, prompts)
            some = prompts.slice(0, n_timed)
            runs.append((f"{method}, batch {size}", n_timed, *timed(lambda r=run, p=some, s=size: r(p, s))))
        n_tokens = [len(scorer.tokenizer(text)["input_ids"]) for text in prompts["text"].to_pylist()]
        for method, n_timed, scores, seconds, cpu_seconds in runs:
            records.append(
                {
                    "n_demos": n_demos,
                    "prompt_tokens": round(float(np.mean(n_tokens))),
                    "labels": len(prompts["labels"][0]),
                    "method": method,
                    "rows": n_timed,
                    "seconds": seconds,
                    "cpu_seconds": cpu_seconds,
                    "rows_per_s": n_timed / seconds,
                    "ratio": (seconds / n_timed) / (runs[0][3] / runs[0][1]),
                    "cpu_ratio": (cpu_seconds / n_timed) / (runs[0][4] / runs[0][1]),
                    "largest_difference": float(np.abs(scores - sums(ours)[: len(scores)]).max()),
                }
            )
            print(records[-1], file=sys.stderr, flush=True)
    return records


def _wall(run: tuple[Any, float, float]) -> float:
    return run[1]


def as_markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return the records as a Markdown table."""
    lines = [
        "| k | prompt tokens | labels | method | rows timed | rows/s | time/row | CPU time/row | largest difference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        lines.append(
            "| {n_demos} | {prompt_tokens} | {labels} | {method} | {rows} | {rows_per_s:.2f} | {ratio:.1f}x | "
            "{cpu_ratio:.1f}x | {largest_difference:.1e} |".format(**record)
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", type=Path, default=DEFAULT_TASK)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    arguments = parser.parse_args()
    task = json.loads(arguments.task.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), sorted(arguments.task.parent.glob("*.json")))
        scorer, load_s, _ = timed(lambda: LabelScorer.load(folder))
        records = measure(scorer, task, arguments.rows)
    packages = ("torch", "transformers", "tokenizers", "lm_eval", "pyarrow", "numpy")
    found = {name for name in packages if importlib.util.find_spec(name) is not None}
    report = {
        "task": arguments.task.stem,
        "model": {"parameters": sum(p.numel() for p in scorer.model.parameters()), "load_s": load_s, **scorer.facts()},
        "machine": {"processor": platform.processor() or platform.machine(), "cpus": os.cpu_count(),
                    "threads": torch.get_num_threads(), "system": platform.platform()},
        "versions": {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in sorted(found)}},
        "records": records,
    }  # fmt: skip
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(as_markdown(records))
    print(json.dumps({key: report[key] for key in ("task", "model", "machine", "versions")}))


if __name__ == "__main__":
    main()
