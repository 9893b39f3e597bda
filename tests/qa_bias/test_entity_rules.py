"""Entities of hand-written texts, as spaCy's English labels; what the rules get wrong stands at the end."""

from __future__ import annotations

import time

import pytest

from biaseval.qa_bias.entity_rules import entity_labels
from tests.qa_bias.tablerows import MILL

RIGHT = [
    (MILL, ["DATE", "PERSON", "DATE", "PERSON"]),
    ("Napoleon was born on 15 August 1769.", ["PERSON", "DATE"]),
    ("Barack Obama visited Berlin, Germany in July 2008.", ["PERSON", "GPE", "GPE", "DATE"]),
    ("It cost $3.5 million, or about 20 percent of the budget.", ["MONEY", "PERCENT"]),
    ("The game starts at 5:30 p.m. and lasts three hours.", ["TIME", "TIME"]),
    ("She finished third in the 19th century.", ["ORDINAL", "DATE"]),
    ("The University of Chicago was founded by John D. Rockefeller.", ["ORG", "PERSON"]),
    ("French and German soldiers fought in the Battle of Verdun.", ["NORP", "NORP", "EVENT"]),
    ("They speak the Welsh language there.", ["LANGUAGE"]),
    ("Soviet President Gorbachev spoke.", ["NORP", "PERSON"]),
    ("The steam engine was old. Steam drives it.", []),
    ("It is a gas, and In is no name.", []),
    ("Ada Lovelace wrote it. In that year Lovelace was in Paris.", ["PERSON", "PERSON", "GPE"]),
    ("Treaty of Versailles", ["LAW"]),
    ("Lake Victoria", ["LOC"]),
    ("World War II", ["EVENT"]),
    ("the 1990s", ["DATE"]),
    ("1066 and 1086", ["DATE", "DATE"]),
    ("500 BC", ["DATE"]),
    ("seven-year", ["DATE"]),
    ("in May", ["DATE"]),
    ("24–10", ["CARDINAL"]),
    ("ten", ["CARDINAL"]),
    ("100 people", ["CARDINAL"]),
    ("ten dollars", ["MONEY"]),
    ("€ 40", ["MONEY"]),
    ("12.5%", ["PERCENT"]),
    ("50 per cent", ["PERCENT"]),
    ("1,230 km", ["QUANTITY"]),
    ("four square miles", ["QUANTITY"]),
    ("Microsoft", ["ORG"]),
    ("NASA", ["ORG"]),
    ("World Health Organization", ["ORG"]),
    ("the Normans", ["NORP"]),
    ("Queen Elizabeth II", ["PERSON"]),
    ("Dr. Smith and Mrs. Jones", ["PERSON", "PERSON"]),
    ("Kublai Khan", ["PERSON"]),
    ("Saint Petersburg", ["GPE"]),
    ("Łódź", ["GPE"]),
    ("Levi's Stadium", ["FAC"]),
    ("Golden Gate Bridge", ["FAC"]),
    ("She wrote “The Glass Orchard”.", ["WORK_OF_ART"]),
    ("photosynthesis", []),
    ("", []),
    ("...", []),
]

WRONG = [
    # What is not in a list is guessed by its surroundings: a lone name of one or two words is a person.
    ("Apollo 11", ["PERSON", "CARDINAL"], ["PRODUCT"]),
    ("Doncaster", ["PERSON"], ["GPE"]),
    ("the Magna Carta", ["ORG"], ["LAW"]),
    ("Newton's First Law", ["PERSON", "PERSON"], ["PERSON", "ORDINAL"]),
]


@pytest.mark.parametrize(("text", "labels"), RIGHT)
def test_entities_of_a_text(text: str, labels: list[str]) -> None:
    assert entity_labels(text) == labels


@pytest.mark.parametrize(("text", "found", "expected"), WRONG)
def test_a_known_wrong_entity(text: str, found: list[str], expected: list[str]) -> None:
    assert entity_labels(text) == found != expected


def test_one_name_has_one_label_in_a_text() -> None:
    # "in Ujazd" alone would be a place and "Ujazd" alone a person.
    assert entity_labels("They met in Ujazd. They lived in Ujazd. Then Ujazd burned down.") == ["GPE"] * 3


@pytest.mark.parametrize("piece", ["A's ", "Cd-", "one-", '"Ab ', "$1-", "1,000,", "Mr. ", "of "])
def test_a_long_text_of_any_kind_is_read_in_linear_time(piece: str) -> None:
    started = time.perf_counter()
    entity_labels(piece * 20_000)
    assert time.perf_counter() - started < 5
