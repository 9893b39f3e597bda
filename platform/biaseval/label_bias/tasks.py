"""Select the Super-NaturalInstructions task files of a run."""

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from biaseval.cache import is_remote, local_copy
from biaseval.errors import InputError
from biaseval.label_bias import suites
from biaseval.prompting.task_files import Task, parse_task, task_number
from biaseval.spec import MIN_INSTANCES, POOL_SIZE, TasksSpec

_SHOWN_PROBLEMS = 5


@dataclass(frozen=True)
class TaskSelection:
    """The files of a folder that a run uses."""

    files: tuple[Path, ...]
    """The files in suite order: by the number in the name, then by name."""
    left_out: dict[str, str]
    """Task name to the reason why the run excludes the task."""


def _why_unsuitable(task: Task, fewest: int, *, is_named: bool) -> str | None:
    """Return the reason why step 4 of P1's rule excludes the task, or None; of a named task only instances count."""
    if task.n_labels > suites.MAX_LABELS and not is_named:
        return f"has {task.n_labels} distinct labels; at most {suites.MAX_LABELS} are allowed"
    if task.mean_outputs >= suites.MAX_MEAN_OUTPUTS and not is_named:
        return f"has {task.mean_outputs:.2f} outputs per instance on average; fewer than 2 are allowed"
    if len(task.instances) < fewest:
        return (
            f"has {len(task.instances)} instances and {fewest} are asked for; "
            f"name the task in tasks.include and lower min_instances (more than {POOL_SIZE} are needed)"
        )
    return None


def select_tasks(spec: TasksSpec) -> TaskSelection:
    """Return the task files of the run, in suite order.

    The function reads and validates every candidate file, so that no bad file turns up later.

    Raises:
        InputError: a file is bad, a named task is missing, or no task remains; the message lists all problems. With
            ``on_bad_task: skip``, bad and missing tasks are excluded instead, each with its reason.
    """
    files = task_files(tasks_folder(spec))
    chosen, missing = _chosen_files(spec, files)
    explicit = {pattern.removesuffix(".json") for pattern in spec.include or () if not set(pattern) & set("*?[")}
    # A smaller minimum applies only to tasks that the spec names, so that it admits no other small tasks.
    checked = _checked(chosen, max(spec.min_instances, MIN_INSTANCES), explicit, spec.min_instances)
    problems, left_out = {name: "; ".join(found) for name, found in checked.bad.items()}, checked.left_out
    if (problems or missing) and spec.on_bad_task == "error":
        bad = [f"{_place(spec, name)}: {problem}" for name, problem in sorted(problems.items())]
        raise InputError.of([*_missing_problems(spec, missing), *bad])
    left_out.update(dict.fromkeys(missing, "is not in the folder"), **problems)
    if not checked.usable:
        reasons = [f"{name}: {reason}" for name, reason in sorted(left_out.items())[:_SHOWN_PROBLEMS]]
        raise InputError.of(
            [f"{spec.path}: no task is left to run; check tasks.path, tasks.suite and tasks.include", *reasons]
        )
    return TaskSelection(tuple(path for path in chosen if path.stem in checked.usable), left_out)


@dataclass(frozen=True)
class CheckedTasks:
    """The content of a folder of task files."""

    usable: list[str]
    left_out: dict[str, str]
    """Task name to the reason why a run over the folder excludes the task."""
    bad: dict[str, list[str]]
    """Task name to all problems of the file."""


def check_tasks(path: Path, *, min_instances: int) -> CheckedTasks:
    """Read every task file of a folder and return what a run could use.

    Raises:
        InputError: the path does not exist, or holds no task file.
    """
    return _checked(task_files(path), min_instances)


def _checked(files: Iterable[Path], fewest: int, named: Collection[str] = (), fewest_named: int = 0) -> CheckedTasks:
    """Return what a run can use of files, at least with so many instances.

    Of tasks that a spec names only the instances count, and one with too few is bad, not left out.
    """
    checked = CheckedTasks(usable=[], left_out={}, bad={})
    for file in files:
        task, problems = parse_task(file)
        is_named = file.stem in named
        if task is None:
            checked.bad[file.stem] = problems
            continue
        reason = _why_unsuitable(task, fewest_named if is_named else fewest, is_named=is_named)
        if reason and not is_named:
            checked.left_out[file.stem] = reason
        elif reason or task.n_labels < 2:
            same = task.instances[0].label
            alike = f"Instances: every instance has the label {same!r}; a classification task needs two"
            checked.bad[file.stem] = [reason or alike]
        else:
            checked.usable.append(file.stem)
    return checked


def task_files(path: Path) -> list[Path]:
    """Return the JSON files of a folder (or the one given file) in suite order.

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
    """Return the files that the suite and the globs select, and the names and globs without a file."""
    chosen = list(files)
    missing: list[str] = []
    if spec.suite == "selection":
        names = set(suites.select_by_table(suites.read_task_table(spec.table or "")))
        chosen = [path for path in chosen if path.stem in names]
    elif spec.suite is not None:
        numbers = [f"task{number:03d}" for number in suites.REIF2024]
        members = numbers if spec.suite == "reif2024" else sorted(suites.SEMANTICALLY_EQUIVALENT)
        there = {name: path for path in chosen for name in (f"task{task_number(path.stem) or 0:03d}", path.stem)}
        chosen = [there[name] for name in members if name in there]
        if spec.include is None:
            missing = [name for name in members if name not in there]
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


def tasks_folder(spec: TasksSpec) -> Path:
    """Return the folder or file of tasks, or a local copy of a remote one; Raises InputError: the copy fails."""
    return local_copy(spec.path) if is_remote(spec.path) else Path(spec.path)


def _suite_order(path: Path) -> tuple[float, str]:
    number = task_number(path.stem)
    return (float("inf") if number is None else number, path.stem)


def _place(spec: TasksSpec, name: str) -> str:
    folder = tasks_folder(spec)
    return str(folder) if folder.is_file() else str(folder / f"{name}.json")
