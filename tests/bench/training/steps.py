"""Optimizer steps of biaseval and of Hugging Face's Trainer, on the same windows.

Both make them in ways that take turns: in one order, padded to the longest that go through the model together; grouped
by length; and Trainer with all padded to the longest window that is allowed, as published (protocol section 7's code).
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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

from biaseval.errors import BiasevalError
from biaseval.qa_models import reader_inputs
from biaseval.training.loop import steps_of, training_steps
from biaseval.training.preparation import load_base, prepared
from biaseval.training.questions import Questions
from biaseval.training.recipe import Recipe, reader_recipe
from tests.bench.training.settings import BATCH_SIZE, SEED, Settings, train_spec

OURS, GROUPED = "biaseval", "biaseval, grouped by length"
THEIRS, THEIRS_GROUPED, THEIRS_PADDED = "Trainer", "Trainer, grouped by length", "Trainer, all padded as published"
OURS_PADDED = "biaseval, all padded as published"
"""Is compared, but takes no turns."""
WAYS = (OURS, THEIRS, THEIRS_PADDED, GROUPED, THEIRS_GROUPED)
_COUNTERPART = {THEIRS: OURS, THEIRS_PADDED: OURS, GROUPED: OURS, THEIRS_GROUPED: GROUPED}
"""What a way's time is compared with, in the same round."""

_RATE = 2e-5
N_CHECKED, _CHECKED_RATE, _TOLERANCE = 3, 1e-3, 1e-3
STEPS_SORTED = 50
"""Trainer sorts the windows of so many steps by length at a time, of sets of at least 3,200; so does biaseval."""
_CPU = torch.device("cpu")


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
                per_device_train_batch_size=BATCH_SIZE,
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
                seed=SEED,
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
        own = train_spec(self.base, learning_rate=rate, epochs=1, group_by_length=is_grouped)
        return replace(reader_recipe(own, own.bases[0], "standard", SEED), checkpoint_steps=None)

    def _planned(self, recipe: Recipe) -> list[tuple[int, list[int]]]:
        return steps_of(Questions(self.windows, (), 0), recipe)

    def _their_order(self) -> list[int]:
        """Return the order that Trainer's own sampler gives a large set."""
        drawn = torch.Generator().manual_seed(SEED)
        lengths = Questions(self.windows, (), 0).lengths
        sampled: Any = get_length_grouped_indices
        order: list[int] = sampled(lengths, BATCH_SIZE, STEPS_SORTED, drawn)
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
