"""Subjects of hand-written questions, as a parser would mark them; what the rules get wrong stands at the end."""

from __future__ import annotations

import pytest

from biaseval.qa_bias.subject_rules import subjects

RIGHT = [
    ("When did Lee sell the mill?", ["Lee"]),
    ("Who sold the mill?", ["Who"]),
    ("What opened in the year 1890?", ["What"]),
    ("Which team won the game?", ["team"]),
    ("Which NFL team represented the AFC at Super Bowl 50?", ["team"]),
    ("How many people live in Berlin?", ["people"]),
    ("What caused the fire?", ["What"]),
    ("What company was founded by Lee?", []),
    ("When was the mill built?", []),
    ("Where is the mill located?", []),
    ("Who was Lee named after?", []),
    ("What is the name of the river?", ["name"]),
    ("What is the name given to the old mill?", ["name"]),
    ("Who is the mayor of Brno?", ["mayor"]),
    ("What color is the sky?", ["sky"]),
    ("What did she say?", ["she"]),
    ("What is Tesla's father called?", []),
    ("What job did Tesla's father have?", ["father"]),
    ("Which book has Lee written?", ["Lee"]),
    ("Which team has won the cup?", ["team"]),
    ("Who can see the mill?", ["Who"]),
    ("What can oxygen do?", ["oxygen"]),
    ("How does the University of Chicago choose students?", ["University"]),
    ("Where do the people in Warsaw live?", ["people"]),
    ("When did the Carolina Panthers lose?", ["Panthers"]),
    ("What year did Genghis Khan die?", ["Khan"]),
    ("In what year did the FCC vote for the rules?", ["FCC"]),
    ("Why did Lee and Ann leave?", ["Lee"]),
    ("What does DMO stand for?", ["DMO"]),
    ("What happened after Tesla died?", ["What", "Tesla"]),
    ("Genghis Khan was taking what capital city when he died?", ["Khan", "he"]),
    ("What cycle starts with rubisco?", ["cycle"]),
    ("What is responsible for the fire?", ["What"]),
    ("How many times did U.S. forces land?", ["forces"]),
    ("The mill opened when?", ["mill"]),
    ("There are how many mills?", []),
    ("", []),
    ("?", []),
    ("when", []),
    ("Name the river.", []),
]

WRONG = [
    # A list of verbs does not know "species" for "specifies".
    ("The competence of the Parliament concerns what areas?", [], ["competence"]),
    # An adjective behind "is" is taken for a noun.
    ("What type of protest is larger?", ["larger"], ["type"]),
    # A title with a question word in it.
    ("What year were the first Doctor Who stories available on CD?", ["Doctor"], ["stories"]),
]


@pytest.mark.parametrize(("question", "expected"), RIGHT)
def test_subjects_of_a_question(question: str, expected: list[str]) -> None:
    assert subjects(question) == expected


@pytest.mark.parametrize(("question", "found", "expected"), WRONG)
def test_a_known_wrong_subject(question: str, found: list[str], expected: list[str]) -> None:
    assert subjects(question) == found != expected


def test_every_subject_is_a_part_of_the_question() -> None:
    for question, _ in RIGHT:
        assert all(subject in question for subject in subjects(question))
