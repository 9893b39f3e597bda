"""Measures how readers are trained against Hugging Face's Trainer: same model, windows and machine, one run.

Both make the same optimizer steps on the same windows, in ways that take turns: in one order, padded to the longest of
a step; grouped by length; and Trainer with all padded to the longest window that is allowed, as published (protocol
section 7's code). Beside that: what a unit of training costs around its steps, and cutting a set of SQuAD's size.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from biaseval.bench.reading import EncoderShape, generated_questions, random_encoder, train_tokenizer
from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError
from biaseval.execute.parts import Task
from biaseval.execute.resources import Allocation
from biaseval.pipelines.reader_workers import FeaturesWorker
from biaseval.pipelines.study import readers_of
from biaseval.qa_bias.data import question_rows, read_questions
from biaseval.reading import reader_inputs
from biaseval.spec import QaBaseSpec, QaTrainSpec, WindowsSpec
from biaseval.store import Run, part_name
from biaseval.tables import QA_TRAINING_EXAMPLES
from biaseval.training.loop import steps_of, training_steps
from biaseval.training.outcome import train
from biaseval.training.preparation import load_base, prepared
from biaseval.training.questions import Questions
from biaseval.training.recipe import Recipe, reader_recipe
from biaseval.training.trained_readers import AskedSet, HowReadersTrain, reader_work

SHAPES = {
    "tiny": EncoderShape(hidden=32, layers=2, heads=2, vocabulary=4096),
    "2x128": EncoderShape(hidden=128, layers=2, heads=2, vocabulary=30522),
    "4x256": EncoderShape(hidden=256, layers=4, heads=4, vocabulary=30522),
}
"""The last two are those of BERT-tiny and BERT-mini."""

OURS, GROUPED = "biaseval", "biaseval, grouped by length"
THEIRS, THEIRS_GROUPED, THEIRS_PADDED = "Trainer", "Trainer, grouped by length", "Trainer, all padded as published"
OURS_PADDED = "biaseval, all padded as published"
"""Is compared, but takes no turns."""
WAYS = (OURS, THEIRS, THEIRS_PADDED, GROUPED, THEIRS_GROUPED)
_COUNTERPART = {THEIRS: OURS, THEIRS_PADDED: OURS, GROUPED: OURS, THEIRS_GROUPED: GROUPED}
"""What a way's time is compared with, in the same round."""

_BATCH, _SEED, _RATE = 16, 42, 2e-5
_N_CHECKED, _CHECKED_RATE, _TOLERANCE = 3, 1e-3, 1e-3
_STEPS_SORTED = 50
"""Trainer sorts the windows of so many steps by length at a time, of sets of at least 3,200; so does biaseval."""
_N_FIRST = 20
"""Parts behind which the memory of cutting is looked at first."""
_N_ASKED = 64
_CPU = torch.device("cpu")
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure, and how long."""

    cases: tuple[tuple[str, int], ...]
    """Shapes and numbers of threads; the unit whose time outside steps is measured is of the first shape."""
    n_steps: int = 6
    """Of each way in a round: one epoch of so many times 16 windows."""
    n_rounds: int = 5
    n_questions: int = 87_599
    """That are cut into windows; SQuAD's."""
    part_questions: int = 512
    """Of a part, as in a run."""
    n_unit_steps: int = 300
    """Of that unit."""
    unit_every: int = 100
    """Its steps between checkpoints, and between evaluations."""
    windows: WindowsSpec = field(default_factory=WindowsSpec)


def read_squad(paths: Sequence[Path]) -> pa.Table:
    """Return the questions of files, in their order, with their answers; bad ones are left out.

    Raises:
        InputError: a file cannot be read.
    """
    sets = [read_questions(str(path), name="squad", on_bad_example="drop") for path in paths]
    return pa.concat_tables([question_rows(own, "train") for own in sets])


def generated_training(n: int) -> pa.Table:
    """Return generated questions about SQuAD's lengths, each with an answer of three words somewhere in its context."""
    draw = random.Random(1)
    rows = []
    for number, own in enumerate(generated_questions(n).to_pylist()):
        words = own["context"].split(" ")
        first = draw.randrange(len(words) - 2)
        rest = {"dataset": "squad", "row": number, "role": "train", "title": ""}
        start = len(" ".join([*words[:first], ""]))
        rows.append({**own, **rest, "answers": [" ".join(words[first : first + 3])], "answer_starts": [start]})
    return pa.Table.from_pylist(rows, schema=QA_TRAINING_EXAMPLES.schema)


@dataclass(frozen=True)
class Record:
    """One way of training a shape with so many threads."""

    shape: str
    threads: int
    way: str
    seconds: list[float]
    """Of all steps of a round, each."""
    s_per_step: float
    """Median of the rounds."""
    cpu_s_per_step: float
    """Of processor time, of all threads; median of the rounds."""
    windows_per_s: float
    n_tokens: int
    """Of all windows."""
    padding: float
    """Padding as a share of all tokens that the model ran."""
    times: list[float] | None
    """Its seconds over those of its counterpart in the same round: of Trainer's ways biaseval in the same order, of
    biaseval grouped by length biaseval. None: it is compared with nothing."""
    cpu_times: list[float] | None
    """The same of processor time."""


@dataclass(frozen=True)
class Around:
    """What a unit of training, with checkpoints and evaluations, costs around its steps."""

    shape: str
    threads: int
    n_windows: int
    """In the set that it is trained on."""
    n_steps: int
    seconds: float
    """Of the unit, from the parts of its windows to the reader that is kept."""
    step_seconds: float
    evaluation_seconds: float
    share: float
    """Of the seconds outside steps and evaluations."""
    batch_s: float
    """To make the batch of a step, which is part of the step; a median."""


@dataclass(frozen=True)
class Cut:
    """How questions were cut into windows, in a process of its own."""

    n_questions: int
    n_parts: int
    n_windows: int
    seconds: float
    first_parts: int
    begun_mib: float
    """The highest resident memory of the process before the first part."""
    first_mib: float
    """Behind the first parts."""
    peak_mib: float
    """Behind the last."""


def default_cases() -> tuple[tuple[str, int], ...]:
    """Return both shapes with all threads that torch takes, and the smaller with one."""
    n = torch.get_num_threads()
    return tuple(dict.fromkeys([("2x128", n), ("2x128", 1), ("4x256", n)]))


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
        n_parts = _write_parts(run, questions, settings)
        cut = _cut(run, bases[shapes[0]], n_parts, settings)
        _say(f"cut {cut.n_questions:,} questions: {cut.seconds:.1f} s, {cut.peak_mib:.0f} MiB at most")
        features = pa.concat_tables([run.read_part("qa_features", part) for part in range(n_parts)])
        chosen = np.linspace(0, features.num_rows - 1, settings.n_steps * _BATCH).astype(int)
        windows = features.take(pa.array(chosen))
        try:
            records, differences = [], {}
            for shape, n_threads in settings.cases:
                torch.set_num_threads(n_threads)
                bench = Bench(bases[shape], windows, settings)
                checked = replace(bench, windows=windows.slice(0, _N_CHECKED * _BATCH))
                differences[shape] = checked.largest_difference()
                records += bench.records(shape, n_threads)
                own = [record for record in records if (record.shape, record.threads) == (shape, n_threads)]
                _say(f"{shape}, {n_threads}: " + ", ".join(f"{row.way} {row.s_per_step:.3f} s" for row in own))
            torch.set_num_threads(threads)
            around = _around(run, bases[shapes[0]], shapes[0], n_parts, settings)
            _say(f"{around.shape}, a unit: {around.share:.1%} outside steps and evaluations")
        finally:
            torch.set_num_threads(threads)
    return {
        "shapes": {shape: asdict(SHAPES[shape]) for shape in shapes},
        "largest_difference": differences,
        "their_optimizer": str(TrainingArguments.default_optim),
        "n_steps": settings.n_steps,
        "n_rounds": settings.n_rounds,
        "batch_size": _BATCH,
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


def _write_parts(run: Run, questions: pa.Table, settings: Settings) -> int:
    """Write as many questions as are asked for, again and again the given ones; return the number of parts."""
    starts = range(0, settings.n_questions, settings.part_questions)
    place = questions.schema.get_field_index("example_id")
    for part, start in enumerate(starts):
        numbers = np.arange(start, min(start + settings.part_questions, settings.n_questions))
        rows = questions.take(pa.array(numbers % questions.num_rows))
        rows = rows.set_column(place, "example_id", pa.array([f"q{number}" for number in numbers]))
        run.write_part("qa_training_examples", part, rows)
    return len(starts)


def _cut(run: Run, base: Path, n_parts: int, settings: Settings) -> Cut:
    """Cut all parts as a run's worker does, in a new process, so that what it holds is all there is."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        asked = process.submit(_cut_parts, run.uri, str(base), n_parts, settings.windows)
        seconds, peaks = asked.result()
    first = min(_N_FIRST, n_parts)
    n_windows = sum(run.read_part("qa_features", part).num_rows for part in range(n_parts))
    return Cut(settings.n_questions, n_parts, n_windows, seconds, first, peaks[0], peaks[first], peaks[-1])


def _cut_parts(uri: str, base: str, n_parts: int, windows: WindowsSpec) -> tuple[float, list[float]]:
    """Return the seconds of all parts, and the highest memory before them and behind each."""
    bases = {"base": QaBaseSpec(name="base", path=base)}
    alone = Allocation(n_actors=1, num_cpus=1, num_gpus=0, n_threads=None)
    sizes = {"max_tokens": windows.max_tokens, "stride": windows.stride}
    worker = FeaturesWorker(Run.open(uri), alone, bases=bases, **sizes)
    peaks = [_highest_mib()]
    started = time.perf_counter()
    for part in range(n_parts):
        task = Task(part, {"base": "base", "part": part}, (f"qa_features/{part_name(part)}",))
        worker.make(task, None)
        peaks.append(_highest_mib())
    return time.perf_counter() - started, peaks


def _highest_mib() -> float:
    """Return the highest resident memory of this process so far."""
    try:
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    except (OSError, ValueError):
        import resource

        # Of a new process Linux counts what its parent had, which is why this comes second; macOS counts bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB


@dataclass(frozen=True)
class Trained:
    """What came of one way, once."""

    seconds: float
    cpu_s: float
    """Seconds of processor time, of all threads; others on the machine change it less."""
    losses: list[float]
    """Before each step."""
    n_tokens: list[int]
    """Of each step, without padding."""
    n_padded: int
    """Tokens that the model ran, padding counted."""


@dataclass(frozen=True)
class Bench:
    """All ways of training a model on some windows."""

    base: Path
    windows: pa.Table
    settings: Settings

    def records(self, shape: str, n_threads: int) -> list[Record]:
        """Let the ways take turns, each round in another order, and return what came of each."""
        ways = self.ways(_RATE, has_dropout=True)
        found: dict[str, list[Trained]] = {name: [] for name in WAYS}
        for number in range(self.settings.n_rounds):
            turn = number % len(WAYS)
            for name in WAYS[turn:] + WAYS[:turn]:
                gc.collect()
                found[name].append(ways[name]())
        return [self._record(shape, n_threads, name, found) for name in WAYS]

    def _record(self, shape: str, n_threads: int, name: str, found: dict[str, list[Trained]]) -> Record:
        own_runs, other = found[name], _COUNTERPART.get(name)
        pairs = None if other is None else list(zip(own_runs, found[other], strict=True))
        last, n_steps = own_runs[-1], len(own_runs[-1].losses)
        median = statistics.median(own.seconds for own in own_runs)
        return Record(
            shape=shape,
            threads=n_threads,
            way=name,
            seconds=[own.seconds for own in own_runs],
            s_per_step=median / n_steps,
            cpu_s_per_step=statistics.median(own.cpu_s for own in own_runs) / n_steps,
            windows_per_s=self.windows.num_rows / median,
            n_tokens=sum(last.n_tokens),
            padding=1 - sum(last.n_tokens) / last.n_padded,
            times=None if pairs is None else [own.seconds / theirs.seconds for own, theirs in pairs],
            cpu_times=None if pairs is None else [own.cpu_s / theirs.cpu_s for own, theirs in pairs],
        )

    def largest_difference(self) -> float:
        """Return the largest difference of a step's loss between the two sides, where both let padding take part.

        There is no dropout, and the learning rate is high, so that later losses depend on earlier steps.

        Raises:
            BiasevalError: it is no rounding, or steps have other tokens.
        """
        ways = self.ways(_CHECKED_RATE, has_dropout=False)
        ours, theirs = ways[OURS_PADDED](), ways[THEIRS_PADDED]()
        if any(own.n_tokens != ours.n_tokens for own in (theirs, ways[OURS](), ways[THEIRS]())):
            raise BiasevalError("biaseval and Trainer were not shown the same windows; report this")
        differences = [abs(own - other) for own, other in zip(ours.losses, theirs.losses, strict=True)]
        if not max(differences) <= _TOLERANCE:
            raise BiasevalError(f"losses of biaseval and Trainer differ by {max(differences):.2g}; report this")
        return max(differences)

    def ways(self, rate: float, *, has_dropout: bool) -> dict[str, Callable[[], Trained]]:
        """Return what trains a model once, from its first weights on, by the names of the ways."""
        order = [row for _, rows in self._planned(self._recipe(rate)) for row in rows]
        longest = self.settings.windows.max_tokens
        return {
            OURS: lambda: self._ours(rate, has_dropout=has_dropout),
            GROUPED: lambda: self._ours(rate, has_dropout=has_dropout, is_grouped=True),
            OURS_PADDED: lambda: self._ours(rate, has_dropout=has_dropout, padded_to=longest),
            THEIRS: lambda: self._theirs(rate, order, has_dropout=has_dropout),
            THEIRS_GROUPED: lambda: self._theirs(rate, self._their_order(), has_dropout=has_dropout),
            THEIRS_PADDED: lambda: self._theirs(rate, order, has_dropout=has_dropout, padded_to=longest),
        }

    def _ours(
        self, rate: float, *, has_dropout: bool, is_grouped: bool = False, padded_to: int | None = None
    ) -> Trained:
        recipe = self._recipe(rate, is_grouped=is_grouped)
        base = load_base(recipe, _CPU)
        if not has_dropout:
            _without_dropout(base.model)
        inputs, pad_id = reader_inputs(base.model, base.tokenizer), base.tokenizer.pad_token_id or 0
        objective = Questions(self.windows, inputs, pad_id, padded_to=padded_to)
        with prepared(base, recipe, objective) as ready:
            started = _now()
            steps = list(training_steps(ready.optimization, objective, recipe, base.share))
            seconds, cpu_s = _between(started, _now())
        batches = [batch for _, rows in steps_of(objective, recipe) for batch in objective.batches(rows, base.share)]
        n_padded = sum(batch.is_token.size for batch in batches)
        return Trained(seconds, cpu_s, [own.loss for own in steps], [own.n_tokens or 0 for own in steps], n_padded)

    def _theirs(self, rate: float, order: Sequence[int], *, has_dropout: bool, padded_to: int | None = None) -> Trained:
        auto: Any = AutoModelForQuestionAnswering
        model = auto.from_pretrained(self.base)
        if not has_dropout:
            _without_dropout(model)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.base)
        rows = self.windows.take(pa.array(order)).to_pylist()
        examples = [_example(row, tokenizer.pad_token_id or 0, padded_to) for row in rows]
        collate: Any = DataCollatorWithPadding(tokenizer) if padded_to is None else default_data_collator
        with tempfile.TemporaryDirectory(prefix="biaseval-bench-") as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=_BATCH,
                num_train_epochs=1,
                learning_rate=rate,
                train_sampling_strategy="sequential",  # the order is that of the examples
                logging_strategy="no",
                save_strategy="no",
                eval_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                use_cpu=True,
                seed=_SEED,
            )
            clock = _Clock()
            trainer = _Watched(model, arguments, collate, examples, callbacks=[clock])
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        masks = [mask for _, mask in trainer.seen]
        seconds, cpu_s = _between(clock.started, clock.stopped)
        return Trained(
            seconds=seconds,
            cpu_s=cpu_s,
            losses=[float(loss) for loss, _ in trainer.seen],
            n_tokens=[int(mask.sum()) for mask in masks],
            n_padded=sum(mask.numel() for mask in masks),
        )

    def _recipe(self, rate: float, *, is_grouped: bool = False) -> Recipe:
        own = _train_spec(self.base, learning_rate=rate, epochs=1, group_by_length=is_grouped)
        return replace(reader_recipe(own, own.bases[0], "standard", _SEED), checkpoint_steps=None)

    def _planned(self, recipe: Recipe) -> list[tuple[int, list[int]]]:
        return steps_of(Questions(self.windows, (), 0), recipe)

    def _their_order(self) -> list[int]:
        """Return the order that Trainer's own sampler gives a large set."""
        drawn = torch.Generator().manual_seed(_SEED)
        lengths = Questions(self.windows, (), 0).lengths
        sampled: Any = get_length_grouped_indices
        order: list[int] = sampled(lengths, _BATCH, _STEPS_SORTED, drawn)
        return order


class _Clock(TrainerCallback):
    """When Trainer begins its first step and has made its last."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.started = _now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.stopped = _now()


def _now() -> tuple[float, float]:
    """Return seconds, and seconds of this process's processor time, since some moment."""
    return time.perf_counter(), time.process_time()


def _between(started: tuple[float, float], stopped: tuple[float, float]) -> tuple[float, float]:
    return stopped[0] - started[0], stopped[1] - started[1]


class _Watched(Trainer):
    """Trainer, of whose steps losses and attention masks are kept."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        mask = inputs["attention_mask"]
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        self.seen.append((loss, mask))
        return loss


def _example(row: dict[str, Any], pad_id: int, padded_to: int | None) -> dict[str, Any]:
    """Return a window as Trainer takes it."""
    n = len(row["token_ids"])
    left = 0 if padded_to is None else padded_to - n
    return {
        "input_ids": row["token_ids"] + [pad_id] * left,
        "token_type_ids": row["token_types"] + [0] * left,
        "attention_mask": [1] * n + [0] * left,
        "start_positions": row["start_position"],
        "end_positions": row["end_position"],
    }


def _without_dropout(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def _train_spec(base: Path, **keys: Any) -> QaTrainSpec:
    """Return the section of a spec that trains one standard reader; defaults are those of P3."""
    given: dict[str, Any] = {"bases": [QaBaseSpec(name="base", path=str(base))], "seeds": [_SEED]}
    return QaTrainSpec(**given, data={"squad": "squad"}, validation={"squad": "squad"}, **keys)


def _around(run: Run, base: Path, shape: str, n_parts: int, settings: Settings) -> Around:
    """Train a reader on all windows as a run does, and return what that took around its steps."""
    every = {"checkpoint_steps": settings.unit_every, "evaluation_steps": settings.unit_every}
    own = _train_spec(base, max_steps=settings.n_unit_steps, evaluation_questions=_N_ASKED, patience=None, **every)
    [reader] = readers_of(own)
    recipe = reader_recipe(own, own.bases[0], reader.method, reader.seed)
    unit = {
        "row": reader.row,
        "folder": reader.folder,
        "checkpoints": f"checkpoints/{shape}",
        "features": list(range(n_parts)),
        "values": [],
        "guides": {},
    }
    asked = AskedSet("squad", "qa_training_examples", (0,), decides=True)
    held = load_base(recipe, _CPU)
    started = time.perf_counter()
    work = reader_work(run, unit, held, how=HowReadersTrain(own, settings.windows, "paper", (asked,)))
    outcome = train(run, held, work, recipe, reader.folder, lambda record: None)
    seconds = time.perf_counter() - started
    if not outcome.is_complete:
        raise BiasevalError(f"{shape}: the reader was given up ({outcome.problem}); report this")
    inside = outcome.step_seconds + outcome.evaluation_seconds
    return Around(
        shape=shape,
        threads=torch.get_num_threads(),
        n_windows=work.objective.n_rows,
        n_steps=outcome.n_steps,
        seconds=seconds,
        step_seconds=outcome.step_seconds,
        evaluation_seconds=outcome.evaluation_seconds,
        share=1 - inside / seconds,
        batch_s=_batch_seconds(lambda rows: work.objective.batches(rows, held.share), work.objective.n_rows),
    )


def _batch_seconds(make: Callable[[list[int]], Any], n_rows: int) -> float:
    draw, found = np.random.default_rng(_SEED), []
    for _ in range(25):
        rows = draw.integers(0, n_rows, _BATCH).tolist()
        started = time.perf_counter()
        make(rows)
        found.append(time.perf_counter() - started)
    return statistics.median(found)


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


def markdown(report: dict[str, Any]) -> str:
    """Return all that was measured as tables, with what they were measured on below."""
    return "\n".join([*_ways_lines(report), "", *_around_lines(report), "", *_cut_lines(report), "", *_on(report)])


def _ways_lines(report: dict[str, Any]) -> list[str]:
    lines = [
        "## Optimizer steps",
        "",
        "| layers x width | threads | way | s per step | windows/s | of what ran, padding | time, compared | "
        "CPU s per step | CPU time, compared |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {own['shape']} | {own['threads']} | {own['way']} | {own['s_per_step']:.3f} | {own['windows_per_s']:.1f} | "
        f"{own['padding']:.1%} | {_spread(own['times'])} | {own['cpu_s_per_step']:.3f} | "
        f"{_spread(own['cpu_times'])} |"
        for own in report["records"]
    ]
    difference = max(report["largest_difference"].values())
    return [
        *lines,
        "",
        f"Each way makes {report['n_steps']} steps of {report['batch_size']} windows in a round, one epoch of the same "
        f"windows; of {report['n_rounds']} rounds, in which the ways take turns, the median. Compared are a way's "
        "seconds with those of biaseval in the same round, where both are grouped by length with those of biaseval "
        "grouped by length; median, least and largest. CPU time is the process's own, of all threads, and depends less "
        "on what else runs. Times begin with the first batch: models, data and Trainer's "
        "own preparation are there before.",
        "",
        "biaseval and Trainer are shown the same windows in the same order; grouped by length each has its own, which "
        f"both find by sorting the windows of up to {_STEPS_SORTED} steps. That changes which windows make a step "
        "together, and so what is trained. Trainer has its default optimizer, "
        f"{report['their_optimizer']}; its loss lets padding take part. With all padded and no dropout, losses of the "
        f"two differ by at most {difference:.1g} over {_N_CHECKED} steps of the same windows.",
    ]


def _spread(times: list[float] | None) -> str:
    return "" if times is None else f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def _around_lines(report: dict[str, Any]) -> list[str]:
    own = report["around"]
    return [
        "## Around the steps",
        "",
        "| layers x width | threads | steps | s, unit | s, steps | s, evaluations | outside both | a batch, ms |",
        "|---|---|---|---|---|---|---|---|",
        f"| {own['shape']} | {own['threads']} | {own['n_steps']} | {own['seconds']:.1f} | {own['step_seconds']:.1f} | "
        f"{own['evaluation_seconds']:.1f} | {own['share']:.1%} | {1000 * own['batch_s']:.2f} |",
        "",
        f"One reader as a run trains it, out of {own['n_windows']:,} windows, from their parts to the reader that is "
        f"kept; every {report['unit_every']} steps a checkpoint, and an evaluation whose weights are kept if they are "
        "better. Making the batch of a step is part of the step.",
    ]


def _cut_lines(report: dict[str, Any]) -> list[str]:
    cut = report["cut"]
    return [
        "## Cutting questions into windows",
        "",
        "| questions | parts | windows | s | questions/s | MiB, begun | MiB, highest of the first parts | of all |",
        "|---|---|---|---|---|---|---|---|",
        f"| {cut['n_questions']:,} | {cut['n_parts']} | {cut['n_windows']:,} | {cut['seconds']:.1f} | "
        f"{cut['n_questions'] / cut['seconds']:.0f} | {cut['begun_mib']:.0f} | {cut['first_mib']:.0f} | "
        f"{cut['peak_mib']:.0f} |",
        "",
        f"As a worker of a run does it, part by part, in a process of its own; the first parts are {cut['first_parts']}"
        ". Memory is the highest resident one of the process so far.",
    ]


def _on(report: dict[str, Any]) -> list[str]:
    machine, environment = report["machine"], report["environment"]
    versions, hardware = environment["versions"], environment["hardware"]
    shared = ""
    if machine["others"] is not None:
        shared = (
            f"; meanwhile other processes held {machine['others']:.2f} of its cores and other machines "
            f"{machine['stolen']:.2f}"
        )
    load = "" if machine["load"] is None else f", load average {machine['load']:.1f} at the beginning"
    return [
        "## Measured on",
        "",
        f"Questions: {report['questions']}. BERTs of random weights, float32. {hardware['cpu']}, "
        f"{hardware['n_cores']} cores{load}{shared}. Python {environment['python']}, torch {versions['torch']}, "
        f"transformers {versions['transformers']}, tokenizers {versions['tokenizers']}, pyarrow {versions['pyarrow']}.",
    ]
