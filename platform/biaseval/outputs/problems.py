"""Problems of rows, of which thousands may be alike."""

from collections.abc import Sequence

from biaseval.errors import InputError

_SHOWN = 10


def refuse(problems: Sequence[str]) -> None:
    """Raise one InputError with the first problems and the number of further ones, if there are any."""
    more = len(problems) - _SHOWN
    if problems:
        raise InputError.of([*problems[:_SHOWN], *([f"{more:,} more like these"] if more > 0 else [])])
