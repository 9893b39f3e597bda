"""What a person sees while a run works: a bar on a terminal, a line now and then in a log. All on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0

console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(text: str) -> None:
    """Print one line of chatter."""
    console.print(text, markup=False)


@dataclass
class ScoringProgress:
    """Rows scored, tokens a second and the time left."""

    n_prompts: int
    n_done: int
    verb: str = "scored"
    """What happened to the rows that are done."""
    tokens: int = 0
    _last_line: float = 0.0
    _warm_since: float | None = None
    _warm_from: tuple[int, int] = (0, 0)
    _bar: Progress | None = None
    _bar_task: TaskID | None = None

    def advance(self, n_prompts: int, tokens: int) -> None:
        """Count a finished part."""
        self.n_done += n_prompts
        self.tokens += tokens
        now = time.monotonic()
        if self._warm_since is None:
            # Starting Ray and loading the model is over with the first part: speed counts from there.
            self._warm_since, self._warm_from = now, (self.n_done, self.tokens)
        n_warm, tokens_warm = self.n_done - self._warm_from[0], self.tokens - self._warm_from[1]
        elapsed = now - self._warm_since
        rate = f"{tokens_warm / elapsed:,.0f} tokens/s" if tokens_warm else ""
        if self._bar is not None and self._bar_task is not None:
            self._bar.update(self._bar_task, completed=self.n_done, rate=rate)
            return
        is_last = self.n_done >= self.n_prompts
        if is_last or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            line = f"{self.verb} {self.n_done:,} of {self.n_prompts:,} rows"
            if n_warm:
                left = _duration(elapsed / n_warm * (self.n_prompts - self.n_done))
                line = ", ".join(text for text in (line, rate, f"{left} left") if text)
            say(line)


@contextmanager
def scoring_progress(n_prompts: int, n_done: int, verb: str = "scored") -> Iterator[ScoringProgress]:
    """Yield what counts finished parts; draws a bar where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield ScoringProgress(n_prompts, n_done, verb)
        return
    columns = (
        TextColumn(verb),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} rows"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(verb, total=n_prompts, completed=n_done, rate="")
        yield ScoringProgress(n_prompts, n_done, verb, _bar=bar, _bar_task=task)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
