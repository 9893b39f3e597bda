"""Folders that are called ``key=value`` are places: DuckDB and Arrow would make columns of them."""

import ast
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import biaseval
from biaseval.analysis import open_runs, query
from biaseval.analysis.gates import check_run
from biaseval.tables import tables_of
from tests.labelplans import two_tasks
from tests.measuring import measure
from tests.qaplans import two_segments
from tests.relationnames import names_of

pytestmark = pytest.mark.slow

PACKAGE = Path(biaseval.__file__).parent
TABLES = {"label_bias": "label_scores", "qa_bias": "qa_examples"}
FOLDERS = ("label=x/task=foo/seed=1/model=m/dataset=d/method=cc/setting=s/run=r/question=q",)
"""Whose keys are columns of tables, or would be new ones."""

KINDS: dict[str, Callable[[Path], str]] = {
    "label_bias": lambda folder: two_tasks().write(folder, n_parts=2),
    "qa_bias": lambda folder: two_segments().write(folder, n_parts=2),
}


@pytest.fixture(scope="module", params=KINDS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, list[str]]:
    """Return a kind, a run in a plain folder, and the same run, made and analysed anew, in each of ``FOLDERS``."""
    folder = tmp_path_factory.mktemp(request.param)
    made = []
    for place in ("plain", *FOLDERS):
        run = KINDS[request.param](folder / place)
        measure(run, has_database=place != "plain")
        made.append(run)
    return request.param, made[0], made[1:]


def test_a_run_has_the_same_rows_wherever_it_lies(runs: tuple[str, str, list[str]]) -> None:
    kind, plain, others = runs
    names = [*tables_of(kind), *names_of(kind, "marts")]  # all else is made of these
    with closing(open_runs([plain])) as connection:
        wanted = {name: connection.sql(f"from {name} order by all").to_arrow_table() for name in names}
    for other in others:
        with closing(open_runs([other])) as connection:
            for name in names:
                found = connection.sql(f"from {name} order by all").to_arrow_table()
                assert found.column_names == wanted[name].column_names, (other, name)
                assert found.equals(wanted[name]), (other, name)
        # As whoever opens it in a shell of their own has it.
        with closing(duckdb.connect(f"{other}/results.duckdb", read_only=True)) as connection:
            for name in names:
                assert connection.sql(f"from {name} order by all").to_arrow_table().equals(wanted[name]), (other, name)
    together = query([plain, *others], f"select run, count(*) as n from {TABLES[kind]} group by run")
    assert together.num_rows == len(FOLDERS) + 1
    assert len(set(together["n"].to_pylist())) == 1


def test_files_that_queries_of_users_name_have_their_own_columns_alone(runs: tuple[str, str, list[str]]) -> None:
    kind, plain, others = runs
    table = TABLES[kind]
    key = {"qa_bias": "dataset"}.get(kind, "label")
    wanted = query([plain], f"select distinct {key} from {table} order by all")
    assert wanted[key].to_pylist() not in (["x"], ["d"])
    for other in others:
        parts = f"{other}/{table}/*.parquet"
        for source in (
            *(f"read_parquet('{parts}')", f"parquet_scan(['{parts}'], union_by_name = true)", f"'{parts}'"),
            f"READ_PARQUET ('{parts}' /* all ) */, filename := true -- and which\n)",
        ):
            asked = f"select distinct {key} from {source} order by all"
            assert query([other], asked).equals(wanted), (other, source)
            assert biaseval.open(other).arrow(asked).equals(wanted)
        gate = f"(select count(distinct {key}) from read_parquet('{parts}')) = {wanted.num_rows}"
        assert [own.holds for own in check_run(other, [gate]).gates] == [True]
    # Who asks for them has them.
    asked = f"select distinct label from read_parquet('{others[0]}/{table}/*.parquet', hive_partitioning = true)"
    assert query([others[0]], asked).to_pylist() == [{"label": "x"}]


def test_every_reader_of_files_is_told() -> None:
    """Of all sources: what reads a path, and not what is in memory, says that paths are no columns."""
    lacking = []
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            told = {keyword.arg for keyword in call.keywords} & {"partitioning"}
            first = ast.unparse(call.args[0]) if call.args else ""
            if re.search(r"\bpq\.read_table$|\bdataset\.dataset$|\bpq\.ParquetDataset$|\bread_parquet$", name):
                is_memory = first in ("file", "run", "sample") or first.startswith("pa.BufferReader(")
                if not told and not is_memory:
                    lacking.append(f"{path.name}:{call.lineno} {ast.unparse(call)}")
        for text in re.findall(r"(?:read_parquet|parquet_scan|read_csv|read_json)\([^\n]*", source):
            if "select" in source and re.match(r"\w+\((?:\{|')", text) and "hive_partitioning" not in text:
                lacking.append(f"{path.name}: {text}")
    for path in (PACKAGE.parents[1] / "analytics").rglob("*.sql"):
        if re.search(r"read_parquet|parquet_scan|read_csv|read_json|\.parquet'", path.read_text()):
            lacking.append(path.name)
    assert lacking == []
