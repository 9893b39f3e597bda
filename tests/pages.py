"""A page as a browser would see it."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pyarrow.parquet as pq

from biaseval.report.findings import Row
from biaseval.store import Run


class Page(HTMLParser):
    """What a browser would see: text, and every attribute."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.open_tags: list[str] = []
        self.pieces: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open_tags[-1:] not in (["style"], ["script"]):
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.pieces))

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def printed_queries(source: str) -> list[str]:
    """Return the statements of SQL that a page prints below its tables."""
    blocks = re.findall(r'<details class="query"><summary>SQL</summary>(.*?)</details>', source, re.DOTALL)
    return [unescape(code) for block in blocks for code in re.findall("<code>(.*?)</code>", block, re.DOTALL)]


def page_of(run: Run) -> Page:
    page = Page(run.read_text("report.html"))
    assert page.open_tags == []
    return page


def mart(run: Run, name: str) -> list[Row]:
    rows: list[Row] = pq.read_table(f"{run.root}/marts/{name}.parquet").to_pylist()
    return rows
