"""Questions to answer, as a table."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.errors import InputError, refuse

Integers = npt.NDArray[np.int64]

_COLUMNS = ("example_id", "question", "context")
_N_NAMED = 5


def check_questions(questions: pa.Table) -> tuple[list[str], list[str], list[str]]:
    """Return ids, questions and contexts, each ``[n_questions]``.

    Raises:
        InputError: a column that is missing, not text or has nulls, or an ``example_id`` that comes twice.
    """
    problems = []
    for column in _COLUMNS:
        if column not in questions.column_names:
            problems.append(f"questions: no column {column!r}; give {', '.join(_COLUMNS)}")
        elif not (pa.types.is_string(kind := questions.schema.field(column).type) or pa.types.is_large_string(kind)):
            problems.append(f"questions: column {column!r} is {kind}; give strings")
        elif questions[column].null_count:
            problems.append(f"questions: column {column!r} has {questions[column].null_count} nulls; fill them")
    refuse(problems)
    ids, asked, contexts = (questions[column].to_pylist() for column in _COLUMNS)
    if twice := [name for name, count in Counter(ids).items() if count > 1]:
        raise InputError(f"questions: {len(twice)} values of example_id come twice ({named(twice)}); make them unique")
    return ids, asked, contexts


def named(names: Sequence[str]) -> str:
    """Return the first few names in words."""
    more = f", and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return ", ".join(repr(name) for name in names[:_N_NAMED]) + more


def distinct(keys: Sequence[tuple[str, ...]]) -> tuple[Integers, Integers]:
    """Return where each different key stands first, in the order of the keys, and each row's place in that order.

    Results computed in this order do not depend on the order of the rows.

    Returns:
        ``[n_different]`` rows, and ``[n_rows]`` indices into them.
    """
    first: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    ordered = sorted(first)
    place = {key: index for index, key in enumerate(ordered)}
    rows = np.array([first[key] for key in ordered], dtype=np.int64)
    return rows, np.array([place[key] for key in keys], dtype=np.int64)
