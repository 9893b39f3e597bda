"""Super-NaturalInstructions task files: reading, validating, and choosing those of a run."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import InputError
from biaseval.label_bias import suites
from biaseval.spec import MIN_INSTANCES, POOL_SIZE, TasksSpec

_SHOWN_PROBLEMS = 5


@dataclass(frozen=True)
class Instance:
    """One example of a task."""

    id: str
    input: str
    outputs: tuple[str, ...]

    @property
    def label(self) -> str:
        """The first output, which is the gold label."""
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
    """Of the file's bytes."""

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


@dataclass(frozen=True)
class TaskSelection:
    """Which files of a folder make up a run."""

    files: tuple[Path, ...]
    """In suite order: by the number in the name, then by name."""
    left_out: dict[str, str]
    """Task name to the reason why it takes no part."""


def task_number(name: str) -> int | None:
    """Return the number in a task's name, or None."""
    match = re.match(r"task(\d+)", name)
    return int(match.group(1)) if match else None


def read_task(path: Path) -> Task:
    """Return the task in the JSON file ``path``.

    Raises:
        InputError: the file is not a usable task file; the message lists what is wrong with it.
    """
    task, problems = parse_task(path)
    if task is None:
        raise InputError.of([f"{path}: {problem}" for problem in problems])
    return task


def parse_task(path: Path) -> tuple[Task | None, list[str]]:
    """Return the task in ``path``, or None and all that is wrong with the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return None, [f"cannot be read ({error.strerror}); check the path"]
    try:
        content = json.loads(data.decode("utf-8"))
        if b"\\ud" in data.lower():
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, ["holds half a surrogate pair (\\ud800 to \\udfff), which is no character; take it out"]
    except UnicodeDecodeError as error:
        return None, [f"is not UTF-8 (byte {error.start}: {error.reason}); save it as UTF-8"]
    except json.JSONDecodeError as error:
        return None, [f"is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg}); mend the file"]
    except RecursionError:
        return None, ["is not valid JSON (nested too deeply); mend the file"]
    problems = list(_problems(content))
    if problems:
        return None, problems
    instances = tuple(
        Instance(id=row["id"], input=row["input"], outputs=tuple(row["output"])) for row in content["Instances"]
    )
    task = Task(
        name=path.stem,
        definition=content["Definition"][0],
        categories=tuple(content.get("Categories", ())),
        sources=tuple(content.get("Source", ())),
        instances=instances,
        sha256=hashlib.sha256(data).hexdigest(),
    )
    return task, []


def why_unsuitable(task: Task, *, min_instances: int) -> str | None:
    """Return why step 4 of P1's rule leaves the task out (labels, outputs, instances), or None."""
    if task.n_labels > suites.MAX_LABELS:
        return f"has {task.n_labels} distinct labels; at most {suites.MAX_LABELS} are allowed"
    if task.mean_outputs >= suites.MAX_MEAN_OUTPUTS:
        return f"has {task.mean_outputs:.2f} outputs per instance on average; fewer than 2 are allowed"
    return _why_too_small(task, min_instances)


def one_label_problem(task: Task) -> str | None:
    """Return what is wrong with a task whose instances all have the same label, or None."""
    if task.n_labels > 1:
        return None
    return f"Instances: every instance has the label {task.instances[0].label!r}; a classification task needs two"


def select_tasks(spec: TasksSpec) -> TaskSelection:
    """Return the task files of the run, in suite order.

    Every file that may take part is read and validated, so that nothing bad is met later.

    Raises:
        InputError: a file is bad, a named task is missing, or nothing is left; the message lists all of it.
            With ``on_bad_task: skip`` bad and missing tasks are left out instead, each with its reason.
    """
    files = task_files(Path(spec.path))
    chosen, missing = _chosen_files(spec, files)
    problems: dict[str, str] = {}
    left_out: dict[str, str] = {}
    kept: list[Path] = []
    explicit = {pattern.removesuffix(".json") for pattern in spec.include or () if not _has_wildcard(pattern)}
    for path in chosen:
        task, found = parse_task(path)
        if task is None:
            problems[path.stem] = "; ".join(found)
            continue
        is_explicit = path.stem in explicit
        if is_explicit:
            reason = _why_too_small(task, spec.min_instances)
        else:
            # A smaller minimum is for tasks that are named; nobody gets small tasks by the way.
            reason = why_unsuitable(task, min_instances=max(spec.min_instances, MIN_INSTANCES))
        if reason and not is_explicit:
            left_out[path.stem] = reason
        elif reason or (reason := one_label_problem(task)):
            problems[path.stem] = reason
        else:
            kept.append(path)
    if (problems or missing) and spec.on_bad_task == "error":
        bad = [f"{_place(spec, name)}: {problem}" for name, problem in sorted(problems.items())]
        raise InputError.of([*_missing_problems(spec, missing), *bad])
    left_out.update(dict.fromkeys(missing, "is not in the folder"), **problems)
    if not kept:
        reasons = [f"{name}: {reason}" for name, reason in sorted(left_out.items())[:_SHOWN_PROBLEMS]]
        raise InputError.of(
            [f"{spec.path}: no task is left to run; check tasks.path, tasks.suite and tasks.include", *reasons]
        )
    return TaskSelection(files=tuple(kept), left_out=left_out)


@dataclass(frozen=True)
class CheckedTasks:
    """What a folder of task files holds."""

    usable: list[str]
    left_out: dict[str, str]
    """Task name to the reason why a run over the folder leaves it out."""
    bad: dict[str, list[str]]
    """Task name to all that is wrong with the file."""


def check_tasks(path: Path, *, min_instances: int) -> CheckedTasks:
    """Read every task file of a folder and say what a run could do with it.

    Raises:
        InputError: the path does not exist, or holds no task file.
    """
    checked = CheckedTasks(usable=[], left_out={}, bad={})
    for file in task_files(path):
        task, problems = parse_task(file)
        if task is None:
            checked.bad[file.stem] = problems
        elif reason := why_unsuitable(task, min_instances=min_instances):
            checked.left_out[file.stem] = reason
        elif problem := one_label_problem(task):
            checked.bad[file.stem] = [problem]
        else:
            checked.usable.append(file.stem)
    return checked


def task_files(path: Path) -> list[Path]:
    """Return the JSON files of a folder (or the one file given) in suite order.

    Raises:
        InputError: the path does not exist, or holds no task file.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such folder of task files; check the path")
    files = sorted(path.glob("*.json"), key=_suite_order)
    if not files:
        raise InputError(f"{path}: holds no *.json task file; check the path")
    return files


def _chosen_files(spec: TasksSpec, files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the files that the suite and the globs ask for, and the names that they ask for in vain."""
    chosen = list(files)
    missing: list[str] = []
    if spec.suite == "selection":
        names = set(suites.select_by_table(suites.read_task_table(Path(spec.table or ""))))
        chosen = [path for path in chosen if path.stem in names]
    elif spec.suite is not None:
        numbers = suites.REIF2024 if spec.suite == "reif2024" else suites.SEMANTICALLY_EQUIVALENT
        by_number = {task_number(path.stem): path for path in chosen}
        chosen = [by_number[number] for number in numbers if number in by_number]
        if spec.include is None:
            missing = [f"task{number:03d}" for number in numbers if number not in by_number]
        chosen.sort(key=_suite_order)
    if spec.include is not None:
        patterns = [pattern.removesuffix(".json") for pattern in spec.include]
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(path.stem, pattern) for path in chosen):
                missing.append(pattern)
        chosen = [path for path in chosen if any(fnmatch.fnmatchcase(path.stem, pattern) for pattern in patterns)]
    return chosen, missing


def _missing_problems(spec: TasksSpec, missing: Sequence[str]) -> list[str]:
    if not missing:
        return []
    if spec.include is None:
        return [
            f"tasks.suite: {len(missing)} tasks of {spec.suite} are not in {spec.path} (first: {missing[0]}); "
            "add their files, or set tasks.on_bad_task: skip"
        ]
    return [f"tasks.include: {pattern!r} matches no task in {spec.path}; mend or remove it" for pattern in missing]


def _why_too_small(task: Task, min_instances: int) -> str | None:
    if len(task.instances) < min_instances:
        return (
            f"has {len(task.instances)} instances and {min_instances} are asked for; "
            f"name the task in tasks.include and lower min_instances (more than {POOL_SIZE} are needed)"
        )
    return None


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
    yield from found[:_SHOWN_PROBLEMS]
    if len(found) > _SHOWN_PROBLEMS:
        yield f"Instances: {len(found) - _SHOWN_PROBLEMS} more problems like these"


def _is_list_of_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _has_wildcard(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def _suite_order(path: Path) -> tuple[float, str]:
    number = task_number(path.stem)
    return (float("inf") if number is None else number, path.stem)


def _place(spec: TasksSpec, name: str) -> str:
    folder = Path(spec.path)
    return str(folder) if folder.is_file() else str(folder / f"{name}.json")
