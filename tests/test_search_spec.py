"""Specs of searches: what is searched, over which domains, what a trial is and shares; searches of papers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.runs import describe
from biaseval.search.kind import SEARCH, _batches
from biaseval.search.objectives import objective_columns
from biaseval.search.shared_work import own_readers, varies
from biaseval.spec import SearchSpec, differences, dump_spec, load_spec, stored_spec
from biaseval.units import Unit
from tests.searches import BASE, searched, write_file

ANSWERED: dict[str, Any] = {
    "kind": "qa_bias", "name": "answered", "models": [{"name": "bert", "path": "bert"}],
    "datasets": {"in_distribution": {"dev": "dev.json"}},
}  # fmt: skip
QA: dict[str, Any] = {
    **{name: value for name, value in ANSWERED.items() if name != "models"},
    "train": {"bases": [{"name": "bert", "path": "bert"}], "data": {"squad": "train.json"},
        "validation": {"dev": "dev.json"}, "methods": ["standard", "learned_mixin"], "biases": ["ans_len"]},
}  # fmt: skip
"""A study whose readers are trained."""

MIXINS: dict[str, Any] = {
    **QA,
    "datasets": {**QA["datasets"], "out_of_distribution": {"adversarialqa": "adversarial.json"}},
    "train": {**QA["train"], "biases": ["word_dist", "ans_len"]},
}
SCALE, PENALTY = "train.learned_mixin.bias_scale", "train.learned_mixin.entropy_penalty"
STRENGTH, INPUTS = "calibration.cc.strength", "calibration.cc.inputs"


def loaded(folder: Path, **changes: Any) -> Any:
    return load_spec(write_file(folder / "search.yaml", searched(**changes)))


def refused(folder: Path, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        loaded(folder, **changes)
    return str(caught.value)


def preset(name: str, spec: Any, **changes: Any) -> dict[str, Any]:
    """Return the changes that make a search one of a paper."""
    return {"preset": name, "spec": spec, **dict.fromkeys(("search", "objective", "trials"), ...), **changes}


def calibrated(strength: Any, *calibration: str) -> dict[str, Any]:
    """Return a search over the strength of a calibration."""
    return {"spec": {**BASE, "calibration": list(calibration)}, "search": {STRENGTH: strength}}


def test_what_is_searched_is_a_file_or_stands_in_place(tmp_path: Path) -> None:
    """A path is relative to the search's file, and those in the file to that one."""
    for folder in (tmp_path, tmp_path / "below"):
        (folder / "tasks").mkdir(parents=True)
    write_file(tmp_path / "below" / "base.yaml", BASE)
    by_path, in_place = loaded(tmp_path, spec="below/base.yaml"), loaded(tmp_path)
    assert by_path.spec == load_spec(tmp_path / "below" / "base.yaml")
    assert by_path.spec.tasks.path == str(tmp_path / "below" / "tasks")
    assert in_place.spec.tasks.path == str(tmp_path / "tasks")
    assert by_path.search == in_place.search


def test_a_trial_is_the_spec_with_its_values(tmp_path: Path) -> None:
    spec = loaded(tmp_path, spec=QA, search={SCALE: [0.1, 0.5], PENALTY: {"loguniform": [0.03, 2.0]}, "seed": [1, 2]})
    trial = spec.at({SCALE: 0.5, PENALTY: 0.07, "seed": 2})
    own = trial.train.learned_mixin
    assert (own.bias_scale, own.entropy_penalty, trial.seed, spec.spec.seed) == (0.5, 0.07, 2, 42)
    # All else is as it was.
    assert trial.train.model_copy(update={"learned_mixin": spec.spec.train.learned_mixin}) == spec.spec.train
    # A key may be one of a section that the spec leaves out, and a number the threshold of every heuristic.
    lora = loaded(tmp_path, search={"lora.r": [4, 8]})
    assert (lora.spec.lora, lora.at({"lora.r": 8}).lora.r) == (None, 8)
    heuristics = loaded(tmp_path, **preset("mikula2024-thresholds", {**ANSWERED, "heuristics": ["ans_len", "cos_sim"]}))
    assert heuristics.at({"thresholds.*": 0.3}).thresholds == {"ans_len": 0.3, "cos_sim": 0.3}


@pytest.mark.parametrize("changes", [
    {}, {"algorithm": "grid", "trials": ...},
    {"spec": QA, "search": {SCALE: [0.1, 1], PENALTY: {"loguniform": [0.03, 2.0]}, "train.best": ["loss", "f1"]},
        "stop_early": {"grace_steps": 3, "reduction": 2}, "choose_on": "published", "execution": {"at_once": 2}},
    {"spec": {**BASE, "held_out": True, "calibration": ["cc@0.5", "dc"]},
        "search": {STRENGTH: [0, 0.5, 1.5], "calibration.dc.inputs": {"int": [1, 20]}}, "algorithm": "random",
        "per": ["task", "n_demos"], "choose_on": "held_out"},
])  # fmt: skip
def test_a_stored_search_is_the_one_that_was_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = loaded(tmp_path, **changes)
    content = yaml.safe_load(dump_spec(spec))
    assert stored_spec(content, "run/spec.yaml") == spec
    # Written to a file it is a search again, whose paths stay what they are.
    (tmp_path / "elsewhere").mkdir()
    assert load_spec(write_file(tmp_path / "elsewhere" / "again.yaml", content)) == spec


@pytest.mark.parametrize(("base", "search", "expected"), [
    ({**BASE, "calibration": ["dc", "cc"]}, {STRENGTH: [0, 1]}, True),
    (BASE, {"scoring.normalization": ["mean", "sum"], "scoring.eos": [True, False]}, True),
    (QA, {"thresholds": [{"ans_len": 1}, {"ans_len": 3}], "bootstrap.trials": [9, 99]}, True),
    (ANSWERED, {"thresholds.*": [0.5, 1]}, True),
    (BASE, {"scoring.eos": [True, False], "prompt.demo_sets": [1, 2]}, False), (BASE, {"seed": [1, 2]}, False),
    (QA, {SCALE: [0.1, 0.2]}, False),
])  # fmt: skip
def test_trials_are_arithmetic_where_no_output_differs(tmp_path: Path, base: Any, search: Any, expected: bool) -> None:
    assert loaded(tmp_path, spec=base, search=search).is_arithmetic is expected


@pytest.mark.parametrize(("changes", "line"), [
    ({"search": {"prompt.demo_sets": [1]}}, "search.prompt.demo_sets.grid: the run has [1, 2, 3, 4], the spec [1]"),
    ({"search": {"seed": [1, 2]}}, "search.seed.grid: the run has None, the spec [1, 2]"),
    ({"trials": 8}, "trials: the run has 4, the spec 8"),
    ({"algorithm": "random", "per": ["task"]}, "per: the run has [], the spec ['task']"),
    ({"spec": {**BASE, "seed": 1}}, "spec.seed: the run has 42, the spec 1"),
])  # fmt: skip
def test_another_search_cannot_have_the_run_directory(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    assert line in differences(loaded(tmp_path), loaded(tmp_path, **changes))


@pytest.mark.parametrize(("name", "base", "n_trials", "per"), [
    ("mikula2024-scale", MIXINS, 12 * 3, []), ("mikula2024-scale-per-bias", MIXINS, 12 * 3, ["bias"]),
    ("mikula2024-thresholds", ANSWERED, 110, ["model", "dataset", "heuristic"]),
])  # fmt: skip
def test_a_search_of_a_paper_has_a_name(tmp_path: Path, name: str, base: Any, n_trials: int, per: list[str]) -> None:
    spec = loaded(tmp_path, **preset(name, base))
    assert (spec.n_trials, spec.per, spec.algorithm, spec.choose_on) == (n_trials, per, "grid", "half")
    assert objective_columns(spec.spec.kind, spec.objective.sql, spec.per)
    assert stored_spec(yaml.safe_load(dump_spec(spec)), "run/spec.yaml") == spec
    assert not differences(spec, loaded(tmp_path, **preset(name, base, execution={"at_once": 3})))
    if name == "mikula2024-thresholds":
        tenths = [round(0.1 * number, 1) for number in range(10)]
        assert spec.search["thresholds.*"]["grid"] == [*tenths, *range(1, 101)]
    else:
        scales = {0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}  # of the appendix, as the part that is removed
        assert {round(1 - scale, 2) for scale in scales} | scales | {1} == set(spec.search[SCALE]["grid"])
        assert spec.search[PENALTY]["grid"] == [0.2, 0.4, 2.0]


LORA = {**BASE, "lora": {}}


def _shares(search: SearchSpec, file: str, **work: Any) -> bool:
    return not varies(search)(Unit(0, 1, (file,), work), file)


@pytest.mark.parametrize(("base", "key", "shares"), [
    (LORA, "lora.r", True),
    (LORA, "scoring.eos", True),
    # Adapters make other parts of the plan, and so the scores of the base model other files.
    (BASE, "lora.r", False),
    # Rows that a setting trains on are not held out.
    ({**LORA, "held_out": True}, "lora.n_examples", False),
    (LORA, "lora.demo_sets", False),
    ({**LORA, "held_out": True}, "lora.r", True),
    (BASE, "prompt.demo_sets", False),
])  # fmt: skip
def test_scores_of_the_base_model_are_shared_where_they_are_the_same(
    tmp_path: Path, base: dict[str, Any], key: str, shares: bool
) -> None:
    domain = [True, False] if key == "scoring.eos" else [1, 2]
    search = loaded(tmp_path, spec=base, search={key: domain})
    assert _shares(search, "label_scores/part-00000.parquet") is shares
    assert _shares(search, "adapted_scores/part-00000.parquet") is (key == "scoring.eos")


@pytest.mark.parametrize(("key", "domain", "standard", "bias_model", "own"), [
    (SCALE, [0.1, 0.2], True, True, ["bert+learned_mixin(word_dist)", "bert+learned_mixin(ans_len)"]),
    ("train.bias_model.max_steps", [5, 6], True, False, None),
    # Another number of readers, whose files are numbered.
    ("train.bias_model.tfidf", [True, False], False, False, None),
    ("train.learning_rate", [0.1, 0.2], False, False, None),
])  # fmt: skip
def test_readers_are_shared_where_a_key_does_not_change_them(
    tmp_path: Path, key: str, domain: list[Any], standard: bool, bias_model: bool, own: list[str] | None
) -> None:
    search = loaded(tmp_path, spec=MIXINS, search={key: domain})
    file = "trained_models/part-00000.parquet"
    assert _shares(search, file, model="bert") is standard
    assert _shares(search, file, model="bert+bias_model(ans_len)") is bias_model
    assert not _shares(search, file, model="bert+learned_mixin(ans_len)")
    assert own is None or own_readers(search, [key]) == own


def test_keys_that_change_no_reader_are_refused(tmp_path: Path) -> None:
    standard = {**QA, "train": {**QA["train"], "methods": ["standard"], "biases": []}}
    for key in (PENALTY, "train.bias_model.max_steps"):
        with pytest.raises(InputError, match=f"search.{key}: no reader of train.methods changes with it; leave it out"):
            SEARCH.read(loaded(tmp_path, spec=standard, search={key: [1, 2]}))
    stopped = loaded(tmp_path, spec=QA, search={"bootstrap.sample": [9, 10]}, stop_early={"grace_steps": 3})
    with pytest.raises(InputError, match="stop_early: no trial trains a reader that is watched; leave it out"):
        describe(stopped)


@pytest.mark.parametrize(("changes", "expected"), [
    ({"trials": 10, "batch": 4}, [range(4), range(4, 8), range(8, 10)]),
    # Nothing is learned: the first batch tells whether anything works, and the others need not wait for each other.
    ({"trials": 10, "batch": 4, "algorithm": "random"}, [range(4), range(4, 10)]),
    ({"trials": 3, "batch": 4, "algorithm": "random"}, [range(3)]),
])  # fmt: skip
def test_trials_come_in_batches_where_something_is_learned(
    tmp_path: Path, changes: dict[str, Any], expected: list[range]
) -> None:
    search = loaded(tmp_path, **changes)
    assert list(_batches(search, search.n_trials)) == expected
