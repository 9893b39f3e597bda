"""Words on several runs of label bias, compared with each other."""

from __future__ import annotations

from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import connect, create, relations
from tests.label_bias_statistics.answers import FAMILIES, METRICS, Array, rows
from tests.statistics_macros.patterns import every_pattern, expected_tests


def compared(runs: dict[str, Array], unit: str = "task") -> duckdb.DuckDBPyConnection:
    """Return a connection with the comparison of runs, of values by task and metric."""
    tasks = [f"t{number:02d}" for number in range(len(next(iter(runs.values()))))]
    by_task = [
        {
            "run": run,
            "task": task,
            "n_demos": 0,
            "demo_set": 0,
            "method": "none",
            "majority_accuracy": 0.5,
            "majority_macro_f1": 1 / 3,
            "bias_score_p": 0.01,
            **dict(zip(METRICS, own, strict=True)),
        }
        for run, table in runs.items()
        for task, own in zip(tasks, table.tolist(), strict=True)
    ]
    labels = [
        {**{name: row[name] for name in ("run", "task", "n_demos", "method")}, "label": label, "n_predicted": 5}
        for row in by_task
        for label in "ab"
    ]
    above_constant = [
        {**{name: row[name] for name in ("run", "task", "n_demos", "method")}, "format": "base", "demo_set": None}
        | {"metric": metric, "difference": 0.1, "square": 0.001, "largest": 0.02}
        for row in by_task
        for metric in ("accuracy", "macro_f1")
    ]
    pairs = [{"run": run, "other_run": other} for run, other in product(runs, runs) if run != other]
    same = {"n_rows": 10, "has_same_rows": True, "has_same_bias_score_rows": True}
    made = {
        "label_bias_by_task": pa.Table.from_pylist(by_task),
        "label_bias_by_label": pa.Table.from_pylist(labels),
        "label_bias_constant_differences": pa.Table.from_pylist(above_constant).cast(
            pa.schema(
                [
                    *((name, pa.string()) for name in ("run", "task")),
                    ("n_demos", pa.int64()),
                    *((name, pa.string()) for name in ("method", "format")),
                    ("demo_set", pa.int64()),
                    ("metric", pa.string()),
                    *((name, pa.float64()) for name in ("difference", "square", "largest")),
                ]
            )
        ),
        "label_bias_shared": pa.Table.from_pylist([{**pair, "unit": unit} for pair in pairs]),
        "label_bias_shared_tasks": pa.Table.from_pylist(
            [{**pair, "task": task, **same} for pair in pairs for task in tasks]
        ),
        "label_bias_row_values": pa.table(
            {name: pa.array([], pa.string()) for name in ("run", "task", "method", "metric")}
            | {name: pa.array([], pa.int64()) for name in ("n_demos", "row")}
            | {"value": pa.array([], pa.float64())}
        ),
        "comparison_sign_flips": sign_flips(len(tasks), 0),
    }
    connection = connect([])
    for name, table in made.items():
        connection.from_arrow(table).create(name)
    name = "label_bias_comparison"
    [relation] = [each for each in relations("comparisons", tables=made) if each.name == name]
    create("table", name, relation.sql, connection)
    return connection


def test_all_pairs_of_a_comparison_are_one_family() -> None:
    rng = np.random.default_rng(6)
    runs = {name: rng.normal(0.5, 0.1, size=(9, len(METRICS))) for name in "abc"}
    runs["c"][:, METRICS.index("accuracy")] += 0.5
    connection = compared(runs)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    expected = {}
    for family in FAMILIES:
        tests = [(run, other, METRICS.index(metric)) for run, other in pairs for metric in family]
        matrix = np.array([runs[other][:, place] - runs[run][:, place] for run, other, place in tests])
        expected |= dict(zip(tests, expected_tests(matrix, every_pattern(9)), strict=True))
    found = {
        (row["run"], row["other_run"], row["metric"]): row
        for row in rows(connection, "from label_bias_comparison where run < other_run")
    }
    for (run, other, place), own in expected.items():
        measured = found[run, other, METRICS[place]]
        row = {key: np.nan if measured[key] is None else measured[key] for key in own}
        assert row == pytest.approx(own, abs=1e-6, nan_ok=True), (run, other, place)
    assert {found[*pair, "accuracy"]["verdict"] for pair in pairs[1:]} == {"higher"}
    alone = rows(compared({"a": runs["a"], "b": runs["b"]}), "from label_bias_comparison where run < other_run")
    for row in alone:
        assert row["p"] == found["a", "b", row["metric"]]["p"]
        assert row["p_adjusted"] <= found["a", "b", row["metric"]]["p_adjusted"]


def test_runs_differ_in_rsd_only_where_they_do_without_noise() -> None:
    """RSD is .2 lower in all nine tasks; the relative variance in b, and not in c."""
    first = np.full((9, len(METRICS)), 0.5) + np.linspace(0, 0.01, 9)[:, None]
    runs = {"a": first, "b": first.copy(), "c": first.copy()}
    rsd, variance = METRICS.index("rsd"), METRICS.index("relative_variance")
    runs["b"][:, [rsd, variance]] -= 0.2
    runs["c"][:, rsd] -= 0.2
    runs["c"][:, variance] += np.linspace(-0.1, 0.1, 9)
    found = {
        (row["other_run"], row["metric"]): row
        for row in rows(compared(runs), "from label_bias_comparison where run = 'a'")
    }
    assert found["b", "rsd"]["verdict"] == found["b", "relative_variance"]["verdict"] == "lower"
    assert found["c", "rsd"]["p_adjusted"] <= 0.05
    assert (found["c", "rsd"]["word_p_adjusted"], found["c", "rsd"]["verdict"]) == (1, "unclear")
    assert (found["b", "accuracy"]["estimate"], found["b", "accuracy"]["verdict"]) == (0, "unclear")
