"""The label that a model prefers is named where all sets of demonstrations agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from biaseval.report.findings import _PREFERRED, read_findings
from tests.label_bias_report.runs import make_run, told


@pytest.mark.parametrize(("second", "is_of_all_sets"), [([18, 2], True), ([3, 17], False)])
def test_a_label_that_one_set_prefers_is_not_that_of_all(second: list[int], is_of_all_sets: bool) -> None:
    """Each set has 10 rows of either label; over both sets "a" is predicted more often than it is gold."""
    counts = {0: [19, 1], 1: second}
    rows = ", ".join(
        f"('mood', 4, {demo_set}, 'none', '{label}', 10, {n})"
        for demo_set, own in counts.items()
        for label, n in zip("ab", own, strict=True)
    )
    with duckdb.connect() as connection:
        connection.execute(
            f"create table label_bias_by_label as from (values {rows}) "
            "as rows(task, n_demos, demo_set, method, label, n_gold, n_predicted)"
        )
        connection.execute(
            "create table label_bias_by_label_over_sets as select task, n_demos, method, label, "
            "sum(n_predicted) / 40 as predicted_share, sum(n_gold) / 40 as gold_share "
            "from label_bias_by_label group by all"
        )
        [row] = connection.sql(_PREFERRED).to_arrow_table().to_pylist()
    assert (row["label"], row["is_of_all_sets"]) == ("a", is_of_all_sets)


def test_a_page_names_no_label_where_sets_differ(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", n_tasks=1, n_demos=(0, 8), n_main=60, labels=["no", "yes"])
    findings = read_findings(run)
    [*_, most] = findings.preferred
    named = f"with “{most['label']}”"
    differing = [{**row, "is_of_all_sets": False} for row in findings.preferred]
    for preferred, is_named in ((findings.preferred, True), (differing, False)):
        line = told(replace(findings, preferred=preferred))["RSD, no calibration"]
        assert (named in line) == is_named, line
        assert ("the preferred label differs between sets of demonstrations" in line) != is_named
