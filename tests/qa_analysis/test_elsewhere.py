"""Marts in queries over several runs, the shell and plain readers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import open_runs, query
from biaseval.errors import BiasevalError
from tests.labelplans import two_tasks
from tests.measuring import measure
from tests.qaplans import rows, two_models
from tests.relationnames import views_of


def test_marts_that_an_older_version_did_not_write_are_computed_when_asked_for(built: str, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(built, old)
    for name in ("qa_by_model", "qa_over_datasets"):
        (old / "marts" / f"{name}.parquet").unlink()
    path = old / "marts" / "qa_bias_by_heuristic.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["n_tried", "n_tried_measured", "n_articles"]), path)
    for mart in Path(built, "marts").iterdir():
        sql = f"from {mart.stem}"
        assert query([str(old)], sql).equals(query([built], sql)), mart
    (old / "results.duckdb").unlink()  # which is written last: the marts are those of a run that was killed
    with pytest.raises(BiasevalError, match=r"marts/qa_\w+\.parquet is missing; biaseval report .* writes it"):
        query([str(old)], "from qa_by_dataset")


def test_several_runs_of_any_kind_can_be_compared(built: str, tmp_path: Path) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    measure(label_bias)
    other = two_models().write(tmp_path / "other")
    measure(other)
    with closing(open_runs([built, other, label_bias])) as connection:
        found = connection.execute(
            "select run, model, round(bias_significance) as d from qa_bias_by_heuristic order by all"
        ).fetchall()
        tasks = connection.execute("select distinct run from label_bias_by_task").fetchall()
    assert [row[:2] for row in found] == [("other", "bert"), ("other", "roberta"), ("squad", "bert")]
    assert tasks == [("animals",)]


def test_the_significance_of_any_grouping_is_a_query_over_the_draws(built: str) -> None:
    sql = """
        select
            threshold,
            bias_significance(
                list(100 * exact_match) filter (segment = 'lower'),
                list(100 * exact_match) filter (segment = 'higher')
            ) as d
        from qa_draws
        group by threshold
        order by threshold
    """
    found = rows(built, sql)
    assert [row["threshold"] for row in found] == [1, 2]
    expected = [row["bias_significance"] for row in rows(built, "from qa_bias_candidates order by threshold")]
    assert [row["d"] for row in found] == pytest.approx(expected)


def test_the_duckdb_shell_has_the_macros_and_every_relation(built: str, tmp_path: Path) -> None:
    shell = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    names = views_of("qa_bias")
    assert "qa_measured" in names
    counts = [f"select '{name}' as name, count(*)::double as n from {name}" for name in names]
    candidate = "{'threshold': 1, 'distance': 2, 'n_lower': 9, 'n_higher': 9}"
    macros = [
        "select 'significance', bias_significance([1], [3])",
        "select 'distance', interval_distance([1, 2], [3, 4])",
        f"select 'paper', paper_threshold([{candidate}], 9)",
        f"select 'reference', reference_threshold([{candidate}], 9)",
        "select 'wilson', wilson_interval(0.5, 10)[1]",
    ]
    sql = " union all ".join([*counts, *macros])
    answer = subprocess.run(
        [shell, "-readonly", "-json", str(Path(built, "results.duckdb")), sql],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = {row["name"]: row["n"] for row in json.loads(answer.stdout)}
    assert shown == pytest.approx({row["name"]: row["n"] for row in rows(built, sql)})
    assert (shown["qa_draws"], shown["paper"], shown["reference"], shown["significance"]) == (80, 1, 1, 2)


def test_a_plain_reader_finds_the_same_numbers(built: str) -> None:
    for path in Path(built, "marts").iterdir():
        with closing(duckdb.connect(str(Path(built, "results.duckdb")), read_only=True)) as connection:
            assert connection.sql(f"from {path.stem}").to_arrow_table().equals(pq.read_table(path)), path
