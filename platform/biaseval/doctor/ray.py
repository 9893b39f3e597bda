"""Ray, without starting one: whether it can be imported and would start, and where a run would find it."""

import os
import resource
from collections.abc import Iterator

from biaseval.doctor.finding import Finding, State
from biaseval.execute.address import LOCAL, ray_address, unusable

_LONGEST_SOCKET = 107
"""Bytes of the path of a socket (Linux)."""
_SOCKET = "ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
_FEWEST_FILES = 4096


def ray() -> Iterator[Finding]:
    """Say what a run would meet."""
    import ray as package

    yield judge_address(ray_address(), package.__version__)
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


def judge_address(address: str, version: str) -> Finding:
    """Return the finding about the Ray that a run would connect to: ``RAY_ADDRESS``, or ``local``."""
    from ray._private.utils import get_ray_address_file, read_ray_address  # type: ignore[attr-defined]

    facts = {"version": version, "address": address}
    if (problem := unusable(address)) is not None:
        return Finding("ray", State.problem, f"{version}; {problem.found}", problem.remedy, facts)
    if address != LOCAL:
        return Finding("ray", State.ok, f"{version}, and a cluster answers at {address}", facts=facts)
    current = read_ray_address()
    if current is not None and unusable(current) is not None:
        file = get_ray_address_file(None)
        found = f"{version}; {file} names a cluster at {current} that is gone: runs do not heed it, other programs do"
        return Finding("ray", State.warning, found, f"rm {file}", facts)
    return Finding("ray", State.ok, f"{version}; a run starts its own", facts=facts)


def temporary_folder() -> str:
    """Return where Ray puts its files, without having it do so."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
