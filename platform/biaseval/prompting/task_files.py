"""Read Super-NaturalInstructions task files, and list all mistakes in one."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import InputError, first_of
from biaseval.parsing import ParseError, json_value


@dataclass(frozen=True)
class Instance:
    """One example of a task."""

    id: str
    input: str
    """The input as people read it."""
    outputs: tuple[str, ...]
    fields: Mapping[str, str] | None = None
    """Prompt field to its text, if examples have several fields."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Prompt field to its text; task files have the field ``input``."""
        return {"input": self.input} if self.fields is None else self.fields

    @property
    def label(self) -> str:
        """The gold label, which is the first output."""
        return self.outputs[0]


@dataclass(frozen=True)
class Task:
    """A task file."""

    name: str
    """The file's name without ``.json``."""
    definition: str
    categories: tuple[str, ...]
    sources: tuple[str, ...]
    instances: tuple[Instance, ...]
    sha256: str
    """The hash of the file's bytes."""

    @property
    def number(self) -> int | None:
        """The number in the name (``task073_…`` is 73); None where the name has none."""
        return task_number(self.name)

    @property
    def run_key(self) -> str:
        """The name by which P1's code keys results and templates."""
        category = self.categories[0].lower().replace(" ", "_") if self.categories else ""
        return "_".join([self.name.split("_")[0], *(source.lower() for source in self.sources), category])

    @property
    def n_labels(self) -> int:
        """Distinct first outputs over all instances."""
        return len({instance.label for instance in self.instances})

    @property
    def mean_outputs(self) -> float:
        """Mean number of outputs per instance."""
        return sum(len(instance.outputs) for instance in self.instances) / len(self.instances)


def task_number(name: str) -> int | None:
    """Return the number in a task's name, or None."""
    match = re.match(r"task(\d+)", name)
    return int(match.group(1)) if match else None


def read_task(path: Path) -> Task:
    """Return the task in the JSON file ``path``; Raises InputError: it is not usable, with a list of its mistakes."""
    task, problems = parse_task(path)
    if task is None:
        raise InputError.of([f"{path}: {problem}" for problem in problems])
    return task


def parse_task(path: Path) -> tuple[Task | None, list[str]]:
    """Return the task in ``path``, or None and all mistakes of the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return None, [f"cannot be read ({error.strerror}); check the path"]
    try:
        content = json_value(data)
        if b"\\ud" in data.lower():
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, ["holds half a surrogate pair (\\ud800 to \\udfff), which is no character; take it out"]
    except ParseError as error:
        return None, [f"{error}; mend the file"]
    if problems := list(_problems(content)):
        return None, problems
    task = Task(
        name=path.stem,
        definition=content["Definition"][0],
        categories=tuple(content.get("Categories", ())),
        sources=tuple(content.get("Source", ())),
        instances=tuple(Instance(row["id"], row["input"], tuple(row["output"])) for row in content["Instances"]),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    return task, []


def _problems(content: Any) -> Iterator[str]:
    if not isinstance(content, dict):
        yield "is not a JSON object; a task file has the keys Definition and Instances"
        return
    definition = content.get("Definition")
    if definition is None:
        yield "Definition: is missing; add a list with the task's definition"
    elif not _is_list_of_strings(definition) or not definition:
        yield "Definition: must be a list of strings; write it as in the original task files"
    elif not definition[0].strip():
        yield "Definition: is empty; write what the task asks for"
    for key in ("Categories", "Source"):
        if not _is_list_of_strings(content.get(key, [])):
            yield f"{key}: must be a list of strings"
    instances = content.get("Instances")
    if instances is None:
        yield "Instances: is missing; add the list of examples"
    elif not isinstance(instances, list) or not instances:
        yield "Instances: must be a list with at least one example"
    else:
        yield from _instance_problems(instances)


def _instance_problems(instances: list[Any]) -> Iterator[str]:
    found: list[str] = []
    seen: dict[str, int] = {}
    for index, row in enumerate(instances):
        place = f"Instances[{index}]"
        if not isinstance(row, dict):
            found.append(f"{place}: is not an object with id, input and output")
            continue
        identifier, text, outputs = row.get("id"), row.get("input"), row.get("output")
        if not isinstance(identifier, str) or not identifier:
            found.append(f"{place}: id is missing or not a string; give each instance its own id")
        elif identifier in seen:
            found.append(f"{place}: id {identifier!r} is that of Instances[{seen[identifier]}] too; make ids unique")
        else:
            seen[identifier] = index
        if not isinstance(text, str):
            found.append(f"{place}: input is missing or not a string")
        if not isinstance(outputs, list) or not outputs:
            found.append(f"{place}: has no output; give it a list of at least one label")
        elif not all(isinstance(output, str) for output in outputs):
            found.append(f"{place}: output {outputs!r} holds a label that is not a string; quote it")
        elif not outputs[0].strip():
            found.append(f"{place}: the first output is an empty label; give it a word")
    yield from first_of(found, what="problems of Instances", most=5)


def _is_list_of_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
