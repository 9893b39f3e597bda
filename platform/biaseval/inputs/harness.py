"""Tasks of lm-evaluation-harness: the harness makes their documents and prompts, without a network."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any

from biaseval.errors import InputError
from biaseval.inputs.files import Example
from biaseval.parsing import json_value

Doc = dict[str, Any]
Place = tuple[str | int, ...]
"""The place of a value inside a document."""

_BUILDERS = ("csv", "json", "parquet", "text", "arrow")
"""Values of ``dataset_path`` that mean files, even if a folder has the same name."""
_UNUSED = ("metric_list", "filter_list", "process_results", "generation_kwargs", "num_fewshot")
"""Keys of a task that change neither prompts nor labels; metrics might need a download."""
_WHITE = (" ", "\n", "\t")
_PROBED = 100
"""Documents that biaseval renders without each field in turn, to find the fields of prompts."""


@dataclass(frozen=True)
class LmEvalFormat:
    """Prompts as the harness writes them."""

    task: Any
    head: str
    """The task's description."""
    delimiter: str
    """The text between an item and a label."""
    places: Mapping[Place, bool]
    """Places of the values that prompts use and all documents have, each with whether fields hold a text or JSON."""
    docs: dict[tuple[str, ...], Doc]
    """Documents by their fields; fields that belong to no document are filled into the first document."""

    @property
    def instruction(self) -> str | None:
        """The task's description, without its separator."""
        return self.head.strip() or None

    def fields(self, doc: Doc) -> dict[str, str]:
        """Return a document's values by the names of their places: ``choices.text.0``."""
        own = dict(_leaves(doc))
        return {
            _name(place): own[place] if is_text else json.dumps(own[place], ensure_ascii=False, default=str)
            for place, is_text in self.places.items()
        }

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return a document with its label as the right choice, followed by the delimiter of demonstrations."""
        return _turn(self.task, self._doc(fields), self.task.fewshot_cfg, is_answered=True)

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer, without the one space that scoring writes before a label.

        Raises:
            InputError: the task fails on these fields of a calibration input, which belong to no document.
        """
        try:
            text = _turn(self.task, self._doc(fields), self.task.config)
        except InputError as error:
            raise InputError(f"{error}, which inputs of a calibration fill; or take it out of calibration") from error
        return text if self.delimiter == " " and not text.endswith(_WHITE) else text + self.delimiter

    def _doc(self, fields: Mapping[str, str]) -> Doc:
        if known := self.docs.get(tuple(fields.values())):
            return known
        values = {place: _loaded(fields[_name(place)], is_text) for place, is_text in self.places.items()}
        filled: Doc = _filled(next(iter(self.docs.values())), (), values)
        return filled


@dataclass(frozen=True)
class LmEvalData:
    """The contents of a task that a run measures."""

    train: list[Example]
    """Examples of the split for demonstrations; empty if it is also the measured split."""
    test: list[Example]
    choices: tuple[str, ...]
    """The labels, in the order of the task."""
    form: LmEvalFormat
    fewshot_split: str
    test_split: str
    note: str
    """A note on the choice of demonstrations if the harness prescribes them; else empty."""
    sha256: str
    """The hash that `lm_eval_digest` returns."""


def read_lm_eval(uri: str) -> LmEvalData:
    """Return the task of a YAML file; this imports and calls the Python functions that the file names.

    Raises:
        InputError: biaseval cannot measure the task as the harness does, or its data are missing; the message says why.
    """
    with _harness(uri) as load:
        made_of = _made_of(Path(uri))
        return _read(load(made_of.config), made_of)


def lm_eval_digest(uri: str) -> str:
    """Return the SHA-256 of a task's YAML files, of its data and of the modules of its functions.

    Raises:
        InputError: a file cannot be read.
    """
    with _harness(uri):
        return _made_of(Path(uri)).sha256


@contextmanager
def _harness(uri: str) -> Iterator[Callable[[Doc], Any]]:
    """Let the harness make tasks from local data only; its failures become `InputError`."""
    import datasets
    from huggingface_hub import constants
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import env

    if "from_string" not in vars(env):  # the harness compiles a template again for each document
        env.from_string = lru_cache(env.from_string)
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    has_cache, has_bars = datasets.is_caching_enabled(), not datasets.are_progress_bars_disabled()
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    datasets.disable_caching()  # the cache goes by names of process_docs functions, whose code may have changed
    datasets.disable_progress_bars()
    try:
        with _failures_of(f"{uri}: lm_eval"):
            yield lambda config: next(iter(TaskManager(include_defaults=False).load(config)["tasks"].values()))
    except InputError as error:
        raise error if str(error).startswith(uri) else InputError(f"{uri}: {error}") from error
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
        if has_cache:
            datasets.enable_caching()
        if has_bars:
            datasets.enable_progress_bars()


@contextmanager
def _failures_of(key: str) -> Iterator[None]:
    """Turn every exception into `InputError`, because templates and functions are programs of a task's author."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())
        raise InputError(f"{key}: fails ({type(error).__name__}: {message}); mend the task") from error


class _Files(list[Path]):
    """The YAML files of a task, in the order in which the harness reads them."""

    add = list.append


@dataclass(frozen=True)
class _MadeOf:
    """The configuration, files and splits of a task."""

    config: Doc
    shown: str
    """The split of the demonstrations; empty if the task names the demonstrations."""
    measured: str
    """The split of the test items."""
    files: Sequence[Path]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(b"".join(path.read_bytes() for path in self.files)).hexdigest()


def _made_of(path: Path) -> _MadeOf:
    """Import a task's functions, return its parts; Raises InputError: it has another type, or its data are missing."""
    from datasets import load_dataset_builder
    from lm_eval.tasks._yaml_loader import load_yaml

    files = _Files()
    config: Doc = {"task": path.stem, **load_yaml(path, _seen=files), **dict.fromkeys(_UNUSED)}
    if "group" in config or "task_list" in config or not isinstance(config["task"], str):
        raise InputError("group: makes the file a group of tasks; name the files of its tasks, one in an entry of data")
    if (kind := config.get("output_type", "generate_until")) != "multiple_choice":
        raise InputError(
            f"output_type: {kind} has no set of labels to be biased among; label bias is measured on multiple_choice "
            "alone"
        )
    few = {"split": config.get("fewshot_split"), **(config.get("fewshot_config") or {})}
    training, validation, test = (config.get(f"{name}_split") for name in ("training", "validation", "test"))
    if not (measured := test or validation):
        raise InputError("test_split: is missing, and validation_split too; name the split that is measured")
    shown = few["split"] or ("" if few.get("samples") else training or validation or measured)
    functions = [getattr(own, "func", own) for own in (*config.values(), *few.values()) if callable(own)]
    modules = [sys.modules[name].__file__ for name in sorted({own.__module__ for own in functions})]
    if place := config.get("dataset_path"):
        kwargs = {key: own for key, own in (config.get("dataset_kwargs") or {}).items() if key != "trust_remote_code"}
        kwargs |= {key: _beside(kwargs[key], files) for key in ("data_files", "data_dir") if kwargs.get(key)}
        place = place if place in _BUILDERS else _beside(place, files, otherwise=place)
        config |= {"dataset_path": place, "dataset_kwargs": kwargs}
        try:
            builder = load_dataset_builder(place, config.get("dataset_name"), **kwargs)
        except Exception as error:  # each storage format has its own errors
            raise InputError(
                f"dataset_path: the data of {place!r} are neither local nor in the cache of Hugging Face datasets "
                f"({' '.join(str(error).split())}); name files in dataset_kwargs.data_files, or let lm_eval fetch them"
            ) from error
        data = {str(split): list(map(Path, named)) for split, named in (builder.config.data_files or {}).items()}
        for split in dict.fromkeys((shown or measured, measured)):
            if data and split not in data:
                raise InputError(
                    f"dataset_path: {place} has no split {split} (it has {', '.join(data)}); name another, or the file "
                    "of this one in dataset_kwargs.data_files"
                )
            files += data.get(split, [])
        files += [] if data else sorted(Path(builder.cache_dir).glob("*.arrow"))
    return _MadeOf(config, shown, measured, [*files, *(Path(module) for module in modules if module)])


def _beside(named: Any, files: Sequence[Path], otherwise: str | None = None) -> Any:
    """Return paths relative to the folder of the YAML file where they exist, else to the first file's folder."""
    if isinstance(named, dict):
        return {key: _beside(value, files) for key, value in named.items()}
    if isinstance(named, list):
        return [_beside(value, files) for value in named]
    if "://" in str(named):
        raise InputError(f"dataset_kwargs: {named} is no local file; fetch it")
    places = [str(file.parent / str(named)) for file in files]
    return next(filter(glob, places), otherwise or places[0])


def _read(task: Any, made_of: _MadeOf) -> LmEvalData:
    config, measured, test, note = task.config, made_of.measured, list(task.eval_docs), ""
    choices = task.doc_to_choice(test[0])
    own = list(task.fewshot_docs()) if made_of.shown != measured else []
    train = own if made_of.shown else []
    split = made_of.shown if train else measured
    if own and not train:
        note = f"demonstrations are drawn from {measured}, not from the {len(own)} documents of the task"
    elif task.fewshot_cfg.sampler == "first_n":
        note = f"demonstrations are drawn from {split}, of which the harness shows the first"
    if len(heads := {str(task.resolve_field(doc, config.description) or "") for doc in test}) > 1:
        raise InputError("description: differs between documents, and prompts share it; write that part in doc_to_text")
    form = LmEvalFormat(task, heads.pop(), _delimiter(config, choices), _places(task, [*train, *test]), {})
    examples: list[Example] = []
    texts: dict[tuple[str, ...], str] = {}
    for number, doc in enumerate([*train, *test]):
        name = f"{split}-{number}" if number < len(train) else f"{measured}-{number - len(train)}"
        try:
            example = Example(name, form.fields(doc), _gold(task, doc, choices).lstrip())
            key = tuple(example.fields.values())
            form.docs.setdefault(key, doc)
            text = _turn(task, doc, config)
            if texts.setdefault(key, text) != text:
                raise InputError(
                    "doc_to_text: shows values that not all documents have, as lists of other lengths, and is that of "
                    "another document but for these; take the document out"
                )
            if not (text + form.delimiter).endswith(_WHITE):
                raise InputError(
                    f"target_delimiter: {form.delimiter!r} stands after {text[-9:]!r}, and labels are scored after "
                    "white space; leave target_delimiter out, or let doc_to_text end in white space"
                )
        except InputError as error:
            raise InputError(f"document {name}: {error}") from error
        examples.append(example)
    labels = tuple(choice.lstrip() for choice in choices)
    return LmEvalData(
        examples[: len(train)], examples[len(train) :], labels, form, split, measured, note, made_of.sha256
    )


def _gold(task: Any, doc: Doc, choices: Sequence[str]) -> str:
    with _failures_of("doc_to_choice"):
        own = task.doc_to_choice(doc)
    if own != choices:
        raise InputError(
            "doc_to_choice: choices differ between documents, as options do, and label bias is over labels that all "
            'share; write letters in doc_to_choice (["A", "B", "C", "D"]), the options in doc_to_text, and the letter '
            "in doc_to_target"
        )
    with _failures_of("doc_to_target"):
        target = task.doc_to_target(doc)
    if isinstance(target, int) and 0 <= target < len(choices):
        return choices[target]
    if target in choices:
        return str(target)
    raise InputError(
        f"doc_to_target: {target!r} is neither one of the choices {list(choices)} nor a place among them, from 0"
    )


def _turn(task: Any, doc: Doc, config: Any, *, is_answered: bool = False) -> str:
    """Return a document as the harness writes it, by one of its configurations; Raises InputError: the task fails."""
    with _failures_of("doc_to_text"):
        text, prefix = task.doc_to_text(doc, config.doc_to_text), task.resolve_field(doc, config.gen_prefix)
        answer: Doc = {"few_delim": ""}
        if is_answered:
            choices = task.doc_to_choice(doc, config.doc_to_choice)
            target = task.doc_to_target(doc, config.doc_to_target)
            answer = {"c": choices, "a": target, "few_delim": config.fewshot_delimiter}
        turns = task.build_qa_turn(q=text, gen_prefix=prefix, tgt_delim=config.target_delimiter, **answer)
        return "".join(turn.to_text() for turn in turns)


def _places(task: Any, docs: Sequence[Doc]) -> dict[Place, bool]:
    """Return the places of values that prompts use and all documents have, texts first."""

    def text(doc: Doc, without: str | None = None) -> str | None:
        try:
            return _turn(task, {name: value for name, value in doc.items() if name != without}, task.config)
        except InputError:
            return None

    names = sorted({name for doc in docs[-_PROBED:] for name in doc if text(doc, name) != text(doc)})
    if not names:
        raise InputError("doc_to_text: names no field of the documents, so that all prompts would be the same")
    shown = [dict(_leaves({name: doc[name] for name in names if name in doc})) for doc in docs]
    kinds = {place: all(isinstance(own.get(place), str) for own in shown) for place in shown[0]}
    common = [(place, is_text) for place, is_text in kinds.items() if all(place in own for own in shown)]
    return dict(sorted(common, key=lambda kind: not kind[1]))


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the places of a value's innermost values; an empty list or mapping is one of them."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, (*place, key))
    else:
        yield place, value


def _name(place: Place) -> str:
    return ".".join(map(str, place))


def _loaded(text: str, is_text: bool) -> Any:
    try:
        return text if is_text else json_value(text)
    except ValueError:
        return text


def _filled(value: Any, place: Place, values: Mapping[Place, Any]) -> Any:
    """Return a value with these values at their places; values without a place are removed."""
    if not isinstance(value, dict | list) or not value:
        return values.get(place)
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    keys = {own[len(place)] for own in values if own[: len(place)] == place and len(own) > len(place)}
    kept = {key: _filled(each, (*place, key), values) for key, each in inner if key in keys}
    return kept if isinstance(value, dict) else list(kept.values())


def _delimiter(config: Any, choices: Any) -> str:
    """Return the text between an item and a label; Raises InputError: the choices are no labels."""
    words = [choice.strip() for choice in choices if isinstance(choice, str)]
    white = {str(choice).rstrip().removesuffix(str(choice).strip()) for choice in choices}
    if len({*words} - {""}) < max(len(choices), 2) or len(white) > 1 or any(own[-1:].isspace() for own in choices):
        raise InputError(
            f"doc_to_choice: {choices} are no two or more different texts after the same white space; name each once"
        )
    return f"{config.target_delimiter}{white.pop()}"
