"""How long work takes, said once: as soon as an actor has measured some batches, at the latest after the first part.

No failure of it matters to the work.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from pyarrow import ArrowException

from biaseval.errors import BiasevalError
from biaseval.parsing import json_value
from biaseval.progress import estimated, say
from biaseval.store import Run
from biaseval.units import Done, Unit

_FILE = "pace"
"""The file in which an actor reports tokens and their seconds; it is deleted when the process ends."""

_LEAST_ESTIMATED_S = 30.0
"""Seconds that nobody needs to be told of before they have passed."""

_FAILURES = (BiasevalError, OSError, ValueError, ArrowException)


class Pace:
    """Says how long a stage takes, once; a thread may look while another hears of units.

    Args:
        run: whose actors measure.
        missing: the units to make; none: nothing is said.
        noun: what units are measured in, where they have no tokens.
        n_passes: of the model over each token, where actors measure batches; 0: they do not.
    """

    n_actors = 1
    """That work beside each other."""

    def __init__(self, run: Run, missing: Sequence[Unit], noun: str, n_passes: int) -> None:
        self._run, self._n_passes = run, n_passes
        self._noun = "tokens" if all("tokens" in unit.work for unit in missing) else noun
        self._left = sum(map(self._amount, missing))
        self._lock, self._is_told = Lock(), not missing
        self.close()

    def _amount(self, unit: Unit) -> int:
        return int(unit.work["tokens"]) * max(1, self._n_passes) if self._noun == "tokens" else unit.size

    def look(self) -> None:
        """Say how long the stage takes if an actor has measured some batches; called now and then."""
        if self._is_told or not self._n_passes:
            return
        with suppress(*_FAILURES):
            if self._run.has(_FILE):
                tokens, seconds = json_value(self._run.read_text(_FILE))
                self._tell(tokens / seconds, f"batches of {tokens:,} tokens took {seconds:.1f} s")

    def add(self, done: Done) -> None:
        """Say how long the other units take if nobody did before; ``done``: a unit that is complete."""
        if self._is_told:
            return
        amount = self._amount(done.unit)
        self._left -= amount
        if amount and done.busy_s:
            self._tell(amount / done.busy_s, f"the first part took {done.busy_s:.1f} s")

    def _tell(self, per_s: float, measured: str) -> None:
        with self._lock:
            is_told, self._is_told = self._is_told, True
        seconds = self._left / per_s / self.n_actors
        if is_told or seconds < _LEAST_ESTIMATED_S:
            return
        actors = "" if self.n_actors == 1 else f" by each of {self.n_actors} actors"
        rate = f"{per_s:{',.0f' if per_s >= 10 else '.2g'}} {self._noun}/s{actors}"
        left = f"{self._left:,} {self._noun} are left"
        say(f"about {estimated(seconds)} to go on this machine: {measured}, at {rate}, and {left}")

    def close(self) -> None:
        """Forget what actors measured."""
        with suppress(*_FAILURES):
            self._run.delete(_FILE)


def leave_pace(run: Run, n_tokens: int, seconds: float) -> None:
    """Say what some batches took; the first actor to do so is heard."""
    with suppress(*_FAILURES):
        if not run.has(_FILE):
            run.write_text(_FILE, json.dumps([n_tokens, seconds]))
