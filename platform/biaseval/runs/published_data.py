"""Compare the data that a spec names with the published counts, and say where missing data come from."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import filter as matching
from pathlib import Path
from typing import Any, Literal

from biaseval.errors import InputError, first_of, refuse
from biaseval.label_bias.tasks import select_tasks
from biaseval.prompting.task_files import read_task
from biaseval.qa_bias.files import file_questions
from biaseval.records import Records
from biaseval.spec import POOL_SIZE
from biaseval.spec.files import flatten

PUBLISHED: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""The data of the papers by id: name, source, licence, parts with counts, and files to fetch."""


@dataclass(frozen=True)
class CheckedData:
    """The result about the data of one key of a spec."""

    key: str
    state: Literal["as published", "differs", "no counts", "missing"]
    text: str
    """The counts, or the problem and the source of the data."""


def check_data(spec: Any) -> list[CheckedData]:
    """Compare the data of a spec with the published counts, each path once, by the first part that fits."""
    spec = getattr(spec, "spec", spec)  # of a search
    flat = {key: str(value or "") for key, value in flatten(spec.model_dump(mode="json"), spec.PATHS).items()}
    keys = {key.removesuffix(".file"): key for key in flat if not re.search(r"\.(fields|planted)\.", key)}
    found: dict[str, CheckedData] = {}
    for data, part in [(own, part) for own in PUBLISHED.values() for part in own["parts"]]:
        when = part.get("when", {}).items()
        fits = all(matching([flat.get(keys.get(key, ""), "")], glob) for key, glob in when)
        for key in (key for glob in part["keys"] * fits for key in matching(keys, glob)):
            if (path := flat[keys[key]]) and path not in found:
                found[path] = _checked(spec, flat, key, path, data, part["counts"])
    return list(found.values())


def _checked(
    spec: Any, flat: Mapping[str, str], key: str, path: str, data: Mapping[str, str], wanted: Mapping[str, int]
) -> CheckedData:
    records = Records(path)
    try:
        if "tasks" in wanted:
            files = select_tasks(spec.tasks.model_copy(update={"on_bad_task": "skip"})).files
            sizes = [len(read_task(file).instances) - POOL_SIZE for file in files]
            found = {"tasks": len(sizes), "evaluation rows": sum(min(size, 1000) for size in sizes)}  # P1's most
        elif "questions" in wanted:
            fields = {name.rpartition(".")[2]: own for name, own in flat.items() if name.startswith(f"{key}.fields.")}
            found = {"questions": sum(not row.is_impossible for row in file_questions(records, fields))}
        else:
            found = {"rows": sum(1 for _ in records)}
        refuse(first_of(records.problems, f"{path}: ", "lines", most=11))
    except InputError as error:
        origin = "; {name} comes from {source}; licence: {licence}".format_map(data) if "source" in data else ""
        return CheckedData(key, "missing", f"{'; '.join(error.problems)}{origin}")
    shown, published = (", ".join(f"{n:,} {noun}" for noun, n in own.items()) for own in (found, wanted))
    if not any(wanted.values()):
        return CheckedData(key, "no counts", f"{shown} of {data['name']}; no counts are published")
    if found == wanted:
        return CheckedData(key, "as published", f"{shown} of {data['name']}")
    return CheckedData(key, "differs", f"{shown} of {data['name']}; published are {published}")
