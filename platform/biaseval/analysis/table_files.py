"""Write the rows of a query as files for spreadsheets and papers: CSV, Markdown and LaTeX."""

import json
import re

import pyarrow as pa
import pyarrow.csv as pacsv

from biaseval.json_values import as_text, in_markdown, plain

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]*$)")
"""Matches a text that a spreadsheet runs; a number with its sign is none."""

_NUMBERS = ("int", "uint", "float", "double", "decimal")


def columns_of(table: pa.Table) -> list[tuple[str, bool]]:
    """Return the name of each column, and whether it holds numbers."""
    return [(field.name, str(field.type).startswith(_NUMBERS)) for field in table.schema]


def csv_file(table: pa.Table) -> bytes:
    """Return a table as CSV with all digits; nested columns become JSON text.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(plain(v), ensure_ascii=False) for v in table[index].to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = [f"'{v}" if v and _FORMULA.match(v) else v for v in table[index].to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, field.type))
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def markdown_file(table: pa.Table) -> bytes:
    """Return a table as GitHub's Markdown, with numbers to four places."""
    columns = columns_of(table)
    lines = [[name for name, _ in columns], ["---:" if is_number else "---" for _, is_number in columns]]
    lines += [[in_markdown(as_text(value)) for value in row.values()] for row in table.to_pylist()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).encode()


def latex_file(table: pa.Table) -> bytes:
    """Return a table as a LaTeX ``tabular``, with numbers to four places; it needs the package ``booktabs``."""
    columns = columns_of(table)
    lines = [[_in_latex(as_text(value)) for value in row.values()] for row in table.to_pylist()]
    rows = [" & ".join(line) + r" \\" for line in [[_in_latex(name) for name, _ in columns], *lines]]
    places = "".join("r" if is_number else "l" for _, is_number in columns)
    body = [rf"\begin{{tabular}}{{{places}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return "".join(f"{line}\n" for line in [*body, r"\end{tabular}"]).encode()


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


_LATEX = {one: rf"\{one}" for one in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}

TABLE_FILES = {"csv": csv_file, "md": markdown_file, "tex": latex_file}
"""File ending to what writes a table: CSV with all digits, the others as people read it."""
