"""Questions: the files they come from, and what is wrong with them."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biaseval.errors import InputError
from biaseval.qa_bias.data import _nearest, question_rows, read_questions
from tests.qa_bias.questionfiles import FORMS, MILL, QUESTIONS, ROWS, as_lines, as_mrqa, as_squad, flat, read, refused


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


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(as_lines([flat(id=f"{number}") for number in range(1000)]))
    for broken in (content[:-20], content[:12], content[:40] + b"\0\0\0\0" + content[44:]):
        assert "FILE: is no complete gzip file" in refused(tmp_path, broken, "rows.jsonl.gz")


def test_questions_are_read_from_an_object_store(object_store: str) -> None:
    import boto3

    content, bucket = gzip.compress(as_lines(ROWS)), object_store.removeprefix("s3://").split("/")[0]
    boto3.client("s3").put_object(Bucket=bucket, Key="qa/rows.jsonl.gz", Body=content)
    found = read_questions(f"s3://{bucket}/qa/rows.jsonl.gz", name="dev")
    assert (found.questions, found.sha256) == (QUESTIONS, hashlib.sha256(content).hexdigest())
    with pytest.raises(InputError, match=rf"^s3://{bucket}/absent\.json: cannot be read"):
        read_questions(f"s3://{bucket}/absent.json", name="dev")


def test_unanswerable_questions_of_squad_v2_are_left_out_and_counted(tmp_path: Path) -> None:
    squad = as_squad([*ROWS, flat(id="c"), flat(id="d")])
    for article, is_impossible in zip(squad["data"], [False, False, True, True], strict=True):
        (qa,) = article["paragraphs"][0]["qas"]
        qa["is_impossible"] = is_impossible
        if is_impossible:
            qa["plausible_answers"], qa["answers"] = qa["answers"], []
    found = read(tmp_path, json.dumps(squad), "dev.json")
    assert found.questions == QUESTIONS
    assert found.notes == ["dev: left out 2 questions marked is_impossible: the metric has no null answer"]
    squad["data"] = squad["data"][2:]
    message = refused(tmp_path, json.dumps(squad), "dev.json")
    assert "has no question that can be used (all are marked is_impossible)" in message


def test_a_wrong_start_is_moved_to_the_nearest_place_that_has_the_text(tmp_path: Path) -> None:
    context = "mill, mill; mill: mill"
    starts = {"a": 0, "b": 1, "c": 3, "d": 4, "e": 7, "f": 99, "g": -1, "h": 18}
    rows = [flat(id=name, question=name, context=context, text="mill", start=at) for name, at in starts.items()]
    rows.append(flat(id="i", text="Ann Lee", start=24) | {"answers": {"text": ["Lee", "mill"], "answer_start": [9, 9]}})
    found = read(tmp_path, rows)
    assert [question.answer_starts for question in found.questions] == [
        (0,), (0,), (0,), (6,), (6,), (18,), (0,), (18,), (29, 4)
    ]  # fmt: skip
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
    lines = as_mrqa([flat(id=text, context=context, text=text) for text in wanted])
    for line, (span, _) in zip(lines[1:], wanted.values(), strict=True):
        line["qas"][0]["question"] = str(span)
        line["qas"][0]["detected_answers"][0]["char_spans"] = [span]
    found = read(tmp_path, lines)
    assert [(*question.answers, *question.answer_starts) for question in found.questions] == [
        answer for _, answer in wanted.values()
    ]
    assert found.notes == [
        "dev: moved the start of 2 answers (2 questions) to the nearest place in the context that has the text",
        "dev: wrote 2 answers as the context has it at its span, in other case, punctuation or articles",
    ]
    lines[1]["qas"][0]["detected_answers"][0] |= {"text": "USA", "char_spans": [[16, 17]]}
    assert "1 with an answer that is nowhere in the context (us)" in refused(tmp_path, lines)


PARTS = "with answers that are not texts and starts"

BAD: list[tuple[dict[str, Any], str]] = [
    *((flat(id=value), "without an id") for value in ("", None, True)),
    *((flat(question=value), "without the question's text") for value in (" \n", ["Who?"])),
    *((flat(context=value), "without a context") for value in ("", None)),
    *((flat(answers=value), "without an answer") for value in ({"text": [], "answer_start": []}, [], None, " ")),
    *((flat(answers=value), f"{PARTS}, as many of each") for value in (1890, ["Ann Lee", 1])),
    (flat(answers=["Ann Lee"], answer_start=[25, 29]), PARTS), (flat(answers="Ann Lee", answer_start="behind"), PARTS),
    (flat(answers="['Ann Lee']"), 'with answers in brackets that are no JSON list, as ["one", "two"] is'),
    (flat(answers={"text": ["Ann Lee", "Lee"], "answer_start": [25]}), PARTS),
    *((flat(answers=value), PARTS) for value in ({"text": ["Ann Lee"]}, [{"text": "Ann Lee"}])),
    *((flat(start=value), PARTS) for value in (None, 25.5, True)), (flat(text=None), PARTS),
    (flat(text=""), "with an empty answer"), (flat(text=" ", start=3), "with an empty answer"),
    (flat(answers={"text": ["Ann Lee", "Bob"], "answer_start": [25, 0]}),
        "with an answer that is nowhere in the context"),
    (flat(question="Who \ud83d?"), "with half a surrogate pair"),
    (flat(context=f"{MILL}\udc18"), "with half a surrogate pair"),
]  # fmt: skip


def test_a_bad_question_is_refused_with_the_reason_or_left_out_and_counted(tmp_path: Path) -> None:
    for bad, reason in BAD:
        content = "".join(json.dumps(row) + "\n" for row in ({**ROWS[1], "id": "good"}, bad))
        shown = "a" if bad["id"] == "a" else "line 2"
        message = refused(tmp_path, content)
        assert f"FILE: 1 of 2 questions cannot be used: 1 {reason}" in message
        assert f"({shown}); mend them, or leave them out with datasets.on_bad_example: drop" in message
        found = read(tmp_path, content, on_bad_example="drop")
        assert [question.example_id for question in found.questions] == ["good"]
        (note,) = found.notes
        assert note.startswith(f"dev: left out 1 of 2 questions that cannot be used: 1 {reason}")
        assert "has no question that can be used (1 " in refused(tmp_path, json.dumps(bad), on_bad_example="drop")


def test_max_examples_draws_by_seed_and_name_and_keeps_the_order(tmp_path: Path) -> None:
    rows = [flat(id=f"q{number}", question=f"Who ran {number}?") for number in range(300)]
    whole = read(tmp_path, rows)
    drawn = read(tmp_path, rows, max_examples=50)
    assert len(drawn.questions) == 50
    assert [question for question in whole.questions if question in drawn.questions] == drawn.questions
    assert drawn.notes == ["dev: drew 50 of 300 questions (max_examples)"]
    assert drawn.sha256 == whole.sha256
    assert read(tmp_path, rows, max_examples=50) == drawn
    assert read(tmp_path, rows, max_examples=50, seed=1).questions != drawn.questions
    other = read_questions(str(tmp_path / "rows.jsonl"), name="other", max_examples=50)
    assert other.questions != drawn.questions
    more = read(tmp_path, rows, max_examples=120).questions
    assert all(question in more for question in drawn.questions)
    assert read(tmp_path, rows, max_examples=300) == whole
    # Bad questions take no part in the draw, and are refused wherever they stand.
    assert "q300" in refused(tmp_path, [*rows, flat(id="q300", text="Bob")], max_examples=50)


@pytest.mark.parametrize(("file", "n_questions", "n_repeated"), [
    ("data/qa/squad_dev.jsonl.gz", 10_570, 29), ("data/qa/squad_addonesent.jsonl", 787, 0),
    ("data/qa/triviaqa_dev_retrieved.jsonl", 609, 0),
])  # fmt: skip
def test_published_sets_are_read_whole(shared: Path, file: str, n_questions: int, n_repeated: int) -> None:
    found = read_questions(str(shared / file), name="dev")
    assert len(found.questions) == n_questions
    note = f"dev: kept {n_repeated} questions whose context and text an earlier one has under another id"
    assert found.notes == ([note] if n_repeated else [])
    assert question_rows(found, "in_distribution").num_rows == n_questions
