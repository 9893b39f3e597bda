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
from biaseval.runs import run_spec
from biaseval.spec import load_spec
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
        assert [each.example_id for each in _read(tmp_path, file, content, on_bad_example="drop").questions] == ["a"]
