"""Compare the data that a spec names with the published counts, and say where missing data come from."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from biaseval.errors import InputError
from biaseval.label_bias.tasks import select_tasks
from biaseval.prompting.task_files import read_task
from biaseval.qa_bias.files import file_questions
from biaseval.records import Records
from biaseval.spec import (
    POOL_SIZE,
    InstructSpec,
    LabelBiasSpec,
    MajorityBiasSpec,
    QaBiasSpec,
    SearchSpec,
    TableSpec,
    TasksSpec,
)
from biaseval.spec.qa_training import file_of

PUBLISHED: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""The data of the papers by id: ``name``, ``source``, ``licence``, ``counts`` by part, and ``files`` to fetch."""

_MOST_ROWS = 1000
"""The evaluation rows of a task in P1, at most."""

_ORIGIN = "{name} comes from {source}; licence: {licence}"

Counts = Mapping[str, int]
Part = tuple[str, str, str, str, Callable[[], Counts]]
"""Key of the spec, path, id in `PUBLISHED` or another name, the part of its counts, and the count of the data."""


@dataclass(frozen=True)
class CheckedData:
    """What a check found about the data of one key of a spec."""

    key: str
    path: str
    state: Literal["as published", "differs", "no counts", "missing"]
    text: str
    """The counts, or the problem and where the data come from."""


def check_data(spec: object) -> list[CheckedData]:
    """Compare the data of a spec with the published counts, each path once, by the first key that names it."""
    return [_checked(*part) for part in {part[1]: part for part in reversed([*_parts(spec)])}.values()][::-1]


def origins_of_missing(spec: object) -> list[str]:
    """Return where published data of a spec come from whose local path is not there."""
    return [
        f"{key}: {_ORIGIN.format_map(PUBLISHED[name])}"
        for key, path, name, *_ in _parts(spec)
        if name in PUBLISHED and "://" not in path and not Path(path).exists()
    ]


def _checked(key: str, path: str, name: str, part: str, count: Callable[[], Counts]) -> CheckedData:
    entry = PUBLISHED.get(name, {})
    try:
        found = count()
    except InputError as error:
        return CheckedData(
            key, path, "missing", "; ".join([*error.problems, *([_ORIGIN.format_map(entry)] if entry else [])])
        )
    wanted = entry.get("counts", {}).get(part)
    of = f" of {entry['name']}" if entry else ""
    if wanted is None or wanted.keys() != found.keys():
        return CheckedData(key, path, "no counts", f"{_shown(found)}{of}; nobody published counts of these data")
    state: Literal["as published", "differs"] = "as published" if found == wanted else "differs"
    published = f", and {_shown(wanted)} are published" if found != wanted else ""
    return CheckedData(key, path, state, f"{_shown(found)}{of}{published}")


def _parts(spec: object) -> Iterator[Part]:
    spec = spec.spec if isinstance(spec, SearchSpec) else spec
    if isinstance(spec, LabelBiasSpec):
        if (tasks := spec.tasks) is not None:
            suite = tasks.suite if tasks.include is None else None
            yield "tasks.path", tasks.path, str(suite), "all", partial(_tasks, tasks)
        for key, path in spec.files().items():
            if path is not None and not key.endswith(("tasks.splits", ", lm_eval")):
                yield key, path, key.removeprefix("tasks."), "all", partial(_rows, path)
    elif isinstance(spec, MajorityBiasSpec):
        roles = {"train": "train", "test": "test"} if spec.data.test else {"train": "all"}
        for role, part in roles.items():
            path = getattr(spec.data, role)
            yield f"data.{role}", path, str(spec.prompt.preset), part, partial(_rows, path)
    elif isinstance(spec, QaBiasSpec):
        data, training = spec.datasets, spec.train
        own = {"in_distribution": data.in_distribution, "out_of_distribution": data.out_of_distribution}
        sets = [
            (f"datasets.{role}.{name}", name, "all", source) for role, of in own.items() for name, source in of.items()
        ]
        if data.train is not None:
            sets.append(
                (
                    "datasets.train",
                    next((name for name in data.in_distribution if name in PUBLISHED), ""),
                    "train",
                    data.train,
                )
            )
        if training is not None:
            own = {"data": training.data, "validation": training.validation or {}}
            sets += [
                (f"train.{role}.{name}", name, "train" if role == "data" else "all", source)
                for role, of in own.items()
                for name, source in of.items()
            ]
        for key, name, part, source in sets:
            if path := file_of(source):
                fields = source.fields if isinstance(source, TableSpec) else {}
                yield key, path, name, part, partial(_questions, path, fields)
    elif isinstance(spec, InstructSpec):
        yield "data.path", spec.data.path, "oasst", "all", partial(_rows, spec.data.path)


def _tasks(tasks: TasksSpec) -> Counts:
    files = select_tasks(tasks.model_copy(update={"on_bad_task": "skip"})).files
    sizes = [len(read_task(path).instances) - POOL_SIZE for path in files]
    return {"tasks": len(sizes), "evaluation rows": sum(min(size, _MOST_ROWS) for size in sizes)}


def _rows(path: str) -> Counts:
    records = Records(path)
    found = {"rows": sum(1 for _ in records)}
    if records.problems:
        raise InputError.of([f"{path}: {problem}" for problem in records.problems])
    return found


def _questions(path: str, fields: Mapping[str, str]) -> Counts:
    return {"questions": sum(not row.is_impossible for row in file_questions(Records(path), fields))}


def _shown(counts: Counts) -> str:
    return ", ".join(f"{number:,} {noun}" for noun, number in counts.items())
