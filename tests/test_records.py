"""Every form of a data file gives the same rows, and what is wrong with one is said with its place."""

import csv
import gzip
import hashlib
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as paipc
import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.records import Records, digest, json_values

ROWS: list[dict[str, Any]] = [
    {"text": 'He said "no, thanks".', "label": "bad"},
    {"text": "two\nlines; and\ta tab", "label": "good"},
    {"text": "ünïcode", "label": "good"},
]


def _write(folder: Path, form: str) -> Path:
    path = folder / f"rows.{form}"
    bare = form.lower().removesuffix(".gz")
    if bare in ("csv", "semicolons.csv"):
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, ["text", "label"], delimiter=";" if bare.startswith("semi") else ",")
            writer.writeheader()
            writer.writerows(ROWS)
    elif bare == "json":
        path.write_text(json.dumps(ROWS, indent=1))
    elif bare == "data.json":
        path.write_text(json.dumps({"version": "1", "data": ROWS}))
    elif bare == "jsonl":
        path.write_text("\n\n".join(json.dumps(row) for row in ROWS))
    elif bare == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    if bare != form:
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def _rows(path: Path | str) -> list[dict[str, Any]]:
    records = Records(str(path))
    rows = [row for _, row in records]
    assert records.problems == []
    return rows


def _refused(path: Path | str) -> str:
    """Return the one problem of what gives no row."""
    records = Records(str(path))
    assert list(records) == []
    [problem] = records.problems
    return problem


def _classes(names: list[str]) -> pa.Schema:
    """Return a schema of Hugging Face's library, whose labels are classes of these names."""
    features = {"text": {"_type": "Value"}, "label": {"names": names, "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema({"text": pa.string(), "label": pa.int64()}, metadata=metadata)


def _stream(path: Path, table: pa.Table, most: int | None = None) -> None:
    with paipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=most)


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    places = {form: [place for place, _ in Records(str(_write(tmp_path, form)))] for form in ("csv", "jsonl", "json")}
    assert places == {
        "csv": ["line 2", "line 4", "line 5"],  # of the last line of each row
        "jsonl": ["line 1", "line 3", "line 5"],
        "json": ["[0]", "[1]", "[2]"],
    }


def test_lines_are_known_by_their_name_or_by_the_first() -> None:
    lines = b'{"a": 1}\n{"a": 2}\n'
    assert list(json_values("", lines, known_formats="")) == [("line 1", {"a": 1}), ("line 2", {"a": 2})]
    with pytest.raises(InputError, match=r"line 1.*; write one JSON object a line"):
        list(json_values("", lines.replace(b"1}", b"1"), known_formats="", is_lines=True))
    assert list(json_values("", b"[\n1,\n2]", known_formats="")) == [("", [1, 2])]


def test_a_data_set_of_hugging_faces_library_has_the_names_of_its_classes(tmp_path: Path) -> None:
    numbered = [{**row, "label": ["bad", "good"].index(row["label"])} for row in ROWS]
    table = pa.Table.from_pylist(numbered, _classes(["bad", "good"]))
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    for name in ("state.json", "dataset_info.json"):
        (saved / name).write_text("{}")
    parts = [saved / f"data-0000{number}-of-00002.arrow" for number in range(2)]
    for path, rows in zip(parts, (table.slice(0, 2), table.slice(2)), strict=True):
        _stream(path, rows)
    (saved / "cache-1.arrow").write_bytes(parts[0].read_bytes())  # of map()
    assert _rows(saved) == ROWS
    assert digest(str(saved)) == hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()
    pq.write_table(table.drop(["label"]), tmp_path / "without.parquet")
    assert _rows(tmp_path / "without.parquet") == [{"text": row["text"]} for row in ROWS]
    pq.write_table(table, tmp_path / "rows.parquet")
    assert _rows(tmp_path / "rows.parquet") == ROWS
    assert _refused(tmp_path / "saved") == "holds several data sets (train); name the folder of one"


@pytest.mark.parametrize("parts", [("dataset.arrow",), ("cache-2.arrow", "cache-1.arrow")])
def test_a_saved_selection_of_rows_is_those_rows(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """Old versions of Hugging Face's library kept all rows, and the indices of those that were selected."""
    rows = [{"text": f"row {number}", "label": number % 2} for number in range(10_000)]
    table = pa.Table.from_pylist(rows, _classes(["bad", "good"]))
    size = len(rows) // len(parts)
    for number, name in enumerate(parts):
        _stream(tmp_path / name, table.slice(number * size, size), 700)
    order = [*range(9_000, 0, -1), 9_999, 5]
    _stream(tmp_path / "indices.arrow", pa.table({"indices": pa.array(order, pa.uint64())}), 999)
    files = [{"filename": name} for name in parts]
    state: dict[str, Any] = {"_data_files": files, "_indices_data_files": [{"filename": "indices.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    records = Records(str(tmp_path))
    found = list(records)
    assert records.problems == []
    assert [row for _, row in found] == [{"text": f"row {n}", "label": ("bad", "good")[n % 2]} for n in order]
    assert found[1][0] == "row 1"
    content = b"".join((tmp_path / name).read_bytes() for name in (*parts, "indices.arrow"))
    assert records.sha256 == digest(str(tmp_path)) == hashlib.sha256(content).hexdigest()
    # All of them, where the library itself has no selection.
    (tmp_path / "state.json").write_text(json.dumps({**state, "_indices_data_files": None}))
    assert len(_rows(tmp_path)) == len(rows)
    (tmp_path / "indices.arrow").unlink()
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert _refused(tmp_path) == "state.json: names indices.arrow, which is not there; save the data set again"


@pytest.mark.parametrize("names", [("Test.csv", "train.csv"), ("rows_dev.tsv.gz", "rows_train-0-of-2.csv")])
def test_splits_beside_each_other_are_no_one_data_set(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in (*names, "latest.csv"):
        (tmp_path / name).write_text("text,label\na,b\n")
    several = f"holds several data sets by the names of its files ({', '.join(names)}); name one of them"
    assert _refused(tmp_path) == several
    (tmp_path / names[0]).rename(tmp_path / "train_2.csv")
    assert len(_rows(tmp_path)) == 3


@pytest.mark.parametrize(("name", "content", "problem"), [
    ("a.csv", b"text,label\na,b\na,b,c\n", "line 3: has 3 columns and the header 2; mend the commas, or quote"),
    ("a.csv", b'text,label\n"a,b\n', "line 2: is no row of a table (unexpected end of data); mend its quotes"),
    ("a.csv", b'text,label\na,b\n"a,b\nc,d\ne,f\n', "lines 3 to 5: is no row of a table (unexpected end of data)"),
    ("a.csv", b"text,text\na,b\n", "line 1: names the columns 'text' twice; name each once"),
    ("a.csv", "text,label\nда,нет\nснова,нет".encode("cp1251"), "is not UTF-8 (byte 11 in line 2: invalid"),
    ("a.csv", "text,label\na,b\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
    ("a.csv", "text,label\na,b\n".encode("utf-16-be"), "is UTF-16; save it as UTF-8"),
    ("a.tsv", "text\tlabel\na\tb\n".encode("utf-16-le"), "is UTF-16; save it as UTF-8"),
    ("a.csv", "text,label\na,b\n".encode("utf-32"), "is UTF-32; save it as UTF-8"),
    ("a.csv", "text,label\na,b\n".encode("utf-32-be"), "is UTF-32; save it as UTF-8"),
    ("a.jsonl", '{"text": "a"}'.encode("utf-32-le"), "is UTF-32; save it as UTF-8"),
    ("a.tsv", b'\xef\xbb\xbf{"text": "a", "label": "b"}', "looks like JSON; name it .json, or .jsonl where each"),
    ("a.csv", b"", "is empty; CSV (.csv), TSV (.tsv), JSON"),
    ("a.jsonl", b'{"a": 1}\n{"a": \n[1]\n', "line 2, column 6: is not JSON"),
    ("a.jsonl", b'{"a": 1}\n[1]\n', "line 2: is no JSON object"),
    ("a.json", b'[{"a": 1},\n 2]', "[1]: is no JSON object"),
    ("a.json", b'[{"a": 1},\n {"b": }]', "line 2, column 8: is not JSON"),
    ("a.parquet", b"PAR1 and no more", "is no readable Parquet or Arrow file"),
    ("a.csv.gz", gzip.compress(b"text,label\na,b\n" * 99, mtime=0)[:-9], "is no complete gzip file"),
    ("a.xlsx", b"PK\x03\x04 and more", "is a zip file, as Excel's are; save the table as CSV"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    records = Records(str(path))
    list(records)
    assert [own for own in records.problems if own.startswith(problem)], records.problems


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.json.gz"])
def test_a_small_file_of_a_huge_line_is_refused_before_it_fills_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b'["' + b" " * (1 << 27)))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b"a,b\n" * 99_999))
    assert len(_rows(tmp_path / "rows.csv.gz")) == 99_999  # packed 900 times, and still small
    tracemalloc.start()
    assert _refused(tmp_path / name).startswith("unpacks to more than 200 times its size; unpack it first")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3 << 25  # less than the line


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "rows.parquet.gz"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    table, path = pa.table([["a"], ["pos"], ["neg"]], ["text", "label", "label"]), tmp_path / name
    _stream(path, table) if name.endswith(".arrow") else pq.write_table(table, path)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert _refused(path) == "names the columns 'label' twice; name each once"


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="Foo/Bar"), pa.duration("s")])
def test_times_that_python_lacks_are_left_alone(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"text": ["a"], "when": pa.array([10**18], kind)})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert _rows(tmp_path / "rows.parquet") == [{"text": "a", "when": None}]
    pq.write_table(table.append_column("all", pa.array([[10**18]], pa.list_(kind))), tmp_path / "rows.parquet")
    assert _refused(tmp_path / "rows.parquet").startswith("all: cannot be read (")


def test_decimals_are_whole_numbers_or_texts(tmp_path: Path) -> None:
    values = [Decimal("1.00"), None, Decimal("-0.50")]
    pq.write_table(pa.table({"label": pa.array(values, pa.decimal128(5, 2))}), tmp_path / "rows.parquet")
    assert _rows(tmp_path / "rows.parquet") == [{"label": 1}, {"label": None}, {"label": "-0.50"}]


def test_a_hub_that_is_out_of_reach_is_a_problem_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    problem = _refused("hf://datasets/owner/name/train.parquet")
    assert problem.startswith("cannot be read (")
    assert problem.endswith("check the path, the network and HF_TOKEN")


def test_a_file_with_no_good_row_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2,3\n" * 100_000)
    records = Records(str(path))
    assert list(records) == []
    assert len(records.problems) == 101


def test_a_long_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w") as file:
        file.write("text,label\n")
        file.writelines(f"some text of row {number},good\n" for number in range(50_000))
    tracemalloc.start()
    n_rows = sum(1 for _ in Records(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_rows == 50_000
    assert peak < 5_000_000
