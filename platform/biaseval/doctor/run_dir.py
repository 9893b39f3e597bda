"""A run directory: whether it can be read and written, how fast, and whether two drivers could meet in it."""

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from biaseval.doctor.finding import Finding, State
from biaseval.errors import BiasevalError
from biaseval.lease import look
from biaseval.lease.files import UnconditionalError, prove_conditions
from biaseval.pipelines.directory import refuse_foreign
from biaseval.store import Run, temporary_name

_N_WRITES = 5
_LONG_S = 0.5
_SIZE = 100_000
"""Bytes of the test file, about those of a small part."""


def run_dir(uri: str) -> Iterator[Finding]:
    """Yield findings about a run directory; no file stays in it, and a missing local directory is not created."""
    run = Run.open(uri)
    place, name = _existing(run), temporary_name("doctor")
    try:
        refuse_foreign(run)
        yield _written(place, name)
    except (OSError, BiasevalError) as error:
        yield Finding("run directory", State.problem, f"{run.uri}: {_reason(error)}", _remedy(run))
        return
    if not run.is_local:
        yield _conditions(run, name)
    sight, _ = look(run)
    if sight is not None and sight.is_live:
        yield Finding("run directory", State.warning, f"{run.uri}: {sight.who} works on it", "wait for it, or end it")


def _existing(run: Run) -> Run:
    """Return the nearest existing folder of a local run that may not exist yet."""
    if not run.is_local:
        return run
    path = Path(run.root)
    return Run.open(str(next(there for there in (path, *path.parents) if there.exists())))


def _written(run: Run, name: str) -> Finding:
    data = os.urandom(_SIZE)
    seconds: dict[str, list[float]] = {"list_s": [], "write_s": [], "read_s": []}
    try:
        for _ in range(_N_WRITES):
            marks = [time.perf_counter()]
            run.names()
            marks.append(time.perf_counter())
            run.write_bytes(name, data)
            marks.append(time.perf_counter())
            if run.read_bytes(name) != data:
                found = f"{run.uri}: the bytes read differ from those written"
                return Finding("run directory", State.problem, found, "use another disk or store")
            marks.append(time.perf_counter())
            for own, (before, after) in zip(seconds.values(), pairwise(marks), strict=True):
                own.append(after - before)
    finally:
        run.delete(name)
    facts = {own: round(median(times), 4) for own, times in seconds.items()}
    took = ", ".join(f"{what} in {facts[f'{what}_s'] * 1000:.0f} ms" for what in ("list", "write", "read"))
    found = f"{run.uri}: readable and writable ({took}, medians of {_N_WRITES})"
    if max(facts.values()) > _LONG_S:
        remedy = "use a store in the region of the machines, or larger parts (execution.part_rows)"
        return Finding("run directory", State.warning, found, remedy, facts)
    return Finding("run directory", State.ok, found, facts=facts)


def _conditions(run: Run, name: str) -> Finding:
    """Say whether a second driver would be noticed for sure."""
    try:
        prove_conditions(run, name)
    except UnconditionalError as error:
        found = f"two drivers that start on one run at once may not notice each other: {error}"
        remedy = error.remedy or "start one driver at a time"
        return Finding("conditional writes", State.warning, found, remedy)
    except BiasevalError as error:
        return Finding("conditional writes", State.problem, _reason(error), _remedy(run))
    return Finding("conditional writes", State.ok, "a second driver on a run is refused")


def _remedy(run: Run) -> str:
    if run.is_local:
        return "choose another directory, or mend its rights"
    return (
        "check the name of the bucket, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL and the credentials; they need "
        "s3:ListBucket, GetObject, PutObject and DeleteObject"
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error.__cause__ or error).split())
