"""Formats of a prompt: their spread, its noise and the tests between them, against NumPy and over simulated runs."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from tests.label_bias_statistics.answers import Analysed, Answers, Array, right_with, rows

LABELS = "ab"
FORMATS = ("base", "terse", "back")
N_ROWS, N_SETS = 60, 2
GOLD = {task: ["a" if row % 3 else "b" for row in range(N_ROWS)] for task in ("one", "two")}


Hits = dict[tuple[str, str, str, int], Array]


@pytest.fixture(scope="module")
def right() -> Hits:
    """Return which rows are right, by task, method, format and set: one format is better in one task."""
    rng, found = np.random.default_rng(5), {}
    luck = {task: rng.random(N_ROWS) for task in GOLD}
    for task, method, form, demo_set in product(GOLD, ("none", "cc"), FORMATS, range(N_SETS)):
        own = np.where(rng.random(N_ROWS) < 0.7, luck[task], rng.random(N_ROWS))
        found[task, method, form, demo_set] = own < 0.6 + 0.25 * (task == "one" and form == "terse")
    return found


@pytest.fixture(scope="module")
def connection(right: Hits) -> Analysed:
    answers = []
    for (task, method, form, demo_set), own in right.items():
        gold = GOLD[task]
        predicted = [label if hit else "ab"[label == "a"] for label, hit in zip(gold, own, strict=True)]
        setting: dict[str, Any] = {"method": method, "n_demos": 4, "demo_set": demo_set, "format": form}
        for purpose, n in (("main", N_ROWS), ("bias_score", 32)):
            said = right_with(predicted[:n], LABELS)
            answers.append(Answers(task, LABELS, gold[:n], said, purpose=purpose, **setting))
    return Analysed(answers)


def one(connection: Analysed, sql: str) -> dict[str, Any]:
    [row] = rows(connection, sql)
    return row


@pytest.mark.parametrize("task", ["one", None])
def test_spread_and_its_noise_are_those_of_numpy(connection: Analysed, right: Hits, task: str | None) -> None:
    of = {
        name: np.array([np.mean([right[name, "none", form, s] for s in range(N_SETS)], axis=0) for form in FORMATS])
        for name in GOLD
    }  # task to [format, row]
    members = list(GOLD) if task is None else [task]
    values = np.mean([of[name].mean(axis=1) for name in members], axis=0)
    where = "task is null" if task is None else f"task = '{task}'"
    row = one(connection, f"from label_bias_format_spread where metric = 'accuracy' and method = 'none' and {where}")
    assert (row["minimum"], row["maximum"]) == pytest.approx((values.min(), values.max()))
    assert row["minimum_format"] == FORMATS[values.argmin()]
    assert row["maximum_format"] == FORMATS[values.argmax()] == "terse"
    assert row["range"] == pytest.approx(np.ptp(values))
    assert row["deviation"] == pytest.approx(values.std(ddof=1))
    # What rows add to a variance between formats: the mean of their variances less that of their covariances.
    noise = {}
    for name in members:
        covariance = np.cov(of[name]) / N_ROWS
        noise[name] = np.trace(covariance) / 3 - (covariance.sum() - np.trace(covariance)) / 6
    of_rows = sum(noise.values()) / len(members) ** 2
    assert row["deviation_of_rows"] == pytest.approx(np.sqrt(of_rows))
    assert row["deviation_beyond_rows"] == pytest.approx(np.sqrt(max(0, values.var(ddof=1) - of_rows)))
    within = np.mean([of[name].mean(axis=1).var(ddof=1) - noise[name] for name in members])
    assert row["format_deviation"] == pytest.approx(np.sqrt(max(0, within)))
    sets = []
    for name in members:
        own = np.array([right[name, "none", "base", s] for s in range(N_SETS)], dtype=float)
        covariance = np.cov(own) / N_ROWS
        sets.append(own.mean(axis=1).var(ddof=1) - np.trace(covariance) / 2 + covariance[0, 1])
    assert row["set_deviation"] == pytest.approx(np.sqrt(np.mean(sets)))
    components = one(connection, "from label_bias_components where metric = 'accuracy' and method = 'none'")
    assert row["task_deviation"] == (None if task else pytest.approx(np.sqrt(components["from_tasks"])))
    if task is None:
        assert row["set_deviation"] == pytest.approx(np.sqrt(components["from_sets"] * N_SETS))
    assert (row["n_formats"], row["n_demo_sets"], row["n_tasks"]) == (3, N_SETS, len(members))
    assert row["n_rows"] == 3 * N_SETS * N_ROWS * len(members)


def test_a_difference_between_formats_is_tested_over_paired_rows(connection: Analysed, right: Hits) -> None:
    for method, form, other_method, other_form in (("none", "terse", "none", "base"), ("cc", "back", "none", "back")):
        differences = [
            np.mean([right[name, method, form, s] for s in range(N_SETS)], axis=0)
            - np.mean([right[name, other_method, other_form, s] for s in range(N_SETS)], axis=0)
            for name in GOLD
        ]
        row = one(
            connection,
            f"from label_bias_format_changes where metric = 'accuracy' and method = '{method}' and format = '{form}' "
            f"and against_method = '{other_method}' and against_format = '{other_form}'",
        )
        assert row["estimate"] == pytest.approx(np.mean([own.mean() for own in differences]))
        errors = [own.std(ddof=1) / np.sqrt(N_ROWS) for own in differences]
        assert row["standard_error"] == pytest.approx(np.hypot(*errors) / 2)
        assert (row["n_units"], row["n_rows"], row["n_tasks"]) == (2 * N_ROWS, 2 * N_ROWS * N_SETS, 2)
    pair = "select distinct method, format, against_method, against_format from"
    asked = [tuple(row.values()) for row in rows(connection, f"{pair} label_bias_format_changes order by all")]
    assert asked == sorted(
        [(method, form, method, "base") for method in ("none", "cc") for form in ("terse", "back")]
        + [("cc", form, "none", form) for form in ("terse", "back")]
    )
    # All pairs of formats have errors.
    errors_of = rows(connection, f"{pair} format_pairs where method = against_method")
    pairs = {frozenset((row["format"], row["against_format"])) for row in errors_of}
    assert pairs == {frozenset(pair) for pair in combinations(FORMATS, 2)}


def test_a_label_is_preferred_where_recall_depends_on_it() -> None:
    gold = ["a", "b"] * 30
    answers = [
        Answers("t", LABELS, gold, right_with(predicted, LABELS), format=form)
        for form, predicted in (("base", ["a"] * 59 + ["b"]), ("terse", ["b"] * 60), ("even", gold))
    ]
    found = rows(Analysed(answers), "from label_bias_format_labels order by format")
    preferred = [(row["format"], row["label"], row["is_rsd_above"]) for row in found]
    assert preferred == [("base", "a", True), ("even", "a", None), ("terse", "b", True)]
