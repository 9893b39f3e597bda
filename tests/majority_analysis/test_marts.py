"""Marts of majority-label bias on a run done by hand."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from biaseval.runs import analyse_run
from tests.majorityplans import ANSWERS, DEMOS, F1, SEEDS, MajorityPlan, rows
from tests.measuring import measure


def test_a_setting_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    """0/100, seed 3, with instruction: demonstrations False False, gold T T T F, generated T T - F."""
    where = "setting = '0/100' and seed = 3 and instruction"
    [row] = rows(opened, f"from majority_by_setting where predict = 'generate' and {where}")
    low, high = row.pop("weighted_f1_low"), row.pop("weighted_f1_high")
    assert row == {
        "model": "tiny",
        "task": "boolq",
        "n_demos": 2,
        "instruction": True,
        "setting": "0/100",
        "number": 0,
        "seed": 3,
        "predict": "generate",
        "method": "none",
        "weighted_f1": pytest.approx(0.85),
        "accuracy": 0.75,
        "share_majority": 0.25,
        "share_last": 0.25,
        "share_no_label": 0.25,
        "majority_label": "False",
        "last_label": "False",
        "n_rows": 4,
        "share_most_frequent": 0.5,
        "constant_p": 1.0,
        "is_above_constant": None,  # an accuracy of 0.75, as one label for all has, and a higher weighted F1
    }
    assert 0 <= low < 0.85 < high <= 1
    [row] = rows(opened, f"from majority_by_setting where predict = 'likelihood' and method = 'none' and {where}")
    assert row["weighted_f1"] == pytest.approx(23 / 30)
    assert [row[name] for name in ("accuracy", "share_majority", "share_last", "share_no_label")] == [0.75, 0.5, 0.5, 0]


def test_every_setting_has_the_weighted_f1_of_its_answers(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(opened, "from majority_by_setting where method = 'none' and predict = 'likelihood'")
    assert len(found) == 3 * 2 * 2
    for row in found:
        answers = ANSWERS[row["setting"], row["instruction"]][SEEDS.index(row["seed"])]
        assert row["weighted_f1"] == pytest.approx(F1[answers], abs=1e-12)
        demos = DEMOS[row["setting"]][SEEDS.index(row["seed"])]
        assert row["last_label"] == demos[-1]
        assert row["share_last"] == answers.count(demos[-1][0]) / 4
        if row["setting"] == "50/50":
            assert row["majority_label"] is row["share_majority"] is None
        else:
            assert row["majority_label"] == demos[0]
            assert row["share_majority"] == row["share_last"]


def test_calibration_is_by_setting_seed_and_instruction(opened: duckdb.DuckDBPyConnection) -> None:
    sql = "select setting, seed, instruction, method, weighted_f1 from majority_by_setting where predict = 'likelihood'"
    changed = {
        ("100/0", 3, True, "cc"): "FFFF",  # TTTT turned
        ("0/100", 3, False, "looc"): "TTTT",  # FFFF turned
    }
    found = {tuple(row.values())[:4]: row["weighted_f1"] for row in rows(opened, sql)}
    assert len(found) == 3 * 2 * 2 * 3
    for (setting, seed, instruction, method), weighted_f1 in found.items():
        answers = ANSWERS[setting, instruction][SEEDS.index(seed)]
        answers = changed.get((setting, seed, instruction, method), answers)
        assert weighted_f1 == pytest.approx(F1[answers]), (setting, seed, instruction, method)
    weights = rows(
        opened,
        "select label, p_hat, n_rows from calibration_parameters "
        "where setting = '0/100' and demo_set = 3 and not instruction and method = 'looc' order by label",
    )
    assert [list(row.values()) for row in weights] == [
        ["False", pytest.approx(0.97), 2],
        ["True", pytest.approx(0.03), 2],
    ]


def test_seeds_are_averaged_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    [row] = rows(
        opened,
        "from majority_over_seeds "
        "where setting = '100/0' and instruction and predict = 'likelihood' and method = 'none'",
    )
    low, high = row.pop("weighted_f1_low"), row.pop("weighted_f1_high")
    assert row == {
        "model": "tiny",
        "task": "boolq",
        "n_demos": 2,
        "instruction": True,
        "setting": "100/0",
        "number": 2,
        "predict": "likelihood",
        "method": "none",
        "weighted_f1": pytest.approx((9 / 14 + 1) / 2),
        "sd_f1": pytest.approx((1 - 9 / 14) / math.sqrt(2)),
        "accuracy": 0.875,
        "share_majority": 0.875,
        "share_last": 0.875,
        "share_no_label": 0.0,
        "is_within": False,
        "boundary": None,  # four rows do not show that a setting is better than one label for all
        "is_marked": False,
        "n_seeds": 2,
        "n_rows": 8,
        "recency": None,  # the last demonstration is True with both seeds
        "share_most_frequent": 1.0,
        "constant_p": 1.0,
        "is_above_constant": None,
        "n_seeds_not_above": 1,  # TTTT is one label for all
    }
    assert low < (9 / 14 + 1) / 2 < high


def _half_width(run: duckdb.DuckDBPyConnection, *, instruction: bool) -> float:
    """Return the median half width of the intervals of the likelihoods' settings, those of width 0 left out."""
    of_settings = rows(
        run,
        "from majority_over_seeds where predict = 'likelihood' and method = 'none' "
        f"and {'' if instruction else 'not '}instruction",
    )
    widths = [(row["weighted_f1_high"] - row["weighted_f1_low"]) / 2 for row in of_settings]
    return float(np.median([width for width in widths if width > 0]))


def test_a_model_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    """Without instruction the means over seeds are 0.1, (23/30 + 1)/2 and 9/14: only the best is within 0.1 of it."""
    [row] = rows(opened, "from majority_by_model where not instruction and predict = 'likelihood' and method = 'none'")
    intervals = {name: row.pop(name) for name in list(row) if name.endswith(("_low", "_high"))}
    means = [0.1, (23 / 30 + 1) / 2, 9 / 14]
    assert row == {
        "model": "tiny",
        "n_parameters": 1000,
        "task": "boolq",
        "n_demos": 2,
        "instruction": False,
        "predict": "likelihood",
        "method": "none",
        "mean_f1": pytest.approx(np.mean(means)),
        "sd_f1": pytest.approx(np.std(means, ddof=1)),
        "max_f1": pytest.approx(means[1]),
        "rb_at_10": pytest.approx(1 / 3),
        "rb_at_10_relative": pytest.approx(1 / 3),
        "mean_sd_over_seeds": pytest.approx((1 - 23 / 30) / math.sqrt(2) / 3),
        "share_majority": 1.0,  # of 0/100 and 100/0; 50/50 has no majority
        "share_last": pytest.approx((1 + (2 / 4 + 3 / 4) / 2 + 1) / 3),
        "share_no_label": 0.0,
        "share_most_frequent": pytest.approx(13 / 24),
        "constant_f1": pytest.approx(9 / 14),
        "share_majority_of_constant": 0.5,  # always True follows the majority of 100/0, and not that of 0/100
        "has_many_without_label": False,
        "boundary": None,  # four rows do not show that a setting is better than one label for all
        "n_marked": 0,
        "half_width": pytest.approx(_half_width(opened, instruction=False)),
        "has_enough_rows": False,
        "n_settings": 3,
        "n_settings_with_majority": 2,
        "n_seeds": 2,
        "n_rows": 24,
        "n_test_rows": 4,
        "sd_f1_corrected": pytest.approx(math.sqrt(np.var(means, ddof=1) - (7 / 30) ** 2 / 2 / 3 / 2)),
        "proportions_p": pytest.approx(1 / 6, abs=0.04),  # of six orders of three settings the one there is
        "proportions_p_adjusted": 1.0,
        "majority_effect": pytest.approx(1.0),  # with seed 3 True has 0, 1/2 and 1 of the predictions; 0, 3/4 and 1
        "recency": pytest.approx(((1 - 1 / 4) + (7 / 8 - 0)) / 2),
        "recency_at_equal_shares": pytest.approx((0 + 1 / 2) / 2),
        "accuracy": pytest.approx((1 / 4 + (3 / 4 + 1) / 2 + 3 / 4) / 3),
        "majority_accuracy": 0.75,  # gold T T T F
        "constant_p": 1.0,
        "is_above_constant": False,  # a mean accuracy of 0.625
        "n_settings_above": 0,
        "n_settings_not_above": 2,  # 50/50 has an accuracy of 0.875
        "is_any_setting_above_constant": None,
        "is_bias_shown": False,
        "sd_f1_smallest_detectable": None,  # six orders of three settings
    }
    # With two seeds the standard error is half their difference. The rows' own effects, averaged over seeds, are
    # 3/4, 3/4, 1, 3/4 of recency and 0, 0, 1, 0 of that at equal shares: a standard error of the same size, and
    # (1 + 1)^2 / (1 / 1 + 1 / 3) = 3 degrees of freedom.
    t = 3.182446 * math.sqrt(2)
    for name, value, error in (
        ("majority_effect", 1, 0),
        ("recency", 13 / 16, 1 / 16),
        ("recency_at_equal_shares", 1 / 4, 1 / 4),
    ):
        found = intervals.pop(f"{name}_low"), intervals.pop(f"{name}_high")
        assert found == pytest.approx((value - t * error, value + t * error)), name
    assert set(intervals) == {"mean_f1_low", "mean_f1_high", "rb_at_10_low", "rb_at_10_high"}
    assert intervals["mean_f1_low"] < np.mean(means) < intervals["mean_f1_high"]
    assert 1 / 3 <= intervals["rb_at_10_low"] <= intervals["rb_at_10_high"] <= 1
    [generated] = rows(opened, "from majority_by_model where instruction and predict = 'generate'")
    assert generated["share_no_label"] == pytest.approx(1 / 24)
    assert generated["mean_f1"] == pytest.approx(np.mean([(0.85 + 23 / 30) / 2, 1, (9 / 14 + 1) / 2]))


def test_the_most_frequent_prediction_may_be_no_label(tmp_path: Path) -> None:
    answers = {(setting, True): ("--TF", "---T") for setting in DEMOS}
    run = MajorityPlan(("generate",), answers=answers).write(tmp_path)
    measure(run)
    [row] = rows(run, "from majority_by_model")
    # In each of 3 settings and 2 seeds; one more of 0/100 is no label, where the plan has its one such output.
    assert row["share_most_frequent"] == pytest.approx((3 * 5 + 1) / 24)
    assert row["share_no_label"] == pytest.approx((3 * 5 + 1) / 24)
    assert row["constant_f1"] == pytest.approx(9 / 14)


def test_the_best_constant_answer_has_the_weighted_f1_of_the_most_frequent_gold_label(tmp_path: Path) -> None:
    for golds, label in (("TTFFF", "F"), ("TTTTF", "T"), ("TF", "T")):
        answers = {(setting, True): (golds, golds) for setting in DEMOS}
        run = MajorityPlan(("likelihood",), answers=answers, golds=golds).write(tmp_path / golds)
        measure(run)
        [row] = rows(run, "from majority_by_model")
        best = f1_score(list(golds), [label] * len(golds), average="weighted", zero_division=0)
        assert row["constant_f1"] == pytest.approx(best)


def test_the_region_of_a_setting_is_that_of_its_real_counts(tmp_path: Path) -> None:
    """With two demonstrations a setting of 10/90 has the counts of 0/100: it stands at the tails with it."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[0] |= {"shares": [0.1, 0.9]}
    run = plan.write(tmp_path)
    measure(run)
    regions = rows(run, "from setting_regions order by setting")
    assert [tuple(row.values()) for row in regions] == [("0/100", "tails"), ("100/0", "tails"), ("50/50", "middle")]


def test_the_instructions_gap_at_the_tails_and_in_the_middle_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(
        opened, "from majority_instruction_gap where predict = 'likelihood' and method = 'none' order by region desc"
    )
    expected = {
        "tails": ((23 / 30 + (9 / 14 + 1) / 2) / 2, (0.1 + 9 / 14) / 2, 2),
        "middle": (1.0, (23 / 30 + 1) / 2, 1),
    }
    assert [row["region"] for row in found] == list(expected)
    for row in found:
        with_instruction, without, n_settings = expected[row["region"]]
        assert row["with_instruction"] == pytest.approx(with_instruction)
        assert row["without_instruction"] == pytest.approx(without)
        assert row["gap"] == pytest.approx(with_instruction - without)
        assert row["gap_low"] <= row["gap"] <= row["gap_high"]
        assert (row["n_settings"], row["n_seeds"], row["n_rows"]) == (n_settings, 2, n_settings * 2 * 2 * 4)


def test_what_calibration_gains_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    """In 100/0, seed 3, with instruction cc turns TTTT to FFFF; in 0/100, without, looc turns FFFF to TTTT."""
    found = {
        (row["instruction"], row["method"]): row
        for row in rows(opened, "from majority_calibration_gain order by instruction, method")
    }
    before = {True: [23 / 30, 1, (9 / 14 + 1) / 2], False: [0.1, (23 / 30 + 1) / 2, 9 / 14]}
    after = {
        (True, "cc"): [23 / 30, 1, (0.1 + 1) / 2],
        (True, "looc"): before[True],
        (False, "cc"): before[False],
        (False, "looc"): [(9 / 14 + 0.1) / 2, (23 / 30 + 1) / 2, 9 / 14],
    }
    assert list(found) == sorted(after)
    for (instruction, method), row in found.items():
        f1s = np.array([after[instruction, method], before[instruction]])
        rb = np.mean(f1s >= f1s.max(axis=1, keepdims=True) - 0.1, axis=1)
        for name, values in (("rb_at_10", rb), ("mean_f1", f1s.mean(axis=1)), ("sd_f1", f1s.std(axis=1, ddof=1))):
            assert row[name] == pytest.approx(values[0] - values[1], abs=1e-12)
            assert row[f"{name}_low"] <= row[f"{name}_high"]
        assert (row["model"], row["task"], row["n_demos"]) == ("tiny", "boolq", 2)
        assert (row["n_settings"], row["n_seeds"], row["n_rows"]) == (3, 2, 24)
    unchanged = found[True, "looc"]
    assert {unchanged[f"{name}{end}"] for name in ("rb_at_10", "mean_f1", "sd_f1") for end in ("_low", "_high")} == {0}
    assert found[False, "looc"]["mean_f1"] == pytest.approx((9 / 14 - 0.1) / 2 / 3)


def test_a_gain_is_positive_where_calibration_widens_the_boundary(tmp_path: Path) -> None:
    """By likelihood FFFF of both seeds of 0/100 becomes TTTT: 9/14 instead of 0.1, as in 100/0; 50/50 has 9/14 too."""
    answers = {("0/100", False): ("FFFF", "FFFF"), ("50/50", False): ("TTTT",) * 2, ("100/0", False): ("TTTT",) * 2}
    p_hat = {("0/100", seed, False, "cc", 0): 0.03 for seed in SEEDS}
    run = MajorityPlan(("likelihood",), ("cc",), answers, p_hat).write(tmp_path)
    measure(run)
    [row] = rows(run, "from majority_calibration_gain")
    assert row["rb_at_10"] == pytest.approx(1 - 2 / 3)
    assert row["mean_f1"] == pytest.approx((9 / 14 - 0.1) / 3)
    assert row["sd_f1"] == pytest.approx(-np.std([0.1, 9 / 14, 9 / 14], ddof=1))
    assert row["sd_f1_low"] <= row["sd_f1"] <= row["sd_f1_high"] <= 0


def test_without_calibration_nothing_is_gained(tmp_path: Path) -> None:
    run = MajorityPlan().write(tmp_path)
    measure(run)
    assert rows(run, "from majority_calibration_gain") == []


def test_random_predictions_equal_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plan = MajorityPlan()
    for row in plan.generations:
        row["prediction"] = ("True", "False", None)[rng.integers(3)]
    run = plan.write(tmp_path)
    measure(run)
    golds = {row["prompt_id"]: row["gold"] for row in plan.prompts}
    found = rows(run, "from majority_by_setting where predict = 'generate'")
    for row in found:
        prefix = f"{row['setting']}/{row['seed']}/{row['instruction']}/"
        chosen = [x for x in plan.generations if x["prompt_id"].startswith(prefix)]
        gold = [golds[x["prompt_id"]] for x in chosen]
        prediction = [x["prediction"] or "no label" for x in chosen]
        expected = f1_score(gold, prediction, average="weighted", zero_division=0)
        assert row["weighted_f1"] == pytest.approx(expected)
        assert row["accuracy"] == accuracy_score(gold, prediction)
        assert row["share_no_label"] == prediction.count("no label") / 4
    assert len(found) == 12


@pytest.mark.parametrize("predict", [("likelihood",), ("generate",), ("constrained",), ("generate", "constrained")])
def test_a_run_may_predict_in_some_ways_only(predict: tuple[str, ...], tmp_path: Path) -> None:
    run = MajorityPlan(predict).write(tmp_path)
    analyse_run(run)
    found = rows(run, "select distinct predict, method from majority_by_model order by all")
    assert found == [{"predict": way, "method": "none"} for way in sorted(predict)]
    n_generated = 12 * 4 * len(set(predict) - {"likelihood"})
    assert rows(run, "select count(*) as n from generations") == [{"n": n_generated}]
    with closing(duckdb.connect(str(Path(run, "results.duckdb")), read_only=True)) as connection:
        n_predictions = "select count(*) from majority_predictions"
        assert connection.execute(n_predictions).fetchall() == [(12 * 4 * len(predict),)]


def test_shares_that_add_up_to_one_may_do_so_with_a_rounding_error(tmp_path: Path) -> None:
    predictions = "T" * 3 + "-" * 37  # 3 / 40 > 1 - 37 / 40 in floating point
    answers = {(setting, True): (predictions, predictions) for setting in DEMOS}
    run = MajorityPlan(("generate",), answers=answers, golds="T" * 40).write(tmp_path)
    measure(run)
    assert {row["accuracy"] for row in rows(run, "from majority_by_setting where setting = '100/0'")} == {3 / 40}


def test_without_both_instructions_there_is_no_gap(tmp_path: Path) -> None:
    plan = MajorityPlan(("likelihood",))
    plan.contexts = [row for row in plan.contexts if row["instruction"]]
    kept = {row["context_id"] for row in plan.contexts}
    plan.prompts = [row for row in plan.prompts if row["context_id"] in kept]
    prompts = {row["prompt_id"] for row in plan.prompts}
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] in prompts]
    run = plan.write(tmp_path)
    measure(run)
    assert rows(run, "from majority_instruction_gap") == []
    assert len(rows(run, "from majority_by_model")) == 1
