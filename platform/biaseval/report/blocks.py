"""Sections and blocks of a page. A block gets its rows from the run by SQL; a block without rows is omitted."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from biaseval.report.charts import Chart, browser_script
from biaseval.report.names import LOWER_IS_BETTER, WORDS
from biaseval.report.numbers import MISSING, TEXTS, is_missing, written

Row = dict[str, Any]
Ask = Callable[[str], Sequence[Row]]
"""Returns the rows of a query."""

_FOLDER = Path(__file__).parent
_N_LONG = 15
"""The number of rows from which a table gets a filter box."""


class Column(NamedTuple):
    """A column of a table; ``NAME_low`` and ``NAME_high`` of the query are its interval."""

    name: str
    """The column's name in the query."""
    shown: str
    """The column's heading."""
    how: str = "text"
    """One of `numbers.FORMATS`, ``step`` (the change from ``NAME_before``), or ``marked`` (three parts, with the second
    marked)."""
    word: str = ""
    """The column with the verdict to show after the number."""
    group: str = ""
    """A heading over several columns."""


def columns(text: str) -> list[Column]:
    """Return columns from ``name | heading | how | word | group; …``; the last three parts are optional.

    A name alone has the heading that all tables give it, or else itself as heading; ``n_NAME`` is a count of NAME.
    """
    return [_column(one.strip()) for one in re.split(r"[;\n]", text) if one.strip()]


def _column(text: str) -> Column:
    if "|" in text:
        return Column(*(part.strip() for part in text.split("|")))
    heading = text.removeprefix("n_").replace("_", " ").capitalize()
    return _USUAL.get(text, Column(text, heading, "count" if text.startswith("n_") else "text"))


_USUAL = {
    column.name: column
    for column in columns("""
method|Method|method; predict|Prediction|way; instruction|With instruction|yes; n_demos|Demonstrations|count;
task|Task|name; metric|Metric|metric; dataset|Data set; heuristic|Shortcut; scope|For; gold|Gold|name;
threshold|T|number; p|p|p; p_adjusted|p|p; demo_set|Set|count; row|Row|count; labels|Labels|list;
rsd|RSD|rate; bias_score|BiasScore|rate; accuracy|accuracy|rate; macro_f1|macro-F1|rate;
exact_match|exact match|percent; f1|F1|percent; is_inside|In distribution|yes;
beside|Better than one label; is_above_constant|Better than one label|shown""")
}
"""Columns that most tables show alike."""


@dataclass(frozen=True)
class Table:
    """The rows of a query. A column with only null values is omitted."""

    caption: str
    """A sentence ``HEADING: …`` is omitted with its column, and ``In brackets: …`` where no cell has an interval."""
    sql: str
    columns: str
    """In the form of `columns`."""
    also: Sequence[str] = ()
    """More queries to show in the SQL below the table."""


@dataclass(frozen=True)
class Sentences:
    """Rows of ``lead`` and ``text``, one per line."""

    sql: str
    style: str = ""
    """``headline``, ``care`` (a box), or empty for a list."""
    heading: str = ""
    further: Sequence[str] = ()
    """Texts after those of the query."""


@dataclass(frozen=True)
class Definitions:
    """Terms with their definitions."""

    entries: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Keys:
    """Nested keys and values outside the run's tables, such as the spec."""

    caption: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Figures:
    """Charts in a row."""

    figures: Sequence[Chart]
    caption: str


class Beside:
    """Blocks side by side if the screen is wide enough: the sentences and the chart at the top of the page."""

    def __init__(self, *blocks: Any) -> None:
        self.blocks = blocks


class Fold:
    """Blocks that a click shows."""

    def __init__(self, summary: str, *blocks: Any) -> None:
        self.summary, self.blocks = summary, blocks


class Section:
    """Blocks under a heading, with a link at the top of the page, whose text is the title if none is given."""

    def __init__(self, anchor: str, title: str, *blocks: Any, link: str = "") -> None:
        self.anchor, self.title, self.blocks, self.link = anchor, title, blocks, link or title


@dataclass(frozen=True)
class Layout:
    """A whole page."""

    title: str
    about: Sequence[str | None]
    """Model, data and size, for one line without the empty ones."""
    sections: Sequence[Section]
    style: str = field(default="", kw_only=True)


def _within(blocks: Sequence[Any]) -> Iterator[Any]:
    """Yield these blocks and all blocks inside them."""
    for block in blocks:
        yield block
        if isinstance(block, Section | Fold | Beside):
            yield from _within(block.blocks)


def render(page: Layout, ask: Ask) -> str:
    """Return the HTML of a page, as one file without external resources; all text from the run is escaped."""
    sections = [
        {"id": section.anchor, "title": section.title, "link": section.link, "blocks": blocks}
        for section in page.sections
        if (blocks := list(_filled(section.blocks, ask)))
    ]
    scripts = [(_FOLDER / "tables.js").read_text(encoding="utf-8")]
    if any(isinstance(block, Figures) and block.figures for block in _within(page.sections)):
        scripts.insert(0, browser_script())
    allowed = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    html: str = _template().render(page=page, sections=sections, scripts=list(map(Markup, scripts)), allowed=allowed)
    return html


@cache
def _template() -> Any:
    templates = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # No text in a specification can close the script element that contains it.
    templates.filters["inside_script"] = lambda text: Markup(text.replace("<", "\\u003c"))
    templates.filters["data_uri"] = lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return templates.get_template("page.html.j2")


def _filled(blocks: Sequence[Any], ask: Ask) -> Iterator[Mapping[str, Any]]:
    """Yield the template data of each block that is not empty."""
    for block in blocks:
        if filled := _FILL[type(block)](block, ask):
            yield {"kind": type(block).__name__, "block": block, **filled}


def _table(table: Table, ask: Ask) -> Mapping[str, Any] | None:
    rows = ask(table.sql)
    declared = columns(table.columns)
    shown = [one for one in declared if any(not is_missing(row.get(one.name), one.how) for row in rows)]
    if not shown:
        return None
    groups: list[list[Any]] = []
    for column in shown:
        if groups and groups[-1][0] == column.group and column.group:
            groups[-1][1] += 1
        else:
            groups.append([column.group, 1])
    cells = [[_cell(row, column) for column in shown] for row in rows]
    named, there = ({word for one in these for word in (one.shown, one.group)} for these in (declared, shown))
    absent = named - there | ({"In brackets"} if not any(cell["interval"] for row in cells for cell in row) else set())
    return {
        "caption": " ".join(one for one in re.split(r"(?<=\.) ", table.caption) if one.partition(":")[0] not in absent),
        "columns": [(one, one.how in TEXTS) for one in shown],
        "groups": groups if any(group for group, _ in groups) else [],
        "rows": cells,
        "is_long": len(rows) >= _N_LONG,
        "queries": [_plain(sql) for sql in (table.sql, *table.also)],
    }


def _plain(sql: str) -> str:
    return "\n".join(line.strip() for line in sql.strip().splitlines())


def _cell(row: Row, column: Column) -> Mapping[str, Any]:
    """Return the parts of a cell: text, exact SQL value or name, interval, verdict, and the width of a bar."""
    value: Any = row.get(column.name)
    how = "rate" if column.how == "step" else column.how
    text = written(value, how)
    ends = [row.get(f"{column.name}_{end}") for end in ("low", "high")]
    interval = "" if any(map(is_missing, [value, *ends])) else f"[{written(ends[0], how)}, {written(ends[1], how)}]"
    exact = ""
    if not is_missing(value):
        if isinstance(value, float):
            exact = f"{value:.6g}"
        elif how in ("method", "way", "metric") and text != value:
            exact = value
    if column.how == "step" and not is_missing(before := row.get(f"{column.name}_before")):
        text = f"{written(before)} → {text}"
    word = row.get(column.word) or ""
    # Colours mark usefulness: a model that does no better than a constant answer gains nothing.
    is_better = (word == "lower") == (row.get("metric", column.name) in LOWER_IS_BETTER)
    gain = "gain" if row.get("is_above_constant", True) else ""
    tones = {word: gain if is_better else "cost"} if word in ("lower", "higher") and not row.get("doubt") else {}
    tone = {"better": "gain", "worse": "cost", **tones}.get(word, "")
    return {
        "text": text, "parts": value if column.how == "marked" and value else [], "exact": exact,
        "interval": interval, "word": WORDS.get(word, word), "tone": tone,
        "width": f"{100 * value:.1f}" if column.how == "bar" and text != MISSING else "", "how": column.how,
        "name": column.name, "shown": column.shown,
    }  # fmt: skip


def _sentences(sentences: Sentences, ask: Ask) -> Mapping[str, Any] | None:
    lines = [{"lead": row.get("lead") or "", "text": row["text"]} for row in ask(sentences.sql)]
    lines += [{"lead": "", "text": text} for text in sentences.further]
    return {"lines": lines} if lines else None


def _keys(keys: Keys, ask: Ask) -> Mapping[str, Any] | None:
    return {"leaves": list(_leaves(keys.content))} if keys.content else None


def _leaves(content: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as (dotted key, text); a list of plain values is one leaf.

    An entry in a list of mappings has its name as key, or else its position.
    """
    if isinstance(content, list) and content and all(isinstance(each, dict) for each in content):
        content = {each.get("name", place): each for place, each in enumerate(content)}
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _several(block: Fold | Beside, ask: Ask) -> Mapping[str, Any] | None:
    inner = list(_filled(block.blocks, ask))
    return {"inner": inner} if inner else None


_FILL: Mapping[type, Callable[[Any, Ask], Mapping[str, Any] | None]] = {
    Table: _table,
    Sentences: _sentences,
    Keys: _keys,
    Fold: _several,
    Beside: _several,
    Figures: lambda block, ask: {"is_shown": True} if block.figures else None,
    Definitions: lambda block, ask: {"is_shown": True} if block.entries else None,
    Text: lambda block, ask: {"is_shown": True} if block.text else None,
}
