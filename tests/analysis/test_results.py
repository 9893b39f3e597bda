"""The SQL files run in plain DuckDB, and `results.duckdb` opens anywhere."""

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.fs as pafs
import pytest

from biaseval.analysis import ANALYTICS, query
from biaseval.analysis import sql_files as relations
from biaseval.analysis.queries import open_runs
from biaseval.store import Run
from biaseval.tables import tables_of
from tests.labelplans import rows, two_tasks
from tests.measuring import measure
from tests.relationnames import views_of

pytestmark = pytest.mark.slow

OVER_ADAPTERS = ("training_by_setting", "training_by_step", "demonstration_labels")
"""Views over them, and of demonstrations: they have no row here."""

OF_ADAPTERS = ("adapted_scores", "training_rows", "training")
"""Tables that a run without adapters has as empty ones."""

OF_FORMATS = ("format_pairs", "label_bias_format_changes", "label_bias_format_spread")
"""Relations that have no row in a run of one format of the prompt."""

OF_RECORDS = ("calibration_methods",)
"""Tables of which there is no file."""


def test_every_relation_says_its_grain_and_layers_only_point_down() -> None:
    depth = {"intermediate": 0, "marts": 0, "checks": 1, "comparisons": 1}  # what is tested stands between marts
    heads = ("macros", "calibrations", "metrics")
    files = {path.stem: path for path in ANALYTICS.glob("*/*.sql") if path.parent.name not in heads}
    assert {path.parent.name for path in files.values()} == depth.keys()
    for path in files.values():
        text = path.read_text(encoding="utf-8")
        assert re.match(r"-- (One row|Rows here)", text), path
        assert "read_parquet" not in text, path
        for word in re.findall(r"(?:from|join) (\w+)", text):
            if word in files:
                assert depth[files[word].parent.name] <= depth[path.parent.name], (path, word)


def test_the_files_run_as_they_are_in_plain_duckdb(built: str) -> None:
    with closing(duckdb.connect()) as connection:
        relations.create_methods(connection)
        relations.create_macros(connection)
        for table in tables_of("label_bias").values():
            if table.name in {*OF_ADAPTERS, "failed_parts"}:  # the run has none, and so no such folder
                connection.from_arrow(table.empty()).create(table.name)
            else:
                parts = f"read_parquet('{built}/{table.name}/part-*.parquet')"
                added = "".join(f", {table.later[name]} as {name}" for name in table.optional)
                connection.execute(f"create view {table.name} as select *{added} from {parts}").fetchall()
        for relation in relations.relations("intermediate", "marts", tables=tables_of("label_bias")):
            connection.execute(f"create table {relation.name} as {relation.sql}").fetchall()
        found = connection.sql("from label_bias_by_task").to_arrow_table()
    assert found.equals(query([built], "from label_bias_by_task"))


# results.duckdb


def test_results_open_from_any_directory_with_marts_as_tables(
    built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(duckdb.connect(str(Path(built, "results.duckdb")), read_only=True)) as connection:
        kinds = dict(connection.execute("select table_name, table_type from information_schema.tables").fetchall())
        for name, kind in list(kinds.items())[::4]:
            n_rows = connection.execute(f"select count(*) from {name}").fetchall()[0][0]
            assert (n_rows == 0) == (
                name in ("splits", "calibration_logits", *OF_ADAPTERS, *OVER_ADAPTERS, *OF_FORMATS)
            )
            is_mart = (ANALYTICS / "marts" / f"{name}.sql").exists()
            assert (kind == "BASE TABLE") == (is_mart or name in (*OF_ADAPTERS, *OF_RECORDS))
    assert kinds.keys() == {*OF_RECORDS, *views_of("label_bias")}
    with closing(duckdb.connect()) as connection:
        connection.execute(f"attach '{built}/results.duckdb' as other (read_only)").fetchall()
        assert connection.execute("select count(*) from other.calibrated_predictions").fetchall() == [(2 * 42 * 11,)]


def test_the_duckdb_shell_opens_the_results_and_their_views(built: str, tmp_path: Path) -> None:
    found = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    names = list(views_of("label_bias"))[::8]
    # A statement each: a union of all is one plan of them all, which takes a minute.
    counts = ";".join(f"select '{name}' as name, count(*) as n from {name}" for name in names)
    answer = subprocess.run(
        [found, "-readonly", "-jsonlines", str(Path(built, "results.duckdb")), counts], cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    with closing(open_runs([built])) as connection:
        assert {row["name"]: row["n"] for row in map(json.loads, answer.stdout.splitlines())} == {
            name: connection.sql(f"from {name}").to_arrow_table().num_rows for name in names
        }


def test_without_a_page_only_files_of_other_metrics_go(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path / "run")
    measure(run, has_database=True)
    measure(run)
    assert Path(run, "results.duckdb").exists()
    Path(run, "digests.json").unlink()  # nobody knows any more of which metrics they are
    Path(run, "summary.json").touch()
    measure(run)
    assert not any(Path(run, name).exists() for name in ("results.duckdb", "summary.json"))


def test_a_run_directory_may_have_any_name(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path / "it's [a] *run*?")
    measure(run, has_database=True)
    assert len(rows(run, "from label_bias_by_task")) == 22
    with closing(duckdb.connect(str(Path(run, "results.duckdb")), read_only=True)) as connection:
        assert connection.execute("select count(*) from prompts").fetchall() == [(len(two_tasks().prompts),)]


def test_a_run_on_s3_gives_what_a_local_run_gives(object_store: str, built: str, tmp_path: Path) -> None:
    run = f"{object_store}/some/where"
    store = Run.open(run)
    pafs.copy_files(built, store.root, destination_filesystem=store.fs)
    for name in ("results.duckdb", "marts/label_bias_by_task.parquet"):
        store.fs.delete_file(store.path(name))
    measure(run, has_database=True)
    for mart in Path(built, "marts").iterdir():
        assert store.read_bytes(f"marts/{mart.name}") == mart.read_bytes()
    both = query([run, built], "select run, count(*) as n from calibrated_predictions group by all order by all")
    assert both.to_pylist() == [{"run": "built", "n": 2 * 42 * 11}, {"run": "where", "n": 2 * 42 * 11}]
    (tmp_path / "results.duckdb").write_bytes(store.read_bytes("results.duckdb"))
    with closing(duckdb.connect(str(tmp_path / "results.duckdb"), read_only=True)) as connection:
        [(sql,)] = connection.execute("select sql from duckdb_views() where view_name = 'prompts'").fetchall()
        assert "'s3://bias/some/where/prompts/part-00000.parquet'" in sql
        assert connection.execute("select count(*) from label_bias_by_task").fetchall() == [(22,)]
