"""Checks of a store, a cluster file and Ray: one finding per checked thing, with its correction.

finding       the result of a check
ray           Ray, without starting one
run_dir       a run directory: readable, writable, how long that takes, who works on it
cluster_file  a file of Ray's cluster launcher
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from biaseval.doctor import cluster_file, ray, run_dir
from biaseval.doctor.finding import Finding, State

__all__ = ["Finding", "examine"]


def examine(directory: str | None = None, cluster: Path | None = None) -> Iterator[Finding]:
    """Yield the findings, good and bad; start no Ray and leave no file.

    Args:
        directory: a run directory, local or ``s3://``, which need not exist; None skips these checks.
        cluster: a file of Ray's cluster launcher; None skips these checks.
    """
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [("ray", ray.ray)]
    if directory is not None:
        checks.append(("run directory", lambda: run_dir.run_dir(directory)))
    if cluster is not None:
        checks.append(("cluster file", lambda: cluster_file.cluster_file(cluster)))
    for name, check in checks:
        try:
            yield from check()
        except Exception as error:  # what cannot even be looked at is what one asks a doctor about
            reason = " ".join(str(error).split()) or type(error).__name__
            yield Finding(name, State.problem, f"could not be looked at: {reason}", "fix the problem, and look again")
