"""What ``tables.js`` does in a browser: sorting by number and by text, filtering, and inside what is folded."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import biaseval.report
from biaseval.store import Run
from tests.browser import found_by_script, needs_browser, shown_by_browser
from tests.pages import mart

pytestmark = needs_browser

SCRIPT = (Path(biaseval.report.__file__).parent / "tables.js").read_text(encoding="utf-8")

ROWS = (
    ("pear", "−1.5", '<td title="0.12">0.1</td>'), ("Apple", "1,200", '<td title="0.11">0.1</td>'),
    ("fig", "–", '<td title="">none</td>'), ("banana", "3.25 [1, 5]", '<td title="2e-05">0.0</td>'),
)  # fmt: skip

HELPERS = """
const table = document.querySelector("table.sortable");
const rows = () => [...table.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
const names = () => rows().map((row) => row.cells[0].textContent.trim());
const click = (column) => table.querySelector(`th[data-column="${column}"] button`).click();
const sorted = () => [...table.querySelectorAll("th")].map((heading) => heading.getAttribute("aria-sort"));
"""


def page(rows: Sequence[tuple[str, str, str]] = ROWS, classes: str = "sortable long") -> str:
    lines = "".join(f"<tr><th>{name}</th><td>{number}</td>{titled}</tr>" for name, number, titled in rows)
    headings = "".join(f'<th data-column="{column}">{column}</th>' for column in range(3))
    return (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"></head><body><div><table class="{classes}">'
        f"<thead><tr>{headings}</tr></thead><tbody>{lines}</tbody></table></div><script>{SCRIPT}</script></body></html>"
    )


def found(script: str, folder: Path, source: str | None = None) -> Any:
    return found_by_script(source or page(), HELPERS + script, folder)


ORDERS = [
    (["Apple", "banana", "fig", "pear"], ["pear", "fig", "banana", "Apple"]),
    (["Apple", "banana", "pear", "fig"], ["pear", "banana", "Apple", "fig"]),  # minus, thousands, interval, none
    (["pear", "Apple", "banana", "fig"], ["banana", "Apple", "pear", "fig"]),  # by the exact number in the title
]
"""By column, the order after its heading is clicked, and after it is clicked again."""


def test_a_heading_sorts_its_table_and_again_the_other_way(tmp_path: Path) -> None:
    script = """
    const told = [names()];
    for (const column of [0, 1, 2]) {
        click(column); told.push(names(), sorted());
        click(column); told.push(names(), sorted());
    }
    return told;
    """
    before, *shown = found(script, tmp_path)
    assert before == [name for name, _, _ in ROWS]
    for column, orders in enumerate(ORDERS):
        # Text begins at its first letter, numbers with the largest.
        words = ["ascending", "descending"] if column == 0 else ["descending", "ascending"]
        for order, word in zip(orders, words, strict=True):
            names, headings, *shown = shown
            assert (names, headings[column]) == (order, word)
            assert [heading for heading in headings if heading] == [word]


def test_the_box_above_a_long_table_keeps_rows_with_its_text(tmp_path: Path) -> None:
    script = """
    const box = document.querySelector('input[type="search"]');
    const kept = (text) => { box.value = text; box.dispatchEvent(new Event("input")); return names(); };
    const n_boxes = document.querySelectorAll("input").length;
    return [kept("AN"), kept("1,2"), kept("nowhere"), kept(""), box.getAttribute("aria-label"), n_boxes];
    """
    short = page(classes="sortable").partition("<body>")[2].partition("<script>")[0]
    some, by_number, none, every, label, n_boxes = found(
        script, tmp_path, page().replace("<script>", f"{short}<script>")
    )
    assert some == ["banana"]
    assert by_number == ["Apple"]
    assert none == []
    assert every == [name for name, _, _ in ROWS]
    assert label == "Show only rows that hold this text"
    assert n_boxes == 1, "the short table behind it has none"


def test_the_page_of_a_run_allows_its_script_and_its_tables_sort(run: Run, tmp_path: Path) -> None:
    source = run.read_text("report.html")
    (tmp_path / "report.html").write_text(source, encoding="utf-8")
    shown = shown_by_browser(tmp_path / "report.html")
    n_headings = len(re.findall(r"<th [^>]*data-column", source))
    assert len(re.findall(r"<th [^>]*data-column[^>]*><button>", shown)) == n_headings > 0
    marts = mart(run, "label_bias_by_task_over_sets")
    ranked = [row for row in marts if (row["method"], row["n_demos"]) == ("none", 8) and row["accuracy"] is not None]
    script = """
    const tasks = document.querySelector("#most-biased").parentElement.querySelector("table.sortable");
    const heading = [...tasks.querySelectorAll("th[data-column]")].find((each) => each.textContent === "accuracy");
    heading.querySelector("button").click();
    return [...tasks.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent.trim());
    """
    accuracies = {row["task"]: float(f"{row['accuracy']:.6g}") for row in ranked}
    order = found_by_script(source, script, tmp_path)
    assert sorted(order) == sorted(accuracies)
    assert [accuracies[task] for task in order] == sorted(accuracies.values(), reverse=True)
    assert order != [row["task"] for row in ranked]
