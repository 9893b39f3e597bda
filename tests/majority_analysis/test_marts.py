"""Marts of majority-label bias, by hand, by scikit-learn and by NumPy, with intervals over the stored draws."""

import functools
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, f1_score

from biaseval.analysis import open_runs, query
from biaseval.analysis.marts import ADDED_LAST
from tests.majorityplans import ANSWERS, DEMOS, F1, GOLD, SEEDS, MajorityPlan
from tests.measuring import measure
from tests.relation import Relations
from tests.relationnames import names_of


def test_calibration_is_by_setting_seed_and_instruction(opened: Relations) -> None:
    sql = "select setting, seed, instruction, method, weighted_f1 from majority_by_setting where predict = 'likelihood'"
    # TTTT and FFFF turned.
    changed = {("100/0", 3, True, "cc"): "FFFF", ("0/100", 3, False, "looc"): "TTTT"}
    found = {tuple(row.values())[:4]: row["weighted_f1"] for row in opened.rows(sql)}
    assert len(found) == 3 * 2 * 2 * 3
    for (setting, seed, instruction, method), weighted_f1 in found.items():
        answers = ANSWERS[setting, instruction][SEEDS.index(seed)]
        answers = changed.get((setting, seed, instruction, method), answers)
        assert weighted_f1 == pytest.approx(F1[answers]), (setting, seed, instruction, method)
    weights = opened.rows(
        "select label, p_hat, n_rows from calibration_parameters "
        "where setting = '0/100' and demo_set = 3 and not instruction and method = 'looc' order by label"
    )
    wanted = [("False", pytest.approx(0.97), 2), ("True", pytest.approx(0.03), 2)]
    assert [tuple(row.values()) for row in weights] == wanted


def test_the_most_frequent_prediction_may_be_no_label(tmp_path: Path) -> None:
    answers = {(setting, True): ("--TF", "---T") for setting in DEMOS}
    [row] = MajorityPlan(("generate",), answers=answers).relations(tmp_path).rows("from majority_by_model")
    # In each of 3 settings and 2 seeds; one more of 0/100 is no label, where the plan has its one such output.
    found = [row[name] for name in ("share_most_frequent", "share_no_label", "constant_f1")]
    assert found == pytest.approx([(3 * 5 + 1) / 24, (3 * 5 + 1) / 24, 9 / 14])


@pytest.mark.parametrize(("golds", "label"), [("TTFFF", "F"), ("TF", "T")])
def test_the_best_constant_answer_has_the_weighted_f1_of_the_most_frequent_gold_label(
    tmp_path: Path, golds: str, label: str
) -> None:
    plan = MajorityPlan(("likelihood",), answers={(setting, True): (golds, golds) for setting in DEMOS}, golds=golds)
    [row] = plan.relations(tmp_path).rows("from majority_by_model")
    best = f1_score(list(golds), [label] * len(golds), average="weighted", zero_division=0)
    assert row["constant_f1"] == pytest.approx(best)


def test_the_region_of_a_setting_is_that_of_its_real_counts(tmp_path: Path) -> None:
    """With two demonstrations a setting of 10/90 has the counts of 0/100: it stands at the tails with it."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[0] |= {"shares": [0.1, 0.9]}
    regions = plan.relations(tmp_path).rows("from setting_regions order by setting")
    assert [tuple(row.values()) for row in regions] == [("0/100", "tails"), ("100/0", "tails"), ("50/50", "middle")]


def test_without_the_other_instruction_and_without_calibration_nothing_is_compared(tmp_path: Path) -> None:
    one = MajorityPlan(("likelihood",)).only(instruction=True).relations(tmp_path)
    assert one.rows("from majority_instruction_gap") == one.rows("from majority_calibration_gain") == []
    assert len(one.rows("from majority_by_model")) == 1


def test_random_predictions_equal_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plan = MajorityPlan()
    for row in plan.generations:
        row["prediction"] = ("True", "False", None)[rng.integers(3)]
    golds = {row["prompt_id"]: row["gold"] for row in plan.prompts}
    demos = {row["context_id"]: row["demo_labels"] for row in plan.contexts}
    found = plan.relations(tmp_path).rows("from majority_by_setting where predict = 'generate'")
    assert len(found) == 12
    for row in found:
        context = f"{row['setting']}/{row['seed']}/{row['instruction']}"
        chosen = [x for x in plan.generations if x["prompt_id"].startswith(f"{context}/")]
        gold = [golds[x["prompt_id"]] for x in chosen]
        prediction = [x["prediction"] or "no label" for x in chosen]
        expected = f1_score(gold, prediction, average="weighted", zero_division=0)
        assert row["weighted_f1"] == pytest.approx(expected)
        assert row["accuracy"] == accuracy_score(gold, prediction)
        assert row["share_no_label"] == prediction.count("no label") / 4
        assert row["share_most_frequent"] == max(prediction.count(x) for x in prediction) / 4
        last, majority = demos[context][-1], None if row["setting"] == "50/50" else demos[context][0]
        assert (row["last_label"], row["share_last"]) == (last, prediction.count(last) / 4)
        share = None if majority is None else prediction.count(majority) / 4
        assert (row["majority_label"], row["share_majority"]) == (majority, share)


def test_shares_that_add_up_to_one_may_do_so_with_a_rounding_error(tmp_path: Path) -> None:
    predictions = "T" * 3 + "-" * 37  # 3 / 40 > 1 - 37 / 40 in floating point
    answers = {(setting, True): (predictions, predictions) for setting in DEMOS}
    found = MajorityPlan(("generate",), answers=answers, golds="T" * 40).relations(tmp_path)
    assert found.problems("majority_by_setting") == []
    assert {row["accuracy"] for row in found.rows("from majority_by_setting where setting = '100/0'")} == {3 / 40}


Floats = npt.NDArray[np.float64]

STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "rb_at_10": lambda x: np.mean(x >= x.max(axis=1, keepdims=True) - 0.1 - 1e-9, axis=1),
    "mean_f1": lambda x: x.mean(axis=1),
    "sd_f1": lambda x: x.std(axis=1, ddof=1),
}
"""Of F1 by draw and setting."""


@pytest.fixture(scope="module")
def means(opened: Relations) -> dict[tuple[bool, str], Floats]:
    """Return the means of F1 over seeds by draw and setting, of each instruction and method; draw 0 is of the rows."""
    f1s: dict[tuple[bool, str], Floats] = {}
    for row in opened.rows("from majority_draws where predict = 'likelihood'"):
        values = f1s.setdefault((row["instruction"], row["method"]), np.zeros((1001, 3, 2)))
        values[row["draw"], row["number"], SEEDS.index(row["seed"])] = row["weighted_f1"]
    return {key: values.mean(axis=2) for key, values in f1s.items()}


def assert_estimated(row: dict[str, float], name: str, values: Floats) -> None:
    expected = [values[0], *np.quantile(values[1:], [0.025, 0.975])]
    assert [row[f"{name}{end}"] for end in ("", "_low", "_high")] == pytest.approx(expected, abs=1e-9), name


def test_numbers_are_of_the_rows_and_intervals_are_percentiles_over_the_stored_draws(
    opened: Relations, means: dict[tuple[bool, str], Floats]
) -> None:
    """A statistic of a draw is over settings, each the mean over seeds; both sides of a difference have the draw."""
    for row in opened.rows("from majority_by_model where predict = 'likelihood'"):
        of_settings = means[row["instruction"], row["method"]]
        for name in ("rb_at_10", "mean_f1"):
            assert_estimated(row, name, STATISTICS[name](of_settings))
        numbers = [STATISTICS["sd_f1"](of_settings)[0], of_settings[0].max()]
        assert [row["sd_f1"], row["max_f1"]] == pytest.approx(numbers)
    for row in opened.rows("from majority_over_seeds where predict = 'likelihood'"):
        assert_estimated(row, "weighted_f1", means[row["instruction"], row["method"]][:, row["number"]])
    for row in opened.rows("from majority_calibration_gain"):
        after, before = means[row["instruction"], row["method"]], means[row["instruction"], "none"]
        for name, statistic in STATISTICS.items():
            assert_estimated(row, name, statistic(after) - statistic(before))
    for row in opened.rows("from majority_instruction_gap where predict = 'likelihood'"):
        chosen = [0, 2] if row["region"] == "tails" else [1]
        gap = (means[True, row["method"]] - means[False, row["method"]])[:, chosen].mean(axis=1)
        assert_estimated(row, "gap", gap)


def test_f1_of_a_draw_is_that_of_its_rows(opened: Relations) -> None:
    draws = [row["n_drawn"] for row in opened.rows("from row_draws order by draw")]
    assert (len(draws), draws[0]) == (1001, [1, 1, 1, 1])
    assert all(sum(n_drawn) == 4 for n_drawn in draws)

    @functools.cache  # of 1,000 draws from four rows few differ
    def drawn(answers: str, n_drawn: tuple[int, ...]) -> float:
        both = (list("".join(own * n for own, n in zip(of, n_drawn, strict=True))) for of in (GOLD, answers))
        return float(f1_score(*both, average="weighted", zero_division=0))

    where = "instruction and predict = 'likelihood' and method = 'none'"
    for row in opened.rows(f"from majority_by_setting where {where}"):
        answers = ANSWERS[row["setting"], True][SEEDS.index(row["seed"])]
        assert_estimated(row, "weighted_f1", np.array([drawn(answers, tuple(n_drawn)) for n_drawn in draws]))


def test_one_row_and_one_seed_have_no_interval_and_no_deviation(tmp_path: Path) -> None:
    found = MajorityPlan(("generate",)).only(demo_set=3, row=0).relations(tmp_path)
    for row in found.rows("from majority_over_seeds"):
        assert (row["n_rows"], row["n_seeds"], row["sd_f1"], row["weighted_f1_low"]) == (1, 1, None, None)
    for row in found.rows("from majority_by_model"):
        assert row["mean_f1_low"] is row["rb_at_10_high"] is row["mean_sd_over_seeds"] is None
        assert row["sd_f1"] is not None
    assert {row["gap_low"] for row in found.rows("from majority_instruction_gap")} == {None}


def test_the_same_outputs_in_another_order_give_the_same_bytes(built: str, tmp_path: Path) -> None:
    plan = MajorityPlan(calibration=("cc", "looc"))
    for table in (plan.contexts, plan.prompts, plan.label_scores, plan.generations, plan.settings):
        table.reverse()
    run = plan.write(tmp_path)
    measure(run)
    marts = {path.name for path in Path(run, "marts").iterdir()}
    assert marts == {f"{name}.parquet" for name in names_of("majority_bias", "marts")}
    for mart in marts:
        assert Path(run, "marts", mart).read_bytes() == Path(built, "marts", mart).read_bytes(), mart


def test_marts_of_an_older_version_are_computed_anew(built: str, tmp_path: Path) -> None:
    old, marts = tmp_path / "boolq", names_of("majority_bias", "marts")
    shutil.copytree(built, old)
    for mart in ("majority_over_seeds", "majority_by_model", "majority_calibration_gain"):
        path = old / "marts" / f"{mart}.parquet"
        pq.write_table(pq.read_table(path).drop_columns([ADDED_LAST[mart]]), path)
    with closing(open_runs([str(old)])) as of_old, closing(open_runs([built])) as of_new:
        for mart in marts:
            found, wanted = (run.sql(f"from {mart}").to_arrow_table() for run in (of_old, of_new))
            assert found.equals(wanted), mart
    both = query([built, str(old)], "select run, has_enough_rows from majority_by_model")
    assert both["has_enough_rows"].null_count == 0
