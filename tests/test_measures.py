"""What is counted of the source."""

from __future__ import annotations

import ast

import pytest

from tests.measures import BEGIN, END, PAGE, asks_the_kind, measures, n_parameters, of_functions, written


@pytest.mark.parametrize(
    ("code", "n_asked"),
    [
        ("spec.kind == 'qa_bias'", 1),
        ("spec.kind in ('label_bias', 'majority_bias') and other", 1),
        ("{'label_bias': 1}[kind]", 0),
        ("kind == 'grid'", 0),
    ],
)
def test_a_comparison_with_a_kind_is_counted_once(code: str, n_asked: int) -> None:
    assert sum(map(asks_the_kind, ast.walk(ast.parse(code)))) == n_asked


def test_parameters_and_inner_functions() -> None:
    tree = ast.parse("class A:\n    def f(self, a, /, b, *more, c):\n        def g(x): ...\n")
    assert [n_parameters(node) for node in of_functions([tree])] == [3, 1]


def test_the_page_has_a_place_for_the_table() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert written(written(text)) == written(text)
    assert all(f"| {what} |" in text for what in measures())
