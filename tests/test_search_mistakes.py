"""Mistakes in specs of searches, each with its message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.searches import BASE, searched, write_file
from tests.test_search_presets import ANSWERED
from tests.test_search_spec import PENALTY, QA, SCALE, calibrated, refused

KEYS = {
    "prompt.demo_set": "prompt.demo_set: unknown key; did you mean demo_sets?",
    "promt.demo_sets": "promt: unknown key; did you mean prompt?",
    "prompt": "is a section; name one of its keys",
    "lora": "is a section; name one of its keys",
    "model": "is a section; name one of its keys",
    "execution": "is a section; name one of its keys",
    "model.path": "names a file or a model; make a search for each",
    "model.adapter": "names a file or a model; make a search for each",
    "tasks.splits": "names a file or a model; make a search for each",
    "execution.actors": "changes what a run costs, not what it computes; search another key",
    "lora.deepspeed_config": "changes what a run costs, not what it computes; search another key",
    "kind": "says which run it is, not how it is made; search another key",
    "name": "says which run it is, not how it is made; search another key",
    "prompt.": "is no key; write the names from the top of the spec on, with dots between them",
    "prompt demo_sets": "is no key; write the names from the top of the spec on, with dots between them",
    "tasks.include": "tasks.include: input should be a valid list, found 1; change it",
    "scoring.eos": "scoring.eos: input should be a valid boolean, found 1; change it",
    "prompt.demo_sets.x": "prompt.demo_sets: input should be a valid integer, found {'x': 1}; change it",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_cannot_be_searched_is_refused(tmp_path: Path, key: str) -> None:
    assert refused(tmp_path, search={key: [1, 2]}) == f"{tmp_path}/search.yaml: spec: search.{key}: {KEYS[key]}"


@pytest.mark.parametrize("key", ["train.bases", "train", "train.learned_mixin", "models", "datasets", "windows"])
def test_a_section_of_a_study_is_refused(tmp_path: Path, key: str) -> None:
    assert f"search.{key}: is a section; name one of its keys" in refused(tmp_path, spec=QA, search={key: [1]})


@pytest.mark.parametrize("key", ["train.data.squad", "train.validation.dev", "datasets.in_distribution.dev"])
def test_data_of_a_study_is_refused(tmp_path: Path, key: str) -> None:
    expected = f"search.{key}: names a file or a model; make a search for each"
    assert expected in refused(tmp_path, spec=QA, search={key: ["a.json", "b.json"]})


ONE_OF = "write a list, or one of grid, choice, uniform, loguniform, int with its list"
LIMITS = "takes [lowest, highest] with lowest < highest, found"


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ([], "grid is empty; give it values, or leave the key out"),
        ({"choice": []}, "choice is empty; give it values, or leave the key out"),
        ([0.5, 1, 0.5], "0.5 stands there twice; name each once"),
        ([2, 1, 2], "2 stands there twice; name each once"),
        (["mean", "mean"], "'mean' stands there twice; name each once"),
        ({"choice": [[1], [2], [1]]}, "[1] stands there twice; name each once"),
        ({"grid": ["mean"]}, "grid takes numbers; choice takes all"),
        ({"grid": [True, False]}, "grid takes numbers; choice takes all"),
        ({"unifrm": [0, 1]}, f"{{'unifrm': [0, 1]}} is no domain; {ONE_OF}"),
        ({"uniform": [0, 1], "int": [1, 2]}, f"{{'uniform': [0, 1], 'int': [1, 2]}} is no domain; {ONE_OF}"),
        ({}, f"{{}} is no domain; {ONE_OF}"),
        ({"uniform": [1]}, f"uniform {LIMITS} [1]; change it"),
        ({"uniform": [1, 2, 3]}, f"uniform {LIMITS} [1, 2, 3]; change it"),
        ({"uniform": [1, 1]}, f"uniform {LIMITS} [1, 1]; change it"),
        ({"int": [4, 1]}, f"int {LIMITS} [4, 1]; change it"),
        ({"uniform": ["a", "b"]}, f"uniform {LIMITS} ['a', 'b']; change it"),
        ({"uniform": [0, float("nan")]}, "nan is no finite number; change it"),
        ([0.5, float("inf")], "inf is no finite number; change it"),
        ({"loguniform": [0, 1]}, "loguniform begins above 0, found 0; change it, or take uniform"),
        ({"int": [0.5, 2]}, "int takes whole numbers, found [0.5, 2]; change it, or take uniform"),
    ],
)
def test_a_wrong_domain_is_refused(tmp_path: Path, domain: Any, expected: str) -> None:
    found = refused(tmp_path, search={"prompt.demo_sets": domain})
    assert found == f"{tmp_path}/search.yaml: spec: search.prompt.demo_sets: {expected}"


@pytest.mark.parametrize("domain", [3, "1, 2", None])
def test_what_is_no_list_is_refused(tmp_path: Path, domain: Any) -> None:
    assert "search.prompt.demo_sets: input should be " in refused(tmp_path, search={"prompt.demo_sets": domain})


def test_a_number_is_the_same_with_a_point(tmp_path: Path) -> None:
    assert "stands there twice; name each once" in refused(tmp_path, spec=QA, search={SCALE: [0.5, 1, 1.0]})


def test_a_domain_has_an_end(tmp_path: Path) -> None:
    assert f"search.{PENALTY}: " in refused(tmp_path, spec=QA, search={PENALTY: {"uniform": [0.0, float("inf")]}})


@pytest.mark.parametrize("domain", [[0.1, 3], {"uniform": [0, 3]}, {"grid": [3]}])
def test_values_that_the_key_cannot_have_are_refused_in_its_own_words(tmp_path: Path, domain: Any) -> None:
    found = refused(tmp_path, spec=QA, search={SCALE: domain})
    assert f"search.{SCALE}: {SCALE}: input should be less than or equal to 1, found 3" in found


OBJECTIVE = {"sql": "select 1 as one", "maximize": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trials": ...}, "spec: trials: is missing; say how many the algorithm optuna makes"),
        ({"trials": ..., "algorithm": "random"}, "spec: trials: is missing; say how many the algorithm random makes"),
        (
            {"algorithm": "grid"},
            "spec: trials: a grid has as many as it has combinations; leave it out, or take random",
        ),
        (
            {"algorithm": "grid", "trials": ..., "search": {"seed": {"int": [1, 9]}}},
            "spec: search.seed: int has no end; algorithm grid takes lists",
        ),
        ({"trials": 0}, "trials: input should be greater than 0, found 0; change it"),
        ({"batch": 0}, "batch: input should be greater than 0, found 0; change it"),
        ({"search": {}}, "search: dictionary should have at least 1 item"),
        ({"search": ...}, "search: is required and missing; add it"),
        ({"objective": ...}, "objective: is required and missing; add it"),
        ({"objective": []}, "objective: lists 0, and a search looks for one number; name one"),
        ({"objective": {"sql": "select 1"}}, "objective.maximize: is required and missing; add it"),
        (
            {"objective": [OBJECTIVE, OBJECTIVE]},
            "spec: objective: lists 2, and a search looks for one number; name one, and read others from the tables",
        ),
        (
            {"stop_early": {"grace_steps": 3}},
            "spec: stop_early: only readers that are trained (train) say on the way how they do; leave it out",
        ),
        (
            {
                "spec": QA, "search": {SCALE: [0.1, 0.2]}, "per": ["bias"], "algorithm": "random",
                "stop_early": {"grace_steps": 3},
            },
            "spec: stop_early: a trial that is stopped for one reader is lost to all of per; leave one out",
        ),
        (
            {"spec": {**ANSWERED, "thresholds": "mikula2024"}, "search": {"thresholds.ans_len": [3, 4]}},
            "search.thresholds.ans_len: the spec has mikula2024 there; write its numbers out, to search one of them",
        ),
        (
            {"spec": ANSWERED, "search": {"thresholds.ans_len": [3, 4], "thresholds.*": [1, 2]}},
            "spec: search.thresholds.ans_len: thresholds.* is searched, too; leave one out",
        ),
        ({"preset": ["mikula2024-scale"]}, "preset: ['mikula2024-scale'] is unknown; use mikula2024-scale or"),
        ({"algorithm": "bayes"}, "algorithm: input should be 'grid', 'random' or 'optuna', found 'bayes'; change it"),
        ({"per": ["task", "task"]}, "per ['task', 'task'] names a column twice; name each once"),
        (
            {"per": ["task", "n_demos"]},
            "spec: per: optuna looks for one point, not for one for each task and n_demos; take the algorithm grid or "
            "random, or leave per out",
        ),
        (
            {"choose_on": "held_out"},
            "spec: choose_on: the label_bias run scores no held-out rows; set held_out: true in its spec",
        ),
        (
            {"spec": QA, "search": {SCALE: [0.1, 0.2]}, "choose_on": "held_out"},
            "spec: choose_on: the qa_bias run scores no held-out rows; choose on half",
        ),
        (
            calibrated([0.5, 2]),
            "search.calibration.cc.strength: calibration.1: 'cc@2': a strength is 0 (no calibration) to 1.5",
        ),
        (
            {"spec": {**BASE, "calibration": ["dc"]}, "search": {"calibration.cc.strength": [0, 1]}},
            "search.calibration.cc.strength: the spec's calibration does not name cc; name it there once",
        ),
        (
            {"spec": {**BASE, "calibration": ["cc", "cc@0.5"]}, "search": {"calibration.cc.strength": [0, 1]}},
            "search.calibration.cc.strength: the spec's calibration has several variants of cc; name it there once",
        ),
        (
            {"spec": QA, "search": {"calibration.cc.strength": [0, 1]}},
            "search.calibration.cc.strength: the spec's calibration does not name cc; name it there once",
        ),
        (
            {"search": {"calibration.cc": [0, 1]}},
            "search.calibration.cc: is no key; search calibration.METHOD.strength or calibration.METHOD.inputs",
        ),
        (
            {"search": {"calibration.cc.power": [0, 1]}},
            "search.calibration.cc.power: is no key; search calibration.METHOD.strength or calibration.METHOD.inputs",
        ),
        ({"algorthm": "grid"}, "algorthm: unknown key; did you mean algorithm?"),
        ({"execution": {"at_onec": 2}}, "execution.at_onec: unknown key; did you mean at_once?"),
    ],
)  # fmt: skip
def test_a_wrong_search_is_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in refused(tmp_path, **changes)


def test_nothing_can_be_stopped_where_no_reader_is_trained(tmp_path: Path) -> None:
    found = refused(tmp_path, spec=ANSWERED, search={"seed": [1, 2]}, stop_early={"grace_steps": 3})
    assert "stop_early: only readers that are trained (train)" in found
    wrong = {"grace_steps": 0, "reduction": 1}
    found = refused(tmp_path, spec=QA, search={"seed": [1, 2]}, stop_early=wrong)
    assert "stop_early.grace_steps: input should be greater than 0" in found
    assert "stop_early.reduction: input should be greater than 1" in found


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    search = {SCALE: [0.1, 3], "train.learned_mixn.x": [1], "name": ["a", "b"], "seed": [1, 1]}
    found = refused(tmp_path, spec=QA, search=search, choose_on="third", batch=0)
    assert "search.seed: 1 stands there twice" in found
    assert "choose_on: input should be 'half', 'held_out' or 'published', found 'third'" in found
    assert "batch: input should be greater than 0" in found
    del search["seed"]
    found = refused(tmp_path, spec=QA, search=search)
    assert "less than or equal to 1, found 3" in found
    assert "search.train.learned_mixn.x: train.learned_mixn: unknown key; did you mean learned_mixin?" in found
    assert "search.name: says which run it is" in found


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (..., "search.yaml: spec: is missing; name the spec file whose keys are searched, or write it in place"),
        (3, "search.yaml: spec: is missing; name the spec file whose keys are searched, or write it in place"),
        ("absent.yaml", "absent.yaml: cannot be read (No such file or directory); name a spec file (YAML)"),
        (
            {"kind": "instruct"},
            "search.yaml: spec: kind: 'instruct' cannot be searched; use label_bias or majority_bias or qa_bias",
        ),
        (
            searched(),
            "search.yaml: spec: kind: 'search' cannot be searched; use label_bias or majority_bias or qa_bias",
        ),
        (
            {"kind": ["qa_bias"]},
            "search.yaml: spec: kind: ['qa_bias'] cannot be searched; use label_bias or majority_bias or qa_bias",
        ),
        ({"name": "x"}, "search.yaml: spec: kind: None cannot be searched; use label_bias or majority_bias or qa_bias"),
        ({**BASE, "sed": 1}, "search.yaml: spec: sed: unknown key; did you mean seed?"),
    ],
)  # fmt: skip
def test_a_wrong_spec_to_search_has_its_own_messages(tmp_path: Path, base: Any, expected: str) -> None:
    assert refused(tmp_path, spec=base) == f"{tmp_path}/{expected}"


def test_a_wrong_file_to_search_has_its_own_messages(tmp_path: Path) -> None:
    write_file(tmp_path / "base.yaml", {**BASE, "sed": 1, "prompt": {"demo_sets": 0}})
    found = refused(tmp_path, spec="base.yaml")
    assert f"{tmp_path}/base.yaml: sed: unknown key; did you mean seed?" in found
    assert f"{tmp_path}/base.yaml: prompt.demo_sets: input should be greater than 0" in found
