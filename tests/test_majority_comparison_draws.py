"""Two majority-bias runs that differ by their luck with demonstrations: errors by hand and by NumPy, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.analysis import sql_files as relations
from biaseval.analysis.sign_flips import sign_flips
from biaseval.report.comparison import comparison_content
from biaseval.report.comparison_data import read_comparison
from tests.majority_report.runs import make_run
from tests.majorityplans import ANSWERS, MajorityPlan, Rows
from tests.measuring import measure

Floats = npt.NDArray[np.float64]

RIGHT = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
ALIKE = {place: (given[0], given[0]) for place, given in ANSWERS.items()}
"""The answers of a setting are the same behind both draws of demonstrations."""


def found_by(sql: str, **tables: pa.Table) -> Rows:
    """Return what a query finds in tables, with the macros."""
    with closing(relations.connect([])) as connection:
        for name, content in tables.items():
            connection.from_arrow(content).create(name)
        rows: Rows = connection.sql(sql).to_arrow_table().to_pylist()
    return rows


# The error over draws


def changes(
    own: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]], metric: str = "mean_f1", shift: int = 0
) -> pa.Table:
    """Return what seeds add to each side, by setting.

    Args:
        own: of the first side.
        other: of the second side.
        metric: that is tested.
        shift: of the second side's seeds.
    """
    sides: dict[tuple[int, int], dict[str, float]] = {}
    for name, values, first in (("value", own, 0), ("other_value", other, shift)):
        for number, of_seeds in values.items():
            for seed, value in enumerate(of_seeds):
                sides.setdefault((number, first + seed), {})[name] = value
    return pa.Table.from_pylist(
        [
            {"family": "f", "test": {"metric": metric}, "number": number, "seed": seed}
            | {"value": found.get("value"), "other_value": found.get("other_value")}
            for (number, seed), found in sides.items()
        ]
    )


OWN = {0: [0.1, 0.2], 1: [0.3, 0.3]}
OTHER = {0: [0.2, 0.1], 1: [0.5, 0.3]}


def test_behind_the_same_seeds_the_error_over_draws_is_that_of_paired_differences_by_hand() -> None:
    """Differences 0.1 and -0.1, 0.2 and 0: variances 0.02 and 0.02, of sums of two 0.04, a degree of freedom each."""
    [row] = found_by("from draw_errors('changes')", changes=changes(OWN, OTHER))
    assert row["error_draws"] == pytest.approx(np.sqrt(0.08))
    assert row["draws_df"] == pytest.approx(2)
    assert (row["family"], row["test"], row["n_seeds"]) == ("f", {"metric": "mean_f1"}, 2)


def test_behind_other_seeds_the_errors_of_both_sides_add_by_hand() -> None:
    """Variances of sums: 0.01 and 0.01 in the first setting, 0 and 0.04 in the second."""
    [row] = found_by("from draw_errors('changes')", changes=changes(OWN, OTHER, shift=2))
    assert row["error_draws"] == pytest.approx(np.sqrt(0.06))
    assert row["draws_df"] == pytest.approx(0.06**2 / (0.01**2 + 0.01**2 + 0.04**2))
    # Seeds that only overlap are no pairs: the fewest count.
    longer = {0: [0.2, 0.1, 0.3], 1: [0.5, 0.3, 0.4]}
    [overlapping] = found_by("from draw_errors('changes')", changes=changes(OWN, longer))
    assert overlapping["error_draws"] == pytest.approx(np.sqrt(0.01 + 3 * 0.01 + 0 + 3 * 0.01))
    assert overlapping["n_seeds"] == 2


@pytest.mark.parametrize("shift", [0, 1])
def test_one_seed_has_its_error_from_six_settings_or_none(shift: int) -> None:
    differences = [0.01, -0.02, 0.03, 0.0, 0.05, -0.01]
    own = {number: [0.1 * number] for number in range(6)}
    other = {number: [own[number][0] + change] for number, change in enumerate(differences)}
    [row] = found_by("from draw_errors('changes')", changes=changes(own, other, shift=shift))
    assert row["error_draws"] == pytest.approx(np.sqrt(6 * np.var(differences, ddof=1)))
    assert (row["draws_df"], row["n_seeds"]) == (5, 1)
    assert found_by("from draw_errors('changes')", changes=changes(own, other, "sd_f1", shift)) == []
    del own[5], other[5]
    assert found_by("from draw_errors('changes')", changes=changes(own, other, shift=shift)) == []


def test_several_seeds_against_one_have_no_error_from_seeds() -> None:
    [*several] = found_by("from draw_errors('changes')", changes=changes(OWN, {0: [0.2], 1: [0.5]}))
    assert several == []


def test_the_other_direction_exchanges_the_sides_and_turns_the_difference_round() -> None:
    row = {"run": "a", "other_run": "b", "metric": "m", "value": 0.2, "other_value": 0.5, "estimate": 0.3, "p": 0.04}
    row |= {"is_above_constant": True, "other_is_above_constant": False, "low": 0.1, "high": 0.6}
    row |= {"simultaneous_low": -0.1, "simultaneous_high": 0.8, "both_low": None, "both_high": 0.9}
    found = found_by("from both_directions('tests') order by run", tests=pa.Table.from_pylist([row]))
    back = {"run": "b", "other_run": "a", "metric": "m", "value": 0.5, "other_value": 0.2, "estimate": -0.3, "p": 0.04}
    back |= {"is_above_constant": False, "other_is_above_constant": True, "low": -0.6, "high": -0.1}
    back |= {"simultaneous_low": -0.8, "simultaneous_high": 0.1, "both_low": -0.9, "both_high": None}
    assert found == [row, back]


# The comparison, by NumPy and SciPy


def test_a_comparison_counts_the_errors_of_rows_and_of_draws() -> None:
    n_rows, n_settings, n_seeds = 40, 3, 4
    rng = np.random.default_rng(0)
    place = {"task": "t", "n_demos": 2, "instruction": True, "predict": "likelihood", "method": "none"}
    right: dict[str, Any] = {}
    predictions, row_values, draw_values = [], [], []
    by_rows, by_draws = {}, {}
    for run, chance in (("a", 0.6), ("b", 0.8)):
        right[run] = rng.random((n_settings, n_seeds, n_rows)) < chance
        by_rows[run] = {"accuracy": right[run].mean(axis=(0, 1)), "mean_f1": rng.normal(chance, 0.3, n_rows)}
        by_draws[run] = {
            "accuracy": right[run].mean(axis=2) / n_settings / n_seeds,
            "mean_f1": rng.normal(chance, 0.1, (n_settings, n_seeds)) / n_settings / n_seeds,
        }
        of_run = {"run": run, **place}
        for setting, seed, row in np.ndindex(right[run].shape):
            answer = "yes" if right[run][setting, seed, row] else None
            given = {"setting": f"{setting}", "number": setting, "seed": seed, "row": row}
            predictions.append({**of_run, **given, "gold": "yes", "prediction": answer})
        row_values += [
            {**of_run, "metric": "mean_f1", "row": row, "value": float(value)}
            for row, value in enumerate(by_rows[run]["mean_f1"])
        ]
        draw_values += [
            {
                **of_run,
                "setting": f"{setting}",
                "number": setting,
                "seed": seed,
                "metric": metric,
                "value": float(value),
            }
            for metric, values in by_draws[run].items()
            for (setting, seed), value in np.ndenumerate(values)
        ]
    model = {name: place[name] for name in ("n_demos", "instruction", "predict", "method")}
    model |= {"is_above_constant": True, "is_any_setting_above_constant": True, "has_enough_rows": True}
    model |= {"majority_accuracy": 0.7, "constant_f1": 0.5}
    boundaries = pa.Table.from_pylist([{"run": "a", **place, "seed": 0, "draw": 0, "rb_at_10": 1.0}]).slice(1)
    sql = (relations.ANALYTICS / "comparisons" / "majority_bias_comparison.sql").read_text()
    found = found_by(
        sql,
        majority_bias_shared=pa.Table.from_pylist(
            [{"run": run, "other_run": other, "is_comparable": True} for run, other in ("ab", "ba")]
        ),
        majority_predictions=pa.Table.from_pylist(predictions),
        majority_row_values=pa.Table.from_pylist(row_values),
        majority_draw_values=pa.Table.from_pylist(draw_values),
        majority_by_model=pa.Table.from_pylist([{"run": run, **model} for run in "ab"]),
        majority_seed_boundaries=boundaries.drop(["draw"]),
        majority_draws_by_model=boundaries.drop(["seed"]),
        comparison_sign_flips=sign_flips(n_rows, 0),
    )
    assert [(row["run"], row["metric"]) for row in found] == [
        (run, metric) for run in "ab" for metric in ("accuracy", "mean_f1")
    ]
    forth = {row["metric"]: row for row in found if row["run"] == "a"}
    p_both = {}
    for metric, row in forth.items():
        of_rows = by_rows["b"][metric] - by_rows["a"][metric]
        of_draws = by_draws["b"][metric] - by_draws["a"][metric]
        variances = n_seeds * of_draws.var(axis=1, ddof=1)
        error_draws = np.sqrt(variances.sum())
        error = np.hypot(stats.sem(of_rows), error_draws)
        df = error**4 / (stats.sem(of_rows) ** 4 / (n_rows - 1) + (variances**2 / (n_seeds - 1)).sum())
        p_both[metric] = 2 * stats.t.sf(abs(of_rows.mean()) / error, df)
        assert row["estimate"] == pytest.approx(of_rows.mean())
        assert row["error_draws"] == pytest.approx(error_draws)
        assert row["n_seeds"] == n_seeds
        assert row["p_both"] == pytest.approx(p_both[metric], rel=0.03)
        reach = (row["simultaneous_high"] - row["estimate"]) * error / stats.sem(of_rows)
        assert row["both_low"] == pytest.approx(row["estimate"] - reach)
        assert row["both_high"] == pytest.approx(row["estimate"] + reach)
        assert row["both_smallest_detectable"] == pytest.approx(2.8 * error)
        assert row["reason"] is None
    first, second = sorted(forth, key=lambda metric: p_both[metric])
    assert forth[first]["p_both_adjusted"] == pytest.approx(min(1, 2 * forth[first]["p_both"]))
    assert forth[second]["p_both_adjusted"] == pytest.approx(
        max(forth[second]["p_both"], forth[first]["p_both_adjusted"])
    )
    for row in found[2:]:
        before = forth[row["metric"]]
        assert (row["other_run"], row["value"], row["other_value"]) == ("a", before["other_value"], before["value"])
        assert (row["both_low"], row["both_high"]) == (-before["both_high"], -before["both_low"])
        for name in ("error_draws", "n_seeds", "p_both", "p_both_adjusted"):
            assert row[name] == before[name]


# What is said of runs


def compared(runs: Sequence[str], where: str = "instruction") -> dict[str, dict[str, Any]]:
    """Return the tests of the second run against the first by metric."""
    rows = query(runs, f"from majority_bias_comparison where run = 'small' and {where}").to_pylist()
    return {row["metric"]: row for row in rows}


def test_a_difference_in_one_draw_of_demonstrations_is_not_said_of_others(tmp_path: Path) -> None:
    """In 100/0 the larger model is right behind one of two draws where the other says True to all: F1 1 and 9/14."""
    larger = {**ANSWERS, ("100/0", True): ("TTTF", "TTTF")}
    runs = [make_run(tmp_path / "small", 1_000), make_run(tmp_path / "large", 2_000, larger)]
    found = compared(runs)
    row = found["mean_f1"]
    assert row["estimate"] == pytest.approx((1 - 9 / 14) / 2 / 3)
    assert (row["n_units"], row["p_adjusted"] < 0.01) == (200, True)
    # Of six draws one differs: the standard error over draws is the difference itself.
    assert row["error_draws"] == pytest.approx(row["estimate"])
    assert (row["verdict"], row["reason"]) == ("unclear", None)
    assert found.pop("rb_at_10")["reason"] == "too few seeds"
    assert {one["verdict"] for one in found.values()} <= {"unclear", "negligible"}
    [effect] = query(runs, "from majority_size_effect where instruction").to_pylist()
    assert [effect[f"{name}_sign"] for name in ("rb_at_10", "mean_f1", "sd_f1", "tails_f1", "middle_f1")] == [
        *([0] if abs(effect["rb_at_10"]) <= 1e-9 else [None]),
        None,
        None,
        None,
        0,
    ]
    assert effect["mean_f1_low"] > 0  # percentiles over the rows alone


def test_a_difference_in_every_draw_of_demonstrations_is_said(tmp_path: Path) -> None:
    """Over rows it is the same in all draws of a setting, so that their error is 0."""
    runs = [make_run(tmp_path / "small", 1_000, ALIKE), make_run(tmp_path / "large", 2_000, RIGHT)]
    found = compared(runs)
    row = found["mean_f1"]
    assert row["estimate"] == pytest.approx(1 - (23 / 30 + 1 + 9 / 14) / 3)
    assert row["error_draws"] == pytest.approx(0, abs=1e-9)
    assert (row["verdict"], row["p_both_adjusted"] < 0.001) == ("higher", True)
    assert (found["accuracy"]["verdict"], found["sd_f1"]["reason"]) == ("higher", "no spread")
    [effect] = query(runs, "from majority_size_effect where instruction").to_pylist()
    assert (effect["mean_f1_sign"], effect["tails_f1_sign"], effect["middle_f1_sign"]) == (1, 1, 0)
    # RB@10 rises from 1/3 to 1, of which two seeds say nothing.
    assert (effect["rb_at_10"], effect["rb_at_10_sign"]) == (pytest.approx(2 / 3), None)
    [told] = [one for one in comparison_content(read_comparison(runs))["summary"] if "next in size" in one]
    assert "RB@10 is higher in 0 and lower in 0 of 2 and mean weighted F1 is higher in 2 and lower in 0 of 2." in told


def test_one_seed_cannot_say_that_runs_differ(tmp_path: Path) -> None:
    runs = []
    for name, answers in (("small", ALIKE), ("large", RIGHT)):
        plan = MajorityPlan(("likelihood",), answers=answers, n_repeats=50)
        plan.contexts = [row for row in plan.contexts if row["demo_set"] == 3]
        plan.prompts = [row for row in plan.prompts if row["demo_set"] == 3]
        kept = {row["prompt_id"] for row in plan.prompts}
        plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] in kept]
        runs.append(plan.write(tmp_path / name))
        measure(runs[-1])
    found = compared(runs)
    for metric in ("accuracy", "mean_f1", "tails_f1", "middle_f1"):
        row = found[metric]
        assert (row["verdict"], row["reason"]) == ("too few", "too few seeds")
        assert (row["error_draws"], row["p_both"], row["both_low"]) == (None, None, None)
    assert found["mean_f1"]["p_adjusted"] < 0.001


def test_runs_behind_other_seeds_have_the_errors_of_both(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "small", 1_000)]
    plan = MajorityPlan(("likelihood",), answers=RIGHT, n_repeats=50)
    for row in (*plan.contexts, *plan.prompts):
        row["demo_set"] += 10
    runs.append(plan.write(tmp_path / "large"))
    measure(runs[1])
    row = compared(runs)["mean_f1"]
    # The larger model is always right; of the smaller one's draws those of 100/0 differ, F1 9/14 and 1.
    variance = np.var([9 / 14, 1], ddof=1) / 2 / 3**2
    assert row["error_draws"] == pytest.approx(np.sqrt(variance))
    assert (row["n_seeds"], row["reason"]) == (2, None)
    # Without demonstrations in common a difference is not the effect of size alone.
    assert {one["mean_f1_sign"] for one in query(runs, "from majority_size_effect").to_pylist()} <= {0, None}


def test_the_spread_over_settings_is_not_compared_over_other_numbers_of_seeds(tmp_path: Path) -> None:
    """The fewer seeds a setting has, the wider the spread: here of the same answers."""
    runs = [make_run(tmp_path / "small", 1_000)]
    plan = MajorityPlan(("likelihood",), n_repeats=50)
    plan.contexts = [row for row in plan.contexts if row["demo_set"] == 3]
    plan.prompts = [row for row in plan.prompts if row["demo_set"] == 3]
    ids = {row["prompt_id"] for row in plan.prompts}
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] in ids]
    runs.append(plan.write(tmp_path / "large"))
    measure(runs[1])
    for name in ("small", "large"):
        asked = f"from majority_bias_comparison where run = '{name}' and instruction and metric = 'sd_f1'"
        [row] = query(runs, asked).to_pylist()
        assert (row["verdict"], row["reason"]) == (None, "other numbers of seeds")
        assert row["estimate"] is not None
