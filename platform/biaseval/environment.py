"""What a run was made with: versions, commit, hardware; and ``environment.json``, where it is kept."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from biaseval.errors import InputError
from biaseval.store import DIGESTS, FIRST, Run

FILE = FIRST
SPEC = "spec.yaml"

SCHEMA = 1
"""Of run directories, which ``spec.yaml`` names in its last lines. 0: files have no digests, and nothing names it."""

_SCHEMA = re.compile(r"^# schema: (\d+)\n# own_sha256: \w+\n\Z", re.MULTILINE)

PRIMARY_BEFORE = "primary_before_scores"
"""A fact of ``environment.json``: the primary question that a run had when its scores came, where it changed later."""

COMMIT = "BIASEVAL_COMMIT"
"""The environment variable that names the commit of code that is no checkout, as what a job of Ray is sent."""

_PACKAGES = (
    *("biaseval", "ray", "torch", "transformers", "tokenizers", "peft", "deepspeed", "pyarrow", "duckdb", "numpy"),
    *("optuna", "nltk", "scikit-learn", "spacy", "bitsandbytes"),
)


def read_environment(run: Run) -> dict[str, Any]:
    """Return the record of how a run was made; an empty one if the run never had such a file.

    Raises:
        InputError: the file is missing or damaged.
    """
    if not run.has(FILE):
        if run.has(DIGESTS):
            raise InputError(
                f"{run.uri}/{FILE}: is missing; it says with which model and data the run was made: restore it, or "
                "choose another directory"
            )
        return {}
    found = run.read_json(FILE)
    if not isinstance(found, dict):
        raise InputError(f"{run.uri}/{FILE}: is damaged; restore it, or start the run again elsewhere")
    return found


def raw_spec(run: Run) -> dict[str, Any]:
    """Return what ``spec.yaml`` of a run holds, which is all that was written.

    Raises:
        InputError: ``run`` is no run directory, the file is damaged, or a later version wrote it.
    """
    if not run.has(SPEC):
        raise InputError(f"{run.uri}: is not a run directory (no {SPEC} in it); name the directory of a run")
    content = run.read_yaml(SPEC, is_sealed=run.is_sealed)
    schema = _SCHEMA.search(run.read_text(SPEC))
    if schema is not None and int(schema[1]) > SCHEMA:
        raise InputError(
            f"{run.uri}: a later version of biaseval wrote this run (schema {schema[1]}, and this version reads up to "
            f"{SCHEMA}); use that version"
        )
    if not isinstance(content, dict):
        raise InputError(f"{run.uri}/{SPEC}: is no spec; name the directory of a run")
    return content


def runs_in(uri: str) -> list[str]:
    """Return the runs directly in a folder of runs, by name; else the directory itself."""
    folder = Run.open(uri)
    inside = [] if folder.has(SPEC) else [f"{uri.rstrip('/')}/{name}" for name in folder.names()]
    return [own for own in inside if Run.open(own).has(SPEC)] or [uri]


def write_spec(run: Run, text: str) -> None:
    """Write the spec of a run, with its schema version and its digest."""
    run.write_sealed_yaml(SPEC, f"{text}# schema: {SCHEMA}\n")


def seal_spec(run: Run) -> None:
    """Have a spec that an older version wrote say that it is whole."""
    text = run.read_text(SPEC)
    if _SCHEMA.search(text) is None:
        write_spec(run, text)


def amend_environment(run: Run, **facts: Any) -> None:
    """Set facts of how a run is made; where all are known already nothing is written."""
    known = read_environment(run)
    if any(name not in known or known[name] != fact for name, fact in facts.items()):
        run.write_sealed(FILE, {**known, **facts})


def date_of(run: Run) -> str:
    """Return the day on which a run was first planned, which is kept on resume: today's where it has none (UTC)."""
    return str(read_environment(run).get("date") or datetime.now(UTC).date().isoformat())


def describe_environment() -> dict[str, Any]:
    """Return versions, git commit and hardware of this process's machine, as JSON values."""
    return {
        "versions": {name: version for name in _PACKAGES if (version := version_of(name))},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git_commit": os.environ.get(COMMIT) or _git_commit(),
        "hardware": {"cpu": _cpu(), "n_cores": os.cpu_count(), "memory_gib": _memory_gib()},
    }


def version_of(name: str) -> str | None:
    """Return the version of an installed package; None: it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    folder = Path(__file__).parent
    if not any((parent / ".git").exists() for parent in folder.parents):
        return None
    try:
        # A package installed inside somebody else's repository has no commit of its own.
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        return _git(folder, "rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None
