"""Predictions of readers, and the metric of SQuAD."""

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biaseval.errors import InputError
from biaseval.qa_bias.predictions import annotator_rows, are_of_annotators, read_predictions
from biaseval.qa_bias.squad_metric import exact_match, f1, normalize_answer
from biaseval.tables import QA_EXAMPLES
from tests.qa_bias.questionfiles import as_parquet

# By hand from the rules of SQuAD v1.1's script, where the golden cases say nothing: exact match, F1 as a fraction.
CASES: list[tuple[str, list[str], int, str]] = [
    ("STRASSE", ["straße"], 0, "0"),
    ("ΣΟΦΟΣ", ["σοφος"], 1, "1"),
    ("ΣΟΦΟΣ", ["σοφοσ"], 0, "0"),  # lower() writes a final sigma, which the answer does not have
    ("An apple a day", ["apple day"], 1, "1"),  # articles are words only, after punctuation
    ("Anna", ["na"], 0, "0"),
    ("a-frame", ["frame"], 0, "0"),  # "aframe": the hyphen goes first
    ("a.", ["."], 1, "0"),
    ("the’ end", ["end"], 0, "2/3"),  # the article before the curly apostrophe goes, the apostrophe stays
    ("snake_case $5 + 50%", ["snakecase 5 50"], 1, "1"),
    ("1,204 pages", ["1204"], 0, "2/3"),  # precision 1/2, recall 1
    ("10 000", ["10000"], 0, "0"),
    ("24–10", ["24-10"], 0, "0"),
    ("war — peace", ["war peace"], 0, "4/5"),  # the dash is a token: 2 of 3 and 2 of 2
    ("Ann\u00a0Lee\u3000", ["Ann Lee"], 1, "1"),  # a no-break space is white space
    ("Ann\u200bLee", ["Ann Lee"], 0, "0"),  # a zero-width space is not
    ("", ["Ann", "the"], 1, "0"),
    ("Ann Lee", ["Ann", "Ann Lee Cox"], 0, "4/5"),  # 2/3 against the first, 2 of 2 and 2 of 3 with the second
    ("no no no", ["no"], 0, "1/2"),  # repeated tokens count as often as both have them
    ("no no", ["no no no no"], 0, "2/3"),
    ("Lee Ann", ["Ann Lee"], 0, "1"),
    ("東京 大阪", ["東京"], 0, "2/3"),
    ("Zoe\u0308", ["Zo\u00eb"], 0, "0"),  # the mark apart and the letter in one: not normalised to each other
    ("a\u0308b", ["\u0308b"], 1, "1"),  # a mark is no word character, so the "a" before it is taken for an article
]


def test_cases_worked_by_hand() -> None:
    for prediction, answers, expected_match, expected_f1 in CASES:
        assert exact_match(prediction, answers) == expected_match, prediction
        assert f1(prediction, answers) == pytest.approx(float(Fraction(expected_f1)), abs=1e-12), prediction


def test_the_golden_cases_hold_exactly(shared: Path) -> None:
    lines = (shared / "golden" / "qa" / "squad_metric_cases.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 212
    for case in map(json.loads, lines):
        assert exact_match(case["prediction"], case["answers"]) == case["exact_match"], case
        assert f1(case["prediction"], case["answers"]) == case["f1"], case


_texts = st.text(alphabet=st.sampled_from([*"ab theAN.,-'“–7 \t\n\u00a0é\u0301東"]), max_size=24)


@given(prediction=_texts, answers=st.lists(_texts, min_size=1, max_size=3))
def test_metrics_agree_with_each_other(prediction: str, answers: list[str]) -> None:
    match, best = exact_match(prediction, answers), f1(prediction, answers)
    assert best == float(bool(normalize_answer(prediction))) if match else 0 <= best <= 1
    assert exact_match(prediction, answers[::-1]) == match
    assert f1(prediction, answers[::-1]) == best == max(f1(prediction, [answer]) for answer in answers)
    assert f1(answers[0], [prediction]) == pytest.approx(f1(prediction, [answers[0]]))


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


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("predictions.json", json.dumps(TEXTS)),
        ("predictions.json", json.dumps(TEXTS, indent=4)),
        ("predictions", "\ufeff" + json.dumps(TEXTS, ensure_ascii=False)),
        ("predictions.jsonl", _lines("prediction_text")),
        ("predictions.json", _lines("prediction")),
        ("list.json", json.dumps([{"id": key, "prediction_text": text} for key, text in TEXTS.items()])),
        ("predictions.csv", 'id,prediction_text\na,Ann Lee\nb,""\nc,Nîmes 🐘\n'),
        ("predictions.csv", "prediction;id\nAnn Lee;a\n;b\nNîmes 🐘;c\n"),
        ("predictions.tsv", "id\tprediction\na\tAnn Lee\nb\t\nc\tNîmes 🐘\n"),
        ("predictions.parquet", _parquet()),
        ("predictions.csv.gz", gzip.compress("id,prediction\na,Ann Lee\nb,\nc,Nîmes 🐘\n".encode(), mtime=0)),
        ("predictions.json.gz", gzip.compress(json.dumps(TEXTS).encode(), mtime=0)),
        ("predictions.jsonl.gz", gzip.compress(_lines("prediction_text").encode(), mtime=0)),
    ],
)
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


def test_one_line_is_a_row_and_ids_may_be_numbers(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    for content, found in (
        ('{"id": 7, "prediction": "x"}', {"7": "x"}),
        ('{"id": 7.0, "prediction": "x"}', {"7": "x"}),
        ('{"id": "x", "prediction": "y", "prediction_text": "z"}', {"x": "z"}),
    ):
        path.write_text(content)
        assert read_predictions(str(path), [*found], on_missing="error") == (found, [])


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
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            '{"a": "Ann",\n"b": "", "a": "Lee", "c": "", "b": ""}',
            "FILE: line 2: has the key 'a' a second time, after line 1; line 2: has the key 'b' twice; mend the file",
        ),
        (
            '{"id": "a", "prediction": "x"}\n{"id": "b", "prediction": "x"}\n' * 2 + '{"id": "c", "prediction": "x"}',
            "FILE: has 2 ids (a, b) twice; keep one prediction of each",
        ),
        (
            '{"id": "a", "prediction": "x"}\n{"id": "b", "prediction": "x", "prediction": "y"}\n',
            "FILE: line 2: has the key 'prediction' twice; write one JSON object a line",
        ),
    ],
)
def test_an_id_that_stands_there_twice_is_refused(tmp_path: Path, content: str, found: str, on_missing: str) -> None:
    assert _refused(tmp_path, content, on_missing=on_missing) == found


@pytest.mark.parametrize("on_missing", ["error", "drop"])
def test_a_prediction_that_is_no_text_is_refused(tmp_path: Path, on_missing: str) -> None:
    wanted = "FILE: the prediction of the id b is no text; write one string for each (a file of n-best lists cannot"
    for value in ("null", "7", "true", '["Ann"]', '{"text": "Ann"}', '[{"text": "Ann"}]', '"\\ud83d"'):
        assert wanted in _refused(tmp_path, f'{{"a": "x", "b": {value}, "c": "x"}}', on_missing=on_missing)
        rows = f'{{"id": "a", "prediction": "x"}}\n{{"id": "b", "prediction": {value}}}\n'
        assert wanted in _refused(tmp_path, rows, on_missing=on_missing)


def test_both_mistakes_come_in_one_message(tmp_path: Path) -> None:
    rows = "".join(f'{{"id": "{own}", "prediction": 1}}\n' for own in ("a", "b", "\\ud800", "b"))
    message = _refused(tmp_path, rows)
    assert message.startswith("2 problems:\n  - FILE: has the id b twice; ")
    assert "the prediction of 3 ids (a, b, \\ud800) is no text" in message


def test_a_file_of_another_kind_is_refused_with_what_is_read(tmp_path: Path) -> None:
    for content, found in (
        ("", "is empty"),
        ("id,text\na,b\n", "is no JSON, it starts with 'id,text"),
        ('["Ann", "Lee"]', "[0]: has no id with a prediction_text or prediction (and 1 more)"),
        ('{"id": "a", "answer": "x"}\n{"id": "b", "prediction": "x"}\n', "line 1: has no id with a prediction_text"),
        ('{"id": null, "prediction": "x"}\n{"id": "b", "prediction": "x"}\n', "line 1: has no id with a prediction_te"),
        ('{"id": null, "prediction": "x"}', "the file: has no id with a prediction_text or prediction; "),
        ('{"a": "x"}\n{"b": "y"}\n', "line 1: has no id with a prediction_text or prediction (and 1 more)"),
        ('[[{"id": "a", "prediction": "x"}]]', "[0]: has no id"),
    ):
        message = _refused(tmp_path, content)
        assert found in message
        assert message.endswith("as JSON list, JSON lines, CSV, TSV or Parquet, each plain or gzipped")


def test_bad_json_is_named_by_its_place(tmp_path: Path) -> None:
    assert "FILE: line 2, column 1: is not JSON (" in _refused(tmp_path, '{"a": "x",\n}')
    assert "FILE: line 2, column 25: is not JSON (" in _refused(
        tmp_path, '{"id": "a", "prediction": "x"}\n{"id": "b", "prediction"'
    )
    with pytest.raises(InputError, match=r"absent\.json: cannot be read"):
        read_predictions(str(tmp_path / "absent.json"), IDS, on_missing="drop")


def test_people_are_scored_by_their_second_answer_against_the_others() -> None:
    """Rajpurkar et al. 2016, section 6; questions with one answer have no row."""
    answers = [["the mill", "Mill!", "a barn"], ["one"], ["in 1890", "1890"], ["red", "blue", "blue"]]
    examples = QA_EXAMPLES.rows(
        [{"dataset": "squad", "example_id": f"q{row}", "answers": own} for row, own in enumerate(answers)]
    )
    found = annotator_rows("people", examples)
    assert [tuple(row.values())[2:6] for row in found.select(found.column_names[:6]).to_pylist()] == [
        ("q0", "Mill!", 1.0, 1.0),
        ("q2", "1890", 0.0, pytest.approx(2 / 3)),
        ("q3", "blue", 1.0, 1.0),
    ]
    assert found["model"].to_pylist() == ["people"] * 3
    assert annotator_rows("people", examples.slice(1, 1)).num_rows == 0


def test_answers_that_nobody_repeats_are_no_peoples() -> None:
    assert are_of_annotators([["one"], ["red", "blue", "blue"]])
    assert not are_of_annotators([["one"], ["1890", "in 1890"], ["red", "blue"]])
    assert not are_of_annotators([])
