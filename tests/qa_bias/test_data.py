from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biaseval.errors import InputError
from biaseval.qa_bias.data import Question, QuestionSet, _nearest, question_rows, read_questions
from biaseval.tables import QA_EXAMPLES

MILL = "The mill opened in 1890. Ann Lee ran the mill until 1921."
ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "title": "Mills",
        "question": "Who ran it? ",
        "context": MILL,
        "answers": {"text": ["Ann Lee", "Lee"], "answer_start": [25, 29]},
    },
    {
        "id": "b",
        "title": "Mills",
        "question": "Where is 🐘 Zoë?",
        "context": "🐘 Zoë is in Nîmes\u2028now.\u00a0",
        "answers": {"text": ["Nîmes", "in Nîmes"], "answer_start": [12, 9]},
    },
]
QUESTIONS = [
    Question("a", "Mills", "Who ran it? ", MILL, ("Ann Lee", "Lee"), (25, 29)),
    Question("b", "Mills", "Where is 🐘 Zoë?", "🐘 Zoë is in Nîmes\u2028now.\u00a0", ("Nîmes", "in Nîmes"), (12, 9)),
]


def _row(**changes: Any) -> dict[str, Any]:
    """Return the first row with changes; ``text`` and ``start`` are those of its only answer."""
    answers = {"text": [changes.pop("text", "Ann Lee")], "answer_start": [changes.pop("start", 25)]}
    return {**ROWS[0], "answers": answers, **changes}


def _squad(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as SQuAD's articles, a paragraph each."""
    articles = []
    for row in rows:
        lists = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in lists]
        qa = {"id": row["id"], "question": row["question"], "answers": answers}
        articles.append({"title": row["title"], "paragraphs": [{"context": row["context"], "qas": [qa]}]})
    return {"version": "1.1", "data": articles}


def _mrqa(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as lines of MRQA, with the fields that its files have besides."""
    lines: list[dict[str, Any]] = [{"header": {"dataset": "SQuAD", "split": "dev"}}]
    for row in rows:
        detected = [
            {"text": text, "char_spans": [[start, start + len(text) - 1], [0, 1]], "token_spans": [[0, 1]]}
            for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        ]
        qa = {"qid": row["id"], "id": "source#1", "question": row["question"], "question_tokens": [["Who", 0]]}
        qa |= {"detected_answers": detected, "answers": ["Lee"], "is_impossible": False}
        lines.append({"id": "", "context": row["context"], "qas": [qa], "context_tokens": [["The", 0]]})
    return lines


def _lines(values: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue().to_pybytes())


FORMS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes]]] = {
    "squad": ("dev.json", lambda rows: json.dumps(_squad(rows)).encode()),
    "squad, indented": ("dev.json", lambda rows: json.dumps(_squad(rows), indent=2, ensure_ascii=False).encode()),
    "articles alone": ("dev.json", lambda rows: json.dumps(_squad(rows)["data"]).encode()),
    "rows": ("rows.json", lambda rows: json.dumps(rows).encode()),
    "rows under data": ("rows.json", lambda rows: json.dumps({"version": 1, "data": rows}).encode()),
    "lines": ("rows.jsonl", _lines),
    "lines by another name, with blank ones": ("rows.json", lambda rows: _lines(rows).replace(b"\n", b"\r\n\r\n")),
    "lines with a byte order mark": ("rows.jsonl", lambda rows: b"\xef\xbb\xbf" + _lines(rows)),
    "parquet": ("rows.parquet", _parquet),
    "mrqa": ("dev.jsonl", lambda rows: _lines(_mrqa(rows))),
    "mrqa without a header": ("dev.jsonl", lambda rows: _lines(_mrqa(rows)[1:])),
}


def _write(folder: Path, content: object, file: str = "rows.jsonl") -> str:
    path = folder / file
    if isinstance(content, list):
        content = _lines(content)
    path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    return str(path)


def _read(folder: Path, content: object, file: str = "rows.jsonl", **settings: Any) -> QuestionSet:
    return read_questions(_write(folder, content, file), name="dev", **settings)


def _refused(folder: Path, content: object, file: str = "rows.jsonl", **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        _read(folder, content, file, **settings)
    message = str(caught.value)
    assert file in message
    return message.replace(str(folder / file), "FILE")


@pytest.mark.parametrize("is_gzipped", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_questions(tmp_path: Path, form: str, is_gzipped: bool) -> None:
    file, write = FORMS[form]
    content = gzip.compress(write(ROWS)) if is_gzipped else write(ROWS)
    found = _read(tmp_path, content, f"{file}.gz" if is_gzipped else file)
    titled = [replace(question, title="") for question in QUESTIONS] if "mrqa" in form else QUESTIONS
    assert found.questions == titled
    assert found.notes == []
    assert found.name == "dev"
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    # One row alone is no list of lines.
    assert _read(tmp_path, write(ROWS[:1]), file).questions == titled[:1]


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    assert _read(tmp_path, gzip.compress(_lines(ROWS)), "rows").questions == QUESTIONS
    assert _read(tmp_path, _parquet(ROWS), "rows.json").questions == QUESTIONS
    assert _read(tmp_path, json.dumps(_squad(ROWS)), "dev.jsonl").questions == QUESTIONS


def test_other_fields_are_ignored_and_a_missing_title_is_empty(tmp_path: Path) -> None:
    row = {**_row(id=7), "metadata": {"split": "dev"}, "data": 1, "header": 2, "title": None}
    assert _read(tmp_path, [row]).questions == [Question("7", "", "Who ran it? ", MILL, ("Ann Lee",), (25,))]
    del row["title"]
    assert _read(tmp_path, _parquet([{**row, "id": "7"}])).questions[0].title == ""


def test_unanswerable_questions_of_squad_v2_are_left_out_and_counted(tmp_path: Path) -> None:
    squad = _squad([*ROWS, _row(id="c"), _row(id="d")])
    for article, is_impossible in zip(squad["data"], [False, False, True, True], strict=True):
        (qa,) = article["paragraphs"][0]["qas"]
        qa["is_impossible"] = is_impossible
        if is_impossible:
            qa["plausible_answers"], qa["answers"] = qa["answers"], []
    found = _read(tmp_path, json.dumps(squad), "dev.json")
    assert found.questions == QUESTIONS
    assert found.notes == ["dev: left out 2 questions marked is_impossible: the metric has no null answer"]
    squad["data"] = squad["data"][2:]
    message = _refused(tmp_path, json.dumps(squad), "dev.json")
    assert "has no question that can be used (all are marked is_impossible)" in message


def test_a_wrong_start_is_moved_to_the_nearest_place_that_has_the_text(tmp_path: Path) -> None:
    context = "mill, mill; mill: mill"
    starts = {"a": 0, "b": 1, "c": 3, "d": 4, "e": 7, "f": 99, "g": -1, "h": 18}
    rows = [_row(id=name, question=name, context=context, text="mill", start=at) for name, at in starts.items()]
    rows.append(_row(id="i", text="Ann Lee", start=24) | {"answers": {"text": ["Lee", "mill"], "answer_start": [9, 9]}})
    found = _read(tmp_path, rows)
    assert [question.answer_starts for question in found.questions] == [
        (0,), (0,), (0,), (6,), (6,), (18,), (0,), (18,), (29, 4)
    ]  # fmt: skip
    assert all(
        question.context[start : start + len(answer)] == answer
        for question in found.questions
        for answer, start in zip(question.answers, question.answer_starts, strict=True)
    )
    assert found.notes == [
        "dev: moved the start of 8 answers (7 questions) to the nearest place in the context that has the text"
    ]


@given(
    context=st.text(alphabet="ab", max_size=12),
    text=st.text(alphabet="ab", min_size=1, max_size=3),
    start=st.integers(-3, 15),
)
def test_the_nearest_place_is_that_of_a_search_through_all(context: str, text: str, start: int) -> None:
    places = [at for at in range(len(context)) if context.startswith(text, at)]
    assert _nearest(context, text, start) == min(places, key=lambda at: (abs(at - start), at), default=None)


def test_an_mrqa_answer_is_written_as_its_span_where_only_case_or_articles_differ(tmp_path: Path) -> None:
    context = "Industry in the US: THE MILL of Graz and a mill."
    wanted = {
        "us": ([16, 17], ("US", 16)),  # not the "us" of "Industry"
        "Mill": ([20, 27], ("THE MILL", 20)),
        "a mill": ([43, 46], ("a mill", 41)),  # the span lacks the article that the context has
        "Graz": ([32, 36], ("Graz", 32)),
        "of Graz": ([0, 3], ("of Graz", 29)),  # a wrong span
        "mill.": ([43, 99], ("mill.", 43)),  # one that ends behind the context
    }
    lines = _mrqa([_row(id=text, context=context, text=text) for text in wanted])
    for line, (span, _) in zip(lines[1:], wanted.values(), strict=True):
        line["qas"][0]["question"] = str(span)
        line["qas"][0]["detected_answers"][0]["char_spans"] = [span]
    found = _read(tmp_path, lines)
    assert [(*question.answers, *question.answer_starts) for question in found.questions] == [
        answer for _, answer in wanted.values()
    ]
    assert found.notes == [
        "dev: moved the start of 2 answers (2 questions) to the nearest place in the context that has the text",
        "dev: wrote 2 answers as the context has it at its span, in other case, punctuation or articles",
    ]
    lines[1]["qas"][0]["detected_answers"][0] |= {"text": "USA", "char_spans": [[16, 17]]}
    assert "1 with an answer that is nowhere in the context (us)" in _refused(tmp_path, lines)


BAD: list[tuple[dict[str, Any], str]] = [
    (_row(id=""), "without an id"),
    (_row(id=None), "without an id"),
    (_row(id=True), "without an id"),
    (_row(question=" \n"), "without the question's text"),
    (_row(question=["Who?"]), "without the question's text"),
    (_row(context=""), "without a context"),
    (_row(context=None), "without a context"),
    (_row(answers={"text": [], "answer_start": []}), "without an answer"),
    (_row(answers=[]), "without an answer"),
    (_row(answers=None), "without an answer"),
    (_row(answers=1890), "with answers that are not texts and starts, as many of each"),
    (_row(answers=["Ann Lee", 1]), "with answers that are not texts and starts, as many of each"),
    (_row(answers=["Ann Lee"], answer_start=[25, 29]), "with answers that are not texts and starts, as many of each"),
    (_row(answers="Ann Lee", answer_start="behind"), "with answers that are not texts and starts, as many of each"),
    (_row(answers=" "), "without an answer"),
    (_row(answers="['Ann Lee']"), 'with answers in brackets that are no JSON list, as ["one", "two"] is'),
    (_row(answers={"text": ["Ann Lee", "Lee"], "answer_start": [25]}), "with answers that are not texts and starts"),
    (_row(answers={"text": ["Ann Lee"]}), "with answers that are not texts and starts"),
    (_row(answers=[{"text": "Ann Lee"}]), "with answers that are not texts and starts"),
    (_row(text=None), "with answers that are not texts and starts"),
    (_row(start=None), "with answers that are not texts and starts"),
    (_row(start=25.0), "with answers that are not texts and starts"),
    (_row(start=True), "with answers that are not texts and starts"),
    (_row(text=""), "with an empty answer"),
    (_row(text=" ", start=3), "with an empty answer"),
    (_row(text="Ann lee"), "with an answer that is nowhere in the context"),
    (
        _row(answers={"text": ["Ann Lee", "Bob"], "answer_start": [25, 0]}),
        "with an answer that is nowhere in the context",
    ),
    (_row(question="Who \ud83d?"), "with half a surrogate pair"),
    (_row(context=f"{MILL}\udc18"), "with half a surrogate pair"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_question_is_refused_with_the_reason_or_left_out_and_counted(
    tmp_path: Path, bad: dict[str, Any], reason: str
) -> None:
    good = {**ROWS[1], "id": "good"}
    content = "".join(json.dumps(row) + "\n" for row in (good, bad))
    shown = "a" if bad["id"] == "a" else "line 2"
    message = _refused(tmp_path, content)
    assert f"FILE: 1 of 2 questions cannot be used: 1 {reason}" in message
    assert f"({shown}); mend them, or leave them out with datasets.on_bad_example: drop" in message
    found = _read(tmp_path, content, on_bad_example="drop")
    assert [question.example_id for question in found.questions] == ["good"]
    (note,) = found.notes
    assert note.startswith(f"dev: left out 1 of 2 questions that cannot be used: 1 {reason}")
    assert "has no question that can be used (1 " in _refused(tmp_path, json.dumps(bad), on_bad_example="drop")


def test_all_reasons_come_in_one_message_with_counts_and_the_first_ids(tmp_path: Path) -> None:
    rows = [_row(id=f"q{number}", text="Bob") for number in range(1200)]
    rows += [_row(id="x"), _row(id="x", question="Who?"), _row(id="y", context=" "), _row(id="q3")]
    message = _refused(tmp_path, rows)
    assert message == (
        "FILE: 1,203 of 1,204 questions cannot be used: "
        "1,200 with an answer that is nowhere in the context (q0, q1, q2, q3, q4, …); "
        "2 with the id of an earlier question (x, q3); 1 without a context (y); "
        "mend them, or leave them out with datasets.on_bad_example: drop"
    )
    found = _read(tmp_path, rows, on_bad_example="drop")
    assert [(question.example_id, question.question) for question in found.questions] == [("x", "Who ran it? ")]


def test_places_stand_for_questions_without_an_id(tmp_path: Path) -> None:
    squad = _squad([*ROWS, _row(id="")])
    squad["data"][0]["paragraphs"].append({"context": MILL, "qas": [{"question": "Who?"}]})
    message = _refused(tmp_path, json.dumps(squad), "dev.json")
    assert "2 without an id (data[0].paragraphs[1].qas[0], data[2].paragraphs[0].qas[0])" in message
    assert "(row 1)" in _refused(tmp_path, _parquet([ROWS[1], _row(id=None)]), "rows.parquet")


def test_the_same_question_under_another_id_is_kept_and_counted(tmp_path: Path) -> None:
    found = _read(
        tmp_path, [*ROWS, {**ROWS[0], "id": "c"}, {**ROWS[0], "id": "d"}, {**ROWS[0], "id": "e", "question": "?"}]
    )
    assert [question.example_id for question in found.questions] == ["a", "b", "c", "d", "e"]
    assert found.notes == ["dev: kept 2 questions whose context and text an earlier one has under another id"]


FOREIGN: list[tuple[str, object, str]] = [
    ("dev.json", b"", "is empty"),
    ("dev.json", b" \n\n", "is empty"),
    ("dev.csv", b"id,question\n1,Who?\n", "no row has context, answers (its columns: id, question)"),
    (
        "dev.jsonl",
        b"version https://git-lfs.github.com/spec/v1\n",
        "is no JSON, it starts with 'version https://git-lfs",
    ),
    ("dev.zip", b"PK\x03\x04" + bytes(20), "is a zip file, as Excel's are; save the table as CSV"),
    ("dev.json", json.dumps(_squad(ROWS)).encode("utf-16"), "is UTF-16; save it as UTF-8"),
    ("dev.json", b'{"a": "Ann", "b": "Lee"}', "no row has question, context, answers (its columns: a, b)"),
    ("dev.json", b"{}", "no row has question, context, answers (its columns: none)"),
    ("dev.json", b"[1, 2]", "2 problems:\n  - FILE: [0]: is no JSON object"),
    ("dev.json", b'{"data": "x"}', "no row has question, context, answers (its columns: data)"),
    (
        "dev.json",
        b'{"data": [{"paragraphs": {"a": 1}}]}',
        "data[0].paragraphs: is an object with the keys a, not a list",
    ),
    ("dev.json", b'{"data": [{"paragraphs": [{"qas": [null]}]}]}', "data[0].paragraphs[0].qas[0]: is null, not an"),
    (
        "dev.jsonl",
        b'{"text": "x", "label": 1}\n["x"]\n',
        "no row has question, context, answers (its columns: text, label)",
    ),
]


@pytest.mark.parametrize(("file", "content", "found"), FOREIGN)
@pytest.mark.parametrize("on_bad_example", ["error", "drop"])
def test_a_file_of_another_kind_is_refused_with_what_is_read(
    tmp_path: Path, file: str, content: object, found: str, on_bad_example: str
) -> None:
    assert found in _refused(tmp_path, content, file, on_bad_example=on_bad_example)


def test_a_table_with_other_columns_is_refused_with_its_columns(tmp_path: Path) -> None:
    message = _refused(tmp_path, _parquet([{"id": "a", "context": "x", "label": 1}]), "rows.parquet")
    assert message.startswith("FILE: no row has question, answers (its columns: id, context, label); name ")
    assert "is no readable Parquet or Arrow file" in _refused(tmp_path, b"PAR1 and then nothing", "rows.parquet")
    assert "is no readable Parquet or Arrow file" in _refused(tmp_path, _parquet(ROWS)[:-30], "rows.parquet")


def test_an_empty_list_is_no_data_set(tmp_path: Path) -> None:
    for content in ("[]", '{"data": []}', '{"data": [{"paragraphs": []}]}'):
        message = _refused(tmp_path, content, "dev.json")
        assert message == "FILE: has no question that can be used (it has none at all); check the path"


def test_bad_json_is_named_by_line_and_column_or_byte(tmp_path: Path) -> None:
    good = json.dumps(ROWS[0]).encode()
    message = _refused(tmp_path, b"\n".join([good, b'{"id": x', b"", b'{"id": "x\xff"}', b"nonsense", good]))
    assert message == (
        "3 problems:\n"
        "  - FILE: line 2: column 8: is not JSON (Expecting value); write one JSON object a line\n"
        "  - FILE: line 4: byte 9: is not UTF-8 (invalid start byte); write one JSON object a line\n"
        "  - FILE: line 5: column 1: is not JSON (Expecting value); write one JSON object a line"
    )
    # A broken first line of lines, and a line cut off by an interrupted copy.
    assert "line 1: column 8: is not JSON" in _refused(tmp_path, b'{"id": x\n' + good)
    assert "line 2: column" in _refused(tmp_path, good + b"\n" + good[:-20])
    assert "13 more lines like these" in _refused(tmp_path, good + b"\n{" * 23)
    # Bad lines are no bad questions.
    assert "line 2: column 1" in _refused(tmp_path, good + b"\n}", on_bad_example="drop")


def test_bad_json_of_one_text_is_named_by_line_and_column(tmp_path: Path) -> None:
    text = json.dumps(_squad(ROWS), indent=1)
    message = _refused(tmp_path, text[:-10], "dev.json")
    n_lines = text[:-10].count("\n") + 1
    assert message.startswith(f"FILE: line {n_lines}, column ")
    assert message.endswith("; mend the file")
    assert "FILE: byte 14: is not UTF-8" in _refused(tmp_path, b'{"data": ["x"\n\xff]}', "dev.json")
    assert "is not JSON (maximum recursion" in _refused(tmp_path, "[" * 100_000, "dev.json")
    assert "is not JSON (Exceeds the limit" in _refused(tmp_path, f"[{'1' * 5000}]", "dev.json")


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(_lines([_row(id=f"{number}") for number in range(1000)]))
    assert "FILE: is no complete gzip file" in _refused(tmp_path, content[:-20], "rows.jsonl.gz")
    assert "FILE: is no complete gzip file" in _refused(tmp_path, content[:12], "rows.jsonl.gz")
    broken = content[:40] + b"\0\0\0\0" + content[44:]
    assert "FILE: is no complete gzip file" in _refused(tmp_path, broken, "rows.jsonl.gz")


@pytest.mark.parametrize("uri", ["absent.json", "ftp://host/dev.json", "s3:///dev.json"])
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, uri: str) -> None:
    path = uri if "://" in uri else str(tmp_path / uri)
    with pytest.raises(InputError, match=r"cannot be read \(.+\); check the path") as caught:
        read_questions(path, name="dev")
    assert str(caught.value).startswith(path)


def test_questions_are_read_from_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        variables = {"ENDPOINT_URL": f"http://{host}:{port}", "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
        for key, value in {**variables, "DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{key}", value)
        monkeypatch.setenv("NO_PROXY", host)
        client = boto3.client("s3")
        client.create_bucket(Bucket="questions")
        content = gzip.compress(_lines(ROWS))
        client.put_object(Bucket="questions", Key="qa/rows.jsonl.gz", Body=content)
        found = read_questions("s3://questions/qa/rows.jsonl.gz", name="dev")
        assert found.questions == QUESTIONS
        assert found.sha256 == hashlib.sha256(content).hexdigest()
        with pytest.raises(InputError, match=r"^s3://questions/absent\.json: cannot be read"):
            read_questions("s3://questions/absent.json", name="dev")
    finally:
        server.stop()


def test_max_examples_draws_by_seed_and_name_and_keeps_the_order(tmp_path: Path) -> None:
    rows = [_row(id=f"q{number}", question=f"Who ran {number}?") for number in range(300)]
    whole = _read(tmp_path, rows)
    drawn = _read(tmp_path, rows, max_examples=50)
    assert len(drawn.questions) == 50
    assert [question for question in whole.questions if question in drawn.questions] == drawn.questions
    assert drawn.notes == ["dev: drew 50 of 300 questions (max_examples)"]
    assert drawn.sha256 == whole.sha256
    assert _read(tmp_path, rows, max_examples=50) == drawn
    assert _read(tmp_path, rows, max_examples=50, seed=1).questions != drawn.questions
    other = read_questions(str(tmp_path / "rows.jsonl"), name="other", max_examples=50)
    assert other.questions != drawn.questions
    more = _read(tmp_path, rows, max_examples=120).questions
    assert all(question in more for question in drawn.questions)
    assert _read(tmp_path, rows, max_examples=300) == whole
    # Bad questions take no part in the draw, and are refused wherever they stand.
    assert "q300" in _refused(tmp_path, [*rows, _row(id="q300", text="Bob")], max_examples=50)


def test_rows_have_the_schema_of_the_table(tmp_path: Path) -> None:
    rows = question_rows(_read(tmp_path, ROWS), "out_of_distribution")
    assert rows.schema == QA_EXAMPLES.schema
    assert rows.to_pylist()[1] == {
        "dataset": "dev",
        "example_id": "b",
        "row": 1,
        "role": "out_of_distribution",
        "title": "Mills",
        "question": "Where is 🐘 Zoë?",
        "context": "🐘 Zoë is in Nîmes\u2028now.\u00a0",
        "answers": ["Nîmes", "in Nîmes"],
        "answer_starts": [12, 9],
    }


def test_contexts_are_held_once(tmp_path: Path) -> None:
    found = _read(tmp_path, [_row(id=f"{number}") for number in range(3)])
    assert len({id(question.context) for question in found.questions}) == 1


@pytest.mark.parametrize(
    ("file", "n_questions", "n_repeated"),
    [
        ("data/qa/squad_dev.jsonl.gz", 10_570, 29),
        ("data/qa/squad_train.jsonl.gz", 8_099, 8),
        ("data/qa/squad_train_extra.jsonl", 2_000, 0),
        ("data/qa/squad_addonesent.jsonl", 787, 0),
        ("data/qa/adversarialqa_dev.jsonl", 3_000, 0),
        ("data/qa/naturalquestions_dev.jsonl", 2_356, 0),
        ("data/qa/triviaqa_dev_retrieved.jsonl", 609, 0),
        ("golden/qa/examples.jsonl", 1_232, 0),
    ],
)
def test_published_sets_are_read_whole(shared: Path, file: str, n_questions: int, n_repeated: int) -> None:
    found = read_questions(str(shared / file), name="dev")
    assert len(found.questions) == n_questions
    note = f"dev: kept {n_repeated} questions whose context and text an earlier one has under another id"
    assert found.notes == ([note] if n_repeated else [])
    assert question_rows(found, "in_distribution").num_rows == n_questions
