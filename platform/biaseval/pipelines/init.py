"""A spec to begin with, from a data file: what was found in it stands beside the keys that follow from it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import BiasevalError, InputError
from biaseval.examples.survey import MOST_ROWS, Survey, survey
from biaseval.label_bias.data import FEWEST_MAIN_ROWS
from biaseval.models import ModelSource, located
from biaseval.parsing import yaml_flow, yaml_value
from biaseval.prompting.labels import label_cautions
from biaseval.spec import LABEL, WindowsSpec
from biaseval.spec.sections import MOST_CHARACTERS

_MODEL = "MODEL"
"""Where a spec names no model yet."""
_SHOWN_LABELS = 8
_DEMOS = (0, 2, 4, 8, 16)
_N_SETS = 3
_FEW = 5
"""Rows of a label of which little can be said."""

_QUESTIONS = ("input", "text", "question")
"""Columns that are a question without being named."""

_PUBLISHED_QUESTIONS = 1600
"""Two groups of the published 800."""


@dataclass(frozen=True)
class FirstSpec:
    """A spec to begin with."""

    text: str
    """YAML."""
    found: list[str]
    """What the file holds, a sentence each."""
    cautions: list[str]
    """What would spoil a measurement, a sentence each."""
    has_model: bool
    """Whether it may be planned as it is."""


def first_spec(file: str, model: str | None, folder: Path) -> FirstSpec:
    """Return a spec for a data file.

    Args:
        file: of examples, or of questions of extractive QA.
        model: a local directory or a name of the hub; without one the spec has a place for it.
        folder: where the spec is going to lie: it names local files relative to it.

    Raises:
        InputError: there is no such model, the file cannot be read, or no column of it can be a label or a text.
    """
    if model is not None:
        located(model, has_weights=False)
    found = survey(file)
    if found.is_questions:
        return _of_questions(found, model, folder)
    if found.label is None or not found.fields or not found.counts:
        what = "a label: none has 2 to 45 values" if found.label is None else "a text"
        problem = (
            f"{file}: no column can be {what} (its columns: {', '.join(found.columns)}); write the spec by hand "
            "(docs/label-bias.md has its keys)"
        )
        raise InputError.of([problem, *(f"{file}: {note}" for note in found.notes)])
    return _of_labels(found, model, folder)


def _of_questions(found: Survey, model: str | None, folder: Path) -> FirstSpec:
    name = init_name(found.uri)
    file: Any = _place(found.uri, folder)
    if renamed := {field: own for field, own in found.question_columns.items() if own != field}:
        file = {"file": file, "fields": renamed}
    content: dict[str, Any] = {
        "kind": "qa_bias",
        "name": name,
        "models": [{"name": "model", "path": _place(model, folder) if model else _MODEL}],
        "datasets": {"in_distribution": {name: file}},
        "heuristics": ["word_dist", "sim_word", "ans_pos", "cos_sim", "ans_len"],
    }
    if model is not None and (window := _window(model)) is not None and window < WindowsSpec().max_tokens:
        content["windows"] = {"max_tokens": window, "stride": window // 3}
    if found.n_rows < _PUBLISHED_QUESTIONS:
        content["bootstrap"] = {"sample": max(2, found.n_rows // 4), "replacement": True}
    text = _written(
        content,
        {
            "kind": "Does a QA model lean on shortcuts? Models are named by path, or by their predictions.",
            "datasets": f"- {{name: system, predictions: {{{name}: predictions.json}}}}  as SQuAD's scorer takes them: "
            "question's id to answer",
        },
        {
            "windows": "all that it takes; published: 384, 128",
            "bootstrap": f"of each of two groups; 800 without, as published, need {_PUBLISHED_QUESTIONS:,} questions",
        },
    )
    return FirstSpec(text, [f"{_questions(found)} with their contexts"], list(found.notes), model is not None)


def _window(model: str) -> int | None:
    """Return how many tokens a reader takes; None where nothing limits them, or it is none, which planning says."""
    from biaseval.models import describe_reader

    try:
        return describe_reader(ModelSource(model), "extractive", has_weights=False).window
    except InputError:
        return None


def _of_labels(found: Survey, model: str | None, folder: Path) -> FirstSpec:
    demos, n_sets = _demonstrations(found)
    methods = ["cc", "dc", "looc"]
    data: dict[str, Any] = {"train": _place(found.uri, folder), "label": str(found.label)}
    prompt: dict[str, Any] = {"instruction_text": _instruction(found)}
    if found.options:  # the item of multiple choice is one of its own
        question = found.fields[0] if found.fields else "question"
        data |= {} if question in _QUESTIONS else {"fields": {"input": question}}
        data["options"] = dict(found.options)
        methods.append("pride")
    else:
        fields, prompt["item"] = _prompt(found)
        data |= {"fields": fields} if fields else {}
        data |= {} if found.has_text_labels else {"labels": _named_labels(found)}
    data |= {"on_bad_row": "drop"} if found.n_unlabelled else {}
    prompt |= {"n_demos": list(demos), "demo_sets": n_sets, "demos": "balanced"}
    text = _written(
        {
            "kind": "label_bias",
            "name": init_name(found.uri),
            "model": {"path": _place(model, folder) if model else _MODEL, "chat": "auto"},
            "data": data,
            "prompt": prompt,
            "calibration": methods,
        },
        {"kind": "Does the model prefer some labels whatever the input? biaseval plan says what it would cost."},
        {
            "model": "chat: off for plain text",
            "data.train": "test: FILE where measured rows have a file of their own",
            "data.labels": "what prompts show for each",
            "data.on_bad_row": f"{found.n_unlabelled:,} rows have no label; error refuses the file",
            "prompt.instruction_text": "in your words",
            "prompt.demos": "every set shows each label as often; random: as drawn",
        },
    )
    return FirstSpec(text, _found(found), _cautions(found), model is not None)


def _prompt(found: Survey) -> tuple[dict[str, str], str]:
    """Return ``data.fields``, empty where none has another name, and the item of the prompt."""
    names: dict[str, str] = {}
    for field in found.fields:
        alike = (_field(field) + suffix for suffix in ("", *(f"_{n}" for n in range(2, len(found.fields) + 1))))
        names[field] = next(name for name in alike if name not in names.values())
    tags = "".join(f"{name.replace('_', ' ').capitalize()}: {{{name}}}\n" for name in names.values())
    answer = re.sub(r"\W+", " ", str(found.label)).strip().capitalize() or "Label"
    return {name: field for field, name in names.items() if name != field}, f"{tags}{answer}: {{label}}"


def _field(column: str) -> str:
    """Return the field of a prompt for a column."""
    name = re.sub(r"\W+", "_", column).strip("_").lower()
    return name if name.isidentifier() and name != LABEL else f"text_{name}".rstrip("_")


def _named_labels(found: Survey) -> dict[str, str]:
    """Return what prompts show for each label: the label, but for decimals that say nothing."""
    return {label: re.sub(r"(?<=\d)\.0+$", "", label) for label in sorted(found.counts)}


def _instruction(found: Survey) -> str:
    labels = list(found.options) or sorted(found.counts)
    shown = ", ".join(labels[:-1]) + f" or {labels[-1]}"
    return f"Answer with {shown}." if len(labels) <= _SHOWN_LABELS else "Answer with the label."


def _demonstrations(found: Survey) -> tuple[tuple[int, ...], int]:
    """Return the numbers of demonstrations that the rows are enough for, and the sets of each."""
    usable = found.n_rows - found.n_repeated - found.n_empty - found.n_unlabelled
    spare = usable - max(2 * len(found.counts), round(usable * 32 / 396)) - max(FEWEST_MAIN_ROWS, usable // 2)
    # Sets that show each label as often leave at least half of the rarest one's rows.
    rarest = min((count for count in found.counts.values() if count >= _FEW), default=0)
    most = min(max(spare, 0), rarest * len(found.counts) // 2)
    fitting = tuple(number for number in _DEMOS if number * _N_SETS <= most)
    return fitting or (0,), _N_SETS


def _found(found: Survey) -> list[str]:
    lengths = ", ".join(
        f"{field} ({middle:,.0f} characters in the middle, {most:,} at most)"
        for field, (middle, most) in found.lengths.items()
    )
    total = sum(found.counts.values())
    shown = [f"{label} {count / total:.0%}" for label, count in list(found.counts.items())[:_SHOWN_LABELS]]
    more = len(found.counts) - len(shown)
    return [
        f"{_rows(found)}; columns: {', '.join(found.columns)}",
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
        cautions.append(f"{total} rows are few: intervals will be wide, and only large changes can be told from none")
    if not found.has_text_labels and not found.options:
        cautions.append("labels are no words: say in data.labels what prompts show for each")
    return cautions


def _questions(found: Survey) -> str:
    return f"{found.n_rows:,} questions" if found.is_whole else f"more than {found.n_rows:,} questions"


def _rows(found: Survey) -> str:
    return f"{found.n_rows:,} rows" if found.is_whole else f"the first {MOST_ROWS:,} rows, of more"


def init_name(uri: str) -> str:
    """Return the name of the run, and of its spec, that a data file gives."""
    stem = Path(uri.rstrip("/")).name.split(".")[0]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:MOST_CHARACTERS].strip("-._")
    return name or "data"


def _place(path: str, folder: Path) -> str:
    """Return a path as a spec in ``folder`` names it; what is no local file is a name."""
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


def _written(content: Mapping[str, Any], before: Mapping[str, str], behind: Mapping[str, str]) -> str:
    """Return a spec as YAML, having read it again.

    Args:
        content: of the spec.
        before: by key, the comment in a line of its own before it.
        behind: by dotted key, the comment behind its value.

    Raises:
        InputError: a text of it is none.
    """

    def line(key: str, name: str, value: Any) -> str:
        return f"{name}: {yaml_flow(value)}{f'  # {behind[key]}' if key in behind else ''}"

    lines: list[str] = []
    for key, value in content.items():
        lines += [f"# {before[key]}"] if key in before else []
        if key in _SECTIONS:
            lines += [f"{key}:", *(f"  {line(f'{key}.{name}', name, own)}" for name, own in value.items())]
        elif key == "models":
            lines += [f"{key}:", *(f"  - {yaml_flow(own)}" for own in value)]
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
