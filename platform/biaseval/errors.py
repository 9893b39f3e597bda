"""The errors that a user can meet.

BiasevalError            something failed: exit code 1
└── InputError           a file, a key or a command that the user can mend: exit code 2
"""

from __future__ import annotations

from collections.abc import Sequence


class BiasevalError(Exception):
    """A failure with a message for the user. The command line prints it as one message and exits with 1."""

    exit_code = 1


class InputError(BiasevalError):
    """Bad input. The message names the file or key, says what is wrong and what to do; exit code 2."""

    exit_code = 2

    @classmethod
    def of(cls, problems: Sequence[str]) -> InputError:
        """Return one error that lists every problem, a line each."""
        if len(problems) == 1:
            return cls(problems[0])
        return cls(f"{len(problems)} problems:\n" + "\n".join(f"  - {problem}" for problem in problems))
