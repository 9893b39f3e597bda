"""What is wrong with rows, of which there may be thousands alike."""

from __future__ import annotations

from collections.abc import Sequence

from biaseval.errors import InputError

_SHOWN = 10


def refuse(problems: Sequence[str]) -> None:
    """Raise one InputError with the first of the problems, and how many more there are; nothing if there is none."""
    more = len(problems) - _SHOWN
    if problems:
        raise InputError.of([*problems[:_SHOWN], *([f"{more:,} more like these"] if more > 0 else [])])
