"""What a lease says: which process holds a run, and since when."""

import json
import os
import platform
import shlex
import sys
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter

from biaseval.errors import without_credentials
from biaseval.parsing import json_value

_LONGEST_COMMAND, _LONGEST_S = 200, 1e9
_COMMAND = "biaseval"
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""What Ray's job server gives to the process of a job."""


@dataclass(frozen=True)
class Lease:
    """The content of a lease file. Its times are never compared with another machine's clock."""

    id: str
    """A random number per process and lease."""
    host: str
    pid: int
    command: str
    since: str
    """When it was taken, by the holder's clock (ISO 8601, UTC); for people."""
    process: str | None
    """Tells the process from every other one of its machine, or another; None: the system does not say."""
    interval_s: Annotated[float, Field(ge=0, le=_LONGEST_S)]
    """Seconds between two beats."""
    expires_s: Annotated[float, Field(ge=0, le=_LONGEST_S)]
    """Seconds without a beat after which others may take it over."""
    last_beat: str
    """As ``since``."""
    held_s: float = 0.0
    """Seconds from when it was taken to the last beat."""

    @classmethod
    def of_this_process(cls, interval_s: float, expires_s: float) -> Self:
        """Return a new lease of this process."""
        now, pid = utc_now(), os.getpid()
        return cls(
            uuid.uuid4().hex, platform.node(), pid, typed_command(), now, _process(pid), interval_s, expires_s, now
        )

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """Return what a file says; None where it says nothing that can be understood."""
        try:
            return TypeAdapter(cls).validate_json(data, strict=True)
        except ValueError:
            return None

    def data(self) -> bytes:
        """Return what the file holds."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()

    @property
    def is_of_this_machine(self) -> bool:
        """Whether the process can be looked for here."""
        own = _machine()
        return own is not None and self.process is not None and self.process.startswith(own)

    @property
    def has_ended(self) -> bool:
        """Whether the process is known to be gone, however it went: it was one of this machine."""
        return self.is_of_this_machine and _process(self.pid) != self.process

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.command}), since {self.since}"


def typed_command() -> str:
    """Return how this process was started, for people: as it was typed, and of which job of Ray."""
    program, *arguments = sys.orig_argv or sys.argv
    name = Path(program).name
    if "-c" in arguments:  # what follows is code, which may hold anything
        arguments = arguments[: arguments.index("-c") + 1]
    if arguments and Path(arguments[0]).name == _COMMAND:  # a script of the interpreter's folder
        name, arguments = _COMMAND, arguments[1:]
    command = " ".join(without_credentials(shlex.join([name, *arguments])).split())[:_LONGEST_COMMAND]
    job = _ray_job()
    return command if job is None else f"{command}, Ray job {job}"


def _ray_job() -> str | None:
    """Return the submission id of the job of Ray that this process is; None: it is none."""
    try:
        found = json_value(os.environ[_JOB])["metadata"]["job_submission_id"]
    except (KeyError, ValueError, TypeError):
        return None
    return str(found)


def utc_now() -> str:
    """Return this machine's time, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _machine() -> str | None:
    """Return what no other machine and no other container has (Linux)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}/"
    except OSError:
        return None


def _process(pid: int) -> str | None:
    """Return what no other process has, also a later one with the same number; None where there is none."""
    machine = _machine()
    try:
        # The name comes first, in parentheses, and may hold anything; the start is the 22nd field.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if machine is None or state in "ZX" else f"{machine}{pid}/{rest[18]}"
