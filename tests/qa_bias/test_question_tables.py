"""Tables of questions: CSV, TSV, Parquet and JSON lines with answers as texts, and columns of other names."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.qa_bias.data import Question, QuestionSet, read_questions
from biaseval.qa_bias.predictions import read_predictions
from biaseval.runs import run_spec
from biaseval.spec import TableSpec, differences, load_spec
from biaseval.store import Run
from tests.qa_bias.questionfiles import MILL, as_parquet

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "Who ran it?", "context": MILL, "answers": ["Ann Lee", "Lee"], "title": "Mills"},
    {"id": "b", "question": "When did it open?", "context": MILL, "answers": "1890", "title": "Mills"},
]
QUESTIONS = [
    Question("a", "Mills", "Who ran it?", MILL, ("Ann Lee", "Lee"), (25, 29)),
    Question("b", "Mills", "When did it open?", MILL, ("1890",), (19,)),
]


def _table(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    """Return rows as a table of texts, with lists as JSON."""
    text, is_tsv = io.StringIO(), delimiter == "\t"
    quotes: dict[str, Any] = {"quoting": csv.QUOTE_NONE, "quotechar": None} if is_tsv else {}
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, **quotes)
    writer.writeheader()
    writer.writerows(
        {key: json.dumps(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows
    )
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    lists = [{**row, "answers": own if isinstance(own := row["answers"], list) else [own]} for row in rows]
    return as_parquet(lists)


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "rows.csv": _table, "rows.csv.gz": lambda rows: gzip.compress(_table(rows)),
    "semicolons.csv": lambda rows: _table(rows, ";"), "rows.tsv": lambda rows: _table(rows, "\t"),
    "rows.parquet": _parquet, "rows.jsonl": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "rows.json": lambda rows: json.dumps(rows).encode(),
}  # fmt: skip


def _read(folder: Path, file: str, content: bytes, **settings: Any) -> QuestionSet:
    (folder / file).write_bytes(content)
    return read_questions(str(folder / file), name="own", **settings)


@pytest.mark.parametrize("file", FORMS)
def test_a_table_gives_the_same_questions_in_every_format(tmp_path: Path, file: str) -> None:
    found = _read(tmp_path, file, FORMS[file](ROWS))
    assert (found.questions, found.notes) == (QUESTIONS, [])
    # Without ids the number of the row is one.
    unnamed = [{key: value for key, value in row.items() if key != "id"} for row in ROWS]
    assert [each.example_id for each in _read(tmp_path, file, FORMS[file](unnamed)).questions] == ["0", "1"]


@pytest.mark.parametrize("file", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_starts_may_stand_in_a_column(tmp_path: Path, file: str) -> None:
    row = {"question": "What?", "context": "mill, mill, mill", "answers": ["mill", "mill"], "answer_start": [6, 13]}
    found = _read(tmp_path, file, FORMS[file]([row]))
    assert found.questions[0].answer_starts == (6, 12)
    assert found.notes == [
        "own: moved the start of 1 answer (1 question) to the nearest place in the context that has the text"
    ]
    del row["answer_start"]
    found = _read(tmp_path, file, FORMS[file]([row]))
    assert found.questions[0].answer_starts == (0, 0)
    assert found.notes == [
        "own: took the first place in the context of 2 answers that stand there more than once without answer_start"
    ]


def test_one_start_of_one_answer_is_a_number(tmp_path: Path) -> None:
    content = b'question,context,answers,answer_start\nWhat?,"7 or [7], 7",7,10\nWhat?,"[7] or 7",[7],\n'
    found = _read(tmp_path, "rows.csv", content)
    assert [(each.answers, each.answer_starts) for each in found.questions] == [(("7",), (10,)), (("[7]",), (0,))]


def test_columns_of_other_names_are_named(tmp_path: Path) -> None:
    fields = {"id": "nr", "question": "frage", "answers": "gold"}
    renamed = {column: field for field, column in fields.items()}
    rows = [{{v: k for k, v in renamed.items()}.get(key, key): value for key, value in row.items()} for row in ROWS]
    # A column that is called what another one holds is not read.
    content = _table([{**row, "question": "?"} for row in rows])
    assert _read(tmp_path, "rows.csv", content, fields=fields).questions == QUESTIONS


@pytest.mark.parametrize(
    ("header", "fields", "message"),
    [
        ("question,context,answer", {}, "no row has answers (its columns: question, context, answer); name the file's"),
        ("question,context,answer", {}, "or gzipped; did you mean answer?"),
        ("questoin,context,answers", {}, "own in the set's fields, as in {file: FILE, fields: {question: ...}}; SQuAD"),
        ("question,context,answers", {"answers": "golds"}, "no row has golds (its columns: question, context, "),
        ("question,context,answers", {"id": "nr"}, "no row has nr "),
        ("text,label", {}, "no row has question, context, answers (its columns: text, label)"),
    ],
)  # fmt: skip
def test_missing_columns_are_named_with_those_that_are_there(
    tmp_path: Path, header: str, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        _read(tmp_path, "rows.csv", f"{header}\n{header.upper()}\n".encode(), fields=fields)


def test_articles_have_no_columns_to_name(tmp_path: Path) -> None:
    qa = {"id": "a", "question": "Who?", "answers": [{"text": "Lee", "answer_start": 29}]}
    article = {"title": "Mills", "paragraphs": [{"context": MILL, "qas": [qa]}]}
    with pytest.raises(InputError, match=r"no row has question, context, gold \(its columns: title, paragraphs\)"):
        _read(tmp_path, "dev.json", json.dumps({"data": [article]}).encode(), fields={"answers": "gold"})


def _spec(folder: Path, **changes: Any) -> Path:
    rows = [
        {"wer": f"Who ran mill {n}?", "context": f"{person} ran mill {n}.", "answers": person}
        for n, person in enumerate(["Ann Lee", "Bo Ray"] * 20)
    ]
    (folder / "own.csv").write_bytes(_table(rows))
    (folder / "answers.json").write_text(json.dumps({str(n): row["answers"] for n, row in enumerate(rows)}))
    content = {
        "kind": "qa_bias", "name": "own", "models": [{"name": "system", "predictions": {"own": "answers.json"}}],
        "datasets": {"in_distribution": {"own": {"file": "own.csv", "fields": {"question": "wer"}}}},
        "heuristics": ["ans_len"], "bootstrap": {"sample": 10, "replacement": True}, **changes,
    }  # fmt: skip
    (folder / "own.yaml").write_text(yaml.safe_dump(content))
    return folder / "own.yaml"


def test_a_table_of_questions_is_measured(tmp_path: Path, here: None) -> None:
    spec = load_spec(_spec(tmp_path))
    run_spec(spec, str(tmp_path / "run"), page=False)
    run = Run.open(str(tmp_path / "run"))
    examples = run.read_table("qa_examples").to_pylist()
    assert examples[1] | {"answer_starts": list(examples[1]["answer_starts"])} == {
        "dataset": "own", "example_id": "1", "row": 1, "role": "in_distribution", "title": "",
        "question": "Who ran mill 1?", "context": "Bo Ray ran mill 1.", "answers": ["Bo Ray"], "answer_starts": [0],
    }  # fmt: skip
    assert run.read_table("qa_predictions")["exact_match"].to_pylist() == [1.0] * 40
    # Columns are what is measured: the same file read otherwise is another run.
    other = load_spec(tmp_path / "own.yaml", ["datasets.in_distribution.own.fields.question=context"])
    with pytest.raises(InputError, match=r"own\.fields\.question: the run has 'wer', the spec 'context'"):
        run_spec(other, str(tmp_path / "run"))


def test_mistakes_in_a_table_are_those_of_a_table(tmp_path: Path) -> None:
    for source, message in {
        "{file: own.csv, fields: {quest: wer}}": "fields.quest: input should be 'id', 'title', 'question'",
        "{flie: own.csv, fields: {id: wer}}": "own.flie: unknown key; did you mean file?",
        "[own.csv]": "own: input should be a valid string, or a mapping of keys",
    }.items():
        with pytest.raises(InputError) as caught:
            load_spec(_spec(tmp_path), [f"datasets.in_distribution.own={source}"])
        assert message in str(caught.value)
        assert "planted" not in str(caught.value)


def test_training_questions_may_be_a_table(tmp_path: Path) -> None:
    path = _spec(tmp_path)
    table = "{file: own.csv, fields: {question: wer}}"
    spec = load_spec(path, [f"datasets.train={table}", "heuristics=[cos_sim]"])
    assert spec.datasets.train == TableSpec(file=str(tmp_path / "own.csv"), fields={"question": "wer"})
    assert spec.files()["datasets.train"] == str(tmp_path / "own.csv")
    assert differences(spec, load_spec(path, ["datasets.train=own.csv", "heuristics=[cos_sim]"])) != []


def _as(file: str, value: Any) -> Any:
    """Return a value as a format may hold it in a column of several kinds: Parquet has texts then."""
    return str(value) if file.endswith("parquet") else value


@pytest.mark.parametrize("file", FORMS)
def test_unanswerable_questions_are_left_out_in_every_format(tmp_path: Path, file: str) -> None:
    kinds = [(True, False), (1, 0), (1.0, None), ("true", "false"), ("True", "False"), ("TRUE", ""), (" 1 ", False)]
    for true, false in kinds:
        mine = [_as(file, false or ""), _as(file, true)]
        if file.endswith(("json", "jsonl")):
            mine[0] = false
        rows = [{**row, "is_impossible": kind} for row, kind in zip(ROWS, mine, strict=True)]
        found = _read(tmp_path, file, FORMS[file](rows))
        assert [each.example_id for each in found.questions] == ["a"]
        assert found.notes == ["own: left out 1 question marked is_impossible: the metric has no null answer"]
    for value in ("yes", "2", "impossible", 0.5):
        content = FORMS[file]([{**ROWS[0], "is_impossible": ""}, {**ROWS[1], "is_impossible": _as(file, value)}])
        with pytest.raises(
            InputError, match=r"1 with an is_impossible that is neither true nor false \(b\); mend them"
        ):
            _read(tmp_path, file, content)
        found = _read(tmp_path, file, content, on_bad_example="drop")
        assert [each.example_id for each in found.questions] == ["a"]


def test_columns_of_true_and_false_are_read_as_they_are(tmp_path: Path) -> None:
    for kinds in ((False, True), (0, 1), (0.0, 1.0), (None, True)):
        rows = [{**row, "is_impossible": kind} for row, kind in zip(ROWS, kinds, strict=True)]
        assert [each.example_id for each in _read(tmp_path, "rows.parquet", _parquet(rows)).questions] == ["a"]


@pytest.mark.parametrize("file", ["rows.csv", "rows.tsv", "semicolons.csv"])
def test_answers_of_other_formats_may_stand_in_a_cell(tmp_path: Path, file: str) -> None:
    for cell in (
        {"text": ["Ann Lee", "Lee"], "answer_start": [25, 29]},
        {"text": ["Ann Lee", "Lee"], "answer_start": [25.0, 29.0]},
        [{"text": "Ann Lee", "answer_start": 25}, {"text": "Lee", "answer_start": 29.0}],
    ):
        content = FORMS[file]([{**ROWS[0], "answers": json.dumps(cell)}])
        assert _read(tmp_path, file, content).questions == QUESTIONS[:1]


def test_an_object_without_texts_is_an_answer_like_others(tmp_path: Path) -> None:
    row = {"id": "a", "question": "What?", "context": 'It is {"a": 1}.', "answers": '{"a": 1}'}
    assert _read(tmp_path, "rows.csv", _table([row])).questions[0].answers == ('{"a": 1}',)
    python = {**row, "answers": "{'text': ['It'], 'answer_start': [0]}"}
    with pytest.raises(
        InputError, match=r'with answers in braces that are no JSON object, as {"text": \["one"\], "ans'
    ):
        _read(tmp_path, "rows.csv", _table([python]))


@pytest.mark.parametrize("file", ["rows.csv", "rows.jsonl"])
def test_one_answer_needs_no_list_and_ids_and_starts_no_type(tmp_path: Path, file: str) -> None:
    row = {"id": 9.0, "question": "Who?", "context": MILL}
    for answers in (
        {"text": "Ann Lee", "answer_start": 25},
        {"text": ["Ann Lee"], "answer_start": "25"},
        {"text": ["Ann Lee"], "answer_start": ["25"]},
        [{"text": "Ann Lee", "answer_start": "25"}],
    ):
        own = {**row, "answers": json.dumps(answers) if file == "rows.csv" else answers}
        [question] = _read(tmp_path, file, FORMS[file]([own])).questions
        assert (question.answers, question.answer_starts) == (("Ann Lee",), (25,))
        assert question.example_id == ("9.0" if file == "rows.csv" else "9")  # of a text nothing is taken off
    for start in ("25.0", "[25.0]", '["25"]', ["25"], 25.0):
        content = FORMS[file]([{**row, "answers": "Ann Lee", "answer_start": start}])
        assert _read(tmp_path, file, content).questions[0].answer_starts == (25,)


def test_how_a_table_of_questions_is_written_is_noted(tmp_path: Path) -> None:
    row = {"id": "a", "question": "Who?", "context": "Zoë ran.", "answers": "Zoë"}
    found = _read(tmp_path, "rows.csv", _table([row]).decode().encode("cp1252"))
    assert found.questions[0].answers == ("Zoë",)
    assert found.notes[0].startswith("own: is not UTF-8 (byte ")
    (tmp_path / "predictions.csv").write_bytes("id,prediction\na,Zoë\n".encode("cp1252"))
    texts, notes = read_predictions(str(tmp_path / "predictions.csv"), ["a"], on_missing="error")
    assert texts == {"a": "Zoë"}
    assert notes[0].startswith(f"{tmp_path / 'predictions.csv'}: is not UTF-8 (byte ")
