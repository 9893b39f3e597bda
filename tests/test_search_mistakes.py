"""Mistakes in specs of searches, each with its message."""

from pathlib import Path
from typing import Any

import pytest

from tests.searches import BASE
from tests.test_search_spec import ANSWERED, MIXINS, QA, SCALE, STRENGTH, calibrated, preset, refused

SECTION, FILE = "is a section; name one of its keys", "names a file or a model; make a search for each"
COST = "changes the cost of a run, not its results; search another key"
WHICH = "says which run it is, not how it is made; search another key"
NO_KEY = "is no key; write the names from the top of the spec on, with dots between them"
OF_METHOD = "is no key; search calibration.METHOD.strength or calibration.METHOD.inputs"

KEYS = {
    "prompt.demo_set": "prompt.demo_set: unknown key; did you mean demo_sets?",
    "promt.demo_sets": "promt: unknown key; did you mean prompt?",
    **dict.fromkeys(("prompt", "lora", "model", "execution"), SECTION),
    **dict.fromkeys(("model.path", "tasks.splits"), FILE),
    **dict.fromkeys(("execution.actors", "lora.deepspeed_config"), COST), **dict.fromkeys(("kind", "name"), WHICH),
    **dict.fromkeys(("prompt.", "prompt demo_sets"), NO_KEY),
    **dict.fromkeys(("calibration.cc", "calibration.cc.power"), OF_METHOD),
    "tasks.include": "tasks.include: input should be a valid list, found 1; change it",
    "scoring.eos": "scoring.eos: input should be a valid boolean, found 1; change it",
    "prompt.demo_sets.x": "prompt.demo_sets: input should be a valid integer, found {'x': 1}; change it",
}  # fmt: skip
OF_A_STUDY = {
    **dict.fromkeys(("train.bases", "train", "train.learned_mixin", "models"), SECTION),
    **dict.fromkeys(("train.data.squad", "datasets.in_distribution.dev"), FILE),
}


@pytest.mark.parametrize("key", [*KEYS, *OF_A_STUDY])
def test_a_key_that_cannot_be_searched_is_refused(tmp_path: Path, key: str) -> None:
    base, expected = (QA, OF_A_STUDY[key]) if key in OF_A_STUDY else (BASE, KEYS[key])
    assert (
        refused(tmp_path, spec=base, search={key: [1, 2]}) == f"{tmp_path}/search.yaml: spec: search.{key}: {expected}"
    )


ONE_OF = "write a list, or one of grid, choice, uniform, loguniform, int with its list"
LIMITS = "takes [lowest, highest] with lowest < highest, found"


@pytest.mark.parametrize(("domain", "expected"), [
    ([], "grid is empty; give it values, or leave the key out"), ([2, 1, 2.0], "2 stands there twice; name each once"),
    ({"choice": [[1], [2], [1]]}, "[1] stands there twice; name each once"),
    ({"grid": [True, False]}, "grid takes numbers; choice takes all"),
    ({"unifrm": [0, 1]}, f"{{'unifrm': [0, 1]}} is no domain; {ONE_OF}"),
    ({"uniform": [0, 1], "int": [1, 2]}, f"{{'uniform': [0, 1], 'int': [1, 2]}} is no domain; {ONE_OF}"),
    ({}, f"{{}} is no domain; {ONE_OF}"), ({"uniform": [1, 2, 3]}, f"uniform {LIMITS} [1, 2, 3]; change it"),
    ({"uniform": [1, 1]}, f"uniform {LIMITS} [1, 1]; change it"), ({"int": [4, 1]}, f"int {LIMITS} [4, 1]; change it"),
    ({"uniform": ["a", "b"]}, f"uniform {LIMITS} ['a', 'b']; change it"),
    ({"loguniform": [0, 1]}, "loguniform begins above 0, found 0; change it, or take uniform"),
    ({"int": [0.5, 2]}, "int takes whole numbers, found [0.5, 2]; change it, or take uniform"),
])  # fmt: skip
def test_a_wrong_domain_is_refused(tmp_path: Path, domain: Any, expected: str) -> None:
    found = refused(tmp_path, search={"prompt.demo_sets": domain})
    assert found == f"{tmp_path}/search.yaml: spec: search.prompt.demo_sets: {expected}"


@pytest.mark.parametrize("domain", [3, "1, 2"])
def test_what_is_no_list_is_refused(tmp_path: Path, domain: Any) -> None:
    assert "search.prompt.demo_sets: input should be " in refused(tmp_path, search={"prompt.demo_sets": domain})


OBJECTIVE = {"sql": "select 1 as one", "maximize": True}
SCALES: dict[str, Any] = {"spec": QA, "search": {SCALE: [0.1, 0.2]}}
STOPPED = {"grace_steps": 3}
NAMED = {**ANSWERED, "thresholds": "mikula2024"}
RESAMPLED = {**MIXINS, "train": {**MIXINS["train"], "methods": ["standard", "resample"]}}
OF_PRESET = "preset: mikula2024-scale says what search, objective, per, algorithm are; leave out"
NO_QA = "searches a qa_bias spec, and not a label_bias one"


@pytest.mark.parametrize(("changes", "expected"), [
    ({"trials": ...}, "spec: trials: is missing; say how many the algorithm optuna makes"),
    ({"algorithm": "grid"}, "trials: a grid has as many as it has combinations; leave it out, or take random"),
    ({"algorithm": "grid", "trials": ..., "search": {"seed": {"int": [1, 9]}}},
        "spec: search.seed: int has no end; algorithm grid takes lists"),
    ({"trials": 0}, "trials: input should be greater than 0, found 0; change it"),
    ({"search": {}}, "search: dictionary should have at least 1 item"),
    ({"objective": ...}, "objective: is required and missing; add it"),
    ({"objective": [OBJECTIVE] * 2}, "objective: lists 2, and a search looks for one number; name one, and read"),
    ({"stop_early": STOPPED}, "stop_early: only readers that are trained (train) say on the way how they do;"),
    ({**SCALES, "stop_early": {"grace_steps": 0}}, "stop_early.grace_steps: input should be greater than 0"),
    ({**SCALES, "stop_early": {"grace_steps": 1, "reduction": 1}},
        "stop_early.reduction: input should be greater than 1"),
    ({**SCALES, "per": ["bias"], "algorithm": "random", "stop_early": STOPPED},
        "spec: stop_early: a trial that is stopped for one reader is lost to all of per; leave one out"),
    ({"spec": NAMED, "search": {"thresholds.ans_len": [3, 4]}},
        "search.thresholds.ans_len: the spec has mikula2024 there; write its numbers out, to search one of them"),
    ({"spec": ANSWERED, "search": {"thresholds.ans_len": [3, 4], "thresholds.*": [1, 2]}},
        "spec: search.thresholds.ans_len: thresholds.* is searched, too; leave one out"),
    ({"algorithm": "bayes"}, "algorithm: input should be 'grid', 'random' or 'optuna', found 'bayes'; change it"),
    ({"per": ["task", "n_demos"]},
        "spec: per: optuna looks for one point, not for one for each task and n_demos; take the algorithm grid or "
        "random, or leave per out"),
    ({"choose_on": "held_out"},
        "spec: choose_on: the label_bias run scores no held-out rows; set held_out: true in its spec"),
    ({**SCALES, "choose_on": "held_out"}, "spec: choose_on: the qa_bias run scores no held-out rows; choose on half"),
    (calibrated([0.5, 2], "dc", "cc"), "calibration.1: 'cc@2': a strength is 0 (no calibration) to 1.5"),
    (calibrated([0, 1], "dc"), f"search.{STRENGTH}: the spec's calibration does not name cc; name it there once"),
    (calibrated([0, 1], "cc", "cc@0.5"), "the spec's calibration has several variants of cc; name it there once"),
    ({"algorthm": "grid"}, "algorthm: unknown key; did you mean algorithm?"),
    ({"per": ["task", "task"]}, "per ['task', 'task'] names a column twice; name each once"),
    ({"preset": ["mikula2024-scale"]}, "preset: ['mikula2024-scale'] is unknown; use mikula2024-scale or"),
    (preset("mikula2024", MIXINS), "preset: 'mikula2024' is unknown; use mikula2024-scale or"),
    (preset("mikula2024-scale", MIXINS, algorithm="random", trials=4), f"{OF_PRESET} algorithm, trials"),
    (preset("mikula2024-scale", BASE), f"preset: mikula2024-scale {NO_QA}"),
    (preset("mikula2024-scale", RESAMPLED),
        "preset: mikula2024-scale needs readers with learned_mixin; add it to train.methods"),
    (preset("mikula2024-scale-per-bias", QA), "chooses on a set adversarialqa; add it to datasets.out_of_distribution"),
    (preset("mikula2024-scale", {**MIXINS, "train": QA["train"]}),
        "preset: mikula2024-scale chooses by readers that address word_dist; add it to train.biases"),
    (preset("mikula2024-thresholds", QA),
        "mikula2024-thresholds searches the thresholds of models that are there; leave out train, and name them"),
])  # fmt: skip
def test_a_wrong_search_is_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in refused(tmp_path, **changes)


MISSING = "search.yaml: spec: is missing; name the spec file whose keys are searched, or write it in place"
NO_KIND = "search.yaml: spec: kind: {} cannot be searched; use label_bias or majority_bias or qa_bias"


@pytest.mark.parametrize(("base", "expected"), [
    (..., MISSING), (3, MISSING),
    ("absent.yaml", "absent.yaml: cannot be read (No such file or directory); name a spec file (YAML)"),
    ({"kind": "instruct"}, NO_KIND.format("'instruct'")), ({"kind": ["qa_bias"]}, NO_KIND.format("['qa_bias']")),
    ({"name": "x"}, NO_KIND.format("None")),
    ({**BASE, "sed": 1}, "search.yaml: spec: sed: unknown key; did you mean seed?"),
])  # fmt: skip
def test_a_wrong_spec_to_search_has_its_own_messages(tmp_path: Path, base: Any, expected: str) -> None:
    assert refused(tmp_path, spec=base) == f"{tmp_path}/{expected}"
