"""The documents of a task, with the values that the harness's reader gives them."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as paj

from biaseval.errors import InputError
from biaseval.examples.lm_eval.task import BUILDERS, LmEvalTask
from biaseval.records import Records

Doc = dict[str, Any]

_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Words in the names of files by which a folder's splits are told apart, as Hugging Face's library has them."""
_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
_SHOWN_PROBLEMS = 5


def read_docs(task: LmEvalTask, split: str) -> list[Doc]:
    """Return the documents of a split; each has the same fields, of which some may be None.

    Raises:
        InputError: the task has no such split, or a file cannot be read.
    """
    docs: list[Doc] = []
    for builder, path in _files(task, split):
        docs += _csv(path, task.separator) if builder == "csv" else _records(path, is_json=builder == "json")
    if not docs:
        raise InputError(f"{task.path}: the split {split} holds no document; check the files that it names")
    fields = dict.fromkeys(field for doc in docs for field in doc)
    return [{field: doc.get(field) for field in fields} for doc in docs]


def digest(task: LmEvalTask) -> str:
    """Return the SHA-256 of all files that a task is made of, its YAML files and its documents.

    Raises:
        InputError: one cannot be read.
    """
    found = hashlib.sha256()
    splits = dict.fromkeys((task.fewshot_split, task.test_split))
    for path in (*task.files, *(path for split in splits for _, path in _files(task, split))):
        try:
            found.update(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); check {task.path}") from error
    return found.hexdigest()


def _files(task: LmEvalTask, split: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a split, each with the builder that reads it."""
    if task.dataset_path in BUILDERS:
        if split not in task.data_files:
            raise InputError(
                f"{task.path}: dataset_kwargs.data_files: has no split {split} (it has {', '.join(task.data_files)}); "
                "add its file"
            )
        yield from ((task.dataset_path, path) for path in task.data_files[split])
        return
    folder = Path(task.dataset_path)
    there = [path for path in sorted(folder.rglob("*")) if _suffix(path) in _SUFFIXES]
    if not there:
        raise InputError(f"{task.path}: dataset_path: {folder} holds no {', '.join(_SUFFIXES)}; check the path")
    by_split = {
        name: [path for path in there if _words(path.relative_to(folder)) & set(words)]
        for name, words in _KEYWORDS.items()
    }
    if not any(by_split.values()):
        by_split = {"train": there}
    found = by_split.get(split, [])
    if not found:
        known = ", ".join(name for name, paths in by_split.items() if paths)
        raise InputError(f"{task.path}: dataset_path: {folder} has no file of the split {split} (it has {known})")
    yield from ((_SUFFIXES[_suffix(path)], path) for path in found)


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _words(path: Path) -> set[str]:
    """Return the words of the folders and the name of a file."""
    return {word for part in (*path.parent.parts, path.stem) for word in re.split(r"[-._ 0-9]+", part)}


def _csv(path: Path, separator: str | None) -> list[Doc]:
    """Return the rows of a CSV, whose cells are numbers or missing where pandas takes them for that."""
    import pandas as pd  # Ray brings it

    try:
        frame = pd.read_csv(path, sep=separator or ",")
        return _python(pa.Table.from_pandas(frame, preserve_index=False))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _records(path: Path, *, is_json: bool) -> list[Doc]:
    records = Records(str(path), names_classes=False)
    docs = [row for _, row in records]
    if records.problems:
        raise InputError.of([f"{path}: {problem}" for problem in records.problems[:_SHOWN_PROBLEMS]])
    if not is_json:
        return docs
    fields = dict.fromkeys(field for doc in docs for field in doc)
    columns = {field: _typed([doc.get(field) for doc in docs]) for field in fields}
    return [{field: column[number] for field, column in columns.items()} for number in range(len(docs))]


def _typed(values: list[Any]) -> list[Any]:
    """Return the values of a field as Arrow's reader of JSON has them.

    It gives them one type: times to texts that look so, decimals to mixed numbers. Where there is no such type, or
    objects have different keys, the harness takes values as they are.
    """
    lines = "\n".join(json.dumps({"value": value}) for value in values).encode()
    try:
        table = paj.read_json(io.BytesIO(lines), read_options=paj.ReadOptions(block_size=len(lines) + 1))
    except pa.ArrowException:
        return values
    typed = [row["value"] for row in _python(table)]
    return typed if all(map(_has_keys_of, typed, values)) else values


def _has_keys_of(typed: Any, value: Any) -> bool:
    """Return whether all objects in a value have the keys that they have in another."""
    if isinstance(value, dict):
        return typed.keys() == value.keys() and all(_has_keys_of(typed[key], value[key]) for key in value)
    return not isinstance(value, list) or all(map(_has_keys_of, typed, value))


def _python(table: pa.Table) -> list[Doc]:
    return table.to_pylist()  # type: ignore[no-any-return]


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: cannot be read as the harness does ({' '.join(str(error).split())}); mend the file")
