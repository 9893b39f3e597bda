"""Examples: JSONL with named fields (so also BoolQ's and RTE's own), GLUE's tables, Super-NI task files."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from biaseval.errors import InputError, Problems
from biaseval.majority_bias.prompts import PRESETS, item_fields
from biaseval.prompting.task_files import parse_task
from biaseval.spec import MajorityBiasSpec, label_key

_SHOWN_PROBLEMS = 10
_SHOWN_CHARACTERS = 60
_TEST_SHARE = 0.2
_LABEL_NAMES = ("label", "answer")
_NUMBER_NAMES = ("idx", "index")
_USES = ("split", "max_test", "dc", "lora")


@dataclass(frozen=True)
class Example:
    """One example of a dataset."""

    id: str
    fields: Mapping[str, str]
    """Field of the prompt to its text, without white space at its ends."""
    label: str
    """As prompts show it."""


@dataclass(frozen=True)
class Dataset:
    """What a run draws from."""

    train: tuple[Example, ...]
    """What may be a demonstration: none of them stands in the test file."""
    test: tuple[Example, ...]
    """The rows that are predicted."""
    labels: tuple[str, ...]
    definition: str | None
    """Of the Super-NI task file with the demonstrations."""
    sha256: dict[str, str]
    """Of the files' bytes, by key of the spec."""
    notes: list[str]
    """What a reader of the results should know, in words."""

    def available(self) -> dict[str, int]:
        """Return the number of possible demonstrations of each label."""
        counts = dict.fromkeys(self.labels, 0)
        for example in self.train:
            counts[example.label] += 1
        return counts


def read_dataset(spec: MajorityBiasSpec) -> Dataset:
    """Return the examples of a spec's files.

    An example is the same as another that has its id, or its text in all fields of the prompt. Training examples that
    stand in the test file are left out and counted in the notes: a demonstration never shows the answer of a test row,
    and the test rows stay those of the file. Rows without ``id`` get one of the file's role and ``idx`` or ``index``,
    else the row's number from 0 (``train-17``): such numbers start anew in each file and say nothing about sameness.

    Raises:
        InputError: a file cannot be read, or has mistakes; the message lists those of both files with line and key.
    """
    data = spec.data
    fields = item_fields(spec.prompt)
    problems = Problems()
    with problems.noted():
        if data.test == data.train:
            raise InputError(
                f"data.test: is data.train ({data.train}); name another file, or leave it out: a fifth of data.train "
                "is drawn"
            )
    for name in data.fields:
        if name not in fields:
            problems.found.append(f"data.fields.{name}: the prompt has no such field; it has {', '.join(fields)}")
    problems.refuse()
    files: dict[str, _File] = {}
    roles: tuple[tuple[Literal["train", "test"], str | None], ...] = (("train", data.train), ("test", data.test))
    for role, uri in roles:
        if uri is not None:
            with problems.noted():
                files[role] = _File(spec, role, uri, fields)
                problems.found += files[role].shown_problems()
    problems.refuse()
    train, test = files["train"], files.get("test")
    if test is None:
        train_rows, test_rows = _split(train.examples, spec.seed)
        notes = [f"data.test: not given; {len(test_rows)} of {len(train.examples)} examples were drawn from data.train"]
    else:
        train_rows, test_rows, notes = train.examples, test.examples, []
    kept = _without(train_rows, test_rows)
    if len(kept) < len(train_rows):
        notes.append(
            f"data.train: {len(train_rows) - len(kept)} of {len(train_rows)} examples stand among the test rows too "
            "(same id or same text) and are no demonstrations"
        )
    labels = tuple(dict.fromkeys(_mapping(spec).values())) or tuple(
        sorted({example.label for file in files.values() for example in file.examples})
    )
    if len(labels) < 2:
        raise InputError(f"{data.train}: every example has the label {labels[0]!r}; two are needed")
    return Dataset(
        train=tuple(kept),
        test=tuple(_drawn(test_rows, data.max_test, spec.seed)),
        labels=labels,
        definition=train.definition,
        sha256={f"data.{file.role}": file.sha256 for file in files.values()},
        notes=notes,
    )


def stream(seed: int, use: str, number: int = 0) -> np.random.Generator:
    """Return the generator of one use of randomness, apart from the others and from those of demonstrations.

    Args:
        seed: the spec's.
        use: what is drawn; a calibration method's inputs by its name.
        number: which of several draws of this use.
    """
    # NumPy takes [a, b, c] and [a, b, c, 0] for the same seed: the last is never 0 here.
    place = 1 + (_USES.index(use) if use in _USES else len(_USES) + zlib.crc32(use.encode()))
    return np.random.default_rng([number, seed, 0, place])


class _File:
    """One file's examples, and all that is wrong with it."""

    def __init__(
        self, spec: MajorityBiasSpec, role: Literal["train", "test"], path: str, fields: Sequence[str]
    ) -> None:
        self.role = role
        self.sha256 = ""
        self.definition: str | None = None
        self.examples: list[Example] = []
        self._path = Path(path)
        self._problems: list[str] = []
        self._spec = spec
        if "://" in path:
            raise InputError(f"data.{role}: {path}: is not on this machine; copy the file here and name its path")
        rows = self._rows()
        if not rows and not self._problems:
            self._problems.append("holds no row; check the path")
        keys = list(dict.fromkeys(key for _, row in rows for key in row))
        if rows and (names := self._names(fields, keys)):
            self._read_examples(rows, names)

    def shown_problems(self) -> Iterator[str]:
        """Yield the first problems of the file and how many more there are."""
        for problem in self._problems[:_SHOWN_PROBLEMS]:
            yield f"{self._path}: {problem}"
        if (n_more := len(self._problems) - _SHOWN_PROBLEMS) > 0:
            yield f"{self._path}: {n_more} more problems like these"

    @property
    def _is_task_file(self) -> bool:
        return self._path.suffix == ".json"

    def _rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the file's rows, each with its place."""
        if self._is_task_file:
            task, problems = parse_task(self._path)
            self._problems += problems
            if task is None:
                return []
            self.definition, self.sha256 = task.definition.strip(), task.sha256
            return [
                (f"Instances[{index}]", {"id": instance.id, "input": instance.input, "output": instance.label})
                for index, instance in enumerate(task.instances)
            ]
        if self._path.suffix not in (".jsonl", ".tsv"):
            self._problems.append(
                f"data.{self.role}: is no .jsonl (an object a line), .tsv (with a header) or .json (Super-NI task) file"
            )
            return []
        try:
            content = self._path.read_bytes()
            text = content.decode("utf-8-sig")
        except OSError as error:
            self._problems.append(f"cannot be read ({error.strerror}); check data.{self.role}")
            return []
        except UnicodeDecodeError as error:
            self._problems.append(f"is not UTF-8 (byte {error.start}: {error.reason}); save it as UTF-8")
            return []
        self.sha256 = hashlib.sha256(content).hexdigest()
        lines = [
            (number, line.removesuffix("\r")) for number, line in enumerate(text.split("\n"), start=1) if line.strip()
        ]
        return list(self._json_rows(lines) if self._path.suffix == ".jsonl" else self._table_rows(lines))

    def _json_rows(self, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in lines:
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                self._problems.append(f"line {number}: is not JSON ({error}); write one object a line")
                continue
            if isinstance(row, dict):
                yield f"line {number}", row
            else:
                self._problems.append(f"line {number}: is no JSON object; write one with the prompt's fields")

    def _table_rows(self, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
        # GLUE's tables are not quoted: a quotation mark is text.
        if not lines:
            return
        header = lines[0][1].split("\t")
        for number, line in lines[1:]:
            cells = line.split("\t")
            if len(cells) == len(header):
                yield f"line {number}", dict(zip(header, cells, strict=True))
            else:
                self._problems.append(
                    f"line {number}: has {len(cells)} columns and the header {len(header)}; mend the tabs"
                )

    def _names(self, fields: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
        """Return the file's name of each field, and of the label under ``""``; nothing if one is not to be found."""
        data, preset = self._spec.data, PRESETS.get(self._spec.prompt.preset or "")
        wanted: dict[str, tuple[str, ...]] = {}
        for field in fields:
            known = (field, *(preset.file_fields.get(field, ()) if preset is not None else ()))
            if self._is_task_file and len(fields) == 1:
                known = (*known, "input")
            wanted[field] = (data.fields[field],) if field in data.fields else known
        wanted[""] = (data.label,) if data.label is not None else ("output",) if self._is_task_file else _LABEL_NAMES
        names: dict[str, str] = {}
        for field, candidates in wanted.items():
            there = [name for name in candidates if name in keys]
            if there:
                names[field] = there[0]
                continue
            key, example = (f"data.fields.{field}", f"data.fields: {{{field}: ...}}") if field else ("data.label",) * 2
            self._problems.append(
                f"{key}: no row has {' or '.join(candidates)}; name the file's field in {example} "
                f"(its fields: {', '.join(keys)})"
            )
        return names if len(names) == len(wanted) else {}

    def _read_examples(self, rows: Sequence[tuple[str, dict[str, Any]]], names: Mapping[str, str]) -> None:
        mapping = {key.strip(): text for key, text in _mapping(self._spec).items()}
        places: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        """Each problem with the places that have it."""
        for number, (place, row) in enumerate(rows):
            problems: list[str] = []
            identifier = self._identifier(row, number)
            if identifier in places:
                problems.append(f"id: {identifier!r} is that of {places[identifier]} too; make ids unique")
            places.setdefault(identifier, place)
            texts = {field: row.get(name) for field, name in names.items() if field}
            for field, text in texts.items():
                if problem := _text_problem(text):
                    problems.append(f"{names[field]}: {problem}")
            label, problem = _label(row.get(names[""]), mapping)
            if problem:
                problems.append(f"{names['']}: {problem}")
            for problem in problems:
                found.setdefault(problem, []).append(place)
            if not problems:
                fields = {field: str(text).strip() for field, text in texts.items()}
                self.examples.append(Example(identifier, fields, label))
        for problem, where in found.items():
            others = f" (and {len(where) - 1:,} rows more)" if len(where) > 1 else ""
            self._problems.append(f"{where[0]}{others}: {problem}")

    def _identifier(self, row: Mapping[str, Any], number: int) -> str:
        if row.get("id") is not None:
            return str(row["id"])
        counted = next((row[name] for name in _NUMBER_NAMES if row.get(name) is not None), number)
        return f"{self.role}-{counted}"


def _mapping(spec: MajorityBiasSpec) -> Mapping[str, str]:
    """Return label of the files to label of the prompts; empty where the files' labels are shown as they are."""
    if spec.data.labels is not None:
        return spec.data.labels
    return PRESETS[spec.prompt.preset].labels if spec.prompt.preset is not None else {}


def _text_problem(text: object) -> str | None:
    if not isinstance(text, str):
        return f"{text!r} is no text; write a string" if text is not None else "is missing; add it"
    if not text.strip():
        return "is empty; fill it in, or take the row out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "holds half a surrogate pair (\\ud800 to \\udfff), which is no character; take it out"
    return None


def _label(value: object, mapping: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the label of a prompt, or what is wrong with that of the file."""
    if value is None:
        return "", "is missing; add the label"
    if not isinstance(value, str | int):
        return "", f"{_shown(repr(value))} is no label; write text, true, false or a whole number"
    if isinstance(value, str) and (problem := _text_problem(value)):
        return "", problem
    key = label_key(value).strip()
    if not mapping:
        if isinstance(value, str):
            return key, None
        return "", f"the label {key} is no text; say in data.labels what prompts show for it, as in {{{key}: ...}}"
    if key not in mapping:
        known = ", ".join(mapping)
        return "", f"the label {_shown(key)!r} is not in data.labels ({known}); add it there, or mend the row"
    return mapping[key], None


def _shown(text: str) -> str:
    """Return a text as messages quote it."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _split(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    n_test = max(1, round(_TEST_SHARE * len(examples)))
    chosen = set(stream(seed, "split").permutation(len(examples))[:n_test].tolist())
    train = [example for index, example in enumerate(examples) if index not in chosen]
    return train, [example for index, example in enumerate(examples) if index in chosen]


def _without(train: Sequence[Example], test: Sequence[Example]) -> list[Example]:
    """Return the training examples that are no test row, by id and by text."""
    ids = {example.id for example in test}
    texts = {tuple(example.fields.values()) for example in test}
    return [example for example in train if example.id not in ids and tuple(example.fields.values()) not in texts]


def _drawn(examples: Sequence[Example], max_test: int | None, seed: int) -> list[Example]:
    """Return at most ``max_test`` of the examples, in the order of the file."""
    if max_test is None or len(examples) <= max_test:
        return list(examples)
    chosen = stream(seed, "max_test").choice(len(examples), max_test, replace=False)
    return [examples[index] for index in sorted(chosen.tolist())]
