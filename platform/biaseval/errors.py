"""The errors that a user can meet.

BiasevalError            something failed: exit code 1
├── InputError           a file, a key or a command that the user can mend: exit code 2
└── TransientError       work that gave out and may come to its end when it is begun again
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class BiasevalError(Exception):
    """A failure with a message for the user. The command line prints it as one message and exits with 1."""

    exit_code = 1


class InputError(BiasevalError):
    """Bad input. The message names the file or key, the mistake and the correction; exit code 2."""

    exit_code = 2

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems: list[str] = list(problems) or [message]
        """Each of them alone, where the message lists several."""

    @classmethod
    def of(cls, problems: Sequence[str]) -> InputError:
        """Return one error that lists every problem once, a line each, and the same one behind its place not again."""
        problems = [own for own in dict.fromkeys(problems) if own.partition(": ")[2] not in problems]
        if len(problems) == 1:
            return cls(problems[0])
        lines = "\n".join(f"  - {problem}" for problem in problems)
        return cls(f"{len(problems)} problems:\n{lines}", problems)


def first_of(problems: Sequence[str], where: str = "", what: str = "problems", most: int = 10) -> list[str]:
    """Return the first problems, and then how many more there are, each behind the place that all are in."""
    n_more = len(problems) - most
    noun = what if n_more > 1 else re.sub(r"s\b", "", what, count=1)
    more = [f"{n_more:,} more {noun} like these"] if n_more > 0 else []
    return [f"{where}{problem}" for problem in [*problems[:most], *more]]


def without_credentials(text: str) -> str:
    """Return a text without the user and the password of URIs in it."""
    # A secret may hold a slash or an @; a port holds neither.
    return re.sub(r"(?<=://)(?:[^/\s@:]*:(?!\d{1,5}[/?#])[^\s\"'<>]*|[^/\s@]+)@", "…@", text)


def refuse_broken(place: str, text: str) -> None:
    """Raise InputError: a text holds bytes that are not UTF-8, or half a character (a surrogate)."""
    if re.search("[\ud800-\udfff]", text):
        raise InputError(
            f"{place}: {ascii(text)[:200]} holds bytes that are not UTF-8; write UTF-8, or rename the file"
        )


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return how a message on an unknown name ends: with the known one that may be meant, else with some of them."""
    close = difflib.get_close_matches(name, known, n=1)
    more = f" and {len(known) - _N_KNOWN} more" if len(known) > _N_KNOWN else ""
    return f"; did you mean {close[0]}?" if close else f"; there is {', '.join(known[:_N_KNOWN])}{more}"


_N_KNOWN = 12
"""Names that a message lists."""


class TransientError(BiasevalError):
    """Work that did not come to its end, for reasons that may pass: a worker, a node or a lock gave out."""


def how_to_install(extra: str) -> str:
    """Return how one of the extras of ``pyproject.toml`` is installed; the package itself is in no registry."""
    return f"run pip install '.[{extra}]' in the source folder of biaseval"


def refuse(problems: Sequence[str], where: str = "") -> None:
    """Raise one InputError with all problems, each behind the place that all are in; nothing happens without any."""
    if problems:
        raise InputError.of([f"{where}{problem}" for problem in problems])


class Problems:
    """Collects the mistakes of independent inputs, so that one message lists all."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record the InputError of a block, and continue after it."""
        try:
            yield
        except InputError as error:
            self.found += error.problems

    def refuse(self) -> None:
        """Raise one InputError with all that was noted; nothing happens if nothing was."""
        refuse(self.found)
