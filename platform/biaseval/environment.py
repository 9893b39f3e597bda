"""What a run was made with: versions, commit, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "biaseval",
    "ray",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "deepspeed",
    "pyarrow",
    "duckdb",
    "numpy",
    "nltk",
    "scikit-learn",
    "spacy",
    "bitsandbytes",
)


def describe_environment() -> dict[str, Any]:
    """Return versions, git commit and hardware of this process's machine, as JSON values."""
    return {
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git_commit": _git_commit(),
        "hardware": {"cpu": _cpu(), "n_cores": os.cpu_count(), "memory_gib": _memory_gib()},
    }


def _version(name: str) -> str | None:
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
