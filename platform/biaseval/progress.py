"""What a person sees while a run works: a bar on a terminal, a line now and then in a log. All on standard error."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0
_LEAST_SECONDS = 0.5
"""From which on a speed is one: two parts may be reported nearly at once."""

_ESTIMATE_SHARES = (0.64, 1.39)
"""The likely shortest and longest share of the time that all parts would take at the speed of the first."""

_hearers: list[Callable[[str], None]] = []
"""Functions that receive every printed line."""

console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(text: str) -> None:
    """Print one line of chatter."""
    console.print(text, markup=False)
    for hear in _hearers:
        hear(text)


@contextmanager
def heard(hear: Callable[[str], None]) -> Iterator[None]:
    """Tell each line that is said in the block, warnings of the package, and the error that ends it, to a function."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: hear(f"warning: {record.getMessage()}")  # type: ignore[method-assign]
    logger = logging.getLogger("biaseval")
    # A logger with a handler of its own no longer prints warnings by itself.
    handlers = [handler] if logger.hasHandlers() or logging.lastResort is None else [handler, logging.lastResort]
    _hearers.append(hear)
    for each in handlers:
        logger.addHandler(each)
    try:
        yield
    except BaseException as error:
        hear(f"error: {str(error) or type(error).__name__}")
        raise
    finally:
        for each in handlers:
            logger.removeHandler(each)
        _hearers.remove(hear)


@dataclass
class MakingProgress:
    """How much is made, tokens a second and the time left."""

    total: int
    n_done: int
    what: str
    """The counted things and their state: ``rows scored``."""
    tokens: int = 0
    _last_line: float = 0.0
    _warm_since: float | None = None
    _warm_from: tuple[int, int] = (0, 0)
    _bar: Progress | None = None
    _bar_task: TaskID | None = None

    def advance(self, size: int, tokens: int) -> None:
        """Count finished work: rows, questions, adapters or steps, and the tokens computed for them."""
        self.n_done += size
        self.tokens += tokens
        now = time.monotonic()
        if self._warm_since is None:
            # Starting Ray and loading the model is over with the first part: speed counts from there.
            self._warm_since, self._warm_from = now, (self.n_done, self.tokens)
        n_warm, tokens_warm = self.n_done - self._warm_from[0], self.tokens - self._warm_from[1]
        elapsed = now - self._warm_since
        is_known = elapsed >= _LEAST_SECONDS
        rate = f"{tokens_warm / elapsed:,.0f} tokens/s" if tokens_warm and is_known else ""
        if self._bar is not None and self._bar_task is not None:
            self._bar.update(self._bar_task, completed=self.n_done, rate=rate)
            return
        is_last = self.n_done >= self.total
        if is_last or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            line = f"{self.n_done:,} of {self.total:,} {self.what}"
            if n_warm and is_known:
                left = duration(elapsed / n_warm * (self.total - self.n_done))
                line = ", ".join(text for text in (line, rate, f"{left} left") if text)
            say(line)


@contextmanager
def making_progress(total: int, n_done: int, what: str) -> Iterator[MakingProgress]:
    """Yield a counter of finished work; it draws a bar if standard error is a terminal.

    It counts to ``total`` from the number that was finished before; ``what`` is as in `MakingProgress`.
    """
    if not sys.stderr.isatty():
        yield MakingProgress(total, n_done, what)
        return
    columns = (
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total, completed=n_done, rate="")
        yield MakingProgress(total, n_done, what, _bar=bar, _bar_task=task)


def estimated(seconds: float) -> str:
    """Return between which times work ends that takes so long at the speed of one part of it.

    Parts differ: their tokens cost more in long texts, and other processes take cores now and then. In a run of the
    bundled model on two cores the speed of single parts was 0.64 to 1.39 times that of all of them. The range
    around a first speed is as wide. It was measured for parts, and holds for batches by assumption: the estimate of one
    run of SmolLM2 was 118 to 257 s, and the run took 163 s.
    """
    low, high = (seconds * share for share in _ESTIMATE_SHARES)
    unit, name = next(
        (own, name) for own, name in ((3600, "hours"), (60, "min"), (1, "s")) if low >= 2 * own or own == 1
    )
    return f"{low / unit:.0f} to {high / unit:.0f} {name}"


def duration(seconds: float) -> str:
    """Return seconds as people read them: minutes and seconds, below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
