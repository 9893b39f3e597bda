"""Verdicts over tasks, rows, these tasks, a primary question and between runs, against every pattern of signs."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import connect, create, relations
from biaseval.errors import InputError
from biaseval.spec import stored_spec
from tests.label_bias_statistics import answers as drawn
from tests.searches import BASE
from tests.statistics_macros.patterns import every_pattern, expected_tests


def holm(p_values: Sequence[float], level: float = 0.05) -> set[int]:
    """Return which of several hypotheses Holm's procedure rejects."""
    rejected: set[int] = set()
    for place in np.argsort(p_values, kind="stable"):
        if p_values[place] * (len(p_values) - len(rejected)) > level:
            break
        rejected.add(int(place))
    return rejected


def test_tasks_with_bias_are_counted_by_holms_procedure() -> None:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(16):
        gap = max(0, number - 8) * 0.055
        place = {"task": f"t{number:02d}", "labels": "ab"}
        gold = list("ab" * 30) if number else list("a" * 60)  # the first has a single gold label, and no p
        answers.append(drawn.answers_of(rng, gold=gold, recalls={"a": 0.5 + gap, "b": 0.5 - gap}, **place))
        answers.append(drawn.preferring(rng, gold=list("ab" * 16), leaning=[gap * 4, 0], **place))
    connection = drawn.Analysed(answers)
    tasks = drawn.rows(connection, "from label_bias_by_task_over_sets order by task")
    [model] = drawn.rows(connection, "from label_bias_by_model")
    by_rsd = [task["rsd_p"] for task in tasks if task["rsd_p"] is not None]
    by_bias_score = [task["bias_score_p"] for task in tasks]
    assert (len(by_rsd), len(by_bias_score)) == (15, 16)
    assert model["n_tasks_rsd"] == len(holm(by_rsd)) > 0
    assert model["n_tasks_bias_score"] == len(holm(by_bias_score)) > 0
    assert len(holm(by_rsd)) < sum(p <= 0.05 for p in by_rsd)
    for metric in drawn.METRICS[:4]:
        values = sorted(task[metric] for task in tasks)
        assert model[f"{metric}_median"] == pytest.approx(np.median(values))
        assert model[f"{metric}_interquartile_mean"] == pytest.approx(stats.trim_mean(values, 0.25))
    floors = [task["rsd_floor"] for task in tasks if task["rsd_floor"] is not None]
    assert model["rsd_floor"] == pytest.approx(np.mean(floors))
    assert model["rsd_normalized"] == pytest.approx(np.mean([task["rsd"] for task in tasks[1:]]))  # two labels each


def test_a_verdict_on_six_tasks_by_hand() -> None:
    """Differences .1, .2, .3, .4, .5 and -.1: their sum is 1.4.

    Of 64 patterns, the one of all positive has a sum of 1.6; those with one of the two .1 negative have 1.4: with their
    opposites 6 are at least as far from 0, and p is 6 / 64.
    """
    connection = drawn.Analysed(drawn.tasks_that_change([2, 4, 6, 8, 10, -2]))
    row = drawn.verdicts(connection, "accuracy")["cc"]
    numbers = np.array([0.1, 0.2, 0.3, 0.4, 0.5, -0.1])
    counts = ("unit", "n_units", "n_tasks", "n_rows", "against_n_rows")
    assert [row[name] for name in counts] == ["tasks", 6, 6, 120, 120]
    assert (row["p"], row["verdict"]) == (6 / 64, "unclear")
    assert row["p_adjusted"] >= 6 / 64
    assert row["estimate"] == pytest.approx(1.4 / 6)
    assert row["standard_error"] == pytest.approx(stats.sem(numbers))
    interval = stats.t.interval(0.95, 5, loc=numbers.mean(), scale=stats.sem(numbers))
    assert [row["low"], row["high"]] == pytest.approx(interval, abs=1e-6)
    assert row["median"] == pytest.approx(0.25)
    assert row["interquartile_mean"] == pytest.approx((0.5 * 0.1 + 0.2 + 0.3 + 0.5 * 0.4) / 3)
    assert row["standardized"] == pytest.approx(numbers.mean() / numbers.std(ddof=1))
    assert row["smallest_detectable"] == pytest.approx(2.8 * stats.sem(numbers))
    # Of 20 rows each, 10 more are right in the fifth and 8 in the fourth: what each shows on its own, after Holm.
    by_task = drawn.rows(connection, "from label_bias_changes_by_task where metric = 'accuracy' order by task")
    rejected = holm([task["p"] for task in by_task])
    assert (row["n_tasks_higher"], row["n_tasks_lower"]) == (len(rejected), 0)
    assert rejected >= {3, 4}


@pytest.mark.parametrize(("changes", "p", "verdict"), [
    ([2, 4, 6, 8, 10, 3], 2 / 64, "higher"), ([-2, -4, -6, -8, -9, -3], 2 / 64, "lower"), ([2, 4, 6], 2 / 8, "too few"),
    ([0] * 6, 1, "unclear"),
])  # fmt: skip
def test_six_tasks_of_one_mind_are_just_enough_and_three_too_few(changes: list[int], p: float, verdict: str) -> None:
    row = drawn.verdicts(drawn.Analysed(drawn.tasks_that_change(changes)), "accuracy")["cc"]
    assert (row["p"], row["verdict"]) == (p, verdict)
    assert (row["simultaneous_low"] is None) == (verdict == "too few")
    assert (row["simultaneous_low"] or 0) > 0 or verdict != "higher"


def test_a_run_of_one_task_tests_its_rows_as_mcnemar_does() -> None:
    """Of 12 rows cc gets 6 right that none gets wrong, and one wrong: p is that of 1 of 7 coins, and exact.

    The 7 are not alike in their gold labels: of a, 5 are won; of b, one is won and one is lost.
    """
    gold = "a" * 7 + "b" * 5
    none = drawn.Answers("t", "ab", list(gold), drawn.right_with("bbbbbba" + "babba", "ab"))
    cc = drawn.Answers("t", "ab", list(gold), drawn.right_with("aaaaaba" + "abbba", "ab"), "cc")
    gains = np.array([a == g for a, g in zip(cc.predicted, gold, strict=True)]) * 1.0
    gains -= np.array([a == g for a, g in zip(none.predicted, gold, strict=True)])
    assert sorted(gains) == [-1] + [0] * 5 + [1] * 6
    connection = drawn.Analysed([none, cc])
    row = drawn.verdicts(connection, "accuracy")["cc"]
    assert (row["unit"], row["n_units"], row["n_tasks"]) == ("rows", 12, 1)
    assert row["p"] == pytest.approx(stats.binomtest(1, 7).pvalue)
    assert row["standard_error"] == pytest.approx(stats.sem(gains))
    assert row["estimate"] == pytest.approx(5 / 12)
    assert row["median"] is row["interquartile_mean"] is row["standardized"] is None
    [change] = drawn.rows(connection, "from label_bias_changes")
    [by_task] = drawn.rows(connection, "from label_bias_changes_by_task where metric = 'accuracy'")
    assert [change["accuracy_low"], change["accuracy_high"]] == [by_task["low"], by_task["high"]]


def test_words_on_these_tasks_are_of_the_tasks_own_errors() -> None:
    rng = np.random.default_rng(8)
    answers = []
    for number, n_rows in enumerate((12, 15, 24, 90)):
        gold = list("abc" * (n_rows // 3))
        for method, recall in (("none", 0.4), ("cc", 0.75), ("dc", 0.45)):
            for demo_set in (0, 1):
                place: dict[str, Any] = {"method": method, "demo_set": demo_set}
                answers.append(drawn.answers_of(rng, f"t{number}", "abc", gold, recall, **place))
                answers.append(
                    drawn.preferring(rng, f"t{number}", "abc", list("abc" * 5), rng.normal(size=3).tolist(), **place)
                )
    connection = drawn.Analysed(answers)
    by_task = drawn.rows(connection, "from label_bias_changes_by_task order by task")
    assert {row["n_units"] for row in by_task if row["metric"] == "accuracy"} == {12, 15, 24, 90}
    assert {row["n_rows"] for row in by_task if row["metric"] == "accuracy"} == {24, 30, 48, 180}
    found = {(row["method"], row["metric"]): row for row in drawn.rows(connection, "from label_bias_verdicts")}
    names = [
        (method, metric)
        for method in ("cc", "dc")
        for metric in drawn.FAMILIES[0]
        if found[method, metric]["same_tasks_error"] is not None  # labels of four rows have none in RSD
    ]
    assert {metric for _, metric in names} == {"accuracy", "bias_score"}
    p = {}
    for name in names:
        own = [row for row in by_task if (row["method"], row["metric"]) == name]
        squares = np.array([row["standard_error"] ** 2 for row in own])
        estimate, error = np.mean([row["estimate"] for row in own]), np.sqrt(squares.sum()) / 4
        n_free = squares.sum() ** 2 / np.sum(squares**2 / np.array([row["n_free"] for row in own]))
        p[name] = 2 * stats.t.sf(abs(estimate) / error, n_free)
        row = found[name]
        assert row["same_tasks_n_free"] == pytest.approx(n_free)
        assert 9 < n_free < 140
        interval = stats.t.interval(0.95, n_free, loc=estimate, scale=error)
        assert [row["same_tasks_low"], row["same_tasks_high"]] == pytest.approx(interval, abs=1e-5)
        assert row["same_tasks_p"] == pytest.approx(p[name], rel=0.05)
        reach = stats.t.isf(0.025 / len(names), n_free) * error
        band = [row["same_tasks_simultaneous_low"], row["same_tasks_simultaneous_high"]]
        assert band == pytest.approx([estimate - reach, estimate + reach], rel=0.01)
    same_tasks_p = np.array([found[name]["same_tasks_p"] for name in names])
    order = np.argsort(same_tasks_p)
    adjusted = np.empty(len(names))  # by Holm's procedure
    adjusted[order] = np.minimum(1, np.maximum.accumulate(same_tasks_p[order] * np.arange(len(names), 0, -1)))
    assert [found[name]["same_tasks_p_adjusted"] for name in names] == pytest.approx(adjusted, abs=1e-12)
    assert found["cc", "accuracy"]["same_tasks_verdict"] == "higher"
    assert found["cc", "rsd"]["same_tasks_verdict"] == "unclear"


def _answers() -> list[Any]:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(9):
        task = f"t{number}"
        for place in (0, 4):
            for method, gap in (("none", 0.3), ("cc", 0.3), ("dc", 0.15)):
                setting = {"method": method, "n_demos": place}
                recalls = {"a": 0.5 + gap, "b": 0.5 - gap, "c": 0.5}
                answers.append(drawn.answers_of(rng, task, "abc", list("abc" * 20), recalls, **setting))
                answers.append(drawn.preferring(rng, task, "abc", [*"abc"] * 6, rng.normal(size=3).tolist(), **setting))
    return answers


def _place(row: dict[str, Any]) -> tuple[int, str, str]:
    return row["n_demos"], row["method"], row["metric"]


@pytest.mark.parametrize(("primary", "sizes"), [(None, [5, 5, 20]), (("rsd", "dc"), [2, 2, 3, 5, 18])])
def test_all_differences_of_a_suite_are_one_family_but_those_of_partners_and_of_the_primary_question(
    primary: tuple[str, str] | None, sizes: list[int]
) -> None:
    connection = drawn.Analysed(_answers(), primary=primary)
    found = {_place(row): row for row in drawn.rows(connection, "from label_bias_verdicts")}
    by_task = drawn.rows(connection, "from label_bias_changes_by_task order by task")
    of_primary = {(n_demos, "dc", metric) for n_demos in (0, 4) for metric in ("rsd", "relative_variance") if primary}
    assert {place for place, row in found.items() if row["is_primary"]} == of_primary
    families: dict[tuple[bool, str | None], list[tuple[int, str, str]]] = {}
    for place in found:
        partner = place[2] if place[2] in ("relative_variance", "squared_preference") else None
        families.setdefault((place in of_primary, partner), []).append(place)
    assert sorted(map(len, families.values())) == sizes
    for names in families.values():
        matrix = np.array([[row["estimate"] for row in by_task if _place(row) == name] for name in names])
        assert matrix.shape == (len(names), 9)
        for name, expected in zip(names, expected_tests(matrix, every_pattern(9)), strict=True):
            row = {key: np.nan if found[name][key] is None else found[name][key] for key in expected}
            assert row == pytest.approx(expected, abs=1e-6, nan_ok=True), name
        # For these very tasks, Holm within the family, too.
        ps = sorted(found[name]["same_tasks_p"] for name in names)
        assert min(found[name]["same_tasks_p_adjusted"] for name in names) == pytest.approx(min(1, ps[0] * len(ps)))


def test_a_primary_question_says_what_a_whole_page_cannot() -> None:
    asked = "from label_bias_verdicts where metric = 'rsd' and method = 'dc' order by n_demos"
    alone, page = (drawn.rows(drawn.Analysed(_answers(), primary=primary), asked) for primary in (("rsd", "dc"), None))
    for own, of_page in zip(alone, page, strict=True):
        assert own["word_p_adjusted"] <= of_page["word_p_adjusted"]
        assert own["same_tasks_p_adjusted"] < of_page["same_tasks_p_adjusted"]
    # More demonstrations are no part of it.
    asked = "select n_demos, method, against_method, metric from label_bias_verdicts where is_primary order by all"
    found = drawn.rows(drawn.Analysed(_answers(), primary=("accuracy", "cc")), asked)
    assert [tuple(row.values()) for row in found] == [(place, "cc", "none", "accuracy") for place in (0, 4)]


def _spec(**changes: Any) -> Any:
    return stored_spec({**BASE, **changes}, "spec.yaml")


@pytest.mark.parametrize(("primary", "changes", "problem"), [
    ({"metric": "rds", "method": "dc"}, {}, "primary.metric: 'rds' is no metric of this run; did you mean rsd?"),
    ({"metric": "brier", "method": "dc"}, {}, "primary.metric: 'brier' is no metric of this run; there is"),
    ({"metric": "relative_variance", "method": "dc"}, {}, "'relative_variance' is given no verdict; there is"),
    ({"metric": "ece", "method": "dc"}, {"analysis": {"metrics": ["ece"]}}, "'ece' is given no verdict; there is"),
    ({"metric": "rsd", "method": "looc"}, {}, "primary.method: 'looc' is no method of this run; there is cc, dc"),
    ({"metric": "rsd", "method": "dcc"}, {}, "primary.method: 'dcc' is no method of this run; did you mean dc?"),
    ({"metric": "rsd", "method": "none"}, {}, "primary.method: 'none' is no method of this run"),
    ({"metric": "rsd", "method": "lora"}, {}, "primary.method: 'lora' is no method of this run"),
    ({"metric": "rsd", "method": "dc"}, {"calibration": []},
        "primary.method: the run has no method that could change anything; add it to calibration"),
    ({"metric": "rsd", "method": "looc@0.5"}, {"calibration": ["looc@0.5"], "prompt": {"n_demos": [0]}},
        "primary.method: 'looc@0.5' needs demonstrations, and prompt.n_demos has 0 alone"),
    ({"metric": "rsd"}, {}, "primary.method: "),
    ({"metric": "rsd", "method": "dc", "n_demos": 4}, {}, "primary.n_demos: unknown key"),
])  # fmt: skip
def test_what_is_no_question_of_the_run_is_refused(
    primary: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        _spec(**{"calibration": ["cc", "dc"], "primary": primary, **changes})
    assert problem in str(caught.value)


def test_a_primary_question_is_of_any_method_of_the_run() -> None:
    for method, name in (("dc@1", "dc"), ("cc@0.50", "cc@0.5"), ("lora", "lora"), ("lora+dc@1.0", "lora+dc")):
        spec = _spec(
            calibration=["dc", "cc@0.5"], lora={"preset": "reif2024"}, primary={"metric": "macro_f1", "method": method}
        )
        assert (spec.primary.metric, spec.primary.method) == ("macro_f1", name)
    spec = _spec(calibration=["dc"], analysis={"metrics": ["brier"]}, primary={"metric": "brier", "method": "dc"})
    assert spec.primary.metric == "brier"


def compared(runs: dict[str, drawn.Array]) -> duckdb.DuckDBPyConnection:
    """Return a connection with the comparison of runs, of values by task and metric."""
    tasks = [f"t{number:02d}" for number in range(len(next(iter(runs.values()))))]
    places: list[dict[str, Any]] = [
        {"run": run, "task": task, "n_demos": 0, "method": "none"} for run, task in product(runs, tasks)
    ]
    majority = {"majority_accuracy": 0.5, "majority_macro_f1": 1 / 3, "bias_score_p": 0.01}
    above = {"format": "base", "difference": 0.1, "square": 0.001, "largest": 0.02}
    pairs = [{"run": run, "other_run": other} for run, other in product(runs, runs) if run != other]
    same = {"n_rows": 10, "has_same_rows": True, "has_same_bias_score_rows": True}
    made: dict[str, Any] = {
        "label_bias_by_task": [{**place, "demo_set": 0, **majority} for place in places],
        "metric_values": [
            {**place, "demo_set": 0, "format": "base", "metric": metric, "value": value}
            for place, own in zip(places, np.concatenate(list(runs.values())).tolist(), strict=True)
            for metric, value in zip(drawn.METRICS, own, strict=True)
        ],
        "label_bias_by_label": [{**place, "label": label, "n_predicted": 5} for place in places for label in "ab"],
        "label_bias_constant_differences": [
            {**place, **above, "metric": metric} for place in places for metric in ("accuracy", "macro_f1")
        ],
        "label_bias_best": [{"run": run, "n_demos": 0, "method": "none"} for run in runs],
        "label_bias_shared": [{**pair, "unit": "task"} for pair in pairs],
        "label_bias_shared_tasks": [{**pair, "task": task, **same} for pair in pairs for task in tasks],
        "label_bias_row_values": [{**places[0], "metric": "rsd", "row": 0, "value": 0.0, "n_sets": 1}],
    }
    connection = connect([])
    connection.from_arrow(sign_flips(len(tasks), 0)).create("comparison_sign_flips")
    for name, table in made.items():
        connection.from_arrow(pa.Table.from_pylist(table)).create(name)
    connection.execute("delete from label_bias_row_values").fetchall()
    connection.execute("alter table label_bias_constant_differences add column demo_set bigint").fetchall()
    name = "label_bias_comparison"
    [relation] = [
        each for each in relations("comparisons", tables=[*made, "comparison_sign_flips"]) if each.name == name
    ]
    create("table", name, relation.sql, connection)
    return connection


def test_all_pairs_of_a_comparison_are_one_family() -> None:
    rng = np.random.default_rng(6)
    runs = {name: rng.normal(0.5, 0.1, size=(9, len(drawn.METRICS))) for name in "abc"}
    runs["c"][:, drawn.METRICS.index("accuracy")] += 0.5
    ordered = "from label_bias_comparison where run < other_run"
    found = {(row["run"], row["other_run"], row["metric"]): row for row in drawn.rows(compared(runs), ordered)}
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    for family in drawn.FAMILIES:
        tests = [(run, other, metric) for run, other in pairs for metric in family]
        columns = [(runs[run], runs[other], drawn.METRICS.index(metric)) for run, other, metric in tests]
        matrix = np.array([other[:, place] - run[:, place] for run, other, place in columns])
        for test, own in zip(tests, expected_tests(matrix, every_pattern(9)), strict=True):
            row = {key: np.nan if found[test][key] is None else found[test][key] for key in own}
            assert row == pytest.approx(own, abs=1e-6, nan_ok=True), test
    assert {found[*pair, "accuracy"]["verdict"] for pair in pairs[1:]} == {"higher"}
    for row in drawn.rows(compared({"a": runs["a"], "b": runs["b"]}), ordered):
        assert row["p"] == found["a", "b", row["metric"]]["p"]
        assert row["p_adjusted"] <= found["a", "b", row["metric"]]["p_adjusted"]


def test_runs_differ_in_rsd_only_where_they_do_without_noise() -> None:
    """RSD is .2 lower in all nine tasks; the relative variance in b, and not in c."""
    first = np.full((9, len(drawn.METRICS)), 0.5) + np.linspace(0, 0.01, 9)[:, None]
    runs = {"a": first, "b": first.copy(), "c": first.copy()}
    rsd, variance = drawn.METRICS.index("rsd"), drawn.METRICS.index("relative_variance")
    runs["b"][:, [rsd, variance]] -= 0.2
    runs["c"][:, rsd] -= 0.2
    runs["c"][:, variance] += np.linspace(-0.1, 0.1, 9)
    asked = drawn.rows(compared(runs), "from label_bias_comparison where run = 'a'")
    found = {(row["other_run"], row["metric"]): row for row in asked}
    assert found["b", "rsd"]["verdict"] == found["b", "relative_variance"]["verdict"] == "lower"
    assert found["c", "rsd"]["p_adjusted"] <= 0.05
    assert (found["c", "rsd"]["word_p_adjusted"], found["c", "rsd"]["verdict"]) == (1, "unclear")
    assert (found["b", "accuracy"]["estimate"], found["b", "accuracy"]["verdict"]) == (0, "unclear")
