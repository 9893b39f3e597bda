"""Mistakes that pydantic finds in a spec, named by the keys that the author wrote."""

import difflib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from biaseval.spec.shared_sections import SpecError

_MISMATCH = "input should be "
"""The start of messages about the type of a value."""


@dataclass(frozen=True)
class _Mistake:
    key: tuple[str | int, ...]
    """Names and list positions as written; empty for the whole spec."""
    known: Sequence[str]
    """Names that are valid at the last place of the key."""
    detail: Mapping[str, Any]
    """Pydantic's description of the mistake."""

    @property
    def message(self) -> str:
        text: str = self.detail["msg"]
        text = re.sub(" or instance of [A-Za-z]+", "", text[0].lower() + text[1:])
        return text.replace("a valid dictionary", "a mapping of keys")

    @property
    def is_mismatch(self) -> bool:
        """Whether the value has another type than expected, so that the author may have meant another kind."""
        kind: str = self.detail["type"]
        return self.message.startswith(_MISMATCH) and kind.endswith(("_type", "_parsing", "literal_error"))


def problems_of(error: ValidationError, model: type[BaseModel], content: Mapping[str, Any]) -> list[str]:
    """Return a line for each mistake."""
    mistakes = [_Mistake(*_place(detail["loc"], model, content), detail) for detail in error.errors()]
    # For a value of several possible kinds, pydantic lists the mistakes of each kind. If a mistake is inside one kind,
    # the author meant that kind.
    mistakes = [
        own
        for own in mistakes
        if not (
            own.is_mismatch and any(other.key != own.key and other.key[: len(own.key)] == own.key for other in mistakes)
        )
    ]
    lines: dict[tuple[Any, ...], str] = {}
    for number, own in enumerate(mistakes):
        if own.is_mismatch:
            kinds = [
                other.message.removeprefix(_MISMATCH)
                for other in mistakes
                if other.is_mismatch and other.key == own.key
            ]
            text = f"{_MISMATCH}{', or '.join(dict.fromkeys(kinds))}, found {own.detail['input']!r}; change it"
            lines[own.key] = f"{_shown(own.key)}: {text}"
        else:
            lines[(*own.key, number)] = _line(own)
    return list(lines.values())


def _line(mistake: _Mistake) -> str:
    key, detail = _shown(mistake.key), mistake.detail
    if detail["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(mistake.key[-1]), mistake.known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known keys here: {', '.join(dict.fromkeys(mistake.known))}"
        return f"{key}: unknown key; {hint}"
    if detail["type"] == "missing":
        return f"{key}: is required and missing; add it"
    if detail["type"] == "value_error":
        error = detail["ctx"]["error"]
        return f"{'spec' if isinstance(error, SpecError) else key}: {error}"
    return f"{key}: {mistake.message}, found {detail['input']!r}; change it"


def _shown(key: Sequence[str | int]) -> str:
    return ".".join(map(str, key)) or "spec"


def _place(
    location: Sequence[str | int], model: type[BaseModel], content: Any
) -> tuple[tuple[str | int, ...], list[str]]:
    """Return the place of a mistake, without pydantic's names of the kinds of a value, and the names known there."""
    models, known, key = [model], list(model.model_fields), []
    for part in location:
        fields = [own.model_fields[part] for own in models if isinstance(part, str) and part in own.model_fields]
        is_there = part in content if isinstance(content, dict) else isinstance(part, int) and isinstance(content, list)
        if not fields and not is_there:
            continue
        key.append(part)
        known = [name for own in models for name in own.model_fields]
        models = [found for field in fields for found in _models_in(field.annotation)] if fields else models
        content = content[part] if is_there else None
    return tuple(key), known


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)
