"""Documents as fields of text, which calibration fills with texts of its own, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biaseval.parsing import json_value

Place = tuple[str | int, ...]
"""Of a value inside a document."""


@dataclass(frozen=True)
class DocFields:
    """Which values of documents are the fields of their prompts."""

    texts: tuple[Place, ...]
    """Of values that are texts in all documents."""
    others: tuple[Place, ...]
    """Of numbers and what else there is; their texts are JSON."""

    @classmethod
    def of(cls, docs: Sequence[Mapping[str, Any]], names: Collection[str]) -> DocFields:
        """Return those that all documents have, of the values of some fields.

        Args:
            docs: at least one.
            names: of the fields that prompts are made of.
        """
        kinds = dict.fromkeys((place for place, _ in _leaves({name: docs[0][name] for name in sorted(names)})), True)
        for doc in docs:
            own = dict(_leaves({name: doc[name] for name in names}))
            kinds = {place: is_text and isinstance(own[place], str) for place, is_text in kinds.items() if place in own}
        return cls(
            tuple(place for place, is_text in kinds.items() if is_text),
            tuple(place for place, is_text in kinds.items() if not is_text),
        )

    def fields(self, doc: Mapping[str, Any]) -> dict[str, str]:
        """Return a document's texts by the names of their places.

        Raises:
            TypeError: a value is none that JSON has.
        """
        found = {shown(place): _at(doc, place) for place in self.texts}
        return found | {shown(place): json.dumps(_at(doc, place), ensure_ascii=False) for place in self.others}

    def doc(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the document with these texts; what should be JSON and is not stays a text."""
        values: dict[Place, Any] = {place: fields[shown(place)] for place in self.texts}
        for place in self.others:
            values[place] = _loaded(fields[shown(place)])
        content: dict[str | int, Any] = {}
        for place, value in values.items():
            section = content
            for part in place[:-1]:
                section = section.setdefault(part, {})
            section[place[-1]] = value
        return {str(name): _listed(value) for name, value in content.items()}


def shown(place: Place) -> str:
    """Return the name of a place: ``choices.text.0``."""
    return ".".join(map(str, place))


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the places of a value's innermost values; what is empty is one."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, (*place, key))
    else:
        yield place, value


def _at(value: Any, place: Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _listed(value: Any) -> Any:
    """Return a value in which mappings from places are lists."""
    if not isinstance(value, dict):
        return value
    inner = {key: _listed(each) for key, each in value.items()}
    if inner and all(isinstance(key, int) for key in inner):
        return [inner[key] for key in sorted(inner)]
    return inner


def _loaded(text: str) -> Any:
    try:
        return json_value(text)
    except ValueError:
        return text
