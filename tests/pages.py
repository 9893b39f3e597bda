"""A page as a browser would see it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq

from biaseval.analysis import query
from biaseval.report.blocks import Row
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


def assert_whole(source: str) -> None:
    """Assert that a page is complete, works offline, runs no script but its own, and is marked up for readers."""
    page = Page(source)
    assert page.open_tags == []
    written = re.sub(r"<script[^>]*>.*?</script>", "", source, flags=re.S)
    assert not re.search(r"https?:|url\(|@import|<script", written)
    assert not re.search(r">\s*(None|nan)\s*<", source)
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert {link.removeprefix("#") for link in page.values("href")} <= set(ids)
    assert all(image.startswith("data:image/svg+xml;base64,") for image in page.values("src"))
    assert len(page.values("src")) == len(page.values("alt"))
    assert written.count("<caption>") == written.count("<table")
    assert len(re.findall(r"<th\b", written)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', written))
    scripts = re.findall(r"<script>(.*?)</script>", source, re.S)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    [policy] = [value for value in page.values("content") if "default-src 'none'" in value]
    assert policy.endswith("; script-src" + "".join(f" 'sha256-{digest}'" for digest in digests))
    charts = re.findall(r'<script type="application/json">(.*?)</script>', source, re.S)
    assert all(json.loads(chart)["config"] for chart in charts)
    assert len(charts) == len(page.values("src"))
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def assert_said(text: str, words: Iterable[str]) -> None:
    """Assert that each pattern is found in a text, and those that begin with ! are not."""
    assert [one for one in words if bool(re.search(one.removeprefix("!"), text)) == one.startswith("!")] == []


def assert_answered(source: str, runs: Sequence[str], least: int) -> None:
    """Assert that a page prints so many different queries or more, and that each gives rows."""
    statements = set(printed_queries(source))
    assert len(statements) >= least
    assert [one for one in statements if not query(runs, one).num_rows] == []


def assert_of_marts(source: str, run: Run) -> None:
    """Assert that each number that a cell tells exactly, in its title, is one of the run's marts or of a query."""
    rows = [row for path in Path(run.root, "marts").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    rows += [row for statement in printed_queries(source) for row in query([run.uri], statement).to_pylist()]
    known = {f"{value:.6g}" for row in rows for value in row.values() if isinstance(value, float | int)}
    told = {title for title in Page(source).values("title") if re.fullmatch(r"-?\d[\d.e+-]*", title)}
    assert len(told) > 20
    assert told - known == set()


def mart(run: Run, name: str) -> list[Row]:
    rows: list[Row] = pq.read_table(f"{run.root}/marts/{name}.parquet").to_pylist()
    return rows
