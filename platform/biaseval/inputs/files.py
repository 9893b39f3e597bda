"""Read examples from data files: find fields and labels, and list all mistakes of a file in one message."""

import difflib
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import first_of
from biaseval.inputs.options import Options
from biaseval.prompting.labels import looks, same_number, shown_apart
from biaseval.prompting.task_files import parse_task
from biaseval.records import Records, Row, is_missing
from biaseval.spec import DataSpec, is_label, label_key

MOST_EXAMPLES = 200_000
"""The most examples that biaseval keeps of a file; it draws them from a longer file, so memory is bounded."""

_LABEL_NAMES = ("label", "answer")
_SHOWN_PROBLEMS = 10
_SHOWN_PLACES = 3
_SHOWN_CHARACTERS = 60
_MOST_KINDS = 100
"""The most kinds of problems; after them biaseval stops reading the file."""
_NUMBER_NAMES = ("idx", "index")
_LOOKED_AT = 1000
"""Rows that decide the field names of the file."""


@dataclass(frozen=True)
class Example:
    """One example of a dataset."""

    id: str
    fields: Mapping[str, str]
    """Prompt field to its text, without white space at the ends."""
    label: str
    """The label as prompts show it."""


@dataclass(frozen=True)
class Wanted:
    """The fields and labels that examples need."""

    data: DataSpec
    fields: Mapping[str, tuple[str, ...]]
    """Prompt field to its possible names in files, used if the spec names none."""
    labels: Mapping[str, str]
    """File label to prompt label; empty if prompts show the files' labels."""
    seed: int
    """The seed of the draw from a file that is too long."""
    key: str = "data"
    """The section's key in messages."""
    options: Options | None = None
    """The options, if rows are questions with options."""


class ExampleFile:
    """One file's examples, and all problems of the file."""

    def __init__(self, uri: str, role: str, wanted: Wanted) -> None:
        self.role = role
        self.key = f"{wanted.key}.{role}"
        self.sha256 = ""
        self.definition: str | None = None
        """The definition in a Super-NI task file."""
        self.examples: list[Example] = []
        self.n_rows = 0
        """The number of good rows; larger than the number of examples if the file is too long."""
        self._notes: list[str] = []
        """Notes on the format of the file."""
        self._dropped: Counter[str] = Counter()
        """Rows dropped because of a problem, by the first problem of each row."""
        self._n_empty: Counter[str] = Counter()
        """Rows dropped because of an empty text, by the first such column."""
        self._uri = uri
        self._wanted = wanted
        self._problems: list[str] = []
        self._is_task_file = uri.endswith(".json") and "://" not in uri and _is_task_file(Path(uri))
        rows = iter(self._task_rows() if self._is_task_file else self._records())
        first = list(itertools.islice(rows, _LOOKED_AT))
        if not first and not self._problems:
            self._problems.append("holds no row; check the path")
        if first and (names := self._names(list(dict.fromkeys(key for _, row in first for key in row)))):
            self._read_examples(itertools.chain(first, rows), names)

    def shown_problems(self) -> list[str]:
        """Return the first problems of the file, the number of further problems, then the notes."""
        notes = [f"{self._uri}: {note}" for note in self._notes] if self._problems else []
        return first_of(self._problems, f"{self._uri}: ") + notes

    @property
    def notes(self) -> Iterator[str]:
        """Notes on the file for readers of the results."""
        yield from (f"{self.key}: {note}" for note in self._notes)
        n_all = self.n_rows + self._n_empty.total() + self._dropped.total()
        if n_empty := self._n_empty.total():
            where = f"of {n_all:,} rows have no text ({', '.join(self._n_empty)})"
            yield f"{self.key}: {n_empty:,} {where} and are left out"
        if n_dropped := self._dropped.total():
            why = "; ".join(f"{n:,} {reason}" for reason, n in self._dropped.most_common(_SHOWN_PROBLEMS))
            more = "; …" if len(self._dropped) > _SHOWN_PROBLEMS else ""
            yield f"{self.key}: {n_dropped:,} of {n_all:,} rows are left out (on_bad_row: drop): {why}{more}"
        if self.n_rows > len(self.examples):
            yield f"{self.key}: {len(self.examples):,} of {self.n_rows:,} rows were drawn; no more are kept"

    def _records(self) -> Iterator[Row]:
        records = Records(self._uri)
        yield from records if self._wanted.options is None else self._wanted.options.rows(iter(records))
        self.sha256, self._notes = records.sha256, records.notes
        self._problems += [
            problem.replace("check the path", f"check {self.key}") if problem.startswith("cannot be read") else problem
            for problem in records.problems
        ]

    def _task_rows(self) -> Iterator[Row]:
        task, problems = parse_task(Path(self._uri))
        self._problems += problems
        if task is None:
            return
        self.definition, self.sha256 = task.definition.strip(), task.sha256
        for index, instance in enumerate(task.instances):
            yield (f"Instances[{index}]", {"id": instance.id, "input": instance.input, "output": instance.label})

    def _names(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the file's name of each field, and of the label under ``""``; nothing if one is missing."""
        data, section = self._wanted.data, self._wanted.key
        label = data.label if self._wanted.options is None else self._wanted.options.answer
        wanted: dict[str, tuple[str, ...]] = {}
        for field, known in self._wanted.fields.items():
            if self._is_task_file and len(self._wanted.fields) == 1:
                known = (*known, "input")
            wanted[field] = (data.fields[field],) if field in data.fields else known
        wanted[""] = (label,) if label is not None else ("output",) if self._is_task_file else _LABEL_NAMES
        names: dict[str, str] = {}
        for field, candidates in wanted.items():
            if there := [name for name in candidates if name in keys]:
                names[field] = there[0]
                continue
            key = f"{section}.fields.{field}" if field else f"{section}.label"
            example = f"{section}.fields: {{{field}: ...}}" if field else key
            meant = difflib.get_close_matches(candidates[0], keys, n=1)
            guess = f"; did you mean {meant[0]}?" if meant else ""
            self._problems.append(
                f"{key}: no row has {' or '.join(candidates)}; name the file's field in {example} "
                f"(its fields: {', '.join(keys)}){guess}"
            )
        return names if len(names) == len(wanted) else {}

    def _read_examples(self, rows: Iterator[Row], names: Mapping[str, str]) -> None:
        mapping, drops = _Mapping(self._wanted.labels), self._wanted.data.on_bad_row == "drop"
        places: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        """Each problem with the places where it occurs."""
        draw = random.Random(f"{self._wanted.seed}/{self.role}")
        kept: list[tuple[int, Example]] = []
        for number, (place, row) in enumerate(rows):
            if empty := [name for field, name in names.items() if field and name in row and is_missing(row[name])]:
                self._n_empty[empty[0]] += 1
                continue
            problems: list[str] = []
            identifier = self._identifier(row, number)
            if identifier in places:
                problems.append(f"id: {identifier!r} is that of {places[identifier]} too; make ids unique")
            if number < MOST_EXAMPLES:
                places.setdefault(identifier, place)
            texts = {field: row.get(name) for field, name in names.items() if field}
            for field, text in texts.items():
                if problem := _text_problem(text):
                    problems.append(f"{names[field]}: {problem}")
            label, problem = _label(row.get(names[""]), mapping, self._wanted.key)
            if problem:
                problems.append(f"{names['']}: {problem}")
            if problems and drops:
                # Problems of the same kind are counted together, whatever their messages say about a row.
                self._dropped[problems[0].partition("; ")[0]] += 1
                continue
            for problem in problems:
                found.setdefault(problem, []).append(place)
            if len(found) > _MOST_KINDS:
                break
            if problems:
                continue
            example = Example(identifier, {field: str(text).strip() for field, text in texts.items()}, label)
            self.n_rows += 1
            if len(kept) < MOST_EXAMPLES:
                kept.append((number, example))
            elif (index := draw.randrange(self.n_rows)) < MOST_EXAMPLES:
                kept[index] = (number, example)
        self.examples = [example for _, example in sorted(kept, key=lambda each: each[0])]
        for problem, bad in found.items():
            others = f" (and {len(bad) - _SHOWN_PLACES:,} rows more)" if len(bad) > _SHOWN_PLACES else ""
            self._problems.append(f"{', '.join(bad[:_SHOWN_PLACES])}{others}: {problem}")
        if self._dropped and not kept:
            reason, n = self._dropped.most_common(1)[0]
            self._problems.append(f"no row can be used ({n:,}: {reason}); check {self._wanted.key}")
        elif not mapping.labels and kept and {example.label for _, example in kept} == {"-1"}:
            self._problems.append(f"{names['']}: every label is -1, which {_HIDDEN}; name a split with labels")
        elif self._n_empty and not kept and not found:
            columns = " and ".join(self._n_empty)
            some = f"name the columns that have some in {self._wanted.key}.fields"
            self._problems.append(f"{columns}: no row has a text; {some}")

    def _identifier(self, row: Mapping[str, Any], number: int) -> str:
        if not is_missing(row.get("id")):
            return str(row["id"])
        counted = next((row[name] for name in _NUMBER_NAMES if not is_missing(row.get(name))), number)
        return f"{self.role}-{counted}"


def _is_task_file(path: Path) -> bool:
    """Return whether a JSON file is an object with a key of Super-NaturalInstructions."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and (
        b'"Instances"' in content or b'"Definition"' in content
    )


def _text_problem(text: object) -> str | None:
    if not isinstance(text, str):
        return f"{_shown(repr(text))} is no text; write a string" if text is not None else "is missing; add it"
    if not text.strip():
        return "is empty; fill it in, or take the row out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "holds half a surrogate pair (\\ud800 to \\udfff), which is no character; take it out"
    return None


class _Mapping:
    """File labels to prompt labels."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = {key.strip(): text for key, text in labels.items()}
        numbers = {key: number for key in self.labels if (number := same_number(key)) is not None}
        n_keys = Counter(numbers.values())
        self._by_number = {number: self.labels[key] for key, number in numbers.items() if n_keys[number] == 1}

    def get(self, name: str) -> str | None:
        """Return the prompt label; a number, true or false may have any spelling that fits only one key."""
        return self.labels.get(name) or self._by_number.get(same_number(name) or "")

    def problem(self, name: str, key: str) -> str:
        """Return the reason why a file's label has no prompt label."""
        if same_number(name) == "-1":
            return f"the label {name} {_HIDDEN}; name a split with labels, or give its meaning in {key}.labels"
        if alike := [known for known in self.labels if looks(known) == looks(name)]:
            both = shown_apart([name, alike[0]])
            return f"{both} look alike, and only the second is in {key}.labels; make them the same"
        known = ", ".join(self.labels)
        return f"the label {_shown(name)!r} is not in {key}.labels ({known}); add it there, or mend the row"


_HIDDEN = "stands for one that is hidden, as in test splits of Hugging Face's hub"


def _label(value: object, mapping: _Mapping, key: str) -> tuple[str, str | None]:
    """Return the prompt label, or the problem of the file's label."""
    if is_missing(value):
        return "", f"is empty; fill it in, or leave such rows out with {key}.on_bad_row: drop"
    if not is_label(value):
        return "", f"{_shown(repr(value))} is no label; write text, true, false or a whole number"
    if isinstance(value, str) and (problem := _text_problem(value)):
        return "", problem
    name = label_key(value).strip()
    if not mapping.labels:
        if isinstance(value, str):
            return name, None
        hint = f" (-1 mostly {_HIDDEN})" if name == "-1" else ""
        return "", (
            f"the label {name} is no text; say in {key}.labels what prompts show for it, as in {{{name}: ...}}{hint}"
        )
    label = mapping.get(name)
    return (label, None) if label is not None else ("", mapping.problem(name, key))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
