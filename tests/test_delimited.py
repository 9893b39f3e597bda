"""Tables of lines as other programs write them: pandas, Excel, R, Spark, and files without any quoting."""

import csv
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from biaseval.records import Records

TEXTS = ['he said "item" twice', '"all of it"', "plain", 'one lone " inside', "it's", "a, b; c | d", 'ends in "it"']
TEXTS.append("more than csv's own limit of a field " * 4000)
ROWS = [{"text": f"{text} {number}", "label": ("pos", "neg")[number % 2]} for number, text in enumerate(TEXTS)]


def _read(path: Path, content: str | bytes | None = None) -> Records:
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Records(str(path))


def _rows(path: Path, content: str | bytes | None = None) -> list[dict[str, Any]]:
    records = _read(path, content)
    rows = [row for _, row in records]
    assert records.problems == []
    return rows


def _quiet(path: Path, content: str | bytes | None = None) -> list[dict[str, Any]]:
    """Return the rows of a file of which there is nothing to say."""
    records = _read(path, content)
    rows = [row for _, row in records]
    assert (records.problems, records.notes) == ([], [])
    return rows


def _note(path: Path, content: str | bytes) -> str:
    """Return the one thing that is said of a file."""
    records = _read(path, content)
    list(records)
    [note] = records.notes
    return note


@pytest.mark.parametrize("name", ["rows.tsv", "rows.csv"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|"])
def test_what_pandas_writes_is_read_as_it_was(tmp_path: Path, name: str, quoting: int, delimiter: str) -> None:
    rows = [*ROWS, {"text": f"two\nlines\tand{delimiter} 9", "label": "pos"}]
    pd.DataFrame(rows).to_csv(tmp_path / name, sep=delimiter, quoting=quoting, index=False)  # type: ignore[arg-type]
    assert _quiet(tmp_path / name) == rows
    pd.DataFrame(ROWS).to_csv(tmp_path / "index.csv")
    assert _quiet(tmp_path / "index.csv") == [{"": str(number), **row} for number, row in enumerate(ROWS)]


@pytest.mark.parametrize("name", ["rows.tsv", "rows.csv"])
@pytest.mark.parametrize("escape", ['\\"', '""'])
@pytest.mark.parametrize("has_row_names", [True, False])
def test_what_r_writes_is_read_as_it_was(tmp_path: Path, name: str, escape: str, has_row_names: bool) -> None:
    """Its write.table escapes quotes with a backslash, and names rows, but not their column."""
    rows = [*ROWS, {"text": "C:\\temp\\", "label": "pos"}]
    delimiter = "\t" if name.endswith("tsv") else ","

    def line(*cells: str) -> str:
        return delimiter.join('"' + cell.replace('"', escape) + '"' for cell in cells) + "\n"

    named = [line(*([str(n)] if has_row_names else []), *row.values()) for n, row in enumerate(rows, 3)]
    expected = [{**({"": str(n)} if has_row_names else {}), **row} for n, row in enumerate(rows, 3)]
    records = _read(tmp_path / name, line("text", "label") + "".join(named))
    assert [row for _, row in records] == expected
    assert [note.partition(",")[0] for note in records.notes] == ["first cells are read as row names"] * has_row_names


@pytest.mark.parametrize(
    "text",
    ['He said "no.', '"He said and went', '"Great" movie, "bad" end', '"quoted" and "quoted"', 'ends "', '"', '""'],
)
def test_a_tsv_without_quoting_keeps_its_quotes(tmp_path: Path, text: str) -> None:
    rows = [*ROWS[2:], {"text": text, "label": "pos"}, *ROWS[2:4]]
    lines = "".join(f"{row['text']}\t{row['label']}\n" for row in rows)
    found = _rows(tmp_path / "rows.tsv", "text\tlabel\n" + lines)
    # Two quotes that are all of a cell are an empty one, as pandas has it.
    assert found == [{**row, "text": "" if row["text"] == '""' else row["text"]} for row in rows]
    found = _rows(tmp_path / "rows.tsv", 'text\tlabel\n"he said\tpos\nand she said"\tneg\n')
    assert found == [{"text": '"he said', "label": "pos"}, {"text": 'and she said"', "label": "neg"}]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_header_of_a_file_that_was_joined_is_no_row(tmp_path: Path, mark: str) -> None:
    content = f"text, label\na,pos\n{mark}text, label\nb,neg\n"
    assert [row["text"] for row in _rows(tmp_path / "rows.csv", content)] == ["a", "b"]
    note = _note(tmp_path / "rows.csv", content)
    assert note == ("line 1 stands below once more (1 time), as where files were joined; those rows are left out")
    # Quotes that stay in texts are said, too.
    content = 'text\tlabel\n"one"\tpos\n"two\tneg\n"three"\tpos\n'
    assert [row["text"] for row in _rows(tmp_path / "rows.tsv", content)] == ['"one"', '"two', '"three"']
    begin = "quotes are read as part of the texts ('\"one\"' in line 2), as not all of them open and"
    assert _note(tmp_path / "rows.tsv", content).startswith(begin)


def test_random_texts_that_are_quoted_come_back(tmp_path: Path) -> None:
    draw = random.Random(4)
    for number in range(150):
        delimiter, name = draw.choice(((",", "csv"), ("\t", "tsv"), (";", "csv"), ("|", "csv")))
        rows = [{"t": "".join(draw.choices('a" ,;\t|', k=draw.randint(1, 7))) + "x", "n": "1"} for _ in range(4)]
        path = tmp_path / f"{number}.{name}"
        pd.DataFrame(rows).to_csv(path, sep=delimiter, index=False)
        assert _rows(path) == rows, path.read_text()


@pytest.mark.parametrize(("header", "line", "cells"), [
    ("text, label", 'item 0, "pos"', ["item 0", "pos"]),
    ("text, label", '"a, b", "ne""g"', ["a, b", 'ne"g']),
    ("text, label", 'one,  "a, b"', ["one", "a, b"]),
    ("text, label", "one, two", ["one", " two"]),  # without such a quote spaces stay
    ("id, text, label", '1, "good, nice", pos', ["1", "good, nice", "pos"]),  # and no row has a name
    ("n, text, label", '1, "good, nice", pos', ["1", "good, nice", "pos"]),
])  # fmt: skip
def test_a_space_before_a_quote_is_none_of_the_cell(tmp_path: Path, header: str, line: str, cells: list[str]) -> None:
    assert _quiet(tmp_path / "rows.csv", f"{header}\n{line}\n") == [dict(zip(header.split(", "), cells, strict=True))]


def test_what_excel_writes_is_read_as_it_was(tmp_path: Path) -> None:
    content = 'sep=;\r\nid;text;label\r\n1;"Grüße; Jürgen";gut\r\n2;„schön“ – 5 €;übel\r\n3;plain;gut\r\n'
    records = _read(tmp_path / "excel.csv", content.encode("cp1252"))
    texts = ["Grüße; Jürgen", "„schön“ – 5 €", "plain"]
    assert [(place, row["text"]) for place, row in records] == [(f"line {n}", text) for n, text in enumerate(texts, 3)]
    [note] = records.notes
    assert note == (
        "is not UTF-8 (byte 27 in line 3: invalid start byte) and is read as Windows-1252, which Excel writes, as in "
        "'Grüße'; where that is wrong, save it as UTF-8"
    )
    assert len(_quiet(tmp_path / "utf.csv", b"\xef\xbb\xbf" + content.encode())) == 3
    assert _quiet(tmp_path / "tab.csv", '"sep=\t"\ntext\tlabel\na,b\tpos\n') == [{"text": "a,b", "label": "pos"}]
    assert _quiet(tmp_path / "tilde.csv", "sep=~\ntext~label\na,b~pos\n") == [{"text": "a,b", "label": "pos"}]


@pytest.mark.parametrize("content", [
    "text,label\nочень хорошо,да\n".encode("cp1251"),
    "text,label\nπολύ καλό,ναι\n".encode("cp1253"),
    "text,label\nbardzo źle się spało,nie\nmiało być miło,tak\n".encode("cp1250"),
    "text,label\nとても良い,はい\n".encode("shift-jis"),
    "text,label\n非常好,是\n".encode("gbk"),
    "text,label\nschön und grün,ja\n".encode("cp850"),
    *(
        b"text,label\n \xff,ja\n" + f"{each} und,ja\n".encode()
        for each in ("für", "5 €", "„x“", "Äpfel", "so 😀", "2 °")
    ),
])  # fmt: skip
def test_other_encodings_are_refused(tmp_path: Path, content: bytes) -> None:
    records = _read(tmp_path / "rows.csv", content)
    assert list(records) == []
    [problem] = records.problems
    assert problem.startswith("is not UTF-8 (byte 1")
    assert problem.endswith("); save it as UTF-8")


def test_columns_without_name_and_value_are_none(tmp_path: Path) -> None:
    """Excel writes them where cells once held something."""
    rows = _quiet(tmp_path / "rows.csv", "text,label,,\na,pos,,\nb,neg\nc,pos,\n,,,\n")
    assert rows == [{"text": text, "label": label} for text, label in (("a", "pos"), ("b", "neg"), ("c", "pos"))]
    # Some rows may be the only ones that are longer.
    assert len(_quiet(tmp_path / "rows.csv", "text,label\na,pos,,\nb,neg\n")) == 2
    # One column without a name is one, as pandas' index is.
    assert _quiet(tmp_path / "rows.csv", "text,label,,\na,pos,seen by Ann,\nb,neg,,\n")[0][""] == "seen by Ann"
    assert next(iter(_read(tmp_path / "rows.csv", "\n\ntext,label\na,pos\n")))[0] == "line 4"  # blank lines are none


@pytest.mark.parametrize(("content", "problem"), [
    ("text,label,,\na,pos,x,y\n", "line 1: column 4 has no name and values below; name each, or take them out"),
    ("text,,,label,\na,x,y,pos,\n", "line 1: column 3 has no name and values below; name each, or take them out"),
    ("sep=,\ntext,text\na,b\n", "line 2: names the columns 'text' twice; name each once"),
    ("sep=,\ntext,label\na,b\na,b,c\n", "line 4: has 3 columns and the header 2; mend the commas, or quote texts"),
    ("text|label\na|b\na|b|c\n", "line 3: has 3 columns and the header 2; mend the bars"),
    ("text,label\na,b\na\n", "line 3: has 1 columns and the header 2; mend the commas, or quote texts"),
    # Numbers of rows are distinct; here a text holds a comma.
    ("text,label\n1,b,c\n1,b,d\n", "line 2: has 3 columns and the header 2; mend the commas, or quote texts"),
    ('text,label\n"Hi" there,b\n', "line 2: is no row of a table (',' expected after '\"'); mend its quotes"),
])  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, content: str, problem: str) -> None:
    records = _read(tmp_path / "rows.csv", content)
    list(records)
    assert records.problems[0].startswith(problem)


@pytest.mark.parametrize(("content", "why"), [
    ("a fine day,pos\na bad day,neg\nanother,pos\n", "'pos' stands below in its column, 1 time"),
    ("a fine day;1\na bad day;0\nanother;1\n", "'1' stands below in its column, 1 time"),
    ("17,a fine day,pos\n18,a bad day,neg\n", "17 is a number"),
    ("it was a day of good weather,a\nit was a day of bad weather,b\n", "'it was a day of good weather' is a text"),
])  # fmt: skip
def test_a_first_line_that_looks_like_a_row_is_said(tmp_path: Path, content: str, why: str) -> None:
    assert _note(tmp_path / "rows.csv", content) == (
        f"line 1 looks like a row and not like the names of columns ({why}); where names are missing, write them into "
        "a first line, such as text,label"
    )


@pytest.mark.parametrize("content", [
    "text,label\nlabel,text\ntext and label,neg\n", "country,2019,2020\nNorway,1,2\n",
    "How satisfied were you with our service,label\n1,a\n2,b\n",
    "What did you like best about our service?,label\nThe people that were there,a\n", "0,1\nfine,1\nbad,0\n",
])  # fmt: skip
def test_a_header_is_none(tmp_path: Path, content: str) -> None:
    _quiet(tmp_path / "rows.csv", content)


@pytest.mark.parametrize(("title", "line"), [("Survey results, 2024\n", 2), ("Survey of 7,\n,\n", 3)])
def test_a_title_before_the_header_is_said(tmp_path: Path, title: str, line: int) -> None:
    note = _note(tmp_path / "rows.csv", title + "text,label\na,pos\nb,neg\n")
    assert note == f"line {line} looks like the names of columns; remove the lines before it"
