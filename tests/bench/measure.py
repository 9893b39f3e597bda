"""Runs every method on every scenario with the same weights and texts."""

import gc
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from biaseval.environment import describe_environment
from biaseval.errors import how_to_install
from biaseval.scoring import LabelScorer, prepare
from biaseval.scoring.memory import is_out_of_memory
from tests.bench import methods
from tests.bench.engines.engine import NoEngineError, Way, engines
from tests.bench.flops import matrix_flops_per_s, useful_flops
from tests.bench.memory import peak_memory
from tests.bench.methods import Batched, Scores, n_computed
from tests.bench.results import Measured, records
from tests.bench.shapes import SHAPES, load_tokenizer, random_model
from tests.bench.texts import Scenario

BATCH_SIZES = {"cpu": (1, 4, 16), "cuda": (4, 16, 64)}
_N_REPEATS = 3
_FEWEST_ROWS = 8


@dataclass(frozen=True)
class Settings:
    """What to run and on what."""

    shape: str
    """One of ``SHAPES``."""
    dtypes: tuple[str, ...]
    """Every method runs in the first one, ours in all of them."""
    device: str
    """``cpu`` or ``cuda``."""
    n_rows: int
    """Prompts in a scenario, at most."""
    baseline_s: float
    """About how long each of the others may take in a scenario; fewer rows are timed where all would take longer."""
    model: Path | None = None
    """A folder with a real model, in place of a random one of the shape."""
    engines: tuple[str, ...] = ()
    """Of `engines.engine`, with a real model."""
    cache: Path = Path()
    """Folder of environments of engines."""


def benchmark(scenarios: Sequence[Scenario], tokenizer_json: str, settings: Settings) -> dict[str, Any]:
    """Run the benchmark and return its report, which is JSON.

    Args:
        scenarios: at least one.
        tokenizer_json: what ``train_tokenizer`` returned for the shape's vocabulary.
        settings: see there.

    Returns:
        What was run on what (``shape``, ``device``, ``environment``, ...), ``matrix_flops_per_s`` by dtype, and the
        ``records`` (see ``results.Record``).
    """
    folder = settings.model
    tokenizer: Any = load_tokenizer(tokenizer_json) if folder is None else AutoTokenizer.from_pretrained(folder)
    shape = SHAPES[settings.shape]
    measured: list[Measured] = []
    rates: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for dtype in settings.dtypes:
        rate = matrix_flops_per_s(dtype, settings.device)
        model = random_model(shape, dtype, settings.device) if folder is None else _loaded(folder, dtype)
        is_first = dtype == settings.dtypes[0]
        baselines = _baselines(model, tokenizer) if is_first else {}
        with ExitStack() as stack:
            if folder is not None and is_first:
                baselines |= stack.enter_context(engines(settings.engines, folder, dtype, settings.cache, tokenizer))
            for scenario in scenarios:
                prompts = scenario.prompts(settings.n_rows)
                scorer = LabelScorer(model, tokenizer)
                runs = chain(
                    (_ours(scorer, prompts, settings),),
                    (_baseline(name, own, prompts, settings, tokenizer) for name, own in baselines.items()),
                )
                for run in filter(None, runs):
                    measured.append(_described(run, scenario, prompts, dtype, model, tokenizer))
                    _say(measured[-1])
        rates[dtype] = max(rate, matrix_flops_per_s(dtype, settings.device))
        facts[dtype] = scorer.facts()
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        del model, scorer, baselines
        gc.collect()
    environment = describe_environment()
    if methods.has_harness():
        environment["versions"]["lm_eval"] = metadata.version("lm_eval")
    is_cuda = settings.device == "cuda"
    return {
        "shape": {
            "name": settings.shape if folder is None else folder.name,
            "is_real": folder is not None,
            "parameters": n_parameters,
        }
        | (vars(shape) if folder is None else {}),
        "device": torch.cuda.get_device_name() if is_cuda else f"{environment['hardware']['cpu']} (CPU)",
        "threads": torch.get_num_threads(),
        "dtypes": list(settings.dtypes),
        "matrix_flops_per_s": rates,
        "scorer": facts,
        "environment": environment,
        "records": [vars(record) for record in records(measured, rates)],
    }


@dataclass(frozen=True)
class _Run:
    """One method's best effort on one scenario."""

    method: str
    n_rows: int
    scores: Scores
    seconds: float
    prepare_s: float | None
    peak_mib: float | None
    n_tokens: int | None
    """Computed, without padding; None: not known."""


def _ours(scorer: LabelScorer, prompts: pa.Table, settings: Settings) -> _Run:
    """Score all prompts with a new scorer, from texts on; the median of three runs."""
    with peak_memory(settings.device) as peak:
        scorer.score(prompts)  # not timed: it compares itself with the plain forward pass, once
    runs = []
    for _ in range(_N_REPEATS):
        scorer.score(unrelated(prompts))  # what a scorer keeps of one call must not help the next run
        start = time.perf_counter()
        prepared = prepare(scorer.tokenizer, prompts)
        prepare_s = time.perf_counter() - start
        scored = scorer.score_prepared(prepared)
        seconds = time.perf_counter() - start
        scores = np.array([sum(own) for own in scored["token_logprobs"].to_pylist()])
        n_tokens = prepared.trie.n_nodes if scorer.path == "packed" else None
        runs.append(_Run(f"biaseval ({scorer.path})", len(prompts), scores, seconds, prepare_s, peak.mib, n_tokens))
    return sorted(runs, key=lambda run: run.seconds)[_N_REPEATS // 2]


def unrelated(prompts: pa.Table) -> pa.Table:
    """Return one prompt as long as the first of ``prompts`` that shares nothing with it."""
    text = prompts["text"][0].as_py()
    return pa.table({"prompt_id": ["unrelated"], "text": [text[::-1]], "labels": [["x"]]})


def _loaded(folder: Path, dtype: str) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    return cast(PreTrainedModel, model.eval())


def _baselines(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> dict[str, Batched]:
    found: dict[str, Batched] = {}
    if methods.has_harness():
        found["lm-eval HF"] = methods.harness(model, tokenizer)
    else:
        print(f"lm_eval is not installed: its rows are left out; {how_to_install('bench')}", file=sys.stderr)
    found["transformers, full texts"] = methods.full_texts(model, tokenizer)
    found["prefix-cached loop"] = lambda prompts, _: methods.prefix_loop(model, tokenizer, prompts)
    return found


def _baseline(
    method: str, run: Batched, prompts: pa.Table, settings: Settings, tokenizer: PreTrainedTokenizerFast
) -> _Run | None:
    """Run a method at its fastest batch size, on as many rows as the time allows; on all if rows share computation.

    None: its engine cannot go on, which is said.
    """
    is_shared = run.is_shared if isinstance(run, Way) else method == "prefix-cached loop"
    sizes = (1,) if is_shared or isinstance(run, Way) else BATCH_SIZES[settings.device]
    try:
        batch_size, row_s = _fastest(run, prompts, sizes)
        most = len(prompts) if is_shared else max(_FEWEST_ROWS, int(settings.baseline_s / row_s))
        chosen = prompts.slice(0, most)
        with peak_memory(settings.device) as peak:
            seconds, scores = _timed(lambda: run(chosen, batch_size))
    except NoEngineError as error:
        print(f"{method} is left out: {error}", file=sys.stderr)
        return None
    if isinstance(run, Way):
        return _Run(method, len(chosen), scores, seconds, None, None, run.n_tokens)
    name, n_tokens = f"{method}, batch {batch_size}", n_computed(method, tokenizer, chosen)
    return _Run(name, len(chosen), scores, seconds, None, peak.mib, n_tokens)


def _fastest(run: Batched, prompts: pa.Table, sizes: Sequence[int]) -> tuple[int, float]:
    """Return the fastest of ascending batch sizes and its seconds per row, up to what fits into memory."""
    fewest = math.ceil(max(sizes) / len(prompts["labels"][0]))
    # One size alone: nothing to compare, and a shared beginning to spread over rows.
    trial = prompts.slice(0, _FEWEST_ROWS if len(sizes) == 1 else fewest)
    run(trial.slice(0, 1), 1)  # warms up
    best, best_s = sizes[0], math.inf
    for size in sizes:
        try:
            seconds, _ = _timed(lambda size=size: run(trial, size))  # type: ignore[misc]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            break
        if seconds >= best_s:
            break
        best, best_s = size, seconds
    return best, best_s / len(trial)


def _timed(run: Callable[[], Scores]) -> tuple[float, Scores]:
    start = time.perf_counter()
    scores = run()
    return time.perf_counter() - start, scores


def _described(
    run: _Run,
    scenario: Scenario,
    prompts: pa.Table,
    dtype: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
) -> Measured:
    prepared = prepare(tokenizer, prompts.slice(0, run.n_rows))
    prompt_tokens = [len(ids) for ids in tokenizer(prompts["text"].to_pylist())["input_ids"]]
    return Measured(
        scenario=scenario.name,
        task=scenario.task.name,
        n_demos=scenario.n_demos,
        prompt_tokens=float(np.mean(prompt_tokens)),
        n_labels=len(scenario.labels),
        dtype=dtype,
        method=run.method,
        is_ours=run.prepare_s is not None,
        n_rows=run.n_rows,
        seconds=run.seconds,
        prepare_s=run.prepare_s,
        peak_memory_mib=run.peak_mib,
        n_tokens=run.n_tokens,
        n_unique_tokens=prepared.trie.n_nodes,
        useful_flops=useful_flops(model, prepared.trie),
        scores=run.scores,
        n_label_tokens=prepared.rows["n_label_tokens"].to_numpy(),
    )


def _say(measured: Measured) -> None:
    print(
        f"{measured.scenario} k={measured.n_demos} {measured.dtype} {measured.method}: {measured.n_rows} rows in "
        f"{measured.seconds:.2f} s",
        file=sys.stderr,
        flush=True,
    )
