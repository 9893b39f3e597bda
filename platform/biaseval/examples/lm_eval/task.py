"""What the YAML file of a task says, with what it includes; what the harness does and is not done here is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.errors import InputError, did_you_mean
from biaseval.parsing import yaml_1_1_value

BUILDERS = ("csv", "json", "parquet")
"""The values of ``dataset_path`` that stand for files."""

_SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
_TEXTS = ("description", "target_delimiter", "fewshot_delimiter")
_READ = (*_SPLITS, *_TEXTS, "dataset_path", "dataset_kwargs", "doc_to_text", "doc_to_target", "doc_to_choice")
_WITHOUT_EFFECT = (
    *("task", "task_alias", "tag", "dataset_name", "output_type", "fewshot_config", "num_fewshot", "metric_list"),
    *("filter_list", "repeats", "generation_kwargs", "process_results", "metadata", "unsafe_code"),
    *("should_decontaminate", "doc_to_decontamination_query"),
)
"""Change neither prompts nor labels, or are looked at one by one."""
_REFUSED = {
    "process_docs": "is a program over the documents, which is not run; write the processed documents to a file",
    "custom_dataset": "is a program that makes documents, which is not run; write them to a file",
    "use_prompt": "takes a prompt from elsewhere; write it in doc_to_text",
    "gen_prefix": "begins answers, which labels would stand behind; write it at the end of doc_to_text",
    "doc_to_image": "is for models of images; texts alone are measured",
    "doc_to_audio": "is for models of sound; texts alone are measured",
    "class": "is a task written in Python, which is not run; write it as YAML",
    "group": "makes the file a group of tasks; name the files of its tasks, one in an entry of data",
    "task_list": "makes the file a list of tasks; name a file for each, one in an entry of data",
}
_SAMPLERS = ("default", "first_n")


@dataclass(frozen=True)
class LmEvalTask:
    """A task of type ``multiple_choice``."""

    path: Path
    """Of its YAML file."""
    files: tuple[Path, ...]
    """That file and those that it includes."""
    dataset_path: str
    """One of ``BUILDERS``, or a folder."""
    data_files: Mapping[str, tuple[Path, ...]]
    """By split; empty for a folder."""
    separator: str | None
    """Between the columns of a CSV, where the file says it."""
    test_split: str
    """Whose documents are measured."""
    fewshot_split: str
    """Whose documents are demonstrations, by the harness's rule; it may be the same."""
    doc_to_text: str
    doc_to_target: str | int
    doc_to_choice: str | tuple[str, ...]
    description: str
    target_delimiter: str
    fewshot_delimiter: str
    takes_first: bool
    """Whether the harness shows the first documents of the split, and not drawn ones."""


class _Function:
    """What ``!function`` names."""


def read_task(path: Path) -> LmEvalTask:
    """Return the task that a YAML file describes.

    Raises:
        InputError: a file cannot be read, or asks for what is not measured; the message lists all of it.
    """
    files: list[Path] = []
    content = _loaded(path.resolve(), files)
    if problems := list(_problems(content)):
        raise InputError.of([f"{path}: {problem}" for problem in problems])
    fewshot = content.get("fewshot_config") or {}
    test_split = content.get("test_split") or content["validation_split"]
    own = fewshot.get("split") or content.get("fewshot_split")
    dataset_kwargs = content.get("dataset_kwargs") or {}
    choices = content["doc_to_choice"]
    if isinstance(choices, dict):
        choices = list(choices.values())
    return LmEvalTask(
        path=path,
        files=tuple(files),
        dataset_path=content["dataset_path"],
        data_files={split: tuple(map(Path, named)) for split, named in _data_files(dataset_kwargs).items()},
        separator=dataset_kwargs.get("sep", dataset_kwargs.get("delimiter")),
        test_split=test_split,
        fewshot_split=own or content.get("training_split") or content.get("validation_split") or test_split,
        doc_to_text=content["doc_to_text"],
        doc_to_target=content["doc_to_target"],
        doc_to_choice=choices if isinstance(choices, str) else tuple(choices),
        description=content.get("description", ""),
        target_delimiter=content.get("target_delimiter", " "),
        fewshot_delimiter=content.get("fewshot_delimiter", "\n\n"),
        takes_first=fewshot.get("sampler") == "first_n",
    )


def _loaded(path: Path, files: list[Path]) -> dict[str, Any]:
    """Return a file's keys over those of what it includes; paths of data are absolute, from the file that has them.

    Args:
        path: of the file.
        files: those that led here; this one and what it includes are added.

    Raises:
        InputError: a file cannot be read, is no mapping, or is included twice.
    """
    if path in files:
        raise InputError(f"{path}: is included twice; the harness takes each file once: mend the key include")
    files.append(path)
    try:
        # As the harness reads it, but for functions, which are named and not imported.
        content = yaml_1_1_value(path.read_text(encoding="utf-8"), {"!function": lambda loader, node: _Function()})
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}; mend the file") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no mapping; name the YAML file of a task of lm-evaluation-harness")
    included = content.pop("include", [])
    merged: dict[str, Any] = {}
    for name in included if isinstance(included, list) else [included]:
        inner = _loaded((path.parent / str(name)).resolve(), files)
        inner.pop("task_list", None)
        merged.update(inner)
    return merged | _with_absolute_paths(content, path.parent)


def _with_absolute_paths(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    place, kwargs = content.get("dataset_path"), content.get("dataset_kwargs")
    if isinstance(place, str) and place not in BUILDERS and (folder / place).is_dir():
        content["dataset_path"] = str(folder / place)
    if isinstance(kwargs, dict) and kwargs.get("data_files"):
        content["dataset_kwargs"] = kwargs | {"data_files": _absolute(kwargs["data_files"], folder)}
    return content


def _absolute(named: Any, folder: Path) -> Any:
    if isinstance(named, dict):
        return {key: _absolute(value, folder) for key, value in named.items()}
    if isinstance(named, list):
        return [_absolute(value, folder) for value in named]
    return str(folder / named) if isinstance(named, str) and "://" not in named else named


def _data_files(dataset_kwargs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the files of each split; those without a split are ``train``, as the harness has it."""
    named = dataset_kwargs.get("data_files") or {}
    by_split = named if isinstance(named, dict) else {"train": named}
    return {split: files if isinstance(files, list) else [files] for split, files in by_split.items()}


def _problems(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what keeps a task from being measured."""
    programs = [key for key, value in content.items() if _has_function(value)]
    for key in content:
        if key in _REFUSED and content[key] is not None:
            yield f"{key}: {_REFUSED[key]}"
        elif key in programs:
            yield f"{key}: is a !function, a program that is not run; write a Jinja template, or take the key out"
        elif key not in (*_READ, *_WITHOUT_EFFECT, *_REFUSED):
            yield f"{key}: is no key of a task{did_you_mean(str(key), (*_READ, *_WITHOUT_EFFECT))}"
    if isinstance(content.get("task"), list):
        yield "task: is a list, so the file is a group of tasks; name the files of its tasks, one in an entry of data"
        return
    kind = content.get("output_type", "generate_until")
    if kind != "multiple_choice":
        yield (
            f"output_type: {kind} has no set of labels to be biased among; label bias is measured on multiple_choice "
            "alone"
        )
        return
    yield from _dataset_problems(content)
    yield from _fewshot_problems(content.get("fewshot_config"))
    for key in (*_SPLITS, *_TEXTS):
        if not isinstance(content.get(key, ""), str | None):
            yield f"{key}: {content[key]!r} is no text; write a text"
    if not content.get("test_split") and not content.get("validation_split"):
        yield "test_split: is missing, and validation_split too; name the split whose documents are measured"
    for key, kinds, what in (
        ("doc_to_text", str, "a template or the name of a field"),
        ("doc_to_target", str | int, "a template, the name of a field or a place among the choices"),
        ("doc_to_choice", str | list | dict, "a list of texts, a template or the name of a field"),
    ):
        if key not in programs and (not isinstance(content.get(key), kinds) or isinstance(content[key], bool)):
            yield f"{key}: is {'missing' if content.get(key) is None else repr(content[key])}; write {what}"
    choices = content.get("doc_to_choice")
    if isinstance(choices, list | dict) and "doc_to_choice" not in programs:
        texts = list(choices.values() if isinstance(choices, dict) else choices)
        if other := [text for text in texts if not isinstance(text, str)]:
            yield f"doc_to_choice: {other[0]!r} is no text; quote it"


def _dataset_problems(content: Mapping[str, Any]) -> Iterator[str]:
    place, kwargs = content.get("dataset_path"), content.get("dataset_kwargs") or {}
    if not isinstance(place, str) or (place not in BUILDERS and not Path(place).is_dir()):
        yield (
            f"dataset_path: {place!r} is neither {', '.join(BUILDERS)} nor a folder beside the file; data sets of the "
            "hub are not fetched: write their splits to files, and name those in dataset_kwargs.data_files"
        )
        return
    if not isinstance(kwargs, dict):
        yield f"dataset_kwargs: {kwargs!r} is no mapping; write data_files in it"
        return
    known = {"data_files", "trust_remote_code", *(("sep", "delimiter") if place == "csv" else ())}
    for key in kwargs:
        if key not in known:
            yield f"dataset_kwargs.{key}: is not read; of dataset_kwargs there is {', '.join(sorted(known))}"
    if place not in BUILDERS and content.get("dataset_name"):
        yield "dataset_name: chooses a part of a folder, which is not read; name files in dataset_kwargs.data_files"
    files = [file for named in _data_files(kwargs).values() for file in named]
    if not all(isinstance(file, str) for file in files):
        yield "dataset_kwargs.data_files: is no mapping of splits to files; write {test: FILE}"
    elif place in BUILDERS and not files:
        yield f"dataset_kwargs.data_files: is missing; name the {place} file of each split"
    elif place not in BUILDERS and files:
        yield "dataset_kwargs.data_files: of a folder is not read; write dataset_path: json, csv or parquet beside it"
    elif remote := [file for file in files if "://" in file]:
        yield f"dataset_kwargs.data_files: {remote[0]} is no local file; fetch it"


def _fewshot_problems(config: Any) -> Iterator[str]:
    if config is None:
        return
    if not isinstance(config, dict):
        yield f"fewshot_config: {config!r} is no mapping; write split in it, or take it out"
        return
    for key, value in config.items():
        if key == "samples":
            yield "fewshot_config.samples: demonstrations are drawn, and these would be all; write them to a split"
        elif key == "sampler":
            if value not in _SAMPLERS:
                yield f"fewshot_config.sampler: {value!r} is unknown; use {' or '.join(_SAMPLERS)}"
        elif key != "split" and value is not None:
            yield f"fewshot_config.{key}: demonstrations are written as the test item is; take the key out"


def _has_function(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_function, value.values() if isinstance(value, dict) else value))
    return isinstance(value, _Function)
