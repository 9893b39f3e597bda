"""What is counted of the source."""

from tests.measures import BEGIN, END, PAGE, measures, written


def test_the_page_has_a_place_for_the_table() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert written(written(text)) == written(text)
    assert all(f"| {what} |" in text for what in measures())
