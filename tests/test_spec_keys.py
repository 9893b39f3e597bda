"""What each kind of spec says of its own keys, files and models."""

import typing
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from biaseval.errors import InputError
from biaseval.spec import Spec, analysed_as, dump_spec, load_spec, of_analysis, stored_spec
from biaseval.spec.shared_sections import RunSpec
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


def _loaded(folder: Path, kind: str) -> Spec:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({"kind": kind, "name": "x", **CONTENTS[kind]}, sort_keys=False))
    return load_spec(path)


def _leaves(annotation: Any, key: str) -> Iterator[str]:
    """Yield the keys below a key that hold a value; ``*`` is a name or a place in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from _leaves(field.annotation, f"{key}.{name}".lstrip("."))
        return
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        yield from _leaves(arguments[1], f"{key}.*")
    elif origin is list and _holds_models(arguments[0]):
        yield from _leaves(arguments[0], f"{key}.*")
    elif origin in (None, list, typing.Literal):
        if annotation is not type(None):
            yield key
    else:  # a union, or an annotated type
        for argument in arguments if origin is not typing.Annotated else arguments[:1]:
            yield from _leaves(argument, key)


def _holds_models(annotation: Any) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    return any(map(_holds_models, typing.get_args(annotation)))


def _matching(leaves: set[str], patterns: tuple[str, ...]) -> set[str]:
    return {leaf for leaf in leaves if any(fnmatchcase(leaf, pattern) for pattern in patterns)}


@BY_KIND
def test_a_key_has_one_role_and_every_role_is_of_a_key(kind: type[RunSpec]) -> None:
    leaves = set(_leaves(kind, ""))
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
    scoring |= {"model.family", "model.tuned_from"}
    bootstrap = {"bootstrap.trials", "bootstrap.sample", "bootstrap.replacement"}
    found = {kind.__name__: _matching(set(_leaves(kind, "")), kind.ANALYSIS) for kind in KINDS}
    assert found == {
        "LabelBiasSpec": {*scoring, "suites.*", "primary.metric", "primary.method"},
        "MajorityBiasSpec": scoring,
        "QaBiasSpec": {"thresholds", "thresholds.*", *bootstrap},
        "InstructSpec": set(),
        "SearchSpec": set(),
    }


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
    assert list(_loaded(tmp_path, kind).files().items()) == list(expected.items())


def test_models_stand_under_model_or_their_names(tmp_path: Path) -> None:
    for kind in ("label_bias", "majority_bias", "instruct"):
        spec: Any = _loaded(tmp_path, kind)
        assert spec.models_used() == {("model",): spec.model}
    search: Any = _loaded(tmp_path, "search")
    assert search.models_used() == {("model",): search.spec.model}
    qa: Any = _loaded(tmp_path, "qa_bias")
    assert qa.models_used() == {("models", "a"): qa.models[0]}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_stored_spec_is_the_one_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    spec = _loaded(tmp_path, kind)
    (tmp_path / "org" / "model").mkdir(parents=True)
    (tmp_path / "org" / "bert").mkdir()
    monkeypatch.chdir(tmp_path)  # a name of the hub stays one, whatever lies there now
    content = yaml.safe_load(dump_spec(spec))
    assert stored_spec(content, "run/spec.yaml") == spec
    del content["execution"], content["seed"]  # an older version may not have written them
    assert stored_spec(content, "run/spec.yaml") == spec


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "run/spec.yaml: is no spec; name the directory of a run"),
        ({"kind": "scores"}, "run/spec.yaml: kind: 'scores' is unknown; use label_bias or majority_bias or qa_bias"),
        ({"kind": "score"}, "run/spec.yaml: prompts_sha256: is required and missing; add it"),
        ({"kind": "instruct", "name": "x"}, "run/spec.yaml: training: is required and missing; add it"),
    ],
)
def test_what_is_no_stored_spec_is_refused(content: object, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        stored_spec(content, "run/spec.yaml")
    assert expected in str(caught.value)
