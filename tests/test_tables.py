"""Every table of a run: what ``biaseval.tables`` says of it is so."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from biaseval.analysis import query
from biaseval.store import Run
from biaseval.tables import TABLES, tables_of
from tests.labelplans import two_tasks
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.qaplans import two_segments
from tests.searches import Search

FILES = {
    ".lock", "digests.json", "spec.yaml", "plan.json", "environment.json", "results.duckdb", "marts", "best.yaml",
    "summary.json",
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


@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("label_bias", lambda folder: two_tasks().write(folder)),
        ("majority_bias", lambda folder: MajorityPlan(calibration=("cc",)).write(folder)),
        ("qa_bias", lambda folder: two_segments().write(folder)),
        ("search", lambda folder: one_trial().write(folder)),
    ],
)
def test_a_run_has_the_tables_of_its_kind(kind: str, write: Callable[[Path], str], tmp_path: Path) -> None:
    run = Run.open(write(tmp_path / "run"))
    measure(run.uri)
    assert set(run.names()) - FILES <= tables_of(kind).keys()
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
