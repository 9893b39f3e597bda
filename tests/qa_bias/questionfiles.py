"""Files of questions in every form, and what is read of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.data import Question, QuestionSet, read_questions

MILL = "The mill opened in 1890. Ann Lee ran the mill until 1921."


ROWS: list[dict[str, Any]] = [
    {
        "id": "a", "title": "Mills", "question": "Who ran it? ", "context": MILL,
        "answers": {"text": ["Ann Lee", "Lee"], "answer_start": [25, 29]},
    },
    {
        "id": "b",
        "title": "Mills",
        "question": "Where is 🐘 Zoë?",
        "context": "🐘 Zoë is in Nîmes\u2028now.\u00a0",
        "answers": {"text": ["Nîmes", "in Nîmes"], "answer_start": [12, 9]},
    },
]  # fmt: skip


QUESTIONS = [
    Question("a", "Mills", "Who ran it? ", MILL, ("Ann Lee", "Lee"), (25, 29)),
    Question("b", "Mills", "Where is 🐘 Zoë?", "🐘 Zoë is in Nîmes\u2028now.\u00a0", ("Nîmes", "in Nîmes"), (12, 9)),
]


def flat(**changes: Any) -> dict[str, Any]:
    """Return the first row with changes; ``text`` and ``start`` are those of its only answer."""
    answers = {"text": [changes.pop("text", "Ann Lee")], "answer_start": [changes.pop("start", 25)]}
    return {**ROWS[0], "answers": answers, **changes}


def as_squad(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as SQuAD's articles, a paragraph each."""
    articles = []
    for row in rows:
        lists = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in lists]
        qa = {"id": row["id"], "question": row["question"], "answers": answers}
        articles.append({"title": row["title"], "paragraphs": [{"context": row["context"], "qas": [qa]}]})
    return {"version": "1.1", "data": articles}


def as_mrqa(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def as_lines(values: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue().to_pybytes())


FORMS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes]]] = {
    "squad": ("dev.json", lambda rows: json.dumps(as_squad(rows)).encode()),
    "squad, indented": ("dev.json", lambda rows: json.dumps(as_squad(rows), indent=2, ensure_ascii=False).encode()),
    "articles alone": ("dev.json", lambda rows: json.dumps(as_squad(rows)["data"]).encode()),
    "rows": ("rows.json", lambda rows: json.dumps(rows).encode()),
    "rows under data": ("rows.json", lambda rows: json.dumps({"version": 1, "data": rows}).encode()),
    "lines": ("rows.jsonl", as_lines),
    "lines by another name, with blank ones": ("rows.json", lambda rows: as_lines(rows).replace(b"\n", b"\r\n\r\n")),
    "lines with a byte order mark": ("rows.jsonl", lambda rows: b"\xef\xbb\xbf" + as_lines(rows)),
    "parquet": ("rows.parquet", as_parquet),
    "mrqa": ("dev.jsonl", lambda rows: as_lines(as_mrqa(rows))),
    "mrqa without a header": ("dev.jsonl", lambda rows: as_lines(as_mrqa(rows)[1:])),
}


def write(folder: Path, content: object, file: str = "rows.jsonl") -> str:
    path = folder / file
    if isinstance(content, list):
        content = as_lines(content)
    path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    return str(path)


def read(folder: Path, content: object, file: str = "rows.jsonl", **settings: Any) -> QuestionSet:
    return read_questions(write(folder, content, file), name="dev", **settings)


def refused(folder: Path, content: object, file: str = "rows.jsonl", **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, content, file, **settings)
    message = str(caught.value)
    assert file in message
    return message.replace(str(folder / file), "FILE")
