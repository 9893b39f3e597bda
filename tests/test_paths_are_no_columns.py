"""Folders that are called ``key=value`` are places: DuckDB and Arrow would make columns of them."""

import ast
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import biaseval
from biaseval.analysis import open_runs, query
from biaseval.analysis.gates import check_run
from biaseval.analysis.paths import without_partitions
from biaseval.label_bias.splits import read_splits
from biaseval.pipelines.labels.score import _prompt_rows
from biaseval.qa_bias.data import read_questions
from biaseval.records import Records
from biaseval.runs import first_spec
from biaseval.store import Run
from biaseval.tables import tables_of
from tests.labelplans import two_tasks
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.qaplans import two_segments
from tests.relationnames import names_of

PACKAGE = Path(biaseval.__file__).parent
TABLES = {"label_bias": "label_scores", "majority_bias": "label_scores", "qa_bias": "qa_examples"}
FOLDERS = ("label=x", "task=foo", "sweep/seed=1", "model=m/dataset=d/method=cc/setting=s/run=r/question=q")
"""Whose keys are columns of tables, or would be new ones."""

KINDS: dict[str, Callable[[Path], str]] = {
    "label_bias": lambda folder: two_tasks().write(folder, n_parts=2),
    "majority_bias": lambda folder: MajorityPlan(calibration=("cc",)).write(folder, n_parts=2),
    "qa_bias": lambda folder: two_segments().write(folder, n_parts=2),
}


@pytest.fixture(scope="module", params=KINDS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, list[str]]:
    """Return a kind, a run in a plain folder, and the same run, made and analysed anew, in each of ``FOLDERS``."""
    folder = tmp_path_factory.mktemp(request.param)
    made = []
    for place in ("plain", *FOLDERS):
        run = KINDS[request.param](folder / place)
        measure(run, has_database=True)
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


_TOLD = "\n, hive_partitioning = false"


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("from read_parquet('a')", f"from read_parquet('a'{_TOLD})"),
        ("from parquet_scan(f(g('a')), filename=true)", f"from read_parquet(f(g('a')), filename=true{_TOLD})"),
        ("from read_json_objects_auto('a')", f"from read_json_objects_auto('a'{_TOLD})"),
        ("from \"read_csv\"('a')", f"from \"read_csv\"('a'{_TOLD})"),
        ("from main.\"Parquet_Scan\" ('a')", f"from main.\"read_parquet\" ('a'{_TOLD})"),
        ("from read_csv_auto('a'), read_json('b')", f"from read_csv('a'{_TOLD}), read_json('b'{_TOLD})"),
        *((same, same) for same in (
            "from read_parquet('a', hive_partitioning := true)",
            "from read_csv('a', hive_types = {'b': int})",
            "select 'read_parquet(''a'')', \"read_csv(\"\"x\", $$read_json('a')$$",
            "select 1 -- read_csv('a')\n/* read_parquet('a') */",
            "select read_parquet, my_read_parquet('a') from t where (x)",
            "select \"my read_csv\"('a'), \"a\"\"read_csv\"('b'), 'from \"read_csv\"(1)'",
            "select )",
            "from read_parquet()",
        )),
    ],
)  # fmt: skip
def test_only_readers_of_files_are_told(sql: str, found: str) -> None:
    assert without_partitions(sql) == found


def test_csv_and_json_beside_runs_have_their_own_columns(runs: tuple[str, str, list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "label=x"
    folder.mkdir()
    (folder / "a.csv").write_text("label,n\ntea,1\n")
    (folder / "a.json").write_text('[{"label": "tea", "n": 1}]')
    (folder / "a.jsonl").write_text('{"label": "tea", "n": 1}\n')
    for name in ("a.csv", "a.json", "a.jsonl"):
        file = folder / name
        reader = f"read_{file.suffix[1:].replace('jsonl', 'ndjson')}"
        for source in (f"'{file}'", f"{reader}('{file}')", f"\"{reader}\"('{file}')"):
            assert query([runs[1]], f"select label, n from {source}").to_pylist() == [{"label": "tea", "n": 1}], source


def test_data_files_below_such_folders_are_read_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "label=x" / "question=q"
    folder.mkdir(parents=True)
    rows = pa.table({"text": [f"text {n}" for n in range(40)], "label": ["yes", "no"] * 20})
    pq.write_table(rows, folder / "train.parquet")
    lines = [f"text {n},{'no' if n % 2 else 'yes'}\n" for n in range(40)]
    (folder / "train.csv").write_text("".join(["text,label\n", *lines]))
    for place in (folder / "train.parquet", folder / "train.csv", folder):
        found = [row for _, row in Records(str(place))]
        assert found[:2] == rows.slice(0, 2).to_pylist(), place
    found = first_spec(str(folder / "train.parquet"), None, tmp_path).found
    assert "label: label, with 2 values (yes 50%, no 50%)" in found
    question = {"id": "a", "question": "who?", "context": "it was Ann", "answers": ["Ann"]}
    pq.write_table(pa.Table.from_pylist([question]), folder / "questions.parquet")
    assert [own.question for own in read_questions(str(folder / "questions.parquet"), name="own").questions] == ["who?"]
    prompts = [{"prompt_id": "a", "text": "T", "labels": ["yes", "no"]}]
    pq.write_table(pa.Table.from_pylist(prompts), folder / "prompts.parquet")
    assert list(_prompt_rows(folder / "prompts.parquet")) == prompts


def test_splits_of_a_run_below_such_folders_are_those_of_its_tasks(tmp_path: Path) -> None:
    table = pa.table({"task": ["t"] * 2, "instance_id": ["a", "b"], "role": ["main"] * 2, "position": [0, 1]})
    run = Run.open(str(tmp_path / "task=foo" / "role=r"))
    run.write_part("splits", 0, table)
    for place in (f"{run.root}/splits", f"{run.root}/splits/part-00000.parquet"):
        assert {name: rows.to_pylist() for name, rows in read_splits(place).items()} == {"t": table.to_pylist()}


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
