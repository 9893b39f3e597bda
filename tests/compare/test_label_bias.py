"""Differences of label-bias runs against NumPy and by hand; what is not shared is named, or refused."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.analysis.comparing import compare_runs
from biaseval.errors import BiasevalError, InputError
from biaseval.store import Run
from biaseval.tables import RUN_SETTINGS
from tests.commands import call
from tests.compare.runs import GOLDS, HITS, cautions, compared_rows, conclusions, flipped, label_plan, make, pair_of
from tests.labelplans import Plan
from tests.majorityplans import MajorityPlan
from tests.specs import as_older, write_plan
from tests.statistics_macros.patterns import step_down


def test_differences_of_tasks_are_tested_by_all_patterns_of_signs(labels: list[str]) -> None:
    by_task = {
        run: {row["task"]: row for row in query([run], "from label_bias_by_task_over_sets").to_pylist()}
        for run in labels
    }
    metrics = ("macro_f1", "accuracy", "rsd", "bias_score", "relative_variance", "squared_preference")
    differences = {
        metric: np.array([by_task[labels[1]][task][metric] - by_task[labels[0]][task][metric] for task in HITS])
        for metric in metrics
    }
    assert differences["accuracy"] == pytest.approx(np.array([2, 3, 1, 4, 2, 2, 1]) / 8)
    signs = np.array(list(product((1, -1), repeat=7)), dtype=float)
    statistics = {metric: flipped(values, signs) for metric, values in differences.items()}
    adjusted = {}
    for family in (metrics[:4], metrics[4:5], metrics[5:]):  # each partner is a family of its own
        matrix = np.column_stack([statistics[metric] for metric in family])
        adjusted |= dict(zip(family, step_down(matrix, matrix[0]), strict=True))
    found = {row["metric"]: row for row in compared_rows(labels, where="run = 'first'")}
    assert found.keys() == set(metrics)
    for metric, values in differences.items():
        row = found[metric]
        assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["other_value"] - row["value"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(7), abs=1e-9)
        assert row["p"] == pytest.approx(np.mean(statistics[metric] >= statistics[metric][0]))
        assert row["p_adjusted"] == pytest.approx(adjusted[metric])
        assert row["smallest_detectable"] == pytest.approx(2.8 * row["standard_error"])
        assert (row["unit"], row["n_units"], row["n_tasks"], row["n_rows"]) == ("task", 7, 7, 56)
    # All seven differences have one sign: two of 128 patterns are as extreme.
    assert found["accuracy"]["p"] == 2 / 128
    assert found["accuracy"]["verdict"] == "higher"
    assert found["bias_score"]["verdict"] == "unclear"  # equal in both, and tasks are few


def test_effects_of_size_and_tuning_are_the_differences_of_their_pairs(labels: list[str], tmp_path: Path) -> None:
    """Of a family the next size, base with base; by hand: all seven differences of accuracy have one sign."""
    first, other = labels
    models = {
        "small": (first, 1_000, "a", None), "large": (other, 2_000, "a", None), "largest": (first, 4_000, "a", None),
        "tuned": (other, 1_000, "a", "small"), "tuned-large": (first, 2_000, "a", "large"),
        "elsewhere": (other, 3_000, None, None), "nowhere": (first, 5_000, None, None),
    }  # fmt: skip
    for name, (source, size, family, tuned_from) in models.items():
        run = as_older(shutil.copytree(source, tmp_path / name))
        facts = {"n_parameters": size, "family": family, "tuned_from": tuned_from}
        run.write_part("run_settings", 0, RUN_SETTINGS.rows([run.read_table("run_settings").to_pylist()[0] | facts]))
    runs = [str(tmp_path / name) for name in models]
    differences = np.array([2, 3, 1, 4, 2, 2, 1]) / 8
    reach = stats.t.ppf(0.975, 6) * differences.std(ddof=1) / np.sqrt(7)
    found = query(runs, "from label_bias_size_effect union all by name from label_bias_tuning_effect").to_pylist()
    assert {"macro_f1", "accuracy", "rsd", "bias_score"} <= {row["metric"] for row in found}
    by_pair = {(row["run"], row["larger_run"], row["other_run"]): row for row in found if row["metric"] == "accuracy"}
    sign_of = {
        ("small", "large", None): 1, ("large", "largest", None): -1, ("tuned", "tuned-large", None): -1,
        ("small", None, "tuned"): 1, ("large", None, "tuned-large"): -1,
    }  # fmt: skip
    assert by_pair.keys() == sign_of.keys()
    for pair, sign in sign_of.items():
        row, estimate = by_pair[pair], sign * differences.mean()
        other_value = row["larger_value"] if pair[1] else row["other_value"]
        assert row["estimate"] == pytest.approx(estimate, abs=1e-12)
        assert other_value - row["value"] == pytest.approx(estimate, abs=1e-12)
        assert (row["estimate_low"], row["estimate_high"]) == pytest.approx((estimate - reach, estimate + reach))
        assert (row["p"], row["n_tasks"], row["family"]) == (2 / 128, 7, "a")
        assert row["verdict"] == ("higher" if sign > 0 else "lower")


def test_rows_that_only_one_has_right_are_listed_and_counted(labels: list[str]) -> None:
    compared = compare_runs(labels)
    expected = {
        (task, row): (right == "0")
        for task, hits in HITS.items()
        for row, (right, other) in enumerate(zip(*hits, strict=True))
        if right != other
    }
    found = {(row["task"], row["row"]): row for row in compared.disagreements}
    assert {place: row["is_win"] for place, row in found.items()} == expected
    for (task, number), row in found.items():
        assert row["gold"] == GOLDS[number]
        assert (row["other_prediction"] == row["gold"]) is row["is_win"]
        assert row["prediction"] != row["other_prediction"]
        assert row["input"] == f"Input: {task}-main-{number} Output:"
    [wins] = compared.wins
    assert (wins["n_wins"], wins["n_losses"]) == (sum(expected.values()), len(expected) - sum(expected.values()))
    order = [row["shuffled"] for row in compared.disagreements]
    assert order == sorted(order)


def test_with_few_tasks_the_units_are_rows_whose_mean_is_that_over_tasks(tmp_path: Path) -> None:
    """Two tasks, one of 8 and one of 24 rows: each counts half."""
    sides = (
        {"small": "11110000", "large": "111100001111000010100000"},
        {"small": "11111110", "large": "111111001111110011111100"},
    )
    runs = [make(label_plan(hits), tmp_path / name) for hits, name in zip(sides, ("first", "other"), strict=True)]
    [row] = compared_rows(runs, where="run = 'first' and metric = 'accuracy'")
    values = []
    for task in ("large", "small"):
        first, other = (np.array([hit == "1" for hit in side[task]], dtype=float) for side in sides)
        values.append((other - first) * 32 / (2 * len(first)))
    units = np.concatenate(values)
    expected = ((7 - 4) / 8 + (18 - 10) / 24) / 2
    assert units.mean() == pytest.approx(expected)
    assert row["estimate"] == pytest.approx(expected, abs=1e-12)
    assert row["other_value"] - row["value"] == pytest.approx(expected, abs=1e-12)
    assert row["standard_error"] == pytest.approx(units.std(ddof=1) / np.sqrt(32), abs=1e-9)
    assert (row["unit"], row["n_units"], row["n_tasks"], row["n_rows"]) == ("row", 32, 2, 32)
    compared = compare_runs(runs)
    assert "about 5 %, for new rows of these 2 tasks; fewer than 6 say nothing about other" in conclusions(compared)


OTHER = {task: right for task, (_, right) in HITS.items()}


def _change(plan: Plan, **columns: object) -> None:
    """Change the fourth main row of the last task."""
    for row in plan.prompts:
        if (row["task"], row["purpose"], row["row"]) == ("task7", "main", 3):
            row.update(columns)


def _fewer_rows(plan: Plan) -> None:
    dropped = {row["prompt_id"] for row in plan.prompts if (row["task"], row["row"]) == ("task7", 7)}
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in dropped]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in dropped]


@pytest.mark.parametrize(
    "change", [lambda plan: _change(plan, gold="a"), lambda plan: _change(plan, instance_id="another"), _fewer_rows]
)
def test_a_task_with_other_rows_is_left_out_and_named(
    change: Callable[[Plan], None], labels: list[str], tmp_path: Path
) -> None:
    plan = label_plan(OTHER)
    change(plan)
    compared = compare_runs([labels[0], make(plan, tmp_path / "changed")])
    pair = pair_of(compared, "first", "changed")
    assert (pair["n_tasks"], pair["n_rows"], pair["differing_tasks"]) == (6, 48, ["task7"])
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert (row["n_units"], row["estimate"]) == (6, pytest.approx((2 + 3 + 1 + 4 + 2 + 2) / 8 / 6))
    assert "changed against first: left out, because rows or labels differ: task7." in cautions(compared)
    assert "task7" not in {row["task"] for row in compared.disagreements}


def _more_settings(plan: Plan) -> None:
    twice = label_plan(OTHER, n_demos=(0, 2))
    plan.prompts, plan.contexts, plan.label_scores = twice.prompts, twice.contexts, twice.label_scores


def _another_task(plan: Plan) -> None:
    extra = label_plan({"task8": "11110000"})
    for name in ("tasks", "prompts", "contexts", "label_scores"):
        getattr(plan, name).extend(getattr(extra, name))


def _another_set(plan: Plan) -> None:
    """Add a second set of demonstrations behind which all answers are wrong."""
    second = label_plan(dict.fromkeys(HITS, "00000000"))
    for row in (*second.prompts, *second.contexts):
        row["demo_set"] = 1
        row["context_id"] += "/1"
    for row in (*second.prompts, *second.label_scores):
        row["prompt_id"] += "/1"
    for name in ("prompts", "contexts", "label_scores"):
        getattr(plan, name).extend(getattr(second, name))


def test_each_run_stands_in_its_own_best_setting_where_they_differ(tmp_path: Path) -> None:
    """One run is right as in `HITS` without demonstrations, the other with two; elsewhere both are wrong."""
    wrong, runs = label_plan(dict.fromkeys(HITS, "10010000"), n_demos=(0, 2)), []
    for side, name in enumerate(("first", "other")):
        plan = label_plan({task: hits[side] for task, hits in HITS.items()}, n_demos=(0, 2))
        best = {row["prompt_id"] for row in plan.prompts if row["n_demos"] == 2 * side}
        pairs = zip(plan.label_scores, wrong.label_scores, strict=True)
        plan.label_scores = [right if right["prompt_id"] in best else other for right, other in pairs]
        runs.append(make(plan, tmp_path / name))
    [row] = compared_rows(runs, where="run = 'first' and method = 'best' and metric = 'accuracy'")
    assert (row["n_demos"], row["n_units"], row["p"], row["verdict"]) == (None, 7, 2 / 128, "higher")
    assert row["estimate"] == pytest.approx(15 / 8 / 7)
    said = conclusions(compare_runs(runs))
    assert "(each in its best setting): " in said.splitlines()[0]
    assert "other: no mitigation, with 2 demonstrations; first: no mitigation, without demonstrations" in said


SCORING = {"normalization": "sum", "eos": True}


@pytest.mark.parametrize(("change", "column", "said"), [
    (lambda plan: plan.spec.update(seed=43), "has_same_seed", "other seeds in the specs"),
    (lambda plan: plan.spec.update(scoring=SCORING), "has_same_scoring", "scored in another way"),
    (lambda plan: plan.spec.update(prompt={"prefix_mode": "reference"}), "has_same_scoring", "prompt.prefix_mode"),
    (lambda plan: plan.contexts[0].update(text="Another."), "has_same_contexts",
        "the demonstrations, or other text before the rows, differ"),
    (lambda plan: plan.prompts[0].update(input_text="Another"), "has_same_inputs",
        "the prompts show the rows in another way"),
    (_more_settings, "has_same_n_demos", "other numbers of demonstrations"),
    (_another_task, None, "left out, because only one of the two runs has it: task8"),
    (_another_set, "has_same_sets", "other demonstration sets"),
])  # fmt: skip
def test_what_runs_do_not_share_is_named_and_left_out_of_means(
    change: Callable[[Plan], None], column: str | None, said: str, labels: list[str], tmp_path: Path
) -> None:
    plan = label_plan(OTHER)
    change(plan)
    compared = compare_runs([labels[0], make(plan, tmp_path / "changed")])
    pair = pair_of(compared, "first", "changed")
    lacking = {name for name, value in pair.items() if name.startswith("has_same") and value is not True}
    assert column is None or column in lacking
    assert lacking <= {column, "has_same_contexts"} if column == "has_same_sets" else lacking == {column} - {None}
    assert said in cautions(compared)
    assert len(compared.tests) == 2 * 6
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert row["estimate"] == pytest.approx(15 / 8 / 7)


def test_what_cannot_be_compared_is_refused_with_one_message(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    majority = make(MajorityPlan(("likelihood",)), tmp_path / "boolq")
    elsewhere = make(label_plan({"elsewhere": "11110000"}), tmp_path / "elsewhere")
    plan = label_plan({"task1": "11110000"})
    plan.prompts[0]["instance_id"] = "another"
    others = make(plan, tmp_path / "others")
    unmeasured = label_plan({"task1": "11110000"}).write(tmp_path / "begun")
    old, unfinished = (str(shutil.copytree(labels[1], tmp_path / name)) for name in ("old", "unfinished"))
    as_older(old).delete("sign_flips/part-00000.parquet")
    Path(unfinished, "label_scores", "part-00000.parquet").unlink()
    write_plan(Run.open(unfinished))
    cases: list[tuple[list[str], int, str]] = [
        ([labels[0]], 2, "compare: needs at least two runs"),
        ([labels[0], labels[0]], 2, "a run is named twice"),
        ([labels[0], majority], 2, "name runs of one kind"),
        ([labels[0], str(tmp_path / "absent")], 2, "is not a run directory"),
        ([labels[0], elsewhere], 2, "first and elsewhere: nothing can be compared: no task is in both"),
        ([labels[0], others], 2, "task1 have other main rows or labels in each; a single file is split by"),
        ([elsewhere, *labels], 2, "name another one first"),
        ([labels[0], unmeasured], 1, "is missing; biaseval report"),
        ([labels[0], old], 1, "analysed by a version that stored no sign_flips"),
        ([labels[0], unfinished], 1, "1 of 1 parts missing"),
        ([*labels, "--out", str(tmp_path / "page.htm")], 2, "does not end in .html"),
    ]
    for arguments, code, said in cases:
        found = call(capsys, monkeypatch, "compare", *arguments)
        assert (found.code, found.out) == (code, ""), arguments
        assert found.err.startswith("error: ")
        assert said in found.err, found.err
        assert "Traceback" not in found.err
    # Beside others that share something, a run that does not is left out.
    compared = compare_runs([*labels, elsewhere])
    assert compared.others == ["other"]
    assert "elsewhere against first: nothing can be compared, so the run is left out." in cautions(compared)
    search = Run.open(str(tmp_path / "search"))
    search.write_text("spec.yaml", "kind: search\n")
    with pytest.raises(InputError, match="is of the kind 'search', which has no metrics to compare"):
        compare_runs([labels[0], search.uri])
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        compare_runs([labels[0], unfinished])
