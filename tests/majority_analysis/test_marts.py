"""Marts of majority bias, their checks, and other tools that read them."""

import functools
import json
import shutil
import subprocess
import sys
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
from biaseval.errors import BiasevalError
from tests.majorityplans import ANSWERS, DEMOS, F1, GOLD, SEEDS, MajorityPlan, rows
from tests.measuring import measure
from tests.relation import Relations, copied
from tests.relationnames import names_of, views_of


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


def test_the_region_of_a_setting_is_that_of_its_real_counts(tmp_path: Path) -> None:
    """With two demonstrations a setting of 10/90 has the counts of 0/100: it stands at the tails with it."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[0] |= {"shares": [0.1, 0.9]}
    regions = plan.relations(tmp_path).rows("from setting_regions order by setting")
    assert [tuple(row.values()) for row in regions] == [("0/100", "tails"), ("100/0", "tails"), ("50/50", "middle")]


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
        assert row["weighted_f1"] == pytest.approx(f1_score(gold, prediction, average="weighted", zero_division=0))
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
    old, marts = tmp_path / "boolq", ("majority_over_seeds", "majority_by_model", "majority_calibration_gain")
    shutil.copytree(built, old)
    for mart in marts:
        path = old / "marts" / f"{mart}.parquet"
        pq.write_table(pq.read_table(path).drop_columns([ADDED_LAST[mart]]), path)
    asked = " ".join(f"from {mart}" for mart in marts)
    with closing(open_runs([str(old)], asked)) as of_old, closing(open_runs([built], asked)) as of_new:
        for mart in marts:
            found, wanted = (run.sql(f"from {mart}").to_arrow_table() for run in (of_old, of_new))
            assert found.equals(wanted), mart
    both = query([built, str(old)], "select run, has_enough_rows from majority_by_model")
    assert both["has_enough_rows"].null_count == 0


FIRST = "0/100/3/True/0"
OF_FIRST = f"where prompt_id = '{FIRST}'"
WHOLE, GENERATED = "generations_are_whole", f"prompt_id = '{FIRST}' and mode = 'generate'"
CC = "prompt_id = '50/50/5/False/cc/0'"


SCORED = "prompts_are_scored_once_per_label"
FIT, COUNTS = "majority_prompts_fit_their_setting", "majority_contexts_hold_the_counts"
SAME_ROWS, PREDICTED = "majority_settings_have_the_same_rows", "majority_settings_have_every_prediction"

# A check, table or mart, the changes of a whole run, and what is found.
BROKEN: list[tuple[str, list[str], str]] = [
    ("settings", [copied("settings", "setting as setting", "number = 0")], "{'setting': 0/100}: 2 rows"),
    ("settings", [copied("settings", "'1/99' as setting", "number = 0")], "{'number': 0}: 2 rows"),
    ("settings_are_well_formed", ["update settings set labels = ['b', 'a'] where number = 1"], "setting 50/50 (1)"),
    ("settings_are_well_formed", ["update settings set shares = [0.5, 0.4] where number = 0"], "setting 0/100 (0)"),
    ("settings_are_well_formed", ["update settings set counts = [0, 3] where number = 0"], "setting 0/100 (0)"),
    ("settings_are_well_formed", ["update settings set counts = [2] where number = 0"], "setting 0/100 (0)"),
    (FIT, [f"update prompts set gold = 'Maybe' {OF_FIRST}"], f"{FIRST} has setting 0/100"),
    (FIT, [f"update prompts set gold = null {OF_FIRST}"], "gold null"),
    (FIT, [f"update prompts set labels = ['False'] {OF_FIRST}"], "labels [False]"),
    (FIT, ["delete from settings where setting = '0/100'"], "are not known"),
    (COUNTS, ["update contexts set demo_golds = ['True', 'False'] where setting = '0/100'"], "its setting 0/100"),
    (COUNTS, ["update contexts set demo_golds = [] where context_id = '0/100/3/True'"], "has the demonstrations []"),
    (COUNTS, ["delete from settings where setting = '0/100'"], "0/100 is not known"),
    (SAME_ROWS, [f"delete from {name} {OF_FIRST}" for name in ("prompts", "label_scores")],
     "setting 0/100, seed 3, with instruction: 3 rows"),
    (SAME_ROWS, ["update prompts set instance_id = 'x' where prompt_id = '0/100/5/True/1'"], "seed 5, with"),
    (SAME_ROWS, [copied("contexts", "'second' as context_id", "context_id = '0/100/3/True'"),
                 f"update prompts set context_id = 'second' {OF_FIRST}"], "4 rows in 2 contexts"),
    (WHOLE, [f"delete from generations {OF_FIRST}"], f"prompt {FIRST} has 0 outputs (generate)"),
    (WHOLE, [copied("generations", "mode as mode", GENERATED)], f"prompt {FIRST} has 2 outputs (generate)"),
    (WHOLE, [copied("generations", "'other' as mode", GENERATED)], f"prompt {FIRST} has an output (other)"),
    (WHOLE, [copied("generations", "'new' as prompt_id")], "prompt new has an output (generate)"),
    (WHOLE, [f"update generations set prediction = 'Maybe' {OF_FIRST}"], "the prediction Maybe"),
    (WHOLE, [f"update generations set prediction = null {OF_FIRST} and mode = 'constrained'"], "the prediction null"),
    (PREDICTED, [f"delete from {name} where {CC}" for name in ("prompts", "label_scores")],
     "setting 50/50, seed 5, without instruction: no predictions by likelihood, cc"),
    (PREDICTED, [copied("settings", "'1/99' as setting, 3 as number")],
     "setting 1/99, seed 3, with instruction: no predictions by generate, none"),
    (SCORED, [f"delete from label_scores {OF_FIRST}"], f"prompt {FIRST} has no score"),
    ("majority_by_setting", ["update majority_by_setting set weighted_f1 = 1.5"], "weighted_f1 is 1.5, not from 0 to"),
    ("majority_metrics_are_there", ["update majority_by_model set rb_at_10 = null"], ""),
    ("majority_draws_are_of_the_rows", ["update majority_draws set weighted_f1 = 0.9 where draw = 0"], "of draw 0"),
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    """Return the relations of a run, in tables that may be changed."""
    plan = MajorityPlan(("likelihood", "generate", "constrained"), calibration=("cc",))
    return plan.relations(tmp_path_factory.mktemp("runs")).changeable()


def test_a_whole_run_breaks_no_check(whole: Relations) -> None:
    for check in {check for check, _, _ in BROKEN}:
        assert whole.problems(check) == [], check


@pytest.mark.parametrize(("check", "changes", "problem"), BROKEN)
def test_a_check_finds_what_it_is_for(check: str, changes: list[str], problem: str, whole: Relations) -> None:
    found = whole.problems(check, *changes)
    assert any(problem in one for one in found), found


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    checks = {kind: set(names_of(kind, "checks")) for kind in ("label_bias", "majority_bias")}
    broken = {check for check, _, _ in BROKEN} | {"training_rows_are_held_out"}
    assert checks["majority_bias"] - checks["label_bias"] <= broken


def test_missing_outputs_of_any_way_are_counted(tmp_path: Path) -> None:
    run = MajorityPlan().write(tmp_path, n_parts=2)
    Path(run, "generations", "part-00001.parquet").unlink()
    for ask in (measure, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 4 parts missing .*\(first: generations/part-00001.parquet\)"):
            ask(run)
    Path(run, "generations", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 4 parts missing .*\(first: generations/part-00000.parquet\)"):
        measure(run)


def test_the_duckdb_shell_has_the_macros_and_relations(built: str, tmp_path: Path) -> None:
    found = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    of_draws = "from majority_draws_by_model where instruction and predict = 'generate'"
    asked = [
        "select instruction::varchar as name, rb_at_k(list(weighted_f1), 10) as n "
        "from majority_over_seeds where predict = 'generate' group by all",
        "select setting, weighted_f1(list(gold), list(prediction)) from majority_predictions "
        "where predict = 'generate' and instruction group by all",
        "select 'relative', rb_at_k_relative([0.5, 0.45, 0.44], 10)",
        f"select 'estimate', estimate(mean_f1, draw) {of_draws}",
        f"select 'low', interval_low(mean_f1, draw) {of_draws}",
        f"select 'high', interval_high(mean_f1, draw) {of_draws}",
        *(f"select '{view}', count(*)::double from {view}" for view in list(views_of("majority_bias"))[::8]),
    ]
    sql = " union all ".join(asked)
    call = [found, "-readonly", "-json", str(Path(built, "results.duckdb")), sql]
    answer = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = {row["name"]: row["n"] for row in json.loads(answer.stdout)}
    assert shown == pytest.approx({row["name"]: row["n"] for row in rows(built, sql)})
    assert shown["relative"] == pytest.approx(2 / 3)
    [row] = rows(built, "from majority_by_model where instruction and predict = 'generate'")
    wanted = [row["mean_f1"], row["mean_f1_low"], row["mean_f1_high"]]
    assert [shown[one] for one in ("estimate", "low", "high")] == pytest.approx(wanted)
