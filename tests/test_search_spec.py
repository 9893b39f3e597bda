"""Specs of searches: what is searched, over which domains, and every mistake in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from biaseval.errors import InputError
from biaseval.spec import ExecutionSpec, QaBiasSpec, SearchSpec, differences, dump_spec, load_spec, stored_spec
from tests.searches import BASE, searched, write_file

QA: dict[str, Any] = {
    "kind": "qa_bias",
    "name": "study",
    "datasets": {"in_distribution": {"dev": "dev.json"}},
    "train": {
        "bases": [{"name": "bert", "path": "bert"}],
        "data": {"squad": "train.json"},
        "validation": {"dev": "dev.json"},
        "methods": ["standard", "learned_mixin"],
        "biases": ["ans_len"],
    },
}
"""A study whose readers are trained."""

SCALE, PENALTY = "train.learned_mixin.bias_scale", "train.learned_mixin.entropy_penalty"


def loaded(folder: Path, **changes: Any) -> SearchSpec:
    spec = load_spec(write_file(folder / "search.yaml", searched(**changes)))
    assert isinstance(spec, SearchSpec)
    return spec


def refused(folder: Path, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        loaded(folder, **changes)
    return str(caught.value)


# What is searched


def test_what_is_searched_is_a_file_or_stands_in_place(tmp_path: Path) -> None:
    """A path is relative to the search's file, and those in the file to that one."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "tasks").mkdir()
    write_file(tmp_path / "below" / "base.yaml", BASE)
    (tmp_path / "tasks").mkdir()
    by_path, in_place = loaded(tmp_path, spec="below/base.yaml"), loaded(tmp_path)
    assert by_path.spec == load_spec(tmp_path / "below" / "base.yaml")
    assert by_path.spec.kind == in_place.spec.kind == "label_bias"
    assert by_path.spec.tasks.path == str(tmp_path / "below" / "tasks")
    assert in_place.spec.tasks.path == str(tmp_path / "tasks")
    assert by_path.search == in_place.search


def test_keys_are_set_from_the_command_line_too(tmp_path: Path) -> None:
    path = write_file(tmp_path / "search.yaml", searched())
    spec = load_spec(path, ["trials=9", "spec.seed=7", "execution.at_once=2"])
    assert isinstance(spec, SearchSpec)
    assert (spec.n_trials, spec.spec.seed, spec.execution.at_once) == (9, 7, 2)
    # Also those of a spec in a file of its own.
    write_file(tmp_path / "base.yaml", BASE)
    spec = load_spec(write_file(tmp_path / "search.yaml", searched(spec="base.yaml")), ["spec.seed=7"])
    assert isinstance(spec, SearchSpec)
    assert spec.spec.seed == 7
    with pytest.raises(InputError, match=r"--set seed.x=1: seed is 1 and not a section of the spec"):
        load_spec(tmp_path / "search.yaml", ["spec.seed=1", "spec.seed.x=1"])


def test_a_list_is_a_grid_of_numbers_or_a_choice(tmp_path: Path) -> None:
    spec = loaded(
        tmp_path,
        search={
            "prompt.demo_sets": [1, 3],
            "scoring.normalization": ["mean", "sum"],
            "scoring.eos": [True, False],
            "tasks.include": [None, ["task1*"]],
            "prompt.n_demos": {"choice": [[0], [0, 2]]},
            "seed": {"int": [1, 9]},
        },
    )
    assert spec.search == {
        "prompt.demo_sets": {"grid": [1, 3]},
        "scoring.normalization": {"choice": ["mean", "sum"]},
        "scoring.eos": {"choice": [True, False]},
        "tasks.include": {"choice": [None, ["task1*"]]},
        "prompt.n_demos": {"choice": [[0], [0, 2]]},
        "seed": {"int": [1, 9]},
    }


def test_a_key_of_a_section_that_is_left_out_can_be_searched(tmp_path: Path) -> None:
    spec = loaded(tmp_path, search={"lora.r": [4, 8]})
    assert spec.spec.kind == "label_bias"
    assert spec.spec.lora is None
    trial = spec.at({"lora.r": 8})
    assert trial.kind == "label_bias"
    assert trial.lora is not None
    assert trial.lora.r == 8


def test_the_defaults_are_those_of_the_readme(tmp_path: Path) -> None:
    spec = loaded(tmp_path)
    assert (spec.algorithm, spec.batch, spec.stop_early, spec.choose_on, spec.seed) == ("optuna", 4, None, "half", 42)
    assert spec.per == []
    assert (spec.execution.at_once, spec.execution.actors) == ("auto", "auto")
    halved = loaded(tmp_path, spec=QA, search={SCALE: [0.1, 0.2]}, stop_early={"grace_steps": 400})
    assert halved.stop_early is not None
    assert halved.stop_early.reduction == 3


def test_resources_are_those_of_the_spec_unless_the_search_names_some(tmp_path: Path) -> None:
    base = {**BASE, "execution": {"actors": 3, "part_rows": 9}}
    assert (loaded(tmp_path, spec=base).execution.actors, loaded(tmp_path, spec=base).execution.part_rows) == (3, 9)
    own = loaded(tmp_path, spec=base, execution={"at_once": 2, "actors": 1})
    assert own.execution.of_a_trial == ExecutionSpec(actors=1, part_rows=9)
    assert own.execution.n_at_once == 2
    assert own.at({"prompt.demo_sets": 2}).execution == own.execution.of_a_trial


def test_a_grid_has_as_many_trials_as_combinations(tmp_path: Path) -> None:
    search = {"prompt.demo_sets": [1, 2, 3], "scoring.normalization": ["mean", "sum"]}
    assert loaded(tmp_path, search=search, algorithm="grid", trials=...).n_trials == 6
    assert loaded(tmp_path, search=search, trials=5).n_trials == 5


def test_a_list_of_one_objective_is_that_objective(tmp_path: Path) -> None:
    objective = {"sql": "select 1 as a", "maximize": True}
    assert loaded(tmp_path, objective=[objective]) == loaded(tmp_path, objective=objective)


# Trials


def test_a_trial_is_the_spec_with_its_values(tmp_path: Path) -> None:
    spec = loaded(tmp_path, spec=QA, search={SCALE: [0.1, 0.5], PENALTY: {"loguniform": [0.03, 2.0]}, "seed": [1, 2]})
    trial = spec.at({SCALE: 0.5, PENALTY: 0.07, "seed": 2})
    assert isinstance(spec.spec, QaBiasSpec)
    assert isinstance(trial, QaBiasSpec)
    assert trial.train is not None
    assert spec.spec.train is not None
    own = trial.train.learned_mixin
    assert (own.bias_scale, own.entropy_penalty, trial.seed) == (0.5, 0.07, 2)
    assert spec.spec.seed == 42
    # All else is as it was.
    assert trial.train.model_copy(update={"learned_mixin": spec.spec.train.learned_mixin}) == spec.spec.train


def test_a_trial_cannot_have_what_the_spec_refuses(tmp_path: Path) -> None:
    """Values that are right each for itself may be wrong together, of which the trial hears when it is made."""
    base = {**BASE, "prompt": {"n_demos": [0]}}
    spec = loaded(tmp_path, spec=base, search={"prompt.n_demos": [[0], [2]], "prompt.demo_sets": [1, 40]})
    assert spec.at({"prompt.n_demos": [2], "prompt.demo_sets": 1}) != spec.spec
    with pytest.raises(ValidationError, match="40 demonstration sets of 2 need 80 demonstrations and the pool has 64"):
        spec.at({"prompt.n_demos": [2], "prompt.demo_sets": 40})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": "grid", "trials": ...},
        {
            "spec": QA,
            "search": {SCALE: [0.1, 1], PENALTY: {"loguniform": [0.03, 2.0]}, "train.best": ["loss", "f1"]},
            "stop_early": {"grace_steps": 3, "reduction": 2},
            "choose_on": "published",
            "execution": {"at_once": 2},
        },
        {
            "spec": {**BASE, "held_out": True, "calibration": ["cc@0.5", "dc"]},
            "search": {"calibration.cc.strength": [0, 0.5, 1.5], "calibration.dc.inputs": {"int": [1, 20]}},
            "algorithm": "random",
            "per": ["task", "n_demos"],
            "choose_on": "held_out",
        },
    ],
)
def test_a_stored_search_is_the_one_that_was_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = loaded(tmp_path, **changes)
    content = yaml.safe_load(dump_spec(spec))
    assert stored_spec(content, "run/spec.yaml") == spec
    # Written to a file it is a search again, whose paths stay what they are.
    (tmp_path / "elsewhere").mkdir()
    assert load_spec(write_file(tmp_path / "elsewhere" / "again.yaml", content)) == spec


def calibrated(strength: Any, **changes: Any) -> dict[str, Any]:
    """Return a search over the strength of a calibration."""
    return {"spec": {**BASE, "calibration": ["dc", "cc"]}, "search": {"calibration.cc.strength": strength}, **changes}


def test_a_trial_varies_a_calibration_that_the_spec_names(tmp_path: Path) -> None:
    spec = loaded(
        tmp_path,
        spec={**BASE, "calibration": ["looc", "cc@0.5", "dc/3"]},
        search={"calibration.cc.strength": [0, 0.7, 1], "calibration.cc.inputs": [1, 3], "calibration.dc.inputs": [9]},
    )
    trial = spec.at({"calibration.cc.strength": 0.7, "calibration.cc.inputs": 1, "calibration.dc.inputs": 9})
    assert trial.kind == spec.spec.kind == "label_bias"
    assert trial.calibration == ["looc", "cc@0.7/1", "dc/9"]
    assert spec.spec.calibration == ["looc", "cc@0.5", "dc/3"]
    whole = spec.at({"calibration.cc.strength": 1})
    assert whole.kind == "label_bias"
    assert whole.calibration == ["looc", "cc", "dc/3"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (calibrated([0, 1]), True),
        ({"spec": BASE, "search": {"scoring.normalization": ["mean", "sum"], "scoring.eos": [True, False]}}, True),
        ({"spec": QA, "search": {"thresholds": [{"ans_len": 1}, {"ans_len": 3}], "bootstrap.trials": [9, 99]}}, True),
        ({"spec": BASE, "search": {"scoring.eos": [True, False], "prompt.demo_sets": [1, 2]}}, False),
        ({"spec": BASE, "search": {"seed": [1, 2]}}, False),
        ({"spec": QA, "search": {SCALE: [0.1, 0.2]}}, False),
    ],
)
def test_trials_are_arithmetic_where_no_output_differs(tmp_path: Path, changes: dict[str, Any], expected: bool) -> None:
    assert loaded(tmp_path, **changes).is_arithmetic is expected


# Run directories


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"search": {"prompt.demo_sets": [1, 2]}},
            "search.prompt.demo_sets.grid: the run has [1, 2, 3, 4], the spec [1, 2]",
        ),
        ({"search": {"seed": [1, 2]}}, "search.seed.grid: the run has None, the spec [1, 2]"),
        ({"trials": 8}, "trials: the run has 4, the spec 8"),
        ({"batch": 2}, "batch: the run has 4, the spec 2"),
        ({"seed": 1}, "seed: the run has 42, the spec 1"),
        ({"algorithm": "random"}, "algorithm: the run has 'optuna', the spec 'random'"),
        ({"choose_on": "published"}, "choose_on: the run has 'half', the spec 'published'"),
        ({"algorithm": "random", "per": ["task"]}, "per: the run has [], the spec ['task']"),
        ({"spec": {**BASE, "seed": 1}}, "spec.seed: the run has 42, the spec 1"),
    ],
)  # fmt: skip
def test_another_search_cannot_have_the_run_directory(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    assert line in differences(loaded(tmp_path), loaded(tmp_path, **changes))


def test_the_same_search_on_other_resources_may_go_on(tmp_path: Path) -> None:
    other = {"execution": {"at_once": 2, "actors": 1}, "spec": {**BASE, "execution": {"part_rows": 7}}}
    assert not differences(loaded(tmp_path), loaded(tmp_path, **other))


def test_a_search_and_what_it_searches_cannot_share_a_run_directory(tmp_path: Path) -> None:
    spec = loaded(tmp_path)
    assert differences(spec.spec, spec) == ["kind: the run has 'label_bias', the spec 'search'"]
