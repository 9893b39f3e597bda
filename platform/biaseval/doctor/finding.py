"""What a check says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """How bad something is."""

    ok = "ok"
    warning = "warning"
    """Works, and something is slower, less safe or other than tested."""
    problem = "problem"
    """Something will fail."""


@dataclass(frozen=True)
class Finding:
    """The result of a check of one thing."""

    check: str
    """The checked thing, in a word or two."""
    state: State
    found: str
    remedy: str | None = None
    """The correction, unless the state is ok."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers of it as JSON values, with units in their names."""
