"""Intervals over the stored draws, and marts that are the same each time."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

from biaseval.analysis import open_runs, query
from tests.majorityplans import ANSWERS, GOLD, SEEDS, MajorityPlan, rows
from tests.measuring import measure

FOLLOWED = [
    f"{name}{end}"
    for name in ("majority_effect", "recency", "recency_at_equal_shares")
    for end in ("", "_low", "_high")
]

BASELINE = ["accuracy", "majority_accuracy"]


def test_intervals_of_differences_are_percentiles_over_the_stored_draws(opened: duckdb.DuckDBPyConnection) -> None:
    """A statistic of a draw is over settings, each the mean over seeds; both sides of a difference have the draw."""
    draws = rows(opened, "from majority_draws where predict = 'likelihood' and draw > 0")
    f1s: dict[tuple[bool, str], np.ndarray[Any, Any]] = {}
    for row in draws:
        values = f1s.setdefault((row["instruction"], row["method"]), np.zeros((1000, 3, 2)))
        values[row["draw"] - 1, row["number"], SEEDS.index(row["seed"])] = row["weighted_f1"]
    means = {key: values.mean(axis=2) for key, values in f1s.items()}
    for row in rows(opened, "from majority_calibration_gain"):
        after, before = means[row["instruction"], row["method"]], means[row["instruction"], "none"]
        statistics: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
            "rb_at_10": lambda x: np.mean(x >= x.max(axis=1, keepdims=True) - 0.1 - 1e-9, axis=1),
            "mean_f1": lambda x: x.mean(axis=1),
            "sd_f1": lambda x: x.std(axis=1, ddof=1),
        }
        for name, statistic in statistics.items():
            expected = np.quantile(statistic(after) - statistic(before), [0.025, 0.975])
            assert [row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(expected, abs=1e-9), name
    for row in rows(opened, "from majority_instruction_gap where predict = 'likelihood'"):
        chosen = [0, 2] if row["region"] == "tails" else [1]
        gap = (means[True, row["method"]] - means[False, row["method"]])[:, chosen].mean(axis=1)
        assert [row["gap_low"], row["gap_high"]] == pytest.approx(np.quantile(gap, [0.025, 0.975]), abs=1e-9)


def test_intervals_are_percentiles_over_the_stored_draws(opened: duckdb.DuckDBPyConnection) -> None:
    draws = [row["n_drawn"] for row in rows(opened, "from row_draws order by draw")]
    assert (len(draws), draws[0]) == (1001, [1, 1, 1, 1])
    assert all(sum(n_drawn) == 4 for n_drawn in draws)

    @functools.cache  # of 1,000 draws from four rows few differ
    def drawn(answers: str, n_drawn: tuple[int, ...]) -> float:
        return float(
            f1_score(
                list("".join(gold * n for gold, n in zip(GOLD, n_drawn, strict=True))),
                list("".join(answer * n for answer, n in zip(answers, n_drawn, strict=True))),
                average="weighted",
                zero_division=0,
            )
        )

    f1s = {
        (setting, seed): [drawn(ANSWERS[setting, True][seed], tuple(n_drawn)) for n_drawn in draws[1:]]
        for setting in ("0/100", "100/0")
        for seed in (0, 1)
    }
    where = "instruction and predict = 'likelihood' and method = 'none'"
    for (setting, seed), values in f1s.items():
        [row] = rows(
            opened, f"from majority_by_setting where {where} and setting = '{setting}' and seed = {SEEDS[seed]}"
        )
        expected = np.quantile(values, [0.025, 0.975])
        assert [row["weighted_f1_low"], row["weighted_f1_high"]] == pytest.approx(expected, abs=1e-9)
    means = np.array([np.mean([f1s[setting, seed] for seed in (0, 1)], axis=0) for setting in ("0/100", "100/0")])
    for setting, values in zip(("0/100", "100/0"), means, strict=True):
        [row] = rows(opened, f"from majority_over_seeds where {where} and setting = '{setting}'")
        expected = np.quantile(values, [0.025, 0.975])
        assert [row["weighted_f1_low"], row["weighted_f1_high"]] == pytest.approx(expected, abs=1e-9)
    means = np.array([means[0], np.ones(1000), means[1]])  # 50/50 is always right
    [row] = rows(opened, f"from majority_by_model where {where}")
    boundary = np.mean(means >= means.max(axis=0) - 0.1 - 1e-9, axis=0)
    assert [row["mean_f1_low"], row["mean_f1_high"]] == pytest.approx(np.quantile(means.mean(axis=0), [0.025, 0.975]))
    assert [row["rb_at_10_low"], row["rb_at_10_high"]] == pytest.approx(np.quantile(boundary, [0.025, 0.975]))


def test_one_row_and_one_seed_have_no_interval_and_no_deviation(tmp_path: Path) -> None:
    plan = MajorityPlan(("generate",))
    plan.contexts = [row for row in plan.contexts if row["demo_set"] == 3]
    plan.prompts = [row for row in plan.prompts if row["demo_set"] == 3 and row["row"] == 0]
    prompts = {row["prompt_id"] for row in plan.prompts}
    plan.generations = [row for row in plan.generations if row["prompt_id"] in prompts]
    run = plan.write(tmp_path)
    measure(run)
    for row in rows(run, "from majority_over_seeds"):
        assert (row["n_rows"], row["n_seeds"], row["sd_f1"], row["weighted_f1_low"]) == (1, 1, None, None)
    for row in rows(run, "from majority_by_model"):
        assert row["mean_f1_low"] is row["rb_at_10_high"] is row["mean_sd_over_seeds"] is None
        assert row["sd_f1"] is not None
    assert {row["gap_low"] for row in rows(run, "from majority_instruction_gap")} == {None}


def test_the_same_outputs_in_another_order_give_the_same_bytes(built: str, tmp_path: Path) -> None:
    plan = MajorityPlan(calibration=("cc", "looc"))
    for table in (plan.contexts, plan.prompts, plan.label_scores, plan.generations, plan.settings):
        table.reverse()
    run = plan.write(tmp_path)
    measure(run)
    marts = {path.name for path in Path(run, "marts").iterdir()}
    assert marts == {
        "calibration_parameters.parquet",
        "majority_by_model.parquet",
        "majority_by_setting.parquet",
        "majority_calibration_gain.parquet",
        "majority_components.parquet",
        "majority_draws.parquet",
        "majority_draws_by_model.parquet",
        "majority_draws_over_seeds.parquet",
        "majority_instruction_gap.parquet",
        "majority_over_seeds.parquet",
        "majority_remedies.parquet",
        "majority_verdicts.parquet",
    }
    for mart in marts:
        assert Path(run, "marts", mart).read_bytes() == Path(built, "marts", mart).read_bytes(), mart


def test_a_run_of_an_older_version_has_the_marts_columns_of_this_one(built: str, tmp_path: Path) -> None:
    old = tmp_path / "boolq"
    shutil.copytree(built, old)
    for mart, columns in (
        ("majority_over_seeds", ["boundary", "is_marked", "recency", "is_above_constant"]),
        (
            "majority_by_model",
            ["boundary", "n_marked", "has_enough_rows", "is_bias_shown", *FOLLOWED, *BASELINE],
        ),
        (
            "majority_calibration_gain",
            ["rb_at_10_sign", "mean_f1_sign", "sd_f1_sign", "has_enough_rows", "is_above_constant"],
        ),
    ):
        path = old / "marts" / f"{mart}.parquet"
        pq.write_table(pq.read_table(path).drop_columns(columns), path)
    with closing(open_runs([str(old)])) as of_old, closing(open_runs([built])) as of_new:
        for mart in Path(built, "marts").iterdir():
            found, wanted = (run.sql(f"from {mart.stem}").to_arrow_table() for run in (of_old, of_new))
            assert found.equals(wanted), mart
    both = query([built, str(old)], "select run, has_enough_rows from majority_by_model")
    assert both["has_enough_rows"].null_count == 0
