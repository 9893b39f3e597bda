"""Write a first spec from a data file, with the facts found in the file beside the keys that follow from them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import BiasevalError, InputError
from biaseval.inputs.survey import MOST_ROWS, Survey, survey
from biaseval.models import located
from biaseval.parsing import yaml_flow, yaml_value
from biaseval.prompting.labels import label_cautions
from biaseval.spec import LABEL
from biaseval.spec.shared_sections import MOST_CHARACTERS

_MODEL = "MODEL"
"""Where a spec names no model yet."""
_SHOWN_LABELS = 8
_OPTION = re.compile(r"(option|choice|ending)(s|[_ -]?([a-h]|\d))", re.IGNORECASE)
"""Names of columns with the options of a question."""
_FEW = 5
"""Rows of a label of which little can be said."""


@dataclass(frozen=True)
class FirstSpec:
    """A spec to begin with."""

    text: str
    """YAML."""
    found: list[str]
    """Sentences about the content of the file."""
    cautions: list[str]
    """Sentences about properties that would spoil a measurement."""


def first_spec(file: str, model: str | None, folder: Path) -> FirstSpec:
    """Return a spec for a data file.

    Args:
        file: of examples.
        model: a local directory or a name of the hub; without one the spec has a place for it.
        folder: where the spec is going to lie: it names local files relative to it.

    Raises:
        InputError: there is no such model, the file cannot be read, or no column of it can be a label or a text.
    """
    if model is not None:
        located(model, has_weights=False)
    found = survey(file)
    fields, item = _prompt(found)
    data: dict[str, Any] = {"train": _place(found.uri, folder), "label": found.label}
    data |= {"fields": fields} if fields else {}
    data |= {} if found.has_text_labels else {"labels": {label: label for label in sorted(found.counts)}}
    data |= {"on_bad_row": "drop"} if found.n_unlabelled else {}
    text = _written(
        {
            "kind": "label_bias",
            "name": init_name(found.uri),
            "model": {"path": _place(model, folder) if model else _MODEL, "chat": "auto"},
            "data": data,
            "prompt": {"instruction_text": _instruction(found), "item": item, "n_demos": [0], "demos": "balanced"},
            "calibration": ["cc", "dc"],
        },
        {
            "model": "chat: off for plain text",
            "data.train": "test: FILE where measured rows have a file of their own",
            "data.labels": "what prompts show for each",
            "data.on_bad_row": f"{found.n_unlabelled:,} rows have no label; error refuses the file",
            "prompt.instruction_text": "in your words",
            "prompt.n_demos": "[0, 2, 4] measures with demonstrations, too; plan says whether the rows are enough",
            "prompt.demos": "every set shows each label as often; random: as drawn",
        },
    )
    return FirstSpec(text, _found(found), _cautions(found))


def _prompt(found: Survey) -> tuple[dict[str, str], str]:
    """Return ``data.fields``, empty where none has another name, and the item of the prompt."""
    names: dict[str, str] = {}
    for field in found.lengths:
        alike = (_field(field) + suffix for suffix in ("", *(f"_{n}" for n in range(2, len(found.lengths) + 1))))
        names[field] = next(name for name in alike if name not in names.values())
    tags = "".join(f"{name.replace('_', ' ').capitalize()}: {{{name}}}\n" for name in names.values())
    answer = re.sub(r"\W+", " ", found.label).strip().capitalize() or "Label"
    return {name: field for field, name in names.items() if name != field}, f"{tags}{answer}: {{label}}"


def _field(column: str) -> str:
    name = re.sub(r"\W+", "_", column).strip("_").lower()
    return name if name.isidentifier() and name != LABEL else f"text_{name}".rstrip("_")


def _instruction(found: Survey) -> str:
    labels = sorted(found.counts)
    shown = ", ".join(labels[:-1]) + f" or {labels[-1]}"
    return f"Answer with {shown}." if len(labels) <= _SHOWN_LABELS else "Answer with the label."


def _found(found: Survey) -> list[str]:
    lengths = ", ".join(
        f"{field} ({middle:,.0f} characters in the middle, {most:,} at most)"
        for field, (middle, most) in found.lengths.items()
    )
    total = sum(found.counts.values())
    shown = [f"{label} {count / total:.0%}" for label, count in list(found.counts.items())[:_SHOWN_LABELS]]
    more = len(found.counts) - len(shown)
    rows = f"{found.n_rows:,} rows" if found.is_whole else f"the first {MOST_ROWS:,} rows, of more"
    return [
        f"{rows}; columns: {', '.join(found.columns)}",
        f"label: {found.label}, with {len(found.counts)} values ({', '.join(shown)}{f', {more} more' if more else ''})",
        f"text: {lengths}",
    ]


def _cautions(found: Survey) -> list[str]:
    total = sum(found.counts.values())
    cautions = [*found.notes, *label_cautions(found.counts)]
    if found.n_empty:
        cautions.append(f"{found.n_empty:,} rows have no text: they are left out")
    if found.n_unlabelled:
        cautions.append(f"{found.n_unlabelled:,} rows have no label: they are left out (data.on_bad_row: drop)")
    if found.n_repeated:
        contradicting = f", {found.n_contradicting:,} of them with another label" if found.n_contradicting else ""
        cautions.append(f"{found.n_repeated:,} rows repeat an earlier one's text{contradicting}: they are left out")
    label, most = next(iter(found.counts.items()))
    if most > 0.9 * total:
        cautions.append(f"{most / total:.0%} of the labels are {label}: of the others little can be said")
    if rare := [name for name, count in found.counts.items() if count < _FEW]:
        cautions.append(f"{', '.join(rare[:_SHOWN_LABELS])}: fewer than five rows, of which little can be said")
    if total < 100:
        cautions.append(f"{total} rows are few: intervals will be wide, and only large changes can be detected")
    if options := _options(found):
        cautions.append(
            f"{', '.join(options)}: look like options of multiple choice, which these prompts do not show; name them "
            "in data.options and take prompt.item out (docs/label-bias.md)"
        )
    if not found.has_text_labels:
        cautions.append("labels are no words: say in data.labels what prompts show for each")
    return cautions


def _options(found: Survey) -> list[str]:
    """Return the columns that are named as labels or as options are; a pair called a and b is two texts."""
    marked = [column for column in found.columns if column in found.counts or _OPTION.fullmatch(column)]
    return marked if len(marked) > 2 or any(_OPTION.fullmatch(column) for column in marked) else []


def init_name(uri: str) -> str:
    """Return the name of the run, and of its spec, that a data file gives."""
    stem = Path(uri.rstrip("/")).name.split(".")[0]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:MOST_CHARACTERS].strip("-._")
    return name or "data"


def _place(path: str, folder: Path) -> str:
    """Return a path as a spec in ``folder`` names it; names of no local file stay as they are."""
    local = Path(path).expanduser()
    if "://" in path or not local.exists():
        return path
    local = local.resolve()
    if not local.is_relative_to(folder.resolve()):
        return str(local)
    relative = str(local.relative_to(folder.resolve()))
    return f"./{relative}" if relative.startswith("~") else relative  # which would be the home directory


_SECTIONS = ("data", "prompt")
"""Keys whose sections have a line for each of their own."""


def _written(content: Mapping[str, Any], behind: Mapping[str, str]) -> str:
    """Return a spec as YAML, having read it again, with comments after the values of dotted keys.

    Raises:
        InputError: a text of it is none.
    """

    def line(key: str, name: str, value: Any) -> str:
        return f"{name}: {yaml_flow(value)}{f'  # {behind[key]}' if key in behind else ''}"

    lines = ["# Does the model prefer some labels whatever the input? biaseval plan estimates the cost."]
    for key, value in content.items():
        if key in _SECTIONS:
            lines += [f"{key}:", *(f"  {line(f'{key}.{name}', name, own)}" for name, own in value.items())]
        else:
            lines.append(line(key, key, value))
    text = "\n".join(lines) + "\n"
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "a label, or the name of a column or file, holds half a surrogate pair (\\ud800 to \\udfff), which is no "
            "character; take it out"
        ) from error
    if yaml_value(text) != content:
        raise BiasevalError(f"a spec cannot be written that reads as it should: {text}; report this as a mistake")
    return text
