"""Macros and marts in queries over several runs, the shell and plain readers."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

from biaseval.analysis import open_runs, query
from biaseval.analysis import sql_files as relations
from biaseval.errors import InputError
from biaseval.runs import analyse_run
from biaseval.store import Run
from biaseval.tables import LABEL_SCORES, PROMPTS
from tests.labelplans import two_tasks
from tests.majorityplans import MajorityPlan, rows
from tests.measuring import measure
from tests.relationnames import views_of


def test_macros_work_in_queries_over_runs_of_any_kind(built: str, tmp_path: Path) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    measure(label_bias)
    scored = Run.open(str(tmp_path / "scored"))
    scored.write_text("spec.yaml", "kind: score\n")
    scored.write_part("prompts", 0, PROMPTS.rows([{"prompt_id": "p"}]))
    scored.write_part("label_scores", 0, LABEL_SCORES.empty())
    assert rows(scored.uri, "select rb_at_k([0.5, 0.4], 10) as rb") == [{"rb": 1.0}]
    sql = """
        select run, task, weighted_f1(list(gold), list(prediction)) as f1
        from calibrated_predictions
        where purpose = 'main' and n_demos = 0 and method = 'none'
        group by all order by all
    """
    found = query([label_bias, built], sql).to_pylist()
    assert [(row["run"], row["task"]) for row in found] == [
        ("animals", "task001_animals"),
        ("animals", "task002_letters"),
    ]
    for row in found:
        chosen = rows(
            label_bias,
            "select gold, prediction from calibrated_predictions where purpose = 'main' and n_demos = 0 "
            f"and method = 'none' and task = '{row['task']}'",
        )
        gold, prediction = [x["gold"] for x in chosen], [x["prediction"] for x in chosen]
        assert row["f1"] == pytest.approx(f1_score(gold, prediction, average="weighted", zero_division=0))
    both = "select run, rb_at_k(list(weighted_f1), 20) as rb from majority_over_seeds group by run"
    assert query([built, label_bias], both).num_rows == 1
    with pytest.raises(InputError, match="a gold label is null"):
        query([built], "select weighted_f1(list(gold), list(gold)) from prompts where gold is null")


def test_several_runs_of_this_kind_can_be_compared(built: str, tmp_path: Path) -> None:
    plan = MajorityPlan(("generate",))
    plan.spec["name"] = "small"
    small = plan.write(tmp_path / "small")
    measure(small)
    with closing(open_runs([built, small])) as connection:
        found = connection.sql(
            "select run, count(*) as n from majority_predictions group by run order by run"
        ).to_arrow_table()
        n_scores = connection.execute("select count(*) from label_scores where run = 'small'").fetchall()
    assert found.to_pylist() == [{"run": "boolq", "n": 48 * (3 + 1)}, {"run": "small", "n": 48}]
    assert n_scores == [(0,)]


def test_the_duckdb_shell_has_the_macros_and_every_relation(built: str, tmp_path: Path) -> None:
    found = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    only_generated = MajorityPlan(("generate",)).write(tmp_path / "generated")
    analyse_run(only_generated)
    for run in (built, only_generated):
        names = views_of("majority_bias")
        macros = """
            select instruction::varchar as name, rb_at_k(list(weighted_f1), 10) as n
            from majority_over_seeds where predict = 'generate' group by all
            union all
            select setting, weighted_f1(list(gold), list(prediction)) from majority_predictions
            where predict = 'generate' and instruction group by all
            union all select 'relative', rb_at_k_relative([0.5, 0.45, 0.44], 10)
            union all select 'estimate', estimate(mean_f1, draw) from majority_draws_by_model
            where instruction and predict = 'generate'
            union all select 'low', interval_low(mean_f1, draw) from majority_draws_by_model
            where instruction and predict = 'generate'
            union all select 'high', interval_high(mean_f1, draw) from majority_draws_by_model
            where instruction and predict = 'generate'
        """
        counts = " union all ".join(f"select '{name}' as name, count(*)::double as n from {name}" for name in names)
        sql = f"{macros} union all {counts}"
        answer = subprocess.run(
            [found, "-readonly", "-json", str(Path(run, "results.duckdb")), sql],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        shown = {row["name"]: row["n"] for row in json.loads(answer.stdout)}
        assert shown == pytest.approx({row["name"]: row["n"] for row in rows(run, sql)})
        assert shown["relative"] == pytest.approx(2 / 3)
        [row] = rows(run, "from majority_by_model where instruction and predict = 'generate'")
        assert [shown[name] for name in ("estimate", "low", "high")] == pytest.approx(
            [row["mean_f1"], row["mean_f1_low"], row["mean_f1_high"]]
        )
        assert shown["majority_by_setting"] > 0


def test_a_plain_reader_finds_the_same_numbers(built: str) -> None:
    marts = pq.read_table(Path(built, "marts/majority_by_model.parquet"))
    assert marts.equals(query([built], "from majority_by_model"))
    with closing(duckdb.connect(str(Path(built, "results.duckdb")), read_only=True)) as connection:
        assert connection.sql("from majority_by_model").to_arrow_table().equals(marts)
        kinds = dict(connection.execute("select table_name, table_type from information_schema.tables").fetchall())
        functions = connection.execute("select function_name from duckdb_functions() where not internal").fetchall()
    assert {name for (name,) in functions} == {path.stem for path in relations.ANALYTICS.glob("macros/*.sql")}
    of_adapters = {"adapted_scores", "adapted_generations", "training_rows", "training"}  # empty in this run
    assert {name for name, kind in kinds.items() if kind == "BASE TABLE"} == of_adapters | {"calibration_methods"} | {
        path.stem for path in Path(built, "marts").iterdir()
    }
