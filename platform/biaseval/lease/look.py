"""Who holds a run, or held it last, for whoever only looks."""

from dataclasses import asdict, dataclass

from biaseval.lease.files import PlainFile, Seen, UnconditionalError, lease_file
from biaseval.progress import duration
from biaseval.store import Run


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


def look(run: Run) -> tuple[Sight | None, Seen | None]:
    """Return the driver that holds a run or ended without a word, and its file; None: it ended in order, or none was.

    Raises:
        TransientError: the store is out of reach.
    """
    try:
        seen = lease_file(run).read()
    except UnconditionalError:
        seen = PlainFile(run).read()
    if seen is None or seen.lease is None:
        return None, seen
    lease = seen.lease
    is_live = not lease.has_ended if lease.is_of_this_machine else seen.age_s <= lease.expires_s
    told = {name: fact for name, fact in asdict(lease).items() if name in Sight.__dataclass_fields__}
    return Sight(is_live=is_live, last_beat_age_s=seen.age_s, **told), seen


def words(seen: Seen) -> str:
    """Return who holds a run and when it was heard of last, for messages."""
    who = "a process that a later version began" if seen.lease is None else str(seen.lease)
    return f"{who}, last seen {duration(seen.age_s)} ago"
