"""Keys of specs, and their words."""

import typing
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from biaseval.demo import MODEL_PATH
from biaseval.errors import InputError
from biaseval.inputs.files import ExampleFile, Wanted
from biaseval.spec import (
    AnySpec,
    DataSpec,
    Spec,
    analysed_as,
    break_cautions,
    dump_spec,
    load_spec,
    of_analysis,
    spec_of,
    stored_spec,
    written_breaks,
)
from biaseval.spec.shared_sections import RunSpec, Section
from biaseval.spec.words import as_meant
from tests.commands import Command
from tests.specs import whole_spec

KINDS: tuple[type[RunSpec], ...] = typing.get_args(Spec)
BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))

CONTENTS: dict[str, dict[str, Any]] = yaml.safe_load("""
label_bias:
  model: {path: org/model}
  tasks: {path: tasks, table: t.csv, splits: "s3://b/splits"}
  lora: {zero: 2, deepspeed_config: ds.json}
majority_bias:
  model: {path: ./model, adapter: org/adapter}
  data: {train: train.jsonl, labels: {b: "yes", a: "no"}}
  prompt: {n_demos: 4, item: "{text} {label}"}
  proportions: {simplex: 0.25}
qa_bias:
  models: [{name: a, path: org/bert}, {name: b, predictions: {squad: b.json, nq: c.json}}]
  datasets: {train: t.json, in_distribution: {squad: d.json}, out_of_distribution: {nq: n.json}}
  thresholds: {ans_len: 3.5}
instruct:
  model: {path: org/model}
  data: {path: c.jsonl}
  lora: null
  training: {learning_rate: 1.0e-4}
""")
CONTENTS["search"] = {
    "spec": {"kind": "label_bias", "name": "x", **CONTENTS["label_bias"]},
    "search": {"prompt.demo_sets": [1, 2], "scoring.normalization": ["mean", "sum"]},
    "objective": {"sql": "select avg(rsd) as rsd from label_bias_by_task", "maximize": False},
    "trials": 3,
}


def _spec_of(folder: Path, kind: str) -> Spec:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({"kind": kind, "name": "x", **CONTENTS[kind]}, sort_keys=False))
    return load_spec(path)


def _leaf_keys(annotation: Any, key: str) -> Iterator[str]:
    """Yield the keys below a key that hold a value; ``*`` is a name or a place in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from _leaf_keys(field.annotation, f"{key}.{name}".lstrip("."))
        return
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        yield from _leaf_keys(arguments[1], f"{key}.*")
    elif origin is list and _holds_models(arguments[0]):
        yield from _leaf_keys(arguments[0], f"{key}.*")
    elif origin in (None, list, typing.Literal):
        if annotation is not type(None):
            yield key
    else:  # a union, or an annotated type
        for argument in arguments if origin is not typing.Annotated else arguments[:1]:
            yield from _leaf_keys(argument, key)


def _holds_models(annotation: Any) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    return any(map(_holds_models, typing.get_args(annotation)))


def _matching(leaves: set[str], patterns: tuple[str, ...]) -> set[str]:
    return {leaf for leaf in leaves if any(fnmatchcase(leaf, pattern) for pattern in patterns)}


@BY_KIND
def test_a_key_has_one_role_and_every_role_is_of_a_key(kind: type[RunSpec]) -> None:
    leaves = set(_leaf_keys(kind, ""))
    paths, resources, analysis = (_matching(leaves, own) for own in (kind.PATHS, kind.RESOURCES, kind.ANALYSIS))
    assert not analysis & (paths | resources)
    # A file that says only how to compute is both: made absolute, and free to change altogether.
    assert {key.split(".")[-1] for key in paths & resources} <= {"deepspeed_config"}
    # What tells one run from another stands in none of them.
    assert {"kind", "name", "seed"} <= leaves - paths - resources - analysis
    assert all(_matching(leaves, (own,)) for own in (*kind.PATHS, *kind.RESOURCES, *kind.ANALYSIS))
    assert set(kind.NAMES) < set(kind.PATHS)


def test_the_keys_of_analysis() -> None:
    scoring = {"scoring.normalization", "scoring.eos", "analysis.sql", "analysis.files.*", "analysis.metrics"}
    scoring |= {"model.family", "model.tuned_from", "analysis.missing_parts"}
    bootstrap = {"bootstrap.trials", "bootstrap.sample", "bootstrap.replacement"}
    found = {kind.__name__: _matching(set(_leaf_keys(kind, "")), kind.ANALYSIS) for kind in KINDS}
    assert found == {
        "LabelBiasSpec": {*scoring, "suites.*", "primary.metric", "primary.method"}, "MajorityBiasSpec": scoring,
        "QaBiasSpec": {"thresholds", "thresholds.*", "analysis.missing_parts", *bootstrap}, "InstructSpec": set(),
        "SearchSpec": set(),
    }  # fmt: skip


def test_an_analysis_of_another_family_keeps_the_model_and_another_model_is_no_analysis() -> None:
    """Two keys of a section belong to the analysis, the others do not."""
    old, other = (
        stored_spec(whole_spec({"kind": "label_bias", "model": {"path": path, "family": family}}), "spec")
        for path, family in (("a", None), ("b", "llama"))
    )
    found = analysed_as(old, other)
    assert (found.model.path, found.model.family) == ("b", None)
    assert "model.path" in " ".join(of_analysis(old, other))
    named = stored_spec({**old.model_dump(mode="json"), "model": {**old.model.model_dump(), "family": "llama"}}, "spec")
    assert of_analysis(old, named) == []
    assert analysed_as(old, named) == old


_TASK_FILES = {"tasks.table": "t.csv", "tasks.templates": None, "tasks.splits": "s3://b/splits"}
_QA_FILES = {"train": "t.json", "squad": "d.json", "nq": "n.json"}
_PREDICTIONS = {"squad": "b.json", "nq": "c.json"}


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("label_bias", _TASK_FILES),
        ("majority_bias", {"data.train": "train.jsonl", "data.test": None}),
        ("qa_bias", {f"datasets.{name}": file for name, file in _QA_FILES.items()}
                    | {f"predictions of b for {name}": file for name, file in _PREDICTIONS.items()}),
        ("instruct", {"data.path": "c.jsonl"}),
        ("search", {f"spec.{name}": file for name, file in _TASK_FILES.items()}),
    ],
)  # fmt: skip
def test_input_files_are_recorded_under_these_names(tmp_path: Path, kind: str, files: dict[str, str | None]) -> None:
    expected = {key: uri if uri is None or "://" in uri else str(tmp_path / uri) for key, uri in files.items()}
    assert list(_spec_of(tmp_path, kind).files().items()) == list(expected.items())


@pytest.mark.parametrize(("content", "expected"), [
    (None, "run/spec.yaml: is no spec; name the directory of a run"),
    ({"kind": "scores"}, "run/spec.yaml: kind: 'scores' is unknown; use label_bias or majority_bias or qa_bias"),
    ({"kind": "score"}, "run/spec.yaml: prompts_sha256: is required and missing; add it"),
    ({"kind": "instruct", "name": "x"}, "run/spec.yaml: training: is required and missing; add it"),
])  # fmt: skip
def test_what_is_no_stored_spec_is_refused(content: object, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        stored_spec(content, "run/spec.yaml")
    assert expected in str(caught.value)


_HEAD = "kind: label_bias\nname: x\n"
_DATA = "data: {train: a.csv}\n"
_PROMPT = 'prompt: {item: "T: {text}\\nL: {label}", n_demos: [0], demo_sets: 2}\n'


def _written(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text)
    return path


def _loaded(folder: Path, text: str, *overrides: str) -> Any:
    return load_spec(_written(folder, text), overrides)


def _sections(annotation: Any, seen: set[type]) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section) and annotation not in seen:
        seen.add(annotation)
        yield annotation
        for field in annotation.model_fields.values():
            yield from _sections(field.annotation, seen)
    for inner in typing.get_args(annotation):
        yield from _sections(inner, seen)


SECTIONS = list(_sections(AnySpec, set()))


# Off, on, yes and no


@pytest.mark.parametrize(
    "word", ["off", "OFF", "no", "n", "false", "False", "null", "none", '"off"', '"false"', "~", ""]
)
def test_a_chat_is_turned_off_by_any_word_for_it(tmp_path: Path, word: str) -> None:
    assert _loaded(tmp_path, f"{_HEAD}model:\n  path: m\n  chat: {word}\n{_DATA}{_PROMPT}").model.chat == "off"
    assert _loaded(tmp_path, f"{_HEAD}model: {{path: m}}\n{_DATA}{_PROMPT}", f"model.chat={word}").model.chat == "off"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_takes_the_words_for_its_values(section: type[Section]) -> None:
    """Whatever keys are added: true and false, null, and words of literals."""
    for name, field in section.model_fields.items():
        kinds = set(_leaves(field.annotation))
        if bool in kinds and list not in kinds:
            for word, value in (("yes", True), ("ON", True), ("y", True), ("no", False), ("off", False), ("n", False)):
                assert as_meant(word, field.annotation) is value, (section, name)
        if type(None) in kinds and not {str, bool} & kinds:
            for word in ("none", "null", "None", "off", "no", False, None):
                assert as_meant(word, field.annotation) is None, (section, name)
        if str in kinds:
            for word in ("yes", "no", "off", "none", "null", "true", "1e-4"):
                assert as_meant(word, field.annotation) == word, (section, name)
        if float in kinds and str not in kinds:
            assert as_meant("2e-4", field.annotation) == 2e-4, (section, name)


def _leaves(annotation: Any) -> Iterator[Any]:
    origin = typing.get_origin(annotation)
    if origin in (list, dict):
        yield list
    elif origin is typing.Annotated:
        yield from _leaves(typing.get_args(annotation)[0])
    elif origin is typing.Literal or not typing.get_args(annotation):
        yield from typing.get_args(annotation) or [annotation]
    else:
        for inner in typing.get_args(annotation):
            yield from _leaves(inner)


# Labels


_JSON = '[{"text": "a", "label": %s}, {"text": "b", "label": %s}]'


@pytest.mark.parametrize(("labels", "rows", "found"), [
    ("{yes: Ja, no: Nein}", "text,label\na,yes\nb,no\n", ["Ja", "Nein"]),
    ("{yes: good, no: bad}", _JSON % ('"yes"', '"no"'), ["good", "bad"]),
    ("{on: On, off: Off, n: No}", "text,label\na,on\nb,off\nc,n\n", ["On", "Off", "No"]),
    ("{true: Right, false: Wrong}", _JSON % ("true", "false"), ["Right", "Wrong"]),
    ("{True: Right, False: Wrong}", _JSON % ("true", "false"), ["Right", "Wrong"]),
    ("{True: Right, False: Wrong}", "text,label\na,True\nb,False\n", ["Right", "Wrong"]),
    ("{0: bad, 1: good}", _JSON % (1, 0), ["good", "bad"]),
    ("{007: Bond, 008: Bill}", "text,label\na,007\nb,008\n", ["Bond", "Bill"]),
    ("{1e3: much, 1e0: little}", "text,label\na,1e3\nb,1e0\n", ["much", "little"]),
    ("{null: nothing, none: no}", "text,label\na,null\nb,none\n", ["nothing", "no"]),
])  # fmt: skip
def test_labels_are_named_as_the_files_have_them(tmp_path: Path, labels: str, rows: str, found: list[str]) -> None:
    file = tmp_path / ("a.json" if rows.startswith("[") else "a.csv")
    file.write_text(rows)
    spec = _loaded(tmp_path, f"{_HEAD}model: {{path: m}}\ndata: {{train: {file.name}, labels: {labels}}}\n{_PROMPT}")
    [data] = spec.data
    read = ExampleFile(data.train, "train", Wanted(DataSpec(train=data.train), {"text": ("text",)}, data.labels, 1))
    assert list(read.shown_problems()) == []
    assert [example.label for example in read.examples] == found
    # The run keeps the spec, and older versions read it likewise.
    assert stored_spec(yaml.safe_load(dump_spec(spec)), "spec") == spec


# Keys twice


@pytest.mark.parametrize(("text", "message"), [
    ("model: {path: m}\nseed: 1\nseed: 2\n", "line 5: has the key 'seed' a second time, after line 4"),
    (f"{_PROMPT}prompt:\n  item: x\n", "line 4: has the key 'prompt' a second time, after line 3"),
    ("model: {path: m, path: n}\n", "line 3: has the key 'path' twice"),
    ("data: {train: a.csv, labels: {0: a, '0': b}}\n", "line 3: has the key '0' twice"),
])  # fmt: skip
def test_a_key_twice_is_refused_with_both_lines(tmp_path: Path, text: str, message: str, command: Command) -> None:
    path = _written(tmp_path, f"{_HEAD}{text}")
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert str(caught.value) == f"{path}: {message}; mend the file"
    done = command("plan", str(path))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    with pytest.raises(InputError, match=r"--set model=\{path: a, path: b\}: line 1: has the key 'path' twice"):
        spec_of({}, "x", tmp_path, ["model={path: a, path: b}"])


# Line breaks


_ENDS = "ends with a line break, as a text after | does in YAML"


@pytest.mark.parametrize(("prompt", "cautions"), [
    ('{item: "T: {text}\\nL: {label}"}', []),
    ("{item: 'T: {text}\\nL: {label}'}", [r"prompt.item: holds \n as two characters"]),
    (r"{item: 'T: {text}\tL: {label}'}", ["prompt.item: holds \\t"]),
    (r"{item: '{text} {label}', instruction_text: 'Read.\nSay:'}", ["prompt.instruction_text: holds \\n"]),
    (r"{item: 'Solve $\nabla x \neq \nu \theta$ {text} {label}'}", []),
    ("\n  item: |\n    T: {text}\n    L: {label}\n", [f"prompt.item: {_ENDS}, so 3 line breaks"]),
    ("\n  item: '{text} {label}'\n  instruction_text: |\n    Say.\n", [f"prompt.instruction_text: {_ENDS}"]),
    ("\n  item: |-\n    T: {text}\n    L: {label}\n", []),
    ('\n  item: |\n    T: {text}\n    L: {label}\n  separator: "\\n"\n', []),
    (r"{item: '{text} {label}', formats: {b: {item: '{text}\n {label}'}}}", ["prompt.formats.b.item: holds"]),
    (r"""{item: '{text} {label}', formats: {c: {separator: "\n\n\n", item: "{text}: {label}\n"}}}""",
        [f"prompt.formats.c.item: {_ENDS}, so 4"]),
])  # fmt: skip
def test_line_breaks_that_may_not_be_meant_are_said(tmp_path: Path, prompt: str, cautions: list[str]) -> None:
    spec = _loaded(tmp_path, f"{_HEAD}model: {{path: m}}\n{_DATA}prompt: {prompt}\n")
    found = break_cautions(spec)
    assert len(found) == len(cautions)
    for line, caution in zip(found, cautions, strict=True):
        assert line.startswith(caution)


def test_other_kinds_and_the_system_are_looked_at_too_and_a_plan_says_them(tmp_path: Path, command: Command) -> None:
    majority = _loaded(
        tmp_path,
        "kind: majority_bias\nname: x\nmodel: {path: m, chat: auto, system: 'Be kind.\\nBe short.'}\n"
        "data: {train: a.csv}\nproportions: binary_11\nprompt: {item: '{text}\\n {label}', n_demos: 2}\n",
    )
    assert [line.split(":")[0] for line in break_cautions(majority)] == ["model.system", "prompt.item"]
    qa = _loaded(
        tmp_path,
        "kind: qa_bias\nname: x\ndatasets: {in_distribution: {a: a.json}}\n"
        "models: [{name: m, path: m, answers: generative, prompt: '{context}\\n{question}'}]\n",
    )
    [model] = qa.models
    assert [line.split(":")[0] for line in written_breaks({"models.m.prompt": model.prompt})] == ["models.m.prompt"]
    rows = "".join(f"text {number},{'yes' if number % 2 else 'no'}\n" for number in range(60))
    (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
    prompt = "prompt: {item: 'T: {text}\\nL: {label}', n_demos: [0]}\n"
    done = command("plan", str(_written(tmp_path, f"{_HEAD}model: {{path: {MODEL_PATH}}}\n{_DATA}{prompt}")))
    assert done.code == 0, done.err
    assert r"prompt.item: holds \n as two characters" in " ".join((done.out + done.err).split())
