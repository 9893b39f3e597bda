from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biaseval.qa_bias.squad_metric import exact_match, f1, normalize_answer

# Prediction, answers, exact match, F1 as a fraction: worked by hand from the rules of SQuAD v1.1's script.
CASES: list[tuple[str, list[str], int, str]] = [
    # the same, and nothing in common
    ("Denver Broncos", ["Denver Broncos"], 1, "1"),
    ("Carolina Panthers", ["Denver Broncos"], 0, "0"),
    # case
    ("DENVER broncos", ["Denver Broncos"], 1, "1"),
    ("ÉCOLE", ["école"], 1, "1"),
    ("STRASSE", ["straße"], 0, "0"),
    ("ΣΟΦΟΣ", ["σοφος"], 1, "1"),
    ("ΣΟΦΟΣ", ["σοφοσ"], 0, "0"),  # lower() writes a final sigma, which the answer does not have
    # articles: words only, after punctuation
    ("the Denver Broncos", ["Denver Broncos"], 1, "1"),
    ("Denver the Broncos", ["Denver Broncos"], 1, "1"),
    ("a an the", ["the"], 1, "0"),
    ("An apple a day", ["apple day"], 1, "1"),
    ("theatre", ["the atre"], 0, "0"),
    ("Anna", ["na"], 0, "0"),
    ("a-frame", ["frame"], 0, "0"),  # "aframe": the hyphen goes first
    ("the-end", ["end"], 0, "0"),
    ("A.D. 70", ["AD 70"], 1, "1"),
    ("vitamin A", ["vitamin"], 1, "1"),
    ("a.", ["."], 1, "0"),
    ("The The", ["band The The"], 0, "0"),
    # ASCII punctuation is deleted
    ("Super Bowl 50.", ["Super Bowl 50"], 1, "1"),
    ("(Ann) 'Lee'!", ["Ann Lee"], 1, "1"),
    ("King's College", ["Kings College"], 1, "1"),
    ("Levi's Stadium", ["Levi s Stadium"], 0, "2/5"),  # 1 shared of 2 and 3
    ("well-known", ["wellknown"], 1, "1"),
    ("well-known", ["well known"], 0, "0"),
    ("rock-and-roll", ["rock and roll"], 0, "0"),
    ("U.S.", ["US"], 1, "1"),
    ("AT&T", ["ATT"], 1, "1"),
    ("snake_case", ["snakecase"], 1, "1"),
    ("50%", ["50"], 1, "1"),
    ("$5 + $6", ["5 6"], 1, "1"),
    ("and/or", ["andor"], 1, "1"),
    # numbers
    ("1,204", ["1204"], 1, "1"),
    ("1,204 pages", ["1204"], 0, "2/3"),  # precision 1/2, recall 1
    ("3.5", ["35"], 1, "1"),
    ("3.5", ["3 5"], 0, "0"),
    ("-7", ["7"], 1, "1"),
    ("two", ["2"], 0, "0"),
    ("½", ["½"], 1, "1"),
    ("10 000", ["10000"], 0, "0"),
    # other punctuation stays
    ("“Ann”", ["Ann"], 0, "0"),
    ("“Ann”", ['"Ann"'], 0, "0"),
    ("24–10", ["2410"], 0, "0"),
    ("24–10", ["24-10"], 0, "0"),
    ("24–10", ["24–10"], 1, "1"),
    ("war — peace", ["war peace"], 0, "4/5"),  # the dash is a token: 2 of 3 and 2 of 2
    ("King’s Cross", ["King's Cross"], 0, "1/2"),
    ("¿qué?", ["qué"], 0, "0"),
    ("the’ end", ["end"], 0, "2/3"),  # the article before the curly apostrophe goes, the apostrophe stays
    # white space
    ("  Ann \t Lee \n", ["Ann Lee"], 1, "1"),
    ("Ann\u00a0Lee", ["Ann Lee"], 1, "1"),  # a no-break space is white space
    ("Ann\u2009Lee\u3000", ["Ann Lee"], 1, "1"),
    ("Ann\u200bLee", ["Ann Lee"], 0, "0"),  # a zero-width space is not
    ("Ann\u2028Lee", ["Ann Lee"], 1, "1"),
    # empty predictions and answers
    ("", ["Ann"], 0, "0"),
    ("", [""], 1, "0"),
    ("...", ["!"], 1, "0"),
    ("the", ["Ann"], 0, "0"),
    ("Ann", ["the", "?"], 0, "0"),
    ("", ["Ann", "the"], 1, "0"),
    # several answers: the best of each
    ("Ann", ["Lee", "Ann"], 1, "1"),
    ("Ann Lee", ["Ann", "Ann Lee Cox"], 0, "4/5"),  # 2/3 against the first, 2 of 2 and 2 of 3 with the second
    ("Ann Lee", ["Bob", "Cox"], 0, "0"),
    ("until 1921", ["until 1921", "1921", "1921"], 1, "1"),
    # repeated tokens count as often as both have them
    ("no no no", ["no"], 0, "1/2"),  # 1 of 3 and 1 of 1
    ("no no", ["no no no no"], 0, "2/3"),
    ("New York New York", ["New York"], 0, "2/3"),
    # order does not matter to F1
    ("Lee Ann", ["Ann Lee"], 0, "1"),
    # parts
    ("Denver Broncos of Colorado", ["Denver Broncos"], 0, "2/3"),  # 2 of 4 and 2 of 2
    ("in the city of Paris", ["Paris"], 0, "2/5"),  # in city of paris: 1 of 4 and 1 of 1
    ("10 May 1940", ["May 1940"], 0, "4/5"),
    # scripts without spaces, marks, signs
    ("東京", ["東京"], 1, "1"),
    ("東京都", ["東京"], 0, "0"),
    ("東京。", ["東京"], 0, "0"),
    ("東京 大阪", ["東京"], 0, "2/3"),
    ("Zoe\u0308", ["Zo\u00eb"], 0, "0"),  # the mark apart and the letter in one: not normalised to each other
    ("Zoe\u0308", ["Zoe\u0308"], 1, "1"),
    ("a\u0308b", ["\u0308b"], 1, "1"),  # a mark is no word character, so the "a" before it is taken for an article
    ("the 🐘", ["🐘"], 1, "1"),
    ("مرحبا؟", ["مرحبا"], 0, "0"),
]


def _ids() -> list[str]:
    return [
        f"{prediction!r}-{answers!r}".encode("ascii", "backslashreplace").decode() for prediction, answers, *_ in CASES
    ]


@pytest.mark.parametrize(("prediction", "answers", "expected_match", "expected_f1"), CASES, ids=_ids())
def test_cases_worked_by_hand(prediction: str, answers: list[str], expected_match: int, expected_f1: str) -> None:
    assert exact_match(prediction, answers) == expected_match
    assert f1(prediction, answers) == pytest.approx(float(Fraction(expected_f1)), abs=1e-12)


def test_the_golden_cases_hold_exactly(shared: Path) -> None:
    lines = (shared / "golden" / "qa" / "squad_metric_cases.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 212
    for case in map(json.loads, lines):
        assert exact_match(case["prediction"], case["answers"]) == case["exact_match"], case
        assert f1(case["prediction"], case["answers"]) == case["f1"], case


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The U.S. Army's 1,204-man unit", "us armys 1204man unit"),
        ("“the” A\u00a0B", "“ ” b"),
        ("\\a `an` ~the~", ""),
        ("İstanbul", "i\u0307stanbul"),
    ],
)
def test_normalised_texts(text: str, normalized: str) -> None:
    assert normalize_answer(text) == normalized


_texts = st.text(alphabet=st.sampled_from([*"ab theAN.,-'“–7 \t\n\u00a0é\u0301東"]), max_size=24)


@given(prediction=_texts, answers=st.lists(_texts, min_size=1, max_size=3))
def test_metrics_agree_with_each_other(prediction: str, answers: list[str]) -> None:
    match, best = exact_match(prediction, answers), f1(prediction, answers)
    assert match in (0, 1)
    assert 0 <= best <= 1
    if match:
        assert best == float(bool(normalize_answer(prediction)))
    assert exact_match(prediction, answers[::-1]) == match
    assert f1(prediction, answers[::-1]) == best
    assert f1(prediction, answers) == max(f1(prediction, [answer]) for answer in answers)
    assert f1(answers[0], [prediction]) == pytest.approx(f1(prediction, [answers[0]]))


def test_a_question_without_an_answer_is_not_scored() -> None:
    for metric in (exact_match, f1):
        with pytest.raises(ValueError, match="without an answer"):
            metric("Ann", [])
