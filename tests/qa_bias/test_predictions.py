"""Predictions of readers, and the metric of SQuAD."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from biaseval.errors import InputError
from biaseval.qa_bias.predictions import annotator_rows, read_predictions
from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.tables import QA_EXAMPLES
from tests.qa_bias.questionfiles import as_parquet

# By hand from the rules of SQuAD v1.1's script, where the golden cases say nothing: exact match, F1 as a fraction.


def test_the_golden_cases_hold_exactly(shared: Path) -> None:
    lines = (shared / "golden" / "qa" / "squad_metric_cases.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 212
    for case in map(json.loads, lines):
        assert exact_match(case["prediction"], case["answers"]) == case["exact_match"], case
        assert f1(case["prediction"], case["answers"]) == case["f1"], case


_texts = st.text(alphabet=st.sampled_from([*"ab theAN.,-'“–7 \t\n\u00a0é\u0301東"]), max_size=24)


def test_a_question_without_an_answer_is_not_scored() -> None:
    for metric in (exact_match, f1):
        with pytest.raises(ValueError, match="without an answer"):
            metric("Ann", [])


IDS = ["b", "a", "c"]
TEXTS = {"a": "Ann Lee", "b": "", "c": "Nîmes 🐘"}


def _read(
    folder: Path, content: str | bytes, *, on_missing: Any = "error", file: str = "predictions.json"
) -> tuple[dict[str, str], list[str]]:
    path = folder / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found, notes = read_predictions(str(path), IDS, on_missing=on_missing)
    return found, [note.replace(str(path), "FILE") for note in notes]


def _refused(folder: Path, content: str | bytes, **how: Any) -> str:
    with pytest.raises(InputError) as caught:
        _read(folder, content, **how)
    return str(caught.value).replace(str(folder / how.get("file", "predictions.json")), "FILE")


def _lines(name: str) -> str:
    rows = [{"id": key, name: text, "no_answer_probability": 0.5} for key, text in TEXTS.items()]
    return "".join(json.dumps(row) + "\n" for row in rows)


def _parquet() -> bytes:
    return as_parquet([{"id": key, "prediction_text": text} for key, text in TEXTS.items()])


@pytest.mark.parametrize(("file", "content"), [
    ("predictions.json", json.dumps(TEXTS)), ("predictions.json", json.dumps(TEXTS, indent=4)),
    ("predictions", "\ufeff" + json.dumps(TEXTS, ensure_ascii=False)), ("predictions.jsonl", _lines("prediction_text")),
    ("predictions.json", _lines("prediction")),
    ("list.json", json.dumps([{"id": key, "prediction_text": text} for key, text in TEXTS.items()])),
    ("predictions.csv", 'id,prediction_text\na,Ann Lee\nb,""\nc,Nîmes 🐘\n'),
    ("predictions.csv", "prediction;id\nAnn Lee;a\n;b\nNîmes 🐘;c\n"),
    ("predictions.tsv", "id\tprediction\na\tAnn Lee\nb\t\nc\tNîmes 🐘\n"), ("predictions.parquet", _parquet()),
    ("predictions.csv.gz", gzip.compress("id,prediction\na,Ann Lee\nb,\nc,Nîmes 🐘\n".encode(), mtime=0)),
    ("predictions.json.gz", gzip.compress(json.dumps(TEXTS).encode(), mtime=0)),
    ("predictions.jsonl.gz", gzip.compress(_lines("prediction_text").encode(), mtime=0)),
])  # fmt: skip
def test_every_form_gives_the_same_texts_in_the_order_of_the_questions(
    tmp_path: Path, file: str, content: str | bytes
) -> None:
    found, notes = _read(tmp_path, content, file=file)
    assert list(found.items()) == [(key, TEXTS[key]) for key in IDS]
    assert notes == []


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    refused = _refused(tmp_path, "id,answer\na,Ann\nb,Bo\n", file="predictions.csv")
    assert refused.startswith(
        "FILE: line 2: has no id with a prediction_text or prediction (and 1 more); predictions are"
    )
    assert _refused(tmp_path, 'id,prediction\na,"Ann" Lee\n', file="predictions.csv") == (
        "FILE: line 2: is no row of a table (',' expected after '\"'); mend its quotes"
    )


def test_a_missing_prediction_is_refused_or_left_out_and_never_given_a_text(tmp_path: Path) -> None:
    assert _refused(tmp_path, '{"c": "x"}') == (
        "FILE: has no prediction for 2 of 3 questions (b, a); "
        "add them, or leave these questions out for this model with on_missing: drop"
    )
    note = "FILE: has no prediction for 2 of 3 questions, which are left out for this model (b, a)"
    assert _read(tmp_path, '{"c": "x"}', on_missing="drop") == ({"c": "x"}, [note])


def test_the_predictions_of_another_set_are_refused(tmp_path: Path) -> None:
    for content, ids in (('{"x": "y", "z": ""}', "x, z"), ("{}", "none"), ("[]", "none")):
        for on_missing in ("error", "drop"):
            assert _refused(tmp_path, content, on_missing=on_missing) == (
                f"FILE: has no prediction for any of the 3 questions (its ids: {ids}; theirs: b, a, c); "
                "name the file of this set"
            )


def test_predictions_for_other_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    found, notes = _read(tmp_path, json.dumps({**TEXTS, "d": "x", "e": "y"}))
    assert found == TEXTS
    assert notes == ["FILE: left out 2 predictions for questions that are not measured"]


@pytest.mark.parametrize("on_missing", ["error", "drop"])
@pytest.mark.parametrize(("content", "found"), [
    ('{"a": "Ann",\n"b": "", "a": "Lee", "c": "", "b": ""}',
        "FILE: has the key 'a' twice in an object; mend the file"),
    ('{"id": "a", "prediction": "x"}\n{"id": "b", "prediction": "x"}\n' * 2 + '{"id": "c", "prediction": "x"}',
        "FILE: has 2 ids (a, b) twice; keep one prediction of each"),
    ('{"id": "a", "prediction": "x"}\n{"id": "b", "prediction": "x", "prediction": "y"}\n',
        "FILE: line 2: has the key 'prediction' twice in an object; write one JSON object a line"),
])  # fmt: skip
def test_an_id_that_stands_there_twice_is_refused(tmp_path: Path, content: str, found: str, on_missing: str) -> None:
    assert _refused(tmp_path, content, on_missing=on_missing) == found


def test_people_are_scored_by_their_second_answer_against_the_others() -> None:
    """Rajpurkar et al. 2016, section 6; questions with one answer have no row."""
    answers = [["the mill", "Mill!", "a barn"], ["one"], ["in 1890", "1890"], ["red", "blue", "blue"]]
    examples = QA_EXAMPLES.rows(
        [{"dataset": "squad", "example_id": f"q{row}", "answers": own} for row, own in enumerate(answers)]
    )
    found = annotator_rows("people", examples)
    assert [tuple(row.values())[2:6] for row in found.select(found.column_names[:6]).to_pylist()] == [
        ("q0", "Mill!", 1.0, 1.0), ("q2", "1890", 0.0, pytest.approx(2 / 3)), ("q3", "blue", 1.0, 1.0),
    ]  # fmt: skip
    assert found["model"].to_pylist() == ["people"] * 3
    assert annotator_rows("people", examples.slice(1, 1)).num_rows == 0
