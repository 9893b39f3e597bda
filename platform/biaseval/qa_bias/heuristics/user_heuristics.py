"""A user's heuristics: functions that a spec names as ``module:function``."""

import hashlib
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import cast

import numpy as np

from biaseval.errors import InputError

UserHeuristic = Callable[[dict[str, object]], object]

QUESTION = ("example_id", "title", "question", "context", "answers", "answer_starts")
"""What a function is given of a question."""


def look_in(folder: str) -> None:
    """Add a folder to the module search path, after all other places."""
    if folder not in sys.path:
        sys.path.append(folder)


def load_user_heuristic(name: str) -> UserHeuristic:
    """Return the function that ``module:function`` in a spec names.

    Raises:
        InputError: the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise InputError(
            f"heuristics: {name}: module {module_name!r} cannot be imported ({type(error).__name__}: {error}); "
            "put it beside the spec, or its folder on PYTHONPATH"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        found = "has no" if function is None else "has no function"
        raise InputError(f"heuristics: {name}: module {module_name!r} {found} {function_name!r}; write module:function")
    return cast("UserHeuristic", function)


def source_digest(name: str) -> str:
    """Return the SHA-256 of the source of the module that ``module:function`` names; its name where it has none.

    Raises:
        InputError: see `load_user_heuristic`.
    """
    module = sys.modules[load_user_heuristic(name).__module__]
    source = getattr(module, "__file__", None)
    return hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else module.__name__


def meaning_of(name: str) -> str | None:
    """Return the first line of the docstring of the function that ``module:function`` names; None: it has none.

    Raises:
        InputError: see `load_user_heuristic`.
    """
    function = load_user_heuristic(name)
    written = inspect.getdoc(function) if inspect.isfunction(function) else None
    first = written.splitlines()[0].strip() if written else ""
    return first if first.strip(".") else None


def user_values(name: str, questions: Sequence[dict[str, object]]) -> list[float | None]:
    """Return a user's heuristic of each question; None where it says that the question is not measured.

    Args:
        name: ``module:function``; the function takes one question and returns a finite number, a bool or None.
        questions: dicts of `QUESTION`.

    Raises:
        InputError: the function cannot be imported, fails, or returns something else.
    """
    function = load_user_heuristic(name)
    return [_user_value(name, function, question) for question in questions]


def _user_value(name: str, function: UserHeuristic, question: dict[str, object]) -> float | None:
    place = f"heuristics: {name}: question {question['example_id']!r}"
    try:
        value = function(question)
    except (Exception, SystemExit) as error:  # a user's function may fail in any way
        raise InputError(f"{place}: failed with {type(error).__name__}: {error}; mend the function") from error
    if value is None:
        return None
    if not isinstance(value, Real | np.bool_) or not math.isfinite(value):
        raise InputError(f"{place}: returned {value!r}; return a finite number, or None for a question to leave out")
    return float(value)
