"""Searches of the papers: what they vary and look for, and what a spec needs for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.search.objectives import objective_columns
from biaseval.spec import differences, dump_spec, stored_spec
from tests.searches import BASE
from tests.test_search_spec import PENALTY, QA, SCALE, loaded, refused

MIXINS: dict[str, Any] = {
    **QA,
    "datasets": {**QA["datasets"], "out_of_distribution": {"adversarialqa": "adversarial.json"}},
    "train": {**QA["train"], "biases": ["word_dist", "ans_len"]},
}
ANSWERED = {
    "kind": "qa_bias",
    "name": "answered",
    "models": [{"name": "bert", "path": "bert"}],
    "datasets": QA["datasets"],
}


def preset(name: str, spec: Any, **changes: Any) -> dict[str, Any]:
    """Return the changes that make a search one of a paper."""
    return {"preset": name, "spec": spec, **dict.fromkeys(("search", "objective", "trials"), ...), **changes}


@pytest.mark.parametrize(
    ("name", "base", "n_trials", "per"),
    [
        ("mikula2024-scale", MIXINS, 12 * 3, []),
        ("mikula2024-scale-per-bias", MIXINS, 12 * 3, ["bias"]),
        # 0, nine tenths and 100 whole numbers.
        ("mikula2024-thresholds", ANSWERED, 110, ["model", "dataset", "heuristic"]),
    ],
)
def test_a_search_of_a_paper_has_a_name(tmp_path: Path, name: str, base: Any, n_trials: int, per: list[str]) -> None:
    spec = loaded(tmp_path, **preset(name, base))
    assert (spec.n_trials, spec.per, spec.algorithm, spec.choose_on) == (n_trials, per, "grid", "half")
    assert objective_columns(spec.spec.kind, spec.objective.sql, spec.per)
    assert stored_spec(yaml.safe_load(dump_spec(spec)), "run/spec.yaml") == spec
    assert not differences(spec, loaded(tmp_path, **preset(name, base, execution={"at_once": 3})))


def test_one_number_is_the_threshold_of_every_heuristic(tmp_path: Path) -> None:
    spec = loaded(tmp_path, **preset("mikula2024-thresholds", {**ANSWERED, "heuristics": ["ans_len", "cos_sim"]}))
    trial = spec.at({"thresholds.*": 0.3})
    assert trial.kind == "qa_bias"
    assert trial.thresholds == {"ans_len": 0.3, "cos_sim": 0.3}
    assert spec.is_arithmetic


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            preset("mikula2024", MIXINS),
            "preset: 'mikula2024' is unknown; use mikula2024-scale or mikula2024-scale-per-bias or",
        ),
        (
            preset("mikula2024-scale", MIXINS, algorithm="random", trials=4),
            "preset: mikula2024-scale says what search, objective, per, algorithm are; leave out algorithm, trials",
        ),
        (
            preset("mikula2024-scale", MIXINS, search={SCALE: [0.5]}),
            "preset: mikula2024-scale says what search, objective, per, algorithm are; leave out search",
        ),
        (
            preset("mikula2024-scale", BASE),
            "preset: mikula2024-scale searches a qa_bias spec, and not a label_bias one",
        ),
        (
            preset("mikula2024-scale", {**MIXINS, "train": {**MIXINS["train"], "methods": ["standard", "resample"]}}),
            "preset: mikula2024-scale needs readers with learned_mixin; add it to train.methods",
        ),
        (
            preset("mikula2024-scale-per-bias", QA),
            "chooses on a set adversarialqa; add it to datasets.out_of_distribution",
        ),
        (
            preset("mikula2024-scale", {**MIXINS, "train": QA["train"]}),
            "preset: mikula2024-scale chooses by readers that address word_dist; add it to train.biases",
        ),
        (
            preset("mikula2024-thresholds", BASE),
            "preset: mikula2024-thresholds searches a qa_bias spec, and not a label_bias one",
        ),
        (
            preset("mikula2024-thresholds", QA),
            "mikula2024-thresholds searches the thresholds of models that are there; leave out train, and name them",
        ),
    ],
)
def test_a_search_of_a_paper_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    assert expected in refused(tmp_path, **changes)


def test_the_scale_takes_both_conventions_and_the_penalties_of_clark(tmp_path: Path) -> None:
    search = loaded(tmp_path, **preset("mikula2024-scale", MIXINS)).search
    scales = {0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}  # of the appendix, as the part that is removed
    assert {round(1 - scale, 2) for scale in scales} | scales | {1} == set(search[SCALE]["grid"])
    assert search[PENALTY]["grid"] == [0.2, 0.4, 2.0]


def test_thresholds_are_tried_at_tenths_and_whole_numbers(tmp_path: Path) -> None:
    search = loaded(tmp_path, **preset("mikula2024-thresholds", ANSWERED)).search
    assert search["thresholds.*"]["grid"] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, *range(1, 101)]
