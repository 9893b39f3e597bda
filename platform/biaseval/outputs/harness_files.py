"""The files of lm-evaluation-harness: samples of a task, and the results files that say how they were made."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import InputError, Problems, refuse
from biaseval.outputs.scored import Setting
from biaseval.parsing import ParseError, json_value

_SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[0-9.+-]+)\.jsonl")
_RESULTS = "results_{date}.json"
_LOGGED = "lm_eval --log_samples --output_path DIR"

_ALIKE = {
    "model_name": "the model",
    "model_sha": "the model's commit",
    "model_dtype": "the model's dtype",
    "peft": "the adapter",
    "chat_template_sha": "the chat template",
    "system_instruction_sha": "the system instruction",
}
"""Keys of the results that must agree in all files of a run, with their meaning."""

_REFUSED = {
    "generate_until": "it has the model write text, which gives labels no scores",
    "loglikelihood": "it scores one continuation of a doc, so there are no labels to prefer",
    "loglikelihood_rolling": "it measures perplexity, so there are no labels to prefer",
}
"""Types of output without scores of labels, with the reason."""


@dataclass(frozen=True)
class TaskFile:
    """The samples of a task in one evaluation."""

    path: Path
    task: str
    results_path: Path
    results: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        """The task's configuration."""
        config: Mapping[str, Any] = self.results["configs"][self.task]
        return config

    @property
    def n_shot(self) -> int:
        """The number of examples in each prompt."""
        return int(self.results["n-shot"][self.task])

    @property
    def seed(self) -> int:
        """The seed of the generator that draws these examples; none if no generator draws them."""
        return int(self.results["config"].get("fewshot_seed") or 0) if self.n_shot else 0

    def alike(self) -> dict[str, object]:
        """Return the values that must agree in all files of a run."""
        arguments = self.results["config"].get("model_args")
        said = {**self.results, **self.results["config"], **(arguments if isinstance(arguments, dict) else {})}
        return {key: said.get(key) or None for key in _ALIKE}


def task_files(paths: Sequence[Path]) -> list[TaskFile]:
    """Return the task of each samples file, from the results file in the same folder.

    Raises:
        InputError: a file name is not that of samples, results are missing or not the harness's, a task has no labels,
            or models differ; the message lists the mistakes.
    """
    problems = Problems()
    files: list[TaskFile] = []
    known: dict[Path, Mapping[str, Any]] = {}
    for path in paths:
        with problems.noted():
            files.append(_task_file(path, known))
    problems.refuse()
    problems.found += _unlike(files)
    problems.refuse()
    return files


def settings_of(files: Sequence[TaskFile]) -> list[Setting]:
    """Return the setting of each file: the number of examples, and the index of its seed among the task's seeds.

    Raises:
        InputError: two files have the same task and setting.
    """
    seeds: dict[tuple[str, int], set[int]] = {}
    for file in files:
        seeds.setdefault((file.task, file.n_shot), set()).add(file.seed)
    settings = [(file.n_shot, sorted(seeds[file.task, file.n_shot]).index(file.seed)) for file in files]
    seen: dict[tuple[str, Setting], Path] = {}
    problems = []
    for file, setting in zip(files, settings, strict=True):
        if (file.task, setting) in seen:
            problems.append(
                f"{file.path} and {seen[file.task, setting]}: both are {file.task} with n-shot {file.n_shot} and "
                "the same few-shot seed; name one of them"
            )
        seen.setdefault((file.task, setting), file.path)
    refuse(problems)
    return settings


def _task_file(path: Path, known: dict[Path, Mapping[str, Any]]) -> TaskFile:
    named = _SAMPLES.fullmatch(path.name)
    if named is None:
        raise InputError(f"{path}: is not called samples_TASK_DATE.jsonl; name files that {_LOGGED} wrote")
    if not path.is_file():
        raise InputError(f"{path}: is no file; check the path")
    results_path = path.with_name(_RESULTS.format(date=named["date"]))
    if not results_path.is_file():
        # If --output_path ends in .json, the stem of that file is the name.
        others = sorted(path.parent.glob(f"*_{named['date']}.json"))
        if len(others) != 1:
            raise InputError(
                f"{path}: {results_path.name} is not beside it, which says the model and the number of few-shot "
                f"examples; put it there, as {_LOGGED} does"
            )
        [results_path] = others
    if results_path not in known:
        known[results_path] = _results(results_path)
    file = TaskFile(path, named["task"], results_path, known[results_path])
    for key, expected in (("configs", dict), ("n-shot", int)):
        if not isinstance(file.results[key].get(file.task), expected):
            raise InputError(f"{results_path}: {key} has no {file.task}, which {path.name} is of; name its own results")
    kind = file.config.get("output_type")
    if kind != "multiple_choice":
        why = _REFUSED.get(str(kind), "only multiple_choice gives every label a score")
        raise InputError(f"{path}: {file.task} is a task of the type {kind}: {why}; leave the file out")
    return file


def _results(path: Path) -> Mapping[str, Any]:
    try:
        results = json_value(path.read_bytes())
    except (OSError, ParseError) as error:
        raise InputError(f"{path}: {error}; copy it again") from error
    there: Mapping[str, Any] = results if isinstance(results, dict) else {}
    kinds = {"configs": dict, "n-shot": dict, "config": dict, "model_name": str}
    if lacking := [key for key, kind in kinds.items() if not isinstance(there.get(key), kind)]:
        raise InputError(f"{path}: has no {', '.join(lacking)}, which lm_eval 0.4.13 writes; log the samples again")
    return there


def _unlike(files: Sequence[TaskFile]) -> list[str]:
    """Return the differences from the first file in values that must agree in a run."""
    problems = []
    first = files[0].alike()
    for file in files[1:]:
        for key, value in file.alike().items():
            if value != first[key]:
                problems.append(
                    f"{file.path} and {files[0].path}: {_ALIKE[key]} is {value!r} and {first[key]!r}; "
                    "import each as a run of its own, then biaseval compare"
                )
                break
    return problems
