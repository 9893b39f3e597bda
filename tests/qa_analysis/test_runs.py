"""The same numbers, whatever else is there, and in other readers."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import open_runs
from tests.labelplans import two_tasks
from tests.measuring import measure
from tests.qaplans import QaPlan, two_segments
from tests.relationnames import names_of, views_of


def _random(models: Sequence[str], heuristics: Sequence[str] = ("ans_len", "cos_sim"), **spec: Any) -> QaPlan:
    """Return a plan with random attributes and metrics, the same for a model or heuristic in every plan."""
    n_rows = 400
    plan = QaPlan(models, heuristics=list(heuristics), bootstrap={"trials": 30, "sample": 40}, **spec)
    all_values = {
        "ans_len": np.random.default_rng(0).integers(1, 5, size=n_rows).tolist(),
        "cos_sim": np.random.default_rng(1).random(n_rows).tolist(),
        "word_dist": [value or None for value in np.random.default_rng(2).integers(0, 9, size=n_rows).tolist()],
    }
    plan.questions({heuristic: all_values[heuristic] for heuristic in heuristics})
    for model in models:
        rng = np.random.default_rng(len(model))
        f1 = rng.random(n_rows)
        plan.answers((f1 > rng.random(n_rows)).astype(float).tolist(), f1.tolist(), model=model)
    return plan


def test_the_same_predictions_in_other_parts_and_orders_give_the_same_bytes(tmp_path: Path) -> None:
    first = _random(["bert", "roberta"]).write(tmp_path / "first")
    plan = _random(["bert", "roberta"])
    for table in (plan.examples, plan.attributes, plan.predictions):
        table.reverse()
    second = plan.write(tmp_path / "second", n_parts=3)
    for run in (first, second, second):
        measure(run)
    folders = ("marts", "qa_bias_draws", "qa_draws", "qa_search_nulls")
    names = [path.relative_to(first) for folder in folders for path in Path(first, folder).iterdir()]
    assert {name.stem for name in names} == {*names_of("qa_bias", "marts"), "part-00000", "part-00001"}
    for name in names:
        assert Path(first, name).read_bytes() == Path(second, name).read_bytes(), name


def test_models_and_heuristics_that_are_added_change_no_draw_of_the_others(tmp_path: Path) -> None:
    alone = _random(["bert"], ["cos_sim"]).relations(tmp_path / "alone")
    more = _random(["roberta", "bert"], ["word_dist", "cos_sim"]).relations(tmp_path / "more")
    for table in ("qa_draws", "qa_bias_candidates", "qa_curves", "qa_by_dataset"):
        where = "" if table == "qa_by_dataset" else "and heuristic = 'cos_sim'"
        sql = f"from {table} where model = 'bert' {where} order by all"
        assert alone.rows(sql) == more.rows(sql) != [], table


def test_results_hold_every_relation_and_runs_of_any_kind_are_read_together(tmp_path: Path) -> None:
    run, label_bias = two_segments().write(tmp_path / "squad"), two_tasks().write(tmp_path / "animals")
    measure(run, has_database=True)
    measure(label_bias)
    sides = (f"list(100 * exact_match) filter (segment = '{side}')" for side in ("lower", "higher"))
    sql = f"select run, threshold, bias_significance({', '.join(sides)}) as d from qa_draws group by all order by all"
    with closing(open_runs([run, label_bias])) as connection:
        assert connection.execute("select distinct run from label_bias_by_task").fetchall() == [("animals",)]
        found = connection.execute(sql).fetchall()
        wanted = connection.execute("select run, threshold, bias_significance from qa_bias_candidates order by all")
        assert found == [(*place, pytest.approx(own)) for *place, own in wanted.fetchall()]
        assert [row[:2] for row in found] == [("squad", 1), ("squad", 2)]
    with closing(duckdb.connect(str(Path(run, "results.duckdb")), read_only=True)) as connection:
        for name in views_of("qa_bias"):
            mart, rows = Path(run, "marts", f"{name}.parquet"), connection.sql(f"from {name}").to_arrow_table()
            assert not mart.exists() or rows.equals(pq.read_table(mart)), name
