"""Words of YAML that mean values, at keys that take these values.

YAML 1.1 reads ``off``, ``no`` and ``false`` as the same value; YAML 1.2 and JSON know only ``false``. A key that takes
one of these words takes all of them. A key that takes only numbers also takes a number that is written as a text
(``2e-4``, in YAML 1.1).
"""

import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard

_YES = ("true", "on", "yes", "y")
_NO = ("false", "off", "no", "n")
_NOTHING = ("null", "none")

_WRITTEN: Mapping[bool | None, str] = {True: "true", False: "false", None: "null"}


def as_meant(value: Any, annotation: Any) -> Any:
    """Return a value of a spec after replacing words by the values that the key takes; other values stay unchanged.

    Texts stay texts where any text is valid. Words that are valid values stay words. ``annotation`` is the key's type.
    """
    kinds = list(_kinds(annotation))
    if isinstance(value, list | dict):
        inner = [typing.get_args(kind)[-1] for kind in kinds if typing.get_origin(kind) is type(value)]
        if len(inner) != 1:
            return value
        if isinstance(value, dict):
            return {key: as_meant(each, inner[0]) for key, each in value.items()}
        return [as_meant(each, inner[0]) for each in value]
    if isinstance(value, str) and not {str, Any, object, value}.isdisjoint(kinds):
        return value
    if value is None or isinstance(value, bool | str):
        for sense in _senses(value.lower() if isinstance(value, str) else _WRITTEN[value]):
            if (sense if isinstance(sense, str) else type(sense)) in kinds:
                return sense
    return number_of(value) if float in kinds else value


def number_of(value: object) -> object:
    """Return the number that a text spells, else the value itself: YAML 1.1 reads 2e-4 as a text, but not 2.0e-4."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _senses(word: str) -> Sequence[bool | str | None]:
    """Return the values that a word may mean, the most likely one first."""
    if word in _YES:
        return (True, *_YES)
    if word in _NO:
        return (False, *_NO, None)
    return (None, *_NOTHING, *_NO) if word in _NOTHING else ()


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types, and the values of ``Literal``, that a value may have."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(typing.get_args(annotation)[0])
    elif origin in (typing.Union, UnionType):
        for each in typing.get_args(annotation):
            yield from _kinds(each)
    elif origin is Literal:
        yield from typing.get_args(annotation)
    else:
        yield annotation
