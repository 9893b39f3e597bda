"""First measurements on a GPU: exactness, rates, a profile, memory, LoRA steps and 8-bit weights.

The steps need torch, transformers and pyarrow, PEFT for ``lora`` and bitsandbytes for ``int8``: neither Ray nor DuckDB.
"""

import gc
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from itertools import islice
from statistics import median
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from biaseval.qa_models import ExtractiveReader
from biaseval.scoring import LabelScorer, Prepared, kernels, prepare
from biaseval.training.batches import collate, encode_rows
from biaseval.training.loss import target_loss
from tests.bench.demo_models import words
from tests.bench.flops import matrix_flops_per_s, useful_flops
from tests.bench.measure import Settings, benchmark
from tests.bench.reading import SHAPES as ENCODERS
from tests.bench.reading import generated_questions, random_encoder
from tests.bench.reading import train_tokenizer as train_wordpiece
from tests.bench.shapes import SHAPES, load_tokenizer, random_model
from tests.bench.texts import Scenario

Report = dict[str, Any]

DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}
"""CPUs multiply float16 numbers too slowly to wait for."""
SHARED = (0, 1, 7, 900)
"""Words that all texts of a call share."""
BUDGETS = (2048, 4096, 8192, 16384)
_ROOM = 3 << 29
"""Bytes beside the weights where memory is to run out: too few for a pass of 16,384 tokens of a 7B."""
_N_REPEATS = 3
_N_KERNELS = 25
_N_LORA_STEPS = 10
_LORA_ROWS = 8

_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 1024},
    "qwen3": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "hidden_size": 512},
    "phi3": {"num_attention_heads": 8, "num_key_value_heads": 8, "hidden_size": 768, "pad_token_id": 0},
    "gpt_neox": {"num_attention_heads": 8, "hidden_size": 640},
    "gemma2": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 1024},
    "gemma3_text": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "hidden_size": 640},
    "falcon": {"num_attention_heads": 8, "hidden_size": 512, "multi_query": True},
}
"""Head dimensions of 64 to 256, with and without grouped keys."""


@dataclass(frozen=True)
class Bench:
    """What the steps work on."""

    device: str
    shape: str
    """One of ``SHAPES``; of the random model whose speed is measured."""
    small: str
    """Likewise; of the model that is loaded from a folder."""
    scenarios: Sequence[Scenario]
    tokenizer_json: str
    n_rows: int
    baseline_s: float

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer of all models."""
        return load_tokenizer(self.tokenizer_json)

    @property
    def prompts(self) -> pa.Table:
        """Return the prompts of the scenario with most demonstrations among those named ``base``."""
        base = [own for own in self.scenarios if own.name == "base"] or list(self.scenarios)
        return max(base, key=lambda own: own.n_demos).prompts(self.n_rows)

    def model(self) -> PreTrainedModel:
        """Return a random model of the shape, in bfloat16."""
        return random_model(SHAPES[self.shape], "bfloat16", self.device)


def machine(bench: Bench) -> Report:
    """Return versions, the device, its rate of matrix products by dtype, and its rate of copies in bytes per second."""
    names = ("torch", "transformers", "tokenizers", "peft", "pyarrow", "bitsandbytes", "accelerate")
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    report: Report = {"versions": versions, "device": bench.device, "cuda": torch.version.cuda}
    if bench.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        report |= {"device": properties.name, "memory": properties.total_memory}
    report["matrix_flops_per_s"] = {dtype: matrix_flops_per_s(dtype, bench.device) for dtype in DTYPES[bench.device]}
    block = torch.ones(1 << (30 if bench.device == "cuda" else 24), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(block)
    seconds = _median_s(bench.device, lambda: target.copy_(block))
    return report | {"copied_bytes_per_s": 2 * block.numel() / seconds}


def exactness(bench: Bench) -> Report:
    """Return by family, dtype and shared words the largest difference in nats of each path from texts alone.

    ``rounding`` is how far the texts alone are from those in float32: what the dtype itself changes.
    """
    report: Report = {}
    for family in _FAMILIES:
        alone_in: dict[int, Any] = {}
        for dtype in DTYPES[bench.device]:
            model = _small_model(family, dtype, bench.device, len(bench.tokenizer))
            for n_shared in SHARED:
                prompts = _sharing(n_shared)
                alone = _sums(LabelScorer(model, bench.tokenizer, path="one_by_one"), prompts)
                own: Report = {"rounding": _largest(alone, alone_in.setdefault(n_shared, alone))}
                for path in _paths(model, bench.tokenizer):
                    scorer = LabelScorer(model, bench.tokenizer, path=path)
                    own[path] = _largest(_sums(scorer, prompts), alone)
                    if scorer.path != path:
                        own[path] = f"left: {scorer.facts()['paths_left'].get(path)}"
                report.setdefault(family, {}).setdefault(dtype, {})[str(n_shared)] = own
    return report


def continuations(bench: Bench) -> Report:
    """Return of how many prompts the greedy continuation equals that of ``model.generate``, in float32."""
    model: Any = _small_model("llama", "float32", bench.device, len(bench.tokenizer))
    prompts = _sharing(7)
    found = LabelScorer(model, bench.tokenizer).generate(prompts, 12)
    same = 0
    for text, own in zip(prompts["text"].to_pylist(), found["token_ids"].to_pylist(), strict=True):
        ids = bench.tokenizer(text, return_tensors="pt")["input_ids"].to(bench.device)
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
        same += whole[0, ids.shape[1] :].tolist() == own
    return {"prompts": len(prompts), "same": same}


def rates(bench: Bench) -> Report:
    """Return the benchmark's report: rows and tokens per second, share of the matrix rate, beside plain methods."""
    settings = Settings(bench.shape, ("bfloat16",), bench.device, bench.n_rows, bench.baseline_s)
    return benchmark(bench.scenarios, bench.tokenizer_json, settings)


def profile(bench: Bench) -> Report:
    """Return the kernels that take most of one call, and the part of the call's time in which any ran."""
    scorer = LabelScorer(bench.model(), bench.tokenizer)
    prepared = prepare(bench.tokenizer, bench.prompts)
    scorer.score_prepared(prepared)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if bench.device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as seen:
        started = time.perf_counter()
        scorer.score_prepared(prepared)
        seconds = time.perf_counter() - started
    field = "self_device_time_total" if bench.device == "cuda" else "self_cpu_time_total"
    events = [event for event in seen.key_averages() if getattr(event, field) > 0]
    if bench.device == "cuda":
        events = [event for event in events if event.device_type == torch._C._autograd.DeviceType.CUDA]
    total = sum(getattr(event, field) for event in events)
    events.sort(key=lambda event: -getattr(event, field))
    return {
        "seconds": seconds,
        "kernels_s": total / 1e6,
        "tokens": prepared.trie.n_nodes,
        "kernels": [
            {"name": event.key[:160], "calls": event.count, "share": getattr(event, field) / total}
            for event in islice(events, _N_KERNELS)
        ],
    }


def packs(bench: Bench) -> Report:
    """Return tokens per second and memory by tokens in a pass, and where masks go by matrix products."""
    model, prepared = bench.model(), prepare(bench.tokenizer, bench.prompts)
    flops = useful_flops(model, prepared.trie)

    def timed(budget: int | None) -> Report:
        scorer = LabelScorer(model, bench.tokenizer, token_budget=budget)
        scorer.score_prepared(prepared)
        if bench.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = _median_s(bench.device, lambda: _afresh(scorer, prepared))
        peak = torch.cuda.max_memory_allocated() if bench.device == "cuda" else None
        return {
            "token_budget": scorer.token_budget,
            "path": scorer.path,
            "seconds": seconds,
            "tokens_per_s": prepared.trie.n_nodes / seconds,
            "flops_per_s": flops / seconds,
            "peak_bytes": peak,
        }

    report: Report = {str(budget): timed(budget) for budget in BUDGETS}
    report["found"] = timed(None)
    takes, kernels._takes_bias = kernels._takes_bias, lambda *_: False  # type: ignore[assignment]
    try:
        report["found, masks by products"] = timed(None)
    finally:
        kernels._takes_bias = takes
    return report


def _afresh(scorer: LabelScorer, prepared: Prepared) -> None:
    """Score without the keys and values that the last call left."""
    scorer._runner.forget_texts()
    scorer.score_prepared(prepared)


def large_logits(bench: Bench) -> Report:
    """Return the path that stays, and the difference seen, as logits grow: in 16 bits the test must allow rounding."""
    report = {}
    for factor in (1, 8, 32):
        model = _small_model("llama", "bfloat16", bench.device, len(bench.tokenizer))
        head = cast(Any, model).get_output_embeddings()
        with torch.no_grad():
            head.weight.mul_(factor)
        scorer = LabelScorer(model, bench.tokenizer)
        scorer.score(_sharing(7))
        report[str(factor)] = {key: scorer.facts()[key] for key in ("path", "paths_left", "self_test_difference")}
    return report


def memory(bench: Bench) -> Report:
    """Return budgets and scores where little memory is left, once with a budget that is too large, once as found."""
    if bench.device != "cuda":
        return {"skipped": "the CPU's memory has no limit to set"}
    model, prompts = bench.model(), bench.prompts
    free = LabelScorer(model, bench.tokenizer)
    expected = _sums(free, prompts)
    report: Report = {"found with all memory": free.token_budget}
    total = torch.cuda.get_device_properties(0).total_memory
    for name, budget in (("too large", 16384), ("found", None)):
        del free
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + _ROOM) / total)
        try:
            free = LabelScorer(model, bench.tokenizer, token_budget=budget)
            before, started = free.token_budget, time.perf_counter()
            scores = _sums(free, prompts)
            report[name] = {
                "before": before,
                "after": free.token_budget,
                "seconds": time.perf_counter() - started,
                "largest_difference": _largest(scores, expected),
                "path": free.path,
            }
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    return report


def lora(bench: Bench) -> Report:
    """Return seconds, tokens and losses of steps of LoRA on all linear layers, with recomputed activations."""
    from peft import LoraConfig, get_peft_model

    model: Any = get_peft_model(
        bench.model(), LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.train()
    model.enable_input_require_grads()
    model.activation_checkpointing_enable({"use_reentrant": False})
    chosen = bench.prompts.slice(0, _LORA_ROWS).to_pylist()
    texts = {"prompt": [row["text"] for row in chosen], "label": [row["labels"][0] for row in chosen]}
    rows = encode_rows(bench.tokenizer, pa.table(texts))
    batch = collate(rows, [1 / len(rows)] * len(rows))
    optimizer = torch.optim.AdamW([own for own in model.parameters() if own.requires_grad], lr=1e-4)
    losses, seconds = [], []
    for _ in range(_N_LORA_STEPS):
        started = time.perf_counter()
        loss = target_loss(model, batch, torch.device(bench.device))
        cast(Any, loss).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated() if bench.device == "cuda" else None
    tokens = sum(len(row.token_ids) for row in rows)
    return {
        "rows": len(rows),
        "tokens": tokens,
        "step_s": median(seconds[1:]),
        "tokens_per_s": tokens / median(seconds[1:]),
        "losses": losses,
        "peak_bytes": peak,
    }


def int8(bench: Bench) -> Report:
    """Return how far scores and predictions with 8-bit and 4-bit weights are from those in bfloat16."""
    with tempfile.TemporaryDirectory() as folder:
        random_model(SHAPES[bench.small], "bfloat16", bench.device).save_pretrained(folder)
        bench.tokenizer.save_pretrained(folder)
        report: Report = {}
        expected = None
        for quantization in (None, "8bit", "4bit"):
            scorer = LabelScorer.load(folder, dtype="bfloat16", device=bench.device, quantization=quantization)
            sums = _sums(scorer, bench.prompts)
            seconds = _median_s(bench.device, lambda scorer=scorer: scorer.score(bench.prompts))  # type: ignore[misc]
            expected = sums if expected is None else expected
            report[quantization or "bfloat16"] = {
                "largest_difference": _largest(sums, expected),
                "mean_difference": float(np.abs(sums - expected).mean()),
                "weights_bytes": cast(Any, scorer.model).get_memory_footprint(),
                "seconds": seconds,
                **{key: scorer.facts()[key] for key in ("path", "paths_left", "self_test_difference")},
            }
    return report


def reader(bench: Bench) -> Report:
    """Return questions per second of a reader of BERT-base's shape, and how far its answers are from a CPU's."""
    questions = generated_questions(bench.n_rows)
    tokenizer = train_wordpiece(questions, ENCODERS["base"].vocabulary)
    few = questions.slice(0, 16)
    model: Any = random_encoder(ENCODERS["base"], "float32", "cpu")
    expected = ExtractiveReader(model, tokenizer).read(few)
    report: Report = {}
    for dtype in DTYPES[bench.device]:
        own = ExtractiveReader(model.to(bench.device, getattr(torch, dtype)), tokenizer)
        found = own.read(few)
        scores = [np.array(table["score"].to_pylist()) for table in (found, expected)]
        report[dtype] = {
            "same_answers": sum(a == b for a, b in zip(found["prediction"], expected["prediction"], strict=True)),
            "answers": len(few),
            "largest_difference": float(np.abs(scores[0] - scores[1]).max()),
            "questions_per_s": len(questions) / _median_s(bench.device, lambda own=own: own.read(questions)),  # type: ignore[misc]
            **own.facts(),
        }
    return report


STEPS: dict[str, Callable[[Bench], Report]] = {
    step.__name__: step
    for step in (machine, exactness, rates, profile, packs, memory, lora, int8, reader, large_logits, continuations)
}
"""In the order of their worth: a short lease ends before the last."""


def measured(bench: Bench, names: Sequence[str], minutes: float) -> Iterator[tuple[str, Report]]:
    """Yield the report of each step with its ``seconds_in_all``; a step that fails reports its ``error``.

    Args:
        bench: see there.
        names: some of ``STEPS``.
        minutes: after which no further step starts.
    """
    began = time.monotonic()
    for name in names:
        started = time.monotonic()
        if started - began > 60 * minutes:
            yield name, {"skipped": f"{minutes:g} minutes were over"}
            continue
        try:
            report = STEPS[name](bench)
        except Exception:  # one step that fails leaves the others their time
            report = {"error": traceback.format_exc()}
        yield name, {"seconds_in_all": time.monotonic() - started} | report
        gc.collect()
        if bench.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def markdown(report: Report) -> str:
    """Return the main numbers of the steps that ran as Markdown tables."""
    parts = []
    for name, own in report.items():
        if name in _TABLES and "error" not in own and "skipped" not in own:
            head, rows = _TABLES[name](own)
            lines = [f"| {' | '.join(map(str, row))} |" for row in [head, ["---"] * len(head), *rows]]
            parts.append(f"## {name.replace('_', ' ')}\n\n" + "\n".join(lines) + "\n")
        elif "error" in own or "skipped" in own:
            parts.append(f"## {name.replace('_', ' ')}\n\n{own.get('skipped') or own['error'].splitlines()[-1]}\n")
    return "\n".join(parts)


_Table = tuple[list[str], list[list[Any]]]


def _machine_table(own: Report) -> _Table:
    rates = [
        [f"matrix product in {dtype}, TFLOP/s", f"{rate / 1e12:.0f}"]
        for dtype, rate in own["matrix_flops_per_s"].items()
    ]
    versions = ", ".join(f"{name} {version}" for name, version in own["versions"].items() if version)
    return ["", str(own["device"])], [
        *rates,
        ["copies, GB/s", f"{own['copied_bytes_per_s'] / 1e9:.0f}"],
        ["versions", versions],
    ]


def _exactness_table(own: Report) -> _Table:
    """Return the largest of each family and dtype; of a path that was left, why."""
    rows = []
    for family, by_dtype in own.items():
        for dtype, by_shared in by_dtype.items() if isinstance(by_dtype, dict) else ():
            row = [family, dtype]
            for path in _EXACT:
                values = [each[path] for each in by_shared.values() if path in each]
                said = [value for value in values if isinstance(value, str)]
                row.append(said[0] if said else f"{max(values, default=0.0):.1e}")
            rows.append(row)
    return ["family", "dtype", *_EXACT], rows


def _rates_table(own: Report) -> _Table:
    head = ["scenario", "demonstrations", "method", "rows/s", "times the time of biaseval", "tokens/s",
            "share of the matrix rate", "without tokenising", "flipped"]  # fmt: skip
    return head, [
        [
            one["scenario"],
            one["n_demos"],
            one["method"],
            f"{one['rows_per_s']:.1f}",
            f"{one['ratio']:.1f}",
            f"{one['tokens_per_s']:.0f}",
            f"{one['share_of_matrix_rate']:.3f}",
            "" if one["share_without_preparing"] is None else f"{one['share_without_preparing']:.3f}",
            f"{one['flipped']} of {one['n_rows']}",
        ]
        for one in own["records"]
    ]


def _packs_table(own: Report) -> _Table:
    head = ["tokens in a pass", "tokens/s", "TFLOP/s", "peak memory, GiB"]
    return head, [
        [
            name if name == str(each["token_budget"]) else f"{each['token_budget']} ({name})",
            f"{each['tokens_per_s']:.0f}",
            f"{each['flops_per_s'] / 1e12:.0f}",
            "" if each["peak_bytes"] is None else f"{each['peak_bytes'] / 2**30:.1f}",
        ]
        for name, each in own.items()
        if isinstance(each, dict)
    ]


def _fields_table(own: Report) -> _Table:
    """Return a row for each entry that is a mapping, else one for each field."""
    named = {name: each for name, each in own.items() if isinstance(each, dict)}
    if not named:
        return ["", "value"], [[name, _short(value)] for name, value in own.items() if name != "seconds_in_all"]
    keys = list(dict.fromkeys(key for each in named.values() for key in each))
    return ["", *keys], [[name, *(_short(each.get(key, "")) for key in keys)] for name, each in named.items()]


def _short(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


_EXACT = ("rounding", "packed", "prefix_cache", "full_text")

_TABLES: dict[str, Callable[[Report], _Table]] = {
    "machine": _machine_table,
    "exactness": _exactness_table,
    "rates": _rates_table,
    "packs": _packs_table,
    **dict.fromkeys(("memory", "lora", "int8", "reader", "large_logits", "continuations"), _fields_table),
}


def _small_model(family: str, dtype: str, device: str, vocabulary: int) -> PreTrainedModel:
    sizes = _FAMILIES[family] | {"vocab_size": vocabulary, "max_position_embeddings": 8192, "num_hidden_layers": 3}
    sizes |= {"bos_token_id": 0, "eos_token_id": 1}
    sizes = {"intermediate_size": 2 * sizes["hidden_size"]} | sizes
    torch.manual_seed(0)
    auto: Any = AutoModelForCausalLM
    with torch.device("cpu"):  # the same weights on every device and in every dtype
        model = auto.from_config(AutoConfig.for_model(family, **sizes), dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(0, sizes["hidden_size"] ** -0.5)
        parameter.data = parameter.data.bfloat16().float()  # weights that all dtypes hold
    return model.to(device, getattr(torch, dtype)).eval()  # type: ignore[no-any-return]


def _paths(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> list[Any]:
    return [path for path in LabelScorer(model, tokenizer)._runner.paths if path != "one_by_one"]


def _sharing(n_shared: int, n_prompts: int = 6) -> pa.Table:
    """Return prompts of random lengths whose first words are the same, with labels of one word and of several."""
    pool = sorted(
        {word for group in (words.MACHINES, words.EVENTS, words.SPORT) for text in group for word in text.split()}
    )
    draw = np.random.default_rng(n_shared).choice
    shared = list(draw(pool, n_shared))
    texts = [" ".join([*shared, *draw(pool, 1 + 9 * number)]) for number in range(n_prompts)]
    labels = [[str(pool[0]), " ".join(pool[1:4]), " ".join(pool[1:3])]] * n_prompts
    return pa.table({"prompt_id": [str(number) for number in range(n_prompts)], "text": texts, "labels": labels})


def _sums(scorer: LabelScorer, prompts: pa.Table) -> npt.NDArray[np.float64]:
    return np.array([sum(own) for own in scorer.score(prompts)["token_logprobs"].to_pylist()])


def _largest(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    return float(np.abs(one - other).max())


def _median_s(device: str, run: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_N_REPEATS):
        with _waited(device):
            started = time.perf_counter()
            run()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


@contextmanager
def _waited(device: str) -> Iterator[None]:
    if device == "cuda":
        torch.cuda.synchronize()
    yield
    if device == "cuda":
        torch.cuda.synchronize()
