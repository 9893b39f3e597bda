"""Differences of label-bias runs against NumPy and by hand; what is not shared is named, or refused."""

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.analysis.comparing import Compared, cautions_of, compare_runs
from biaseval.errors import BiasevalError, InputError
from biaseval.store import Run
from biaseval.tables import PROMPTS, TASKS
from tests.commands import call
from tests.compare.runs import GOLDS, HITS, as_models, cautions, conclusions, flipped, label_plan, make
from tests.majorityplans import MajorityPlan
from tests.relation import Together
from tests.specs import as_older, write_plan
from tests.statistics_macros.patterns import step_down
from tests.validation.outcomes import outcomes


def test_differences_of_tasks_are_tested_by_all_patterns_of_signs(labels: list[str], compared: Compared) -> None:
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
    found = {row["metric"]: row for row in compared.tests if row["run"] == "first"}
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


def test_effects_of_size_and_tuning_are_the_differences_of_their_pairs(pair: Together) -> None:
    """Of a family the next size, base with base; by hand: all seven differences of accuracy have one sign."""
    models = {
        name: (run, {"n_parameters": size, "family": family, "tuned_from": base})
        for name, run, size, family, base in (
            ("small", "first", 1_000, "a", None), ("large", "other", 2_000, "a", None),
            ("largest", "first", 4_000, "a", None), ("tuned", "other", 1_000, "a", "small"),
            ("tuned-large", "first", 2_000, "a", "large"), ("elsewhere", "other", 3_000, None, None),
            ("nowhere", "first", 5_000, None, None),
        )
    }  # fmt: skip
    given = as_models(pair, models, "label_bias_comparison")
    names = [f"label_bias_{of}_effect" for of in ("size", "tuning")]
    asked = {"found": " union all by name ".join(f"from {name}" for name in names)}
    found = outcomes("label_bias", given, names, asked)["found"].to_pylist()
    differences = np.array([2, 3, 1, 4, 2, 2, 1]) / 8
    reach = stats.t.ppf(0.975, 6) * differences.std(ddof=1) / np.sqrt(7)
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


def test_rows_that_only_one_has_right_are_listed_and_counted(compared: Compared) -> None:
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
    compared = compare_runs(runs)
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
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
    assert "about 5 %, for new rows of these 2 tasks; fewer than 6 say nothing about other" in conclusions(compared)
    assert "; shared: 2 tasks with 32 rows." in conclusions(compared)
    alone = [make(label_plan({"small": hits["small"]}), tmp_path / f"{number}") for number, hits in enumerate(sides)]
    assert "; shared: task small with 8 rows." in conclusions(compare_runs(alone))
    # A task without a hit has no relative variance: its rows are none of that test's units.
    more = [label_plan({**hits, "dead": right}) for hits, right in zip(sides, ("00000000", "11111110"), strict=True)]
    runs = [make(plan, tmp_path / name / "more") for plan, name in zip(more, ("first", "other"), strict=True)]
    units = {row["metric"]: row["n_units"] for row in compare_runs(runs).tests}
    assert (units["accuracy"], units["relative_variance"]) == (40, 32)


def found_after(pair: Together, *changes: str) -> tuple[dict[str, Any], str, list[dict[str, Any]]]:
    """Return what the runs share, the cautions, and the differences, where statements changed tables before."""
    with pair.changed(*changes):
        [shared] = pair.rows("from label_bias_shared where run = 'first'")
        said = [row["text"] for row in pair.rows(cautions_of("label_bias", ["first", "other"]))]
        return shared, "\n".join(said), pair.rows("from label_bias_comparison where run = 'first'")


LAST = "run = 'other' and task = 'task7' and purpose = 'main' and row"


@pytest.mark.parametrize("change", [
    f"update prompts set gold = 'a' where {LAST} = 3", f"update prompts set instance_id = 'another' where {LAST} = 3",
    f"delete from prompts where {LAST} = 7",
])  # fmt: skip
def test_a_task_with_other_rows_is_left_out_and_named(change: str, pair: Together) -> None:
    shared, said, tests = found_after(pair, change)
    assert (shared["n_tasks"], shared["n_rows"], shared["differing_tasks"]) == (6, 48, ["task7"])
    [row] = [row for row in tests if row["metric"] == "accuracy"]
    assert (row["n_units"], row["estimate"]) == (6, pytest.approx((2 + 3 + 1 + 4 + 2 + 2) / 8 / 6))
    assert "other against first: left out, because rows or labels differ: task7." in said
    with pair.changed(change):
        assert {row["task"] for row in pair.rows("from label_bias_disagreements")} == HITS.keys() - {"task7"}


def _again(table: str, columns: str, where: str = "true") -> str:
    """Return the statement that adds the other run's rows of a table again, with other columns."""
    return f"insert into {table} select * replace ({columns}) from {table} where run = 'other' and {where}"


OF_OTHER = "where run = 'other'"
SECOND_SET = (
    _again("contexts", "1 as demo_set, context_id || '/1' as context_id"),
    _again("prompts", "1 as demo_set, context_id || '/1' as context_id, prompt_id || '/1' as prompt_id"),
    _again("metric_values", "1 as demo_set, 0 as value"), _again("label_bias_by_task", "1 as demo_set"),
)  # fmt: skip
"""A second set of demonstrations behind which all answers are wrong."""


def test_each_run_stands_in_its_own_best_setting_where_they_differ(tmp_path: Path) -> None:
    """One run is right as in `HITS` without demonstrations, the other with two; elsewhere both are wrong."""
    wrong, runs = label_plan(dict.fromkeys(HITS, "10010000"), n_demos=(0, 2)), []
    for side, name in enumerate(("first", "other")):
        plan = label_plan({task: hits[side] for task, hits in HITS.items()}, n_demos=(0, 2))
        best = {row["prompt_id"] for row in plan.prompts if row["n_demos"] == 2 * side}
        pairs = zip(plan.label_scores, wrong.label_scores, strict=True)
        plan.label_scores = [right if right["prompt_id"] in best else other for right, other in pairs]
        runs.append(make(plan, tmp_path / name))
    asked = "from label_bias_comparison where run = 'first' and method = 'best' and metric = 'accuracy'"
    [row] = query(runs, asked).to_pylist()
    assert (row["n_demos"], row["n_units"], row["p"], row["verdict"]) == (None, 7, 2 / 128, "higher")
    assert row["estimate"] == pytest.approx(15 / 8 / 7)
    third = make(label_plan({task: hits[0] for task, hits in HITS.items()}), tmp_path / "third")
    assert query([*runs, third], asked).num_rows == 0  # not all have two demonstrations, so none is the best of all
    said = conclusions(compare_runs(runs))
    own = "No mitigation with 2 demonstrations for other and no mitigation without demonstrations for first; "
    assert own in said.splitlines()[0]
    assert "With each in its best setting, " in said.splitlines()[0]


@pytest.mark.parametrize(("changes", "lacking", "said"), [
    ((f"update run_settings set seed = 43 {OF_OTHER}",), {"has_same_seed"}, "other seeds in the specs"),
    ((f"update run_settings set normalization = 'sum' {OF_OTHER}",), {"has_same_scoring"}, "scored in another way"),
    ((f"update run_settings set prefix_mode = 'reference' {OF_OTHER}",), {"has_same_scoring"}, "prompt.prefix_mode"),
    ((f"update contexts set text = 'Another.' {OF_OTHER} and task = 'task1'",), {"has_same_contexts"},
        "the text before the rows differs (instruction or demonstrations)"),
    ((f"update prompts set input_text = 'Another' where {LAST} = 0",), {"has_same_inputs"},
        "the prompts show the rows in another way"),
    ((_again("label_bias_by_task_over_sets", "2 as n_demos"),), {"has_same_n_demos"},
        "not compared, because only one of the two runs has it: 2 demonstrations (other)"),
    ((_again("tasks", "'task8' as task", "task = 'task7'"),), set(),
        "left out, because only one of the two runs has it: task8"),
    (SECOND_SET, {"has_same_sets"}, "other demonstration sets"),
])  # fmt: skip
def test_what_runs_do_not_share_is_named_and_left_out_of_means(
    changes: tuple[str, ...], lacking: set[str], said: str, pair: Together
) -> None:
    shared, told, tests = found_after(pair, *changes)
    assert {name for name, value in shared.items() if name.startswith("has_same") and value is not True} == lacking
    assert said in told
    assert len(tests) == 6
    [row] = [row for row in tests if row["metric"] == "accuracy"]
    assert row["estimate"] == pytest.approx(15 / 8 / 7)


def test_what_cannot_be_compared_is_refused_with_one_message(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    majority = MajorityPlan(("likelihood",)).write(tmp_path / "boolq")
    elsewhere, others = (str(shutil.copytree(labels[1], tmp_path / name)) for name in ("elsewhere", "others"))
    known = Run.open(labels[1])
    for table in (TASKS, PROMPTS):
        rows = [row | {"task": f"{row['task']} elsewhere"} for row in known.read_table(table.name).to_pylist()]
        as_older(elsewhere).write_part(table.name, 0, table.rows(rows))
    rows = [row | {"instance_id": row["prompt_id"]} for row in known.read_table("prompts").to_pylist()]
    as_older(others).write_part("prompts", 0, PROMPTS.rows(rows))
    unmeasured = label_plan({"task1": "11110000"}).write(tmp_path / "begun")
    old, unfinished = (str(shutil.copytree(labels[1], tmp_path / name)) for name in ("old", "unfinished"))
    as_older(old).delete("sign_flips/part-00000.parquet")
    Path(unfinished, "label_scores", "part-00000.parquet").unlink()
    write_plan(Run.open(unfinished))
    cases: list[tuple[list[str], int, str]] = [
        ([labels[0]], 2, "compare: needs at least two runs"), ([labels[0], labels[0]], 2, "a run is named twice"),
        ([labels[0], majority], 2, "name runs of one kind"),
        ([labels[0], str(tmp_path / "absent")], 2, "is not a run directory"),
        ([labels[0], elsewhere], 2, "first and elsewhere: nothing can be compared: no task is in both"),
        ([labels[0], others], 2, "and 4 more have other main rows or labels in each; a single file is split by"),
        ([elsewhere, *labels], 2, "name another one first"),
        ([labels[0], unmeasured], 1, "is missing; biaseval report"),
        ([labels[0], old], 1, "analysed by a version that stored no sign_flips"),
        ([labels[0], unfinished], 1, "1 of 1 parts missing"),
        ([*labels, "--out", str(tmp_path / "page.htm")], 2, "does not end in .html"),
    ]  # fmt: skip
    for arguments, code, said in cases:
        found = call(capsys, monkeypatch, "compare", *arguments)
        assert (found.code, found.out) == (code, ""), arguments
        assert found.err.startswith("error: ")
        assert said in found.err, found.err
        assert "Traceback" not in found.err
    # Beside others that share something, a run that does not is left out.
    beside = compare_runs([*labels, elsewhere])
    assert beside.others == ["other"]
    assert "elsewhere against first: nothing can be compared, so the run is left out." in cautions(beside)
    search = Run.open(str(tmp_path / "search"))
    search.write_text("spec.yaml", "kind: search\n")
    with pytest.raises(InputError, match="is of the kind 'search', which has no metrics to compare"):
        compare_runs([labels[0], search.uri])
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        compare_runs([labels[0], unfinished])
