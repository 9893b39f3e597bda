"""The reference in ``docs/reference``: specs, commands, tables and columns, as the code has them.

python -m tests.reference
"""

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import typer
from pydantic.fields import FieldInfo

from biaseval.analysis.dictionary import Dictionary
from biaseval.cli import app
from biaseval.spec import AnySpec
from biaseval.spec.several_models import NamedModelSpec
from biaseval.spec.shared_sections import Section
from biaseval.tables import tables_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
GOLDEN = ROOT / "tests" / "fixtures" / "golden"
KINDS = ("label_bias", "majority_bias", "qa_bias", "search")
MADE = "`python -m tests.reference` writes this page; a test compares it with the code.\n"


def specs() -> str:
    """Return every key of every kind of spec, with its type and default."""
    lines = ["# Specs", "", MADE, "A key without a default is required. The page of each kind explains its keys."]
    for own in _kinds(AnySpec):
        [kind] = typing.get_args(own.model_fields["kind"].annotation)
        lines += ["", f"## {kind}", "", "| key | type | default |", "|---|---|---|"]
        lines += [f"| `{key}` | {_cell(_type(field))} | {_cell(_default(field))} |" for key, field in _keys(own)]
    lines += ["", "## An entry of `models`, in place of `model`", "", "| key | type | default |", "|---|---|---|"]
    lines += [f"| `{key}` | {_cell(_type(field))} | {_cell(_default(field))} |" for key, field in _keys(NamedModelSpec)]
    return "\n".join(lines) + "\n"


def _kinds(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type):
        return [annotation]
    return [own for each in typing.get_args(annotation) for own in _kinds(each) if hasattr(own, "model_fields")]


def _keys(section: type[Section], before: str = "", seen: tuple[type, ...] = ()) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        if name == "kind" or field.exclude:
            continue
        yield f"{before}{name}", field
        for inner in _sections(field.annotation):
            if inner not in seen:
                yield from _keys(inner, f"{before}{name}.", (*seen, section))


def _sections(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated, list, tuple):
        return [own for each in typing.get_args(annotation) for own in _sections(each)]
    return []


def _type(field: FieldInfo) -> str:
    limits = [str(own).replace("annotated_types.", "") for own in field.metadata if type(own).__name__ in _LIMITS]
    return ", ".join([_shown(field.annotation), *(f"{_LIMITS[own.partition('(')[0]]} {_value(own)}" for own in limits)])


_LIMITS = {"Ge": "at least", "Gt": "more than", "Le": "at most", "Lt": "less than"}


def _value(limit: str) -> str:
    return limit.partition("=")[2].rstrip(")")


def _shown(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(f"`{own}`" for own in inner)
    if origin is typing.Annotated:
        return _shown(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_shown, inner)))
    if origin in (list, tuple):
        return f"list of {_shown(inner[0])}"
    if origin is not None:
        return f"{_shown(inner[0])} to {_shown(inner[-1])}"
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, "value")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=not field.default_factory_takes_validated_data)
    if isinstance(value, Section):
        return "its keys' defaults"
    if isinstance(value, str) and "\n" in value:
        return f"`{value!r}`"
    return f"`{'null' if value is None else str(value).lower() if isinstance(value, bool) else value}`"


def commands() -> str:
    """Return the help of every command."""
    lines = ["# Commands", "", MADE]
    for path, command in _commands(typer.main.get_command(app), "biaseval"):
        arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
        lines += ["", f"## {path}", "", "```", " ".join([path, *arguments, "[OPTIONS]"]), "```", ""]
        lines += [(command.help or "").replace("\b", "").strip(), "", "| option | meaning |", "|---|---|"]
        for one in command.params:
            if one.param_type_name == "option" and not one.hidden:
                lines.append(f"| `{', '.join(one.opts)}` | {_cell(one.help or '')} |")
    return "\n".join(lines) + "\n"


def _argument(one: Any) -> str:
    shown = f"{one.metavar or one.name.upper()}{'' if one.nargs == 1 or one.metavar else '...'}"
    return shown if one.required else f"[{shown}]"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if inside := getattr(command, "commands", None):  # typer has its own copy of click
        for name, inner in sorted(inside.items()):
            yield from _commands(inner, f"{path} {name}")
    elif not command.hidden:
        yield path, command


def tables() -> str:
    """Return every table and mart of each kind, with the meaning of its columns."""
    lines = ["# Tables and columns", "", MADE, "`biaseval sql RUN --schema NAME` prints the same, with types."]
    for kind in KINDS:
        dictionary, schemas = Dictionary(kind), {name: own.schema.names for name, own in tables_of(kind).items()}
        for name, layer in dictionary.sorts.items():
            if layer in ("marts", "comparisons") and (file := GOLDEN / f"{name}.parquet").exists():
                schemas[name] = pq.read_schema(file).names
        lines += ["", f"## Of {kind}"]
        for name, columns in schemas.items():
            lines += [
                "",
                f"### {kind}: {name}",
                "",
                dictionary.relations[name],
                "",
                "| column | meaning |",
                "|---|---|",
            ]
            for column in columns:
                if column != "golden":
                    lines.append(f"| `{column}` | {_cell(dictionary.column(name, column, columns) or '')} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {"specs": specs, "commands": commands, "tables": tables}
"""By the name of a page, what writes it."""

if __name__ == "__main__":
    for name, write in PAGES.items():
        (FOLDER / f"{name}.md").write_text(write(), encoding="utf-8")
