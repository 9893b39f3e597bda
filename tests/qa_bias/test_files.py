"""Files of questions: every form, and what is none."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.data import Question, read_questions
from tests.qa_bias.questionfiles import (
    FORMS,
    MILL,
    QUESTIONS,
    ROWS,
    as_lines,
    as_parquet,
    as_squad,
    flat,
    read,
    refused,
)


@pytest.mark.parametrize("is_gzipped", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_questions(tmp_path: Path, form: str, is_gzipped: bool) -> None:
    file, write = FORMS[form]
    content = gzip.compress(write(ROWS)) if is_gzipped else write(ROWS)
    found = read(tmp_path, content, f"{file}.gz" if is_gzipped else file)
    titled = [replace(question, title="") for question in QUESTIONS] if "mrqa" in form else QUESTIONS
    assert found.questions == titled
    assert found.notes == []
    assert found.name == "dev"
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    # One row alone is no list of lines.
    assert read(tmp_path, write(ROWS[:1]), file).questions == titled[:1]


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(as_lines(ROWS)), "rows").questions == QUESTIONS
    assert read(tmp_path, as_parquet(ROWS), "rows.json").questions == QUESTIONS
    assert read(tmp_path, json.dumps(as_squad(ROWS)), "dev.jsonl").questions == QUESTIONS


def test_other_fields_are_ignored_and_a_missing_title_is_empty(tmp_path: Path) -> None:
    row = {**flat(id=7), "metadata": {"split": "dev"}, "data": 1, "header": 2, "title": None}
    assert read(tmp_path, [row]).questions == [Question("7", "", "Who ran it? ", MILL, ("Ann Lee",), (25,))]
    del row["title"]
    assert read(tmp_path, as_parquet([{**row, "id": "7"}])).questions[0].title == ""


FOREIGN: list[tuple[str, object, str]] = [
    ("dev.json", b" \n\n", "is empty"),
    ("dev.csv", b"id,question\n1,Who?\n", "no row has context, answers (its columns: id, question)"),
    ("dev.jsonl", b"version https://git-lfs.github.com/spec\n", "is no JSON, it starts with 'version https://git-lfs"),
    ("dev.zip", b"PK\x03\x04" + bytes(20), "is a zip file, as Excel's are; save the table as CSV"),
    ("dev.json", json.dumps(as_squad(ROWS)).encode("utf-16"), "is UTF-16; save it as UTF-8"),
    ("dev.json", b"{}", "no row has question, context, answers (its columns: none)"),
    ("dev.json", b"[1, 2]", "2 problems:\n  - FILE: [0]: is no JSON object"),
    ("dev.json", b'{"data": "x"}', "no row has question, context, answers (its columns: data)"),
    ("dev.json", b'{"data": [{"paragraphs": {"a": 1}}]}', "data[0].paragraphs: is an object with the keys a, not a"),
    ("dev.json", b'{"data": [{"paragraphs": [{"qas": [null]}]}]}', "data[0].paragraphs[0].qas[0]: is null, not an"),
    ("dev.jsonl", b'{"text": "x"}\n["x"]\n', "no row has question, context, answers (its columns: text)"),
    (
        "rows.parquet",
        as_parquet([{"id": "a", "context": "x", "label": 1}]),
        "no row has question, answers (its columns: ",
    ),
    ("rows.parquet", b"PAR1 and then nothing", "is no readable Parquet or Arrow file"),
    ("rows.parquet", as_parquet(ROWS)[:-30], "is no readable Parquet or Arrow file"),
    (
        "dev.json",
        '{"data": [{"paragraphs": []}]}',
        "has no question that can be used (it has none at all); check the path",
    ),
    ("dev.json", "[" * 100_000, "is not JSON (maximum recursion"),
    ("dev.json", f"[{'1' * 5000}]", "is not JSON (Exceeds the limit"),
]


@pytest.mark.parametrize("on_bad_example", ["error", "drop"])
def test_a_file_of_another_kind_is_refused_with_what_is_read(tmp_path: Path, on_bad_example: str) -> None:
    for file, content, found in FOREIGN:
        assert found in refused(tmp_path, content, file, on_bad_example=on_bad_example)


def test_bad_json_is_named_by_line_and_column_or_byte(tmp_path: Path) -> None:
    good = json.dumps(ROWS[0]).encode()
    message = refused(tmp_path, b"\n".join([good, b'{"id": x', b"", b'{"id": "x\xff"}', b"nonsense", good]))
    assert message == (
        "3 problems:\n"
        "  - FILE: line 2, column 8: is not JSON (Expecting value); write one JSON object a line\n"
        "  - FILE: line 4, byte 9: is not UTF-8 (invalid start byte); write one JSON object a line\n"
        "  - FILE: line 5, column 1: is not JSON (Expecting value); write one JSON object a line"
    )
    # A broken first line of lines, and a line cut off by an interrupted copy.
    assert "line 1, column 8: is not JSON" in refused(tmp_path, b'{"id": x\n' + good)
    assert "line 2, column" in refused(tmp_path, good + b"\n" + good[:-20])
    assert "13 more lines like these" in refused(tmp_path, good + b"\n{" * 23)
    # Bad lines are no bad questions.
    assert "line 2, column 1" in refused(tmp_path, good + b"\n}", on_bad_example="drop")


def test_bad_json_of_one_text_is_named_by_line_and_column(tmp_path: Path) -> None:
    text = json.dumps(as_squad(ROWS), indent=1)
    message = refused(tmp_path, text[:-10], "dev.json")
    n_lines = text[:-10].count("\n") + 1
    assert message.startswith(f"FILE: line {n_lines}, column ")
    assert message.endswith("; mend the file")
    assert "FILE: line 2, byte 14: is not UTF-8" in refused(tmp_path, b'{"data": ["x"\n\xff]}', "dev.json")


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(as_lines([flat(id=f"{number}") for number in range(1000)]))
    for broken in (content[:-20], content[:12], content[:40] + b"\0\0\0\0" + content[44:]):
        assert "FILE: is no complete gzip file" in refused(tmp_path, broken, "rows.jsonl.gz")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (str(tmp_path / "absent.json"), "ftp://host/dev.json", "s3:///dev.json"):
        with pytest.raises(InputError, match=r"cannot be read \(.+\); check the path") as caught:
            read_questions(path, name="dev")
        assert str(caught.value).startswith(path)


def test_questions_are_read_from_an_object_store(object_store: str) -> None:
    import boto3

    content, bucket = gzip.compress(as_lines(ROWS)), object_store.removeprefix("s3://").split("/")[0]
    boto3.client("s3").put_object(Bucket=bucket, Key="qa/rows.jsonl.gz", Body=content)
    found = read_questions(f"s3://{bucket}/qa/rows.jsonl.gz", name="dev")
    assert (found.questions, found.sha256) == (QUESTIONS, hashlib.sha256(content).hexdigest())
    with pytest.raises(InputError, match=rf"^s3://{bucket}/absent\.json: cannot be read"):
        read_questions(f"s3://{bucket}/absent.json", name="dev")
