import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biaseval.qa_bias.squad_metric import exact_match, f1, normalize_answer

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
