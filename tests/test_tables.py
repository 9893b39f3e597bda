"""Tables, their dictionary, and the summary."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from biaseval.analysis import ANALYTICS, query
from biaseval.analysis.dictionary import Dictionary, listed, write_comments
from biaseval.analysis.sql_files import connect, create, relations
from biaseval.analysis.summary_marts import SCHEMA_VERSION, summarize
from biaseval.json_values import plain
from biaseval.store import Run
from biaseval.tables import TABLES, tables_of
from tests.commands import Command
from tests.compare.runs import label_plan, make
from tests.labelplans import two_tasks
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.older_runs import copy_older_run
from tests.qaplans import two_segments
from tests.searches import Search

KINDS = ("label_bias", "majority_bias", "qa_bias", "search", "instruct", "score")


def _meanings(content: dict[str, Any]) -> dict[str, Any]:
    """Return columns and sections without the ranges beside their texts."""
    return {
        name: own if isinstance(own, str) else own["text"] if isinstance(own.get("range"), list) else _meanings(own)
        for name, own in content.items()
    }


FILES = {path.stem: _meanings(tomllib.loads(path.read_text())) for path in Path(ANALYTICS, "columns").glob("*.toml")}

ENUMS = {
    "prompts.purpose": ("main", "bias_score", "held_out", "cc", "dc", "looc", "majority"),
    "splits.role": ("demonstration", "bias_score", "main"),
    "label_bias_by_model.method": ("none", "cc", "dc", "looc", "lora"),
    "label_bias_by_model.unit": ("tasks", "rows"),
    "label_bias_verdicts.verdict": ("higher", "lower", "negligible", "unclear", "too few"),
}
"""Columns of label-bias runs, and values that their comments name."""


@pytest.fixture(scope="module", params=KINDS)
def empty(request: pytest.FixtureRequest) -> Iterator[tuple[str, duckdb.DuckDBPyConnection]]:
    """Yield a kind of run, and its tables, without a row, with all that is made of them."""
    tables = tables_of(request.param)
    with closing(connect([])) as connection:
        for table in tables.values():
            connection.from_arrow(table.empty()).create(table.name)
        for relation in relations("intermediate", "marts", tables=tables):
            create("table", relation.name, relation.sql, connection)
        yield request.param, connection


def test_every_column_has_a_comment(empty: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    kind, connection = empty
    write_comments(kind, connection)
    lacking = connection.execute(
        "select table_name || '.' || column_name from duckdb_columns() "
        "where database_name = current_database() and schema_name = 'main' and comment is null"
    ).fetchall()
    assert not lacking, f"add them to analytics/columns/{kind}.toml or shared.toml: {lacking}"
    tables = connection.execute(
        "select view_name, comment from duckdb_views() where not internal union all "
        "select table_name, comment from duckdb_tables() where not internal"
    ).fetchall()
    assert all(comment.startswith("One row per ") for _, comment in tables), tables


def test_every_column_of_comparisons_is_in_the_dictionary(empty: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    kind, connection = empty
    dictionary = Dictionary(kind)
    with closing(connect([])) as several:
        for (name, _), columns in listed(connection).items():
            if name != "calibration_methods":
                own = {"run": "varchar"} | columns
                typed = ", ".join(f'"{column}" {kind_of}' for column, kind_of in own.items())
                several.execute(f"create table {name} ({typed})").fetchall()
        for relation in relations("comparisons", tables=tables_of(kind)):
            create("table", relation.name, relation.sql, several)
            columns = listed(several)[relation.name, "table"]
            assert [name for name in columns if not dictionary.column(relation.name, name, list(columns))] == []


def test_the_dictionary_explains_nothing_that_there_is_not(empty: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    kind, connection = empty
    columns = {name: set(own) for (name, _), own in listed(connection).items()}
    compared = {relation.name for relation in relations("comparisons", tables=tables_of(kind))}
    for section, texts in FILES.get(kind, {}).items():
        if isinstance(texts, dict):
            assert section in {*columns, *compared}, section
            assert section in compared or set(texts) <= columns[section], (section, set(texts) - columns[section])
        else:
            assert any(section in own for own in columns.values()), section


def test_comments_are_sentences_and_name_the_values_of_enumerations() -> None:
    for file, content in FILES.items():
        own = [texts for texts in content.values() if isinstance(texts, dict)]
        for text in [text for texts in (content, *own) for text in texts.values() if isinstance(text, str)]:
            assert text.endswith("."), (file, text)
    for column, values in ENUMS.items():
        table, name = column.split(".")
        comment = Dictionary("label_bias").column(table, name, [name]) or ""
        assert [value for value in values if value not in comment] == [], column


def test_results_duckdb_has_the_comments_in_any_shell(tmp_path: Path) -> None:
    run = label_plan({"task1": "11110000"}).write(tmp_path / "run")
    measure(run, has_database=True)
    asked = """
        select comment from duckdb_columns() where table_name = 'label_bias_by_model' and column_name = 'rsd_low'
        union all select comment from duckdb_columns() where table_name = 'prompts' and column_name = 'purpose'
        union all select comment from duckdb_tables() where table_name = 'label_bias_by_model'
        union all select comment from duckdb_views() where view_name = 'calibrated_predictions'
    """
    shell = str(Path(sys.executable).with_name("duckdb"))
    command = [shell, "-readonly", "-json", f"{tmp_path}/run/results.duckdb", asked]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    interval, purpose, mart, view = (row["comment"] for row in json.loads(done.stdout))
    assert interval == "Low end of the 95 % interval of rsd."
    assert purpose.startswith("What the prompt is for: main")
    assert mart.startswith("One row per (model, suite, n_demos, method): means over tasks")
    assert view.startswith("One row per (prompt of main")


def test_the_schema_is_printed_for_people_and_machines(tmp_path: Path, command: Command) -> None:
    _, run_dir = copy_older_run("instruct", tmp_path)
    found = command("sql", str(run_dir), "--schema", "--format", "json")
    rows: list[dict[str, Any]] = json.loads(found.out)
    assert {row["table"] for row in rows} >= set(tables_of("instruct"))
    assert all(row["comment"] for row in rows)
    shown = command("sql", str(run_dir), "training", "--schema")
    assert shown.code == 0
    assert "Optimizer step, 0-based." in shown.out
    assert "conversation_id" not in shown.out
    refused = command("sql", str(run_dir), "--schema", "trainng").err
    assert refused == "error: --schema trainng: there is no such table or mart; did you mean training?\n"


MARTS = {
    "label_bias": (["label_bias_by_model"], ["label_bias_verdicts"]),
    "qa_bias": (["qa_by_model", "qa_by_dataset"], ["qa_bias_tests", "qa_model_comparisons", "qa_debiasing"]),
}


@pytest.mark.parametrize("kind", MARTS)
def test_a_summary_has_the_rows_of_marts_and_nothing_that_sql_has_not(kind: str, tmp_path: Path) -> None:
    if kind == "label_bias":
        run_dir = make(label_plan({"task1": "11110000", "task2": "11111100"}), tmp_path / "run")
    else:
        run_dir = str(copy_older_run(kind, tmp_path)[1])
    found = summarize(Run.open(run_dir), ["Biased."], ["Few rows."])
    assert list(found) == [
        *("schema_version", "kind", "name", "models", "counts", "metrics", "verdicts", "conclusions", "cautions")
    ]
    assert (found["schema_version"], found["kind"]) == (SCHEMA_VERSION, kind)
    assert (found["conclusions"], found["cautions"]) == (["Biased."], ["Few rows."])
    assert (list(found["metrics"]), list(found["verdicts"])) == MARTS[kind]
    for mart, rows in found["metrics"].items():
        assert rows == plain(query([run_dir], f"from {mart} order by all").to_pylist())
    assert any(found["counts"].values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert "/tmp" not in json.dumps(found)


BESIDE_TABLES = {
    ".lock", "digests.json", "spec.yaml", "plan.json", "environment.json", "results.duckdb", "marts", "best.yaml",
    "logs", "summary.json",
}  # fmt: skip


def one_trial() -> Search:
    search = Search()
    search.trial({"prompt.demo_sets": 2}, [0.5], [0.6])
    return search


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_its_grain_its_key_and_who_has_it(name: str) -> None:
    table = TABLES[name]
    assert table.name == name
    assert table.grain
    assert table.key
    assert {*table.key, *table.later} <= set(table.schema.names)
    assert table.kinds <= {"label_bias", "majority_bias", "qa_bias", "instruct", "score", "search"}
    assert table.if_asked <= table.kinds
    if table.part_of is not None:
        assert table.kinds <= TABLES[table.part_of].kinds
    assert table.empty().schema == table.rows([]).schema == table.schema


@pytest.mark.parametrize(("kind", "write"), [
    ("label_bias", lambda folder: two_tasks().write(folder)),
    ("majority_bias", lambda folder: MajorityPlan(calibration=("cc",)).write(folder)),
    ("qa_bias", lambda folder: two_segments().write(folder)), ("search", lambda folder: one_trial().write(folder)),
])  # fmt: skip
def test_a_run_has_the_tables_of_its_kind(kind: str, write: Callable[[Path], str], tmp_path: Path) -> None:
    run = Run.open(write(tmp_path / "run"))
    measure(run.uri)
    assert set(run.names()) - BESIDE_TABLES <= tables_of(kind).keys()
    for name, table in tables_of(kind).items():
        for part in run.parts(name):
            written = [field for field in table.schema if field.name not in table.optional]
            assert run.read_part(name, part).schema.equals(pa.schema(written)), name
        columns = query([run.uri], f"describe {name}")["column_name"].to_pylist()
        assert columns == table.schema.names, name
        n_rows = sum(run.read_part(name, part).num_rows for part in run.parts(name))
        assert query([run.uri], f"select count(*) as n from {name}")["n"].to_pylist() == [n_rows]
    names = query([run.uri], "select table_name from information_schema.tables")["table_name"].to_pylist()
    assert set(names) & TABLES.keys() == tables_of(kind).keys()
