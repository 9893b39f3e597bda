"""Questions over one or many runs, of any kind, finished or not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import open_runs, query
from biaseval.errors import BiasevalError, InputError
from biaseval.runs import analyse_run
from biaseval.store import Run
from biaseval.tables import CONTEXTS, LABEL_SCORES, PROMPTS
from tests.labelplans import rows, two_tasks
from tests.measuring import measure

# Questions over one or many runs


def test_likelihoods_of_each_kind_are_a_view(built: str) -> None:
    scores = pa.concat_tables([Run.open(built).read_table("label_scores")]).to_pylist()
    found = {(row["prompt_id"], row["label"]): row for row in rows(built, "from label_logprobs")}
    assert len(found) == len(scores)
    for score in scores:
        row, tokens = found[score["prompt_id"], score["label"]], score["token_logprobs"]
        assert row["logprob_sum"] == pytest.approx(sum(tokens))
        assert row["logprob_mean"] == pytest.approx(np.mean(tokens))
        assert row["logprob_sum_without_eos"] == pytest.approx(sum(tokens[:-1]))
        assert row["logprob_mean_without_eos"] == pytest.approx(np.mean(tokens[:-1]))


def test_several_runs_have_a_column_run_and_all_columns_of_any(built: str, tmp_path: Path) -> None:
    plan = two_tasks()
    plan.spec["name"] = "other"
    other = plan.write(tmp_path / "built")
    for part in Path(other, "tasks").iterdir():
        table = pq.read_table(part)
        pq.write_table(table.append_column("extra", pa.array([1] * len(table))), part)
    measure(other)
    found = query([built, other], "select run, model, count(*) as n from label_bias_by_task group by all order by all")
    parents = [f"{Path(run).parent.name}/built" for run in (other, built)]
    assert sorted(found.to_pylist(), key=lambda row: row["model"]) == [
        {"run": parents[0], "model": "other", "n": 22},
        {"run": parents[1], "model": "tiny", "n": 22},
    ]
    extra = query([built, other], "select run, extra from tasks order by extra")
    assert extra["extra"].to_pylist() == [1, 1, None, None]
    with closing(open_runs([built, other])) as connection:
        assert connection.execute("select count(distinct run) from calibrated_predictions").fetchall() == [(2,)]


def test_the_same_run_twice_is_refused(built: str) -> None:
    with pytest.raises(InputError, match="named twice"):
        open_runs([built, f"{built}/../{Path(built).name}"])


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", "syntax error"),
        ("select nope from prompts", "nope"),
        ("from nope", "Table with name nope does not exist"),
        ("select 'x'::int", "Could not convert"),
        ("", "single select"),
        ("select 1; select 2", "single select"),
        ("create table x (a int)", "single select"),
        ("copy prompts to '{folder}/written.csv'", "single select"),
        ("with q as (copy prompts to '{folder}/written.csv') select 1", "COPY"),
        ("attach '{folder}/written.duckdb'", "single select"),
        ("explain analyze copy prompts to '{folder}/written.csv'", "single select"),
    ],
)
def test_a_wrong_or_writing_query_is_the_users_mistake(built: str, sql: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        query([built], sql.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_long_query_draws_nothing_on_standard_output(built: str) -> None:
    assert rows(built, "select current_setting('enable_progress_bar') as is_drawn") == [{"is_drawn": False}]


def test_queries_that_read_may_take_any_form(built: str) -> None:
    assert query([built], "describe label_bias_by_task")["column_name"].to_pylist()[:2] == ["model", "task"]
    assert query([built], "pivot label_bias_by_task on method using avg(rsd) group by task; ").num_rows == 2
    assert query([built], "-- a comment\nselect 1 as x -- another").to_pylist() == [{"x": 1}]
    assert query([built], "select task from tasks order by task desc")["task"].to_pylist() == [
        "task002_letters",
        "task001_animals",
    ]


# Unfinished runs


def test_missing_parts_are_counted(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path, n_parts=4)
    for part in (1, 3):
        Path(run, "label_scores", f"part-0000{part}.parquet").unlink()
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(
            BiasevalError, match=r"2 of 4 parts missing \(first: label_scores/part-00001.parquet\); run the same"
        ):
            ask(run)


def test_a_run_without_marts_is_not_finished(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path)
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        query([run], "select 1")


def test_another_directory_is_no_run(tmp_path: Path) -> None:
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(InputError, match="is not a run directory"):
            ask(tmp_path)
    with pytest.raises(InputError, match="no run directory is named"):
        query([], "select 1")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path)
    Path(run, "contexts", "part-00000.parquet").write_bytes(b"half a file, and no more of it")
    with pytest.raises(BiasevalError, match=r"contexts/part-00000\.parquet"):
        measure(run)


# Runs of another kind


@pytest.fixture
def scored_prompts(tmp_path: Path) -> str:
    """Return a directory as scoring any prompts leaves it: one context, prompts and scores, and no metrics."""
    run = Run.open(str(tmp_path / "scored"))
    run.write_text("spec.yaml", "kind: score\nmodel: {path: models/tiny}\nprompts_sha256: '0'\n")
    scores = {"token_logprobs": [-1.0, -2.0], "n_label_tokens": 1}
    run.write_part("contexts", 0, CONTEXTS.rows([{"context_id": "", "text": ""}]))
    run.write_part("prompts", 0, PROMPTS.rows([{"prompt_id": "p", "context_id": "", "labels": ["a", "b"]}]))
    run.write_part("label_scores", 0, LABEL_SCORES.rows([{"prompt_id": "p", "label": x, **scores} for x in "ab"]))
    return run.uri


@pytest.mark.parametrize(
    ("spec", "reason"),
    [(None, "kind score, which has no metrics"), ("", "is no spec"), ("kind: another\n", "'another' is unknown")],
)
def test_metrics_need_a_run_of_a_kind_that_has_some(scored_prompts: str, spec: str | None, reason: str) -> None:
    if spec is not None:
        Path(scored_prompts, "spec.yaml").write_text(spec)
    before = sorted(Path(scored_prompts).rglob("*"))
    with pytest.raises(InputError, match=reason):
        measure(scored_prompts)
    assert sorted(Path(scored_prompts).rglob("*")) == before


def test_scores_of_any_prompts_can_be_queried(scored_prompts: str, built: str) -> None:
    assert rows(scored_prompts, "select prompt_id, labels from prompts") == [{"prompt_id": "p", "labels": ["a", "b"]}]
    assert rows(scored_prompts, "select count(*) as n from label_scores") == [{"n": 2}]
    assert rows(scored_prompts, "select distinct logprob_sum from label_logprobs") == [{"logprob_sum": -3.0}]
    with pytest.raises(InputError, match="label_bias_by_task does not exist"):
        query([scored_prompts], "from label_bias_by_task")
    sql = "select run, count(*) as n from {} group by all order by all"
    n_scores = len(two_tasks().label_scores)
    both = [built, scored_prompts]
    assert query(both, sql.format("label_scores")).to_pylist() == [
        {"run": "built", "n": n_scores},
        {"run": "scored", "n": 2},
    ]
    assert query(both, sql.format("label_bias_by_task")).to_pylist() == [{"run": "built", "n": 22}]


def test_missing_scores_of_any_prompts_are_counted(scored_prompts: str) -> None:
    Path(scored_prompts, "label_scores", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        query([scored_prompts], "select 1")
