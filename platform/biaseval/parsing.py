"""Texts in YAML and JSON as values. All files in these notations are read here: a key that stands twice is refused.

`yaml_value` reads specs: words are texts (``yes``, ``off``, ``2024-01-31``), but for ``true`` and ``false``,
``null`` and numbers, and keys are texts as they are written. So YAML 1.2 has it, of which this is a part that YAML 1.1
reads alike. `yaml_1_1_value` reads files of programs that read YAML 1.1.
"""

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

_SHOWN_PROBLEMS = 5

_MOST_BITS, _MOST_VALUES = 13_000, 1_000_000

_LONGEST_KEY = 1000
"""Characters of a key that needs no mark before it."""


class ParseError(ValueError):
    """A text is not in its notation, or has a key twice. The message says where and what, and not what to do."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1, but for keys that stand twice: PyYAML takes the last."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here, as constructing a mapping begins with merging others into it, whose keys it may have too.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[Hashable, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            own, line = key.value if key.tag == _MERGE else self.key(key), key.start_mark.line + 1
            if own in lines:
                times = "twice" if lines[own] == line else f"a second time, after line {lines[own]}"
                self.repeated.append(f"line {line}: has the key {own!r} {times}")
            lines.setdefault(own, line)
        return node

    def key(self, node: yaml.ScalarNode) -> Hashable:
        """Return the key that a node stands for."""
        found: Hashable = self.construct_object(node)
        return found


class _Dumper(yaml.SafeDumper):
    """Texts in double quotes where they hold characters that YAML's other ways to write them change or refuse."""


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _FRAGILE.search(text) else None
    return dumper.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _represented)


class _SpecLoader(_Loader):
    """YAML whose words are texts, and whose keys are."""

    def key(self, node: yaml.ScalarNode) -> Hashable:
        """Return the key as it is written."""
        return str(node.value)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping with its keys as they are written."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.tag = _TEXT
        found: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return found


_FRAGILE = re.compile("[^\\t\\n -~\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010fffd]")
_TAG = "tag:yaml.org,2002:"
_MERGE, _TEXT = f"{_TAG}merge", f"{_TAG}str"

_SpecLoader.yaml_implicit_resolvers = {}
# Nothing is a value here that YAML 1.1 has as a text: what its writers leave without quotes is read as they meant it.
for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _SpecLoader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), list(_first))


def yaml_value(text: str) -> Any:
    """Return what a text in YAML says, its keys as texts and its words too.

    Raises:
        ParseError: it is not YAML, or has a key twice; the message has all of those.
    """
    return deepcopy(_spec_value(text))


@lru_cache(maxsize=64)  # a question over a run reads its spec three times, each as long as a small query
def _spec_value(text: str) -> Any:
    return _yaml(text, _SpecLoader)


def yaml_1_1_value(text: str) -> Any:
    """Return what a text says in YAML 1.1, where ``yes`` and ``off`` are true and false; Raises: as `yaml_value`."""
    return _yaml(text, _Loader)


def yaml_text(value: object) -> str:
    """Return a value as YAML, in lines, which YAML 1.1 and 1.2 read alike and `yaml_value` as it was."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def yaml_flow(value: object) -> str:
    """Return a value as YAML in one line that may stand anywhere in a text; otherwise as `yaml_text`."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {yaml_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_flow, value))}]"
    if not isinstance(value, str):
        return yaml.dump([value], Dumper=_Dumper, default_flow_style=True).strip()[1:-1]
    is_bare = re.fullmatch(r"[\w/][\w./-]*", value) and yaml_value(value) == value == yaml_1_1_value(value)
    # In double quotes YAML has a way to write every character.
    escaped = yaml.dump(value, Dumper=_Dumper, default_style='"', allow_unicode=True, width=math.inf)
    return value if is_bare else escaped.rstrip("\n")


def json_value(data: str | bytes, *, line: int = 1) -> Any:
    """Return what a text in JSON says.

    Bytes are UTF-8 and may begin with a byte order mark. ``line`` is the number of the first line, for messages.

    Raises:
        ParseError: it is not UTF-8 or not JSON, or has a key twice in an object.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        return _decode(text)
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        raise ParseError(f"line {line}, byte {error.start}: is not UTF-8 ({error.reason})") from error
    except _RepeatedKeyError as error:
        place = "" if "\n" in text.strip() else f"line {line}: "
        raise ParseError(f"{place}has the key {error} twice in an object") from None
    except json.JSONDecodeError as error:
        place = f"line {line + error.lineno - 1}, column {error.colno}"
        raise ParseError(f"{place}: is not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ParseError(f"line {line}: is not JSON ({error})") from error


def is_json(data: bytes) -> bool:
    """Return whether a text is JSON by itself, whatever its keys are."""
    try:
        json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return True


class _RepeatedKeyError(Exception):
    pass


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(repr(next(key for key in keys if keys.count(key) > 1)))
    return found


_decode = json.JSONDecoder(object_pairs_hook=_once_each).decode


def _key(key: str) -> str:
    written = yaml_flow(key)
    return written if len(written) < _LONGEST_KEY else f"? {written} "


def _yaml(text: str, loader: type[_Loader]) -> Any:
    try:
        reader = loader(text)
        value = reader.get_single_data()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = ord(error.character) if isinstance(error.character, str) else error.character
        raise ParseError(
            f"line {line}: has the character U+{character:04X}, which YAML does not take; in double quotes write "
            f'"\\u{character:04x}"'
        ) from error
    except yaml.MarkedYAMLError as error:
        raise ParseError(f"is not valid YAML: {' '.join(str(error).split())}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError(f"is not valid YAML: {error}") from error
    except (LookupError, AttributeError) as error:  # PyYAML takes any value after a tag for one of its type
        raise ParseError(
            "is not valid YAML: the value after a tag (!!bool, !!int …) is none; leave the tag out"
        ) from error
    if reader.repeated:
        raise ParseError(_shown(reader.repeated))
    _refuse_more_than_anyone_means(value)
    return value


def _refuse_more_than_anyone_means(value: Any) -> None:
    """Refuse numbers that Python cannot print, and aliases in aliases, which make gigabytes of a short text."""
    left, n_values = [value], 0
    while left:
        one, n_values = left.pop(), n_values + 1
        if isinstance(one, int) and one.bit_length() > _MOST_BITS:
            raise ParseError("has a number of more than 4,000 digits; write a smaller one")
        if n_values > _MOST_VALUES:
            raise ParseError(f"has more than {_MOST_VALUES:,} values, counted once for each alias; write fewer")
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _shown(problems: Sequence[str]) -> str:
    n_more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {n_more:,} more keys" if n_more > 0 else "")
