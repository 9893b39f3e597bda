"""Several majority-bias runs in SQL: which are over the same data, and what the size of the model changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis import query
from biaseval.errors import InputError
from tests.labelplans import two_tasks
from tests.majorityplans import ANSWERS, LARGE, SEEDS, MajorityPlan, Rows
from tests.measuring import measure


def write(
    folder: Path, n_parameters: int | None, answers: Mapping[tuple[str, bool], tuple[str, str]] = ANSWERS, **spec: Any
) -> str:
    plan = MajorityPlan(("likelihood",), answers=answers)
    plan.spec |= {"name": f"model-of-{folder.name}", **spec}
    plan.n_parameters = n_parameters
    run = plan.write(folder)
    measure(run)
    return run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("runs") / "small", 1_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("runs") / "large", 13_000, LARGE)


def effects(*runs: str, where: str = "true") -> Rows:
    found: Rows = query(runs, f"from majority_size_effect where {where}").to_pylist()
    return found


def test_the_effect_of_size_is_larger_minus_smaller_by_hand(small: str, large: str) -> None:
    """With instruction, 0/100, 50/50 and 100/0 have 23/30, 1 and (9/14 + 1)/2; 1, 1 and 9/14 with the larger model."""
    [row] = effects(large, small, where="instruction")
    intervals = {name: row.pop(name) for name in list(row) if name.endswith(("_low", "_high"))}
    signs = {f"{name}_sign": row[f"{name}_sign"] for name in ("rb_at_10", "mean_f1", "sd_f1", "tails_f1", "middle_f1")}
    before, after = [23 / 30, 1, (9 / 14 + 1) / 2], [1, 1, 9 / 14]
    assert row == {
        "run": "small",
        "larger_run": "large",
        "model": "model-of-small",
        "larger_model": "model-of-large",
        "n_parameters": 1_000,
        "larger_n_parameters": 13_000,
        "task": "boolq",
        "n_demos": 2,
        "instruction": True,
        "predict": "likelihood",
        "method": "none",
        "rb_at_10": pytest.approx(2 / 3 - 1 / 3),
        "mean_f1": pytest.approx(np.mean(after) - np.mean(before)),
        "sd_f1": pytest.approx(np.std(after, ddof=1) - np.std(before, ddof=1)),
        "tails_f1": pytest.approx((1 + 9 / 14) / 2 - (23 / 30 + (9 / 14 + 1) / 2) / 2),
        "middle_f1": 0.0,
        "n_shared_rows": 4,
        **signs,
        "has_enough_rows": False,
        "is_above_constant": None,
    }
    # Four test rows make no difference clear, but for the one that is none.
    assert signs == {**dict.fromkeys(signs), "middle_f1_sign": 0}
    assert set(intervals) == {
        f"{name}_{end}" for name in ("rb_at_10", "mean_f1", "sd_f1", "tails_f1", "middle_f1") for end in ("low", "high")
    }
    assert (intervals["middle_f1_low"], intervals["middle_f1_high"]) == (0, 0)
    [without] = effects(large, small, where="not instruction")
    assert all(without[name] == 0 for name in without if name.split("_")[0] in ("rb", "mean", "sd", "tails", "middle"))


def test_its_intervals_are_percentiles_over_the_draws_of_both_runs(small: str, large: str) -> None:
    means = []
    for run in (small, large):
        f1s = np.zeros((1000, 3, 2))
        for row in query([run], "from majority_draws where instruction and draw > 0").to_pylist():
            f1s[row["draw"] - 1, row["number"], SEEDS.index(row["seed"])] = row["weighted_f1"]
        means.append(f1s.mean(axis=2))
    [row] = effects(small, large, where="instruction")
    rb = [np.mean(x >= x.max(axis=1, keepdims=True) - 0.1 - 1e-9, axis=1) for x in means]
    for name, difference in (
        ("rb_at_10", rb[1] - rb[0]),
        ("mean_f1", (means[1] - means[0]).mean(axis=1)),
        ("sd_f1", means[1].std(axis=1, ddof=1) - means[0].std(axis=1, ddof=1)),
        ("tails_f1", (means[1] - means[0])[:, [0, 2]].mean(axis=1)),
    ):
        expected = np.quantile(difference, [0.025, 0.975])
        assert [row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(expected, abs=1e-9), name


def test_each_model_stands_against_the_next_in_size(small: str, large: str, tmp_path: Path) -> None:
    middle = write(tmp_path / "middle", 7_000)
    pairs = {(row["run"], row["larger_run"]) for row in effects(large, small, middle)}
    assert pairs == {("small", "middle"), ("middle", "large")}


def test_models_of_one_size_or_of_unknown_size_have_no_effect_of_size(small: str, tmp_path: Path) -> None:
    as_large, unknown = write(tmp_path / "as_large", 1_000), write(tmp_path / "unknown", None)
    assert effects(small, as_large, unknown) == []


def test_other_resamples_leave_the_differences_without_interval(small: str, tmp_path: Path) -> None:
    other = write(tmp_path / "other", 13_000, LARGE, seed=43)
    found = effects(small, other)
    assert len(found) == 2
    for row in found:
        names = [name for name in row if "_sign" not in name and name != "is_above_constant"]
        assert all((row[name] is None) == name.endswith(("_low", "_high")) for name in names)
        assert row["n_shared_rows"] == 4
    [with_instruction] = [row for row in found if row["instruction"]]
    assert with_instruction["rb_at_10"] == pytest.approx(1 / 3)


def _rename(plan: MajorityPlan) -> None:
    plan.spec["name"] = "elsewhere"
    for table in (plan.contexts, plan.prompts):
        for row in table:
            row["task"] = "rte"
    for number, row in enumerate(plan.prompts):
        row["instance_id"] = f"renamed-{number % 4}"


def _another_question(plan: MajorityPlan) -> None:
    for row in plan.prompts:
        if row["row"] == 3:
            row["input_text"] = "another"


def _other_questions(plan: MajorityPlan) -> None:
    for row in plan.prompts:
        row["input_text"] = f"another {row['row']}"


def _other_grid(plan: MajorityPlan) -> None:
    for row in (*plan.settings, *plan.contexts):
        row["setting"] = row["setting"].replace("50/50", "51/49")


def _other_demonstrations(plan: MajorityPlan) -> None:
    plan.contexts[0]["text"] = "other demonstrations"


def _other_instruction(plan: MajorityPlan) -> None:
    for row in plan.contexts:
        if row["instruction"]:
            row["text"] = "another instruction"


def _other_seeds(plan: MajorityPlan) -> None:
    for row in (*plan.contexts, *plan.prompts):
        row["demo_set"] += 1


def _other_scoring(plan: MajorityPlan) -> None:
    plan.spec["scoring"] = {"normalization": "mean", "eos": False}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_other_demonstrations, "has_same_contexts"),
        (_other_instruction, "has_same_contexts"),
        (_other_seeds, "has_same_contexts"),
        (_other_scoring, "has_same_scoring"),
    ],
)
def test_other_prompts_or_scoring_leave_the_differences_without_interval(
    change: Any, reason: str, small: str, tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood",))
    plan.n_parameters = 13_000
    change(plan)
    other = plan.write(tmp_path / "other")
    measure(other)
    for row in query([small, other], "from majority_shared_data").to_pylist():
        met = {name: row[name] for name in row if name.startswith("has_same")}
        assert met == {**dict.fromkeys(("has_same_rows", "has_same_contexts", "has_same_scoring"), True), reason: False}
    found = effects(small, other)
    assert len(found) == 2
    names = [name for name in found[0] if "_sign" not in name and name != "is_above_constant"]
    assert all((row[name] is None) == name.endswith(("_low", "_high")) for row in found for name in names)


def test_a_run_without_instruction_has_the_contexts_of_one_with_and_without(small: str, tmp_path: Path) -> None:
    answers = {place: given for place, given in ANSWERS.items() if not place[1]}
    found = effects(small, write(tmp_path / "plain", 13_000, answers))
    assert [(row["instruction"], row["mean_f1_low"]) for row in found] == [(False, 0)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_rename, [(True, 4)] * 2),  # names do not count
        (_another_question, [(False, 3)] * 2),
        (_other_questions, []),
        (_other_grid, []),
    ],
)
def test_the_same_data_are_the_same_test_rows_and_settings(
    change: Any, expected: list[tuple[bool, int]], small: str, tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood",))
    change(plan)
    other = plan.write(tmp_path / "other")
    measure(other)
    found = query([small, other], "select has_same_rows, n_shared_rows from majority_shared_data order by run")
    assert [tuple(row.values()) for row in found.to_pylist()] == expected


def test_comparisons_are_of_several_runs_that_have_what_they_read(small: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="majority_size_effect does not exist"):
        query([small], "from majority_size_effect")
    animals, more = (two_tasks().write(tmp_path / name) for name in ("animals", "more"))
    measure(animals)
    measure(more)
    with pytest.raises(InputError, match="majority_size_effect does not exist"):
        query([animals, more], "from majority_size_effect")
    assert query([animals, small], "from majority_size_effect").num_rows == 0
