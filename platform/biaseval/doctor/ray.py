"""Ray, without starting one: whether it can be imported and would start, and where a run would find it."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from biaseval.doctor.finding import Finding, State
from biaseval.doctor.machine import temporary_folder

_LONGEST_SOCKET = 107
"""Bytes of the path of a socket (Linux)."""
_SOCKET = "ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
_FEWEST_FILES = 4096
_PATIENCE_S = 3.0


def ray() -> Iterator[Finding]:
    """Say what a run would meet."""
    import ray as package

    yield judge_address(os.environ.get("RAY_ADDRESS"), package.__version__, Path(temporary_folder()))
    socket_bytes = len(os.fsencode(os.path.join(temporary_folder(), _SOCKET)))
    if socket_bytes > _LONGEST_SOCKET:
        found = (
            f"the path of Ray's sockets below {temporary_folder()} has {socket_bytes} bytes, {_LONGEST_SOCKET} at most"
        )
        yield Finding("ray", State.problem, found, "set RAY_TMPDIR to a short path, such as /tmp")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEWEST_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else hard
        found = f"a process may have {soft} files open"
        yield Finding("ray", State.warning, found, f"ulimit -n {min(65536, most) if isinstance(most, int) else 65536}")


def judge_address(address: str | None, version: str, temporary: Path) -> Finding:
    """Return what is to say of where a run would find Ray.

    Args:
        address: ``RAY_ADDRESS``.
        version: of the installed Ray.
        temporary: the folder that holds Ray's own.
    """
    facts = {"version": version, "address": address}
    file = temporary / "ray" / "ray_current_cluster"
    current = file.read_text().strip() if file.is_file() else None
    if address == "auto":
        if current is None:
            remedy = "start one (ray start --head), or unset RAY_ADDRESS: a run then starts its own"
            return Finding(
                "ray", State.problem, f"{version}; RAY_ADDRESS is auto, and none is started here", remedy, facts
            )
        address = current
    if address and address != "local":
        if address.startswith(("http://", "https://")):
            remedy = (
                "set it to HOST:6379 or ray://HOST:10001 for biaseval, or unset it and use ray job submit --address"
            )
            return Finding("ray", State.problem, f"{version}; RAY_ADDRESS={address} is for jobs alone", remedy, facts)
        if (why := _unreachable(address)) is not None:
            remedy = "start that cluster, mend RAY_ADDRESS, or unset it: a run then starts a Ray of its own"
            return Finding("ray", State.problem, f"{version}; nothing answers at {address} ({why})", remedy, facts)
        return Finding("ray", State.ok, f"{version}, and a cluster answers at {address}", facts=facts)
    if current is not None and _unreachable(current) is not None:
        found = f"{version}; {file} names a cluster at {current} that is gone: runs do not heed it, other programs do"
        return Finding("ray", State.warning, found, f"rm {file}", facts)
    return Finding("ray", State.ok, f"{version}; a run starts its own", facts=facts)


def _unreachable(address: str) -> str | None:
    """Return why nothing answers at an address; None: something does."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return "it is not HOST:PORT"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S):
            return None
    except OSError as error:
        return error.strerror or str(error)
