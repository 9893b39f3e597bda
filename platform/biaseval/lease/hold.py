"""Holding a run: taking its lease, renewing it by a thread, and stopping where somebody else took it over.

Whether a holder still works is judged by watching its lease: one that changes is of a process that lives. No clocks of
two machines are compared; how long it has been silent already is the difference of two times that the store gives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from biaseval.errors import TransientError
from biaseval.lease import files
from biaseval.lease.record import Lease, utc_now
from biaseval.progress import duration, say
from biaseval.store import Run

BEAT_S = 10.0
"""Seconds between two beats of a driver."""

EXPIRES_S = 60.0
"""Seconds of silence after which another driver may take a run over."""

_LOOKS = 30
"""How often a lease is looked at while it is watched for as long as it lasts."""

_CLOCK_STEP_S = 1.0
"""S3 tells times in whole seconds: a lease may be this much younger than it seems."""

_PATIENCE_S = 30.0
"""Longest wait for a beat under way when a run ends, in seconds."""


@contextmanager
def held(run: Run) -> Iterator[Run]:
    """Keep other processes out of a run while the block lasts; yield the run with permission to write.

    Another process takes the run over if this one is silent for long (suspended, or cut off). The yielded run then
    writes and deletes nothing more.

    Raises:
        TransientError: another process holds the run, or took it over.
        BiasevalError: the lease cannot be written.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(run.lock())
        except TransientError as error:
            seen = files.PlainFile(run).read()
            raise error if seen is None else _refusal(run, seen) from error
        keeper = _keeper(run)
        stack.callback(keeper.release)
        yield replace(run, guard=keeper.refuse_lost)


def _keeper(run: Run) -> _Keeper:
    lease = Lease.of_this_process(BEAT_S, EXPIRES_S)
    try:
        file = files.lease_file(run)
        version = _taken(run, file, lease)
        if isinstance(file, files.ConditionalFile):
            file.prove(lease)
    except files.UnconditionalError as error:
        say(f"{run.uri}: start no second run here, it would not be noticed for sure: {error}")
        file = files.PlainFile(run)
        version = _taken(run, file, lease)
    return _Keeper(run, file, lease, version)


def _taken(run: Run, file: files.LeaseFile, lease: Lease) -> str:
    """Write a lease where nobody that lives has one, and return its version; Raises TransientError: somebody has."""
    seen = file.read()
    if seen is not None and not run.is_local:  # on a local disk, whoever has the lock knows that nobody lives
        seen = _outwaited(run, file, seen)
    try:
        return file.write(lease, None if seen is None else seen.version)
    except files.ChangedError:
        there = file.read()
        if there is not None and _is(there, lease):  # it was written, and the answer got lost
            return there.version
        if there is not None:
            raise _refusal(run, there) from None
        raise TransientError(
            f"{run.uri}: two processes began on this run at the same time; run the same command again"
        ) from None


def _outwaited(run: Run, file: files.LeaseFile, seen: files.Seen) -> files.Seen | None:
    """Wait until a lease has not changed for as long as it lasts; None: its holder gave it back meanwhile.

    Raises:
        TransientError: its holder lives.
    """
    if seen.lease is not None and seen.lease.has_ended:
        return seen
    expires_s = EXPIRES_S if seen.lease is None else seen.lease.expires_s
    left_s = expires_s - max(0.0, seen.age_s - _CLOCK_STEP_S)
    until = _now() + left_s
    if left_s > 0:
        say(f"{run.uri}: is held by {words(seen)}; looking for at most {duration(left_s)} whether it still works")
    while _now() < until:
        time.sleep(expires_s / _LOOKS)
        there = file.read()
        if there is None:
            return None
        if there.version != seen.version:
            raise _refusal(run, there)
    say(f"{run.uri}: taken over, as its lease was not renewed for {expires_s:g} s")
    return seen


class _Keeper:
    """Renews a lease until it is released, by a thread that nothing waits for and that no error ends."""

    def __init__(self, run: Run, file: files.LeaseFile, lease: Lease, version: str) -> None:
        self._run, self._file, self._lease, self._version = run, file, lease, version
        self._taken = self._renewed = _now()
        self._lost: files.Seen | None = None
        self._turn = threading.Lock()
        self._is_over = threading.Event()
        threading.Thread(target=self._beat_on, name="biaseval-lease", daemon=True).start()

    def refuse_lost(self) -> None:
        """Make sure that the run is still this process's; one that has been silent for too long asks first.

        Raises:
            TransientError: somebody took it over, or nobody can say.
        """
        if self._run.is_local:
            return
        if self._lost is None and not self._is_over.is_set() and self._has_expired:
            with suppress(Exception):
                self._beat()
            if self._lost is None and self._has_expired:
                raise TransientError(
                    f"{self._run.uri}: its lease was not renewed for {duration(_now() - self._renewed)}, and another "
                    "process may have taken it over; when the store answers, run the same command again"
                )
        if self._lost is not None:
            raise TransientError(
                f"{self._run.uri}: was taken over by {words(self._lost)}, when this process had been silent for more "
                f"than {self._lease.expires_s:g} s; nothing more is written here, let the other one finish"
            )

    def release(self) -> None:
        """Give the run back, where it is still this process's."""
        self._is_over.set()
        if not self._turn.acquire(timeout=_PATIENCE_S):
            return
        try:
            # What is not given back expires, and what the block raised matters more.
            with suppress(Exception):
                if self._lost is None:
                    self._file.delete(self._version)
        finally:
            self._turn.release()

    @property
    def _has_expired(self) -> bool:
        return _now() - self._renewed >= self._lease.expires_s

    def _beat_on(self) -> None:
        while not self._is_over.wait(self._lease.interval_s):
            with suppress(Exception):  # out of reach for now: the next beat tries again
                self._beat()

    def _beat(self) -> None:
        with self._turn:
            if self._is_over.is_set() or self._lost is not None:
                return
            now = _now()
            lease = replace(self._lease, last_beat=utc_now(), held_s=round(now - self._taken, 3))
            try:
                self._version = self._file.write(lease, self._version)
            except files.ChangedError:
                there = self._file.read()
                if there is None:  # somebody deleted it, and nobody else holds the run
                    self._version = self._file.write(lease, None)
                elif _is(there, lease):  # an earlier beat was written, and its answer got lost
                    self._version = there.version
                else:
                    self._lost = there
                    return
            self._lease, self._renewed = lease, now


def _is(seen: files.Seen, lease: Lease) -> bool:
    return seen.lease is not None and seen.lease.id == lease.id


def _refusal(run: Run, seen: files.Seen) -> TransientError:
    expires_s = EXPIRES_S if seen.lease is None else seen.lease.expires_s
    takeover = "" if run.is_local else f" (one that ends without a word is taken over after {expires_s:g} s of silence)"
    return TransientError(
        f"{run.uri}: another process is working on this run: {words(seen)}; wait for it{takeover}, end it, or choose "
        "another directory"
    )


def _now() -> float:
    """Return seconds by a clock of this machine that nobody sets; where there is one, it goes on while that sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class Sight:
    """The driver of a run, as it was heard of last."""

    is_live: bool
    """Its process is there, where it is one of this machine; elsewhere: it was heard of lately enough."""
    host: str
    pid: int
    command: str
    since: str
    """By the driver's own clock (ISO 8601, UTC)."""
    last_beat: str
    """As ``since``."""
    last_beat_age_s: float
    """Seconds since then, by the store's clock where it tells its time (S3)."""
    held_s: float
    """Seconds from when it took the run to its last beat."""
    interval_s: float
    """Seconds between two beats."""
    expires_s: float
    """Seconds of silence after which another driver may take the run over."""

    @property
    def who(self) -> str:
        """The process, for people."""
        return f"process {self.pid} on {self.host} ({self.command}), since {self.since}"

    @property
    def is_silent(self) -> bool:
        """It misses beats: its process is stopped, or hangs."""
        return self.last_beat_age_s > self.expires_s


def look(run: Run) -> tuple[Sight | None, files.Seen | None]:
    """Return the driver that holds a run or ended without a word, and its file; None: it ended in order, or none was.

    Raises:
        TransientError: the store is out of reach.
    """
    try:
        seen = files.lease_file(run).read()
    except files.UnconditionalError:
        seen = files.PlainFile(run).read()
    if seen is None or seen.lease is None:
        return None, seen
    lease = seen.lease
    is_live = not lease.has_ended if lease.is_of_this_machine else seen.age_s <= lease.expires_s
    told = {name: fact for name, fact in asdict(lease).items() if name in Sight.__dataclass_fields__}
    return Sight(is_live=is_live, last_beat_age_s=seen.age_s, **told), seen


def words(seen: files.Seen) -> str:
    """Return who holds a run and when it was heard of last, for messages."""
    who = str(seen.lease or "a process whose lease is damaged, or of a later version")
    return f"{who}, last seen {duration(seen.age_s)} ago"
