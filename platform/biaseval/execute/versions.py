"""Packages of which a worker should have the driver's version: by another one, numbers may differ."""

import logging
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

logger = logging.getLogger(__name__)

_PACKAGES = ("torch", "transformers", "tokenizers", "pyarrow")
"""Ray itself refuses another Ray; this package travels with each run."""


def versions() -> dict[str, str]:
    """Return the versions in this process."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


class Versions:
    """Compares workers with this process, and says each difference once."""

    def __init__(self) -> None:
        self._here = versions()
        self._said: set[str] = set()

    def hear(self, there: Mapping[str, str]) -> None:
        """Hear what a worker has."""
        differences = ", ".join(
            f"{name} {there.get(name, 'none')} (here {self._here.get(name, 'none')})"
            for name in sorted(self._here.keys() | there.keys())
            if there.get(name) != self._here.get(name)
        )
        if differences and differences not in self._said:
            self._said.add(differences)
            logger.warning("workers have %s: install the same on all nodes, as numbers may differ", differences)
