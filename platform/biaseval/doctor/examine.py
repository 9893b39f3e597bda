"""All checks, in the order in which a run would meet what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from biaseval.doctor import cluster_file, ray, run_dir
from biaseval.doctor.finding import Finding, State


def examine(directory: str | None = None, cluster: Path | None = None) -> Iterator[Finding]:
    """Yield what is found, good or bad; starts no Ray and leaves no file.

    Args:
        directory: a run directory, local or ``s3://``, which need not exist; None: none is looked at.
        cluster: a file of Ray's cluster launcher; None: none is looked at.
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
