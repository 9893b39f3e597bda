"""Measures everything about training in one run."""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import TrainingArguments

from biaseval.environment import describe_environment
from biaseval.store import Run
from tests.bench.reading import random_encoder, train_tokenizer
from tests.bench.training.cutting import cut_parts, write_parts
from tests.bench.training.settings import BATCH_SIZE, SHAPES, Settings
from tests.bench.training.steps import N_CHECKED, Bench
from tests.bench.training.unit import around_steps


def benchmark(questions: pa.Table, settings: Settings) -> dict[str, Any]:
    """Measure everything and return the report, which is JSON.

    Args:
        questions: rows of ``qa_training_examples``, at least one; they are repeated where more are cut.
        settings: see there.

    Raises:
        BiasevalError: the two sides do not compute the same.
    """
    threads, machine = torch.get_num_threads(), Machine()
    with tempfile.TemporaryDirectory(prefix="biaseval-bench-") as temporary:
        folder = Path(temporary)
        shapes = list(dict.fromkeys(shape for shape, _ in settings.cases))
        bases = _write_bases(folder, shapes, questions)
        run = Run.open(str(folder / "run"))
        run.create()
        n_parts = write_parts(run, questions, settings)
        cut = cut_parts(run, bases[shapes[0]], n_parts, settings)
        _say(f"cut {cut.n_questions:,} questions: {cut.seconds:.1f} s, {cut.peak_mib:.0f} MiB at most")
        features = pa.concat_tables([run.read_part("qa_features", part) for part in range(n_parts)])
        chosen = np.linspace(0, features.num_rows - 1, settings.n_steps * BATCH_SIZE).astype(int)
        windows = features.take(pa.array(chosen))
        try:
            records, differences = [], {}
            for shape, n_threads in settings.cases:
                torch.set_num_threads(n_threads)
                bench = Bench(bases[shape], windows, settings)
                checked = replace(bench, windows=windows.slice(0, N_CHECKED * BATCH_SIZE))
                differences[shape] = checked.largest_difference()
                records += bench.records(shape, n_threads)
                own = [record for record in records if (record.shape, record.threads) == (shape, n_threads)]
                _say(f"{shape}, {n_threads}: " + ", ".join(f"{row.way} {row.s_per_step:.3f} s" for row in own))
            torch.set_num_threads(threads)
            around = around_steps(run, bases[shapes[0]], shapes[0], n_parts, settings)
            _say(f"{around.shape}, a unit: {around.share:.1%} outside steps and evaluations")
        finally:
            torch.set_num_threads(threads)
    return {
        "shapes": {shape: asdict(SHAPES[shape]) for shape in shapes},
        "largest_difference": differences,
        "their_optimizer": str(TrainingArguments.default_optim),
        "n_steps": settings.n_steps,
        "n_rounds": settings.n_rounds,
        "batch_size": BATCH_SIZE,
        "max_tokens": settings.windows.max_tokens,
        "unit_every": settings.unit_every,
        "records": [asdict(record) for record in records],
        "around": asdict(around),
        "cut": asdict(cut),
        "machine": machine.since(),
        "environment": describe_environment(),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write_bases(folder: Path, shapes: Sequence[str], questions: pa.Table) -> dict[str, Path]:
    """Write a random model of each shape, all with one tokenizer; return their folders."""
    tokenizer = train_tokenizer(questions, min(SHAPES[shape].vocabulary for shape in shapes))
    bases = {shape: folder / shape for shape in shapes}
    for shape, path in bases.items():
        random_encoder(SHAPES[shape], "float32", "cpu").save_pretrained(path)
        tokenizer.save_pretrained(path)
    return bases


class Machine:
    """What else the machine does meanwhile."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._ticks = _ticks()
        self._own = sum(os.times()[:4])
        self._started = time.perf_counter()

    def since(self) -> dict[str, float | None]:
        """Return the load average at the beginning, and of the cores what was taken since by others.

        ``others`` are cores that other processes held, ``stolen`` those that the hypervisor gave to other machines; on
        average over the time, None where the system does not say it.
        """
        seconds = time.perf_counter() - self._started
        found: dict[str, float | None] = {"load": self._load, "seconds": seconds, "others": None, "stolen": None}
        ticks = _ticks()
        if ticks is not None and self._ticks is not None:
            busy, stolen = (now - then for now, then in zip(ticks, self._ticks, strict=True))
            own = sum(os.times()[:4]) - self._own
            found |= {"others": max(0.0, busy - own) / seconds, "stolen": stolen / seconds}
        return found


def _ticks() -> tuple[float, float] | None:
    """Return the seconds for which all cores together were busy, and were stolen, since the system started."""
    try:
        ticks = [int(own) for own in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return None
    per_second = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, interrupts, soft, stolen = ticks[:8]
    return (user + nice + system + interrupts + soft) / per_second, stolen / per_second
