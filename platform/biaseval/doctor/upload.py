"""What ``ray job submit --working-dir .`` would send to a cluster from this folder, and whether Ray takes so much."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from biaseval.doctor.finding import Finding, State

_MIB = 2**20
_N_NAMED = 5


def upload(folder: Path) -> Iterator[Finding]:
    """Say how large the files of a folder are together that a job takes with it, and which are the largest."""
    from ray._private.runtime_env.packaging import GCS_STORAGE_MAX_SIZE

    sizes = uploaded(folder)
    total, most = sum(sizes.values()), GCS_STORAGE_MAX_SIZE
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_N_NAMED]
    found = f"ray job submit --working-dir {folder} would send {total / _MIB:,.1f} MiB in {len(sizes):,} files"
    facts = {"mib": round(total / _MIB, 3), "largest": {name: round(sizes[name] / _MIB, 3) for name in largest}}
    if total < most:
        yield Finding("upload", State.ok, found, facts=facts)
        return
    named = ", ".join(f"{name} ({sizes[name] / _MIB:,.1f} MiB)" for name in largest)
    remedy = "name what jobs do not need in .rayignore or .gitignore; models and data belong in a bucket"
    found += f", and Ray takes {most / _MIB:,.0f}; largest: {named}"
    yield Finding("upload", State.problem, found, remedy, facts)


def uploaded(folder: Path) -> dict[str, int]:
    """Return the files that a job takes with it, with their bytes: what neither Ray nor an ignore file leaves out.

    Ray walks the folder itself, so that nobody else reads its ignore files.
    """
    from ray._private.ray_constants import RAY_RUNTIME_ENV_IGNORE_GITIGNORE, get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    sizes: dict[str, int] = {}

    def note(path: Path) -> None:
        if path.is_file():
            sizes[str(path.relative_to(folder.absolute()))] = path.stat().st_size

    _dir_travel(
        folder.absolute(),
        [_get_excludes(folder, get_runtime_env_default_excludes())],
        note,
        logger=logging.getLogger(__name__),
        include_gitignore=os.environ.get(RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1",
    )
    return sizes
