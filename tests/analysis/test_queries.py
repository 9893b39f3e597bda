"""Questions over one or many runs, of any kind, finished or not, and what is said of those that had no row."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import open_runs, query
from biaseval.analysis.query_help import vain_literals
from biaseval.errors import BiasevalError, InputError
from biaseval.store import Run
from biaseval.tables import CONTEXTS, LABEL_SCORES, PROMPTS
from tests.commands import call
from tests.compare.runs import label_plan, make
from tests.labelplans import rows, two_tasks
from tests.measuring import measure


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


@pytest.mark.parametrize(("sql", "message"), [
    ("selec 1", "syntax error"), ("select nope from prompts", "nope"),
    ("from nope", "Table with name nope does not exist"), ("select 'x'::int", "Could not convert"),
    ("", "single select"), ("select 1; select 2", "single select"), ("create table x (a int)", "single select"),
    ("copy prompts to '{folder}/written.csv'", "single select"),
    ("with q as (copy prompts to '{folder}/written.csv') select 1", "COPY"),
    ("attach '{folder}/written.duckdb'", "single select"),
    ("explain analyze copy prompts to '{folder}/written.csv'", "single select"),
])  # fmt: skip
def test_a_wrong_or_writing_query_is_the_users_mistake(built: str, sql: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        query([built], sql.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_query_reads_its_runs_and_files_that_are_named(built: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,b\n1,2\n")
    own = f"from '{tmp_path}/own.csv'"
    for sql in (own, "from read_text('/proc/self/environ')", f"from '{built}/../own.csv'", "from glob('/*')"):
        with pytest.raises(InputError, match="name the file with --with FILE"):
            query([built], sql)
    for files in ([tmp_path / "own.csv"], [str(tmp_path)]):
        assert query([built], f"select a, n from ({own}), (select count(*) as n from tasks)", files).num_rows == 1
    assert query([built], own, unsafe=True).num_rows == 1
    with pytest.raises(InputError, match=r"gone.csv: no such file"):
        query([built], own, [tmp_path / "gone.csv"])


def test_queries_that_read_may_take_any_form(built: str) -> None:
    assert query([built], "describe label_bias_by_task")["column_name"].to_pylist()[:2] == ["model", "task"]
    assert query([built], "pivot label_bias_by_task on method using avg(rsd) group by task; ").num_rows == 2
    assert rows(built, "-- a comment\nselect 1 as x -- another") == [{"x": 1}]
    descending = query([built], "select task from tasks order by task desc")["task"].to_pylist()
    assert descending == ["task002_letters", "task001_animals"]
    # Nothing is drawn on standard output.
    assert rows(built, "select current_setting('enable_progress_bar') as is_drawn") == [{"is_drawn": False}]


def _asked(run: str | Path) -> None:
    query([str(run)], "select 1")


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path / "run", n_parts=4)
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        _asked(run)
    for part in (1, 3):
        Path(run, "label_scores", f"part-0000{part}.parquet").unlink()
    missing = r"2 of 4 parts missing .*\(first: label_scores/part-00001.parquet\); run the same"
    (tmp_path / "empty").mkdir()
    for ask in (measure, _asked):
        with pytest.raises(BiasevalError, match=missing):
            ask(run)
        with pytest.raises(InputError, match="is not a run directory"):
            ask(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no run directory is named"):
        query([], "select 1")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path)
    Path(run, "contexts", "part-00000.parquet").write_bytes(b"half a file, and no more of it")
    with pytest.raises(BiasevalError, match=r"contexts/part-00000\.parquet"):
        measure(run)


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
    for table, counts in (("label_scores", {"built": n_scores, "scored": 2}), ("label_bias_by_task", {"built": 22})):
        found = query([built, scored_prompts], sql.format(table)).to_pylist()
        assert {row["run"]: row["n"] for row in found} == counts
    Path(scored_prompts, "label_scores", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        query([scored_prompts], "select 1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(label_plan({"task1": "11110000"}), tmp_path_factory.mktemp("runs") / "a")


PURPOSES = "no row has purpose = {}; it has bias_score, main"


@pytest.mark.parametrize(("sql", "sentences"), [
    ("from prompts where purpose = 'mian'", [PURPOSES.format("'mian'")]),
    ("from prompts p where p.PURPOSE='mian' or purpose = 'mian'", [PURPOSES.format("'mian'")]),
    ("from prompts where purpose in ('mian', 'main', 'it''s')", [PURPOSES.format("'mian' or 'it's'")]),
    ("from prompts where purpose = 'main' and gold = 'z'", ["no row has gold = 'z'; it has a, b"]),
    ("from prompts where purpose = 'main' and row < 0", []),
    ("from prompts where purpose not in ('mian') and row < 0", []),
    ("from prompts where lower(purpose) = 'mian' and row <> 1", []), ("select 1 where 'purpose' = 'mian'", []),
])  # fmt: skip
def test_texts_that_no_row_has_are_named_with_those_that_there_are(run: str, sql: str, sentences: list[str]) -> None:
    assert vain_literals([run], sql) == sentences


@pytest.mark.parametrize(
    ("sql", "out", "note"),
    [
        ("from prompts where purpose = 'mian'", "[]", "note: no row has purpose = 'mian'; it has bias_score, main\n"),
        ("from prompts where purpose = 'main' limit 1", None, ""),
        # Aggregates of no row; pages write CC, and SQL cc.
        *((f"select {what} from label_bias_by_task where method = '{method}'", None, note)
          for what in ("avg(rsd)", "max(accuracy), count(*)")
          for method, note in (("NONE", "note: no row has method = 'NONE'; it has none\n"), ("none", ""))),
    ],
)  # fmt: skip
def test_the_command_says_so_on_standard_error_where_there_is_no_row(
    run: str, sql: str, out: str | None, note: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = call(capsys, monkeypatch, "sql", run, sql, "--format", "json")
    assert (asked.code, asked.err) == (0, note)
    assert out is None or asked.out.strip() == out
