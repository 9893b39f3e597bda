"""Notebooks in ``examples``: their cells are run as Python, in order, in one namespace.

``python -m tests.notebooks FILE...`` runs them in an empty folder and keeps what they show.
"""

import ast
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """Return the content of a notebook."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that are run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any]) -> list[dict[str, str]]:
    """Return what the last expression of each code cell shows, by its media type; nothing where there is none."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run(ast.parse("".join(cell["source"])), names) for cell in code_cells(notebook)]


def _run(tree: ast.Module, names: dict[str, Any]) -> dict[str, str]:
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "notebook", "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    if value is None:
        return {}
    html = getattr(value, "_repr_html_", None)
    return {"text/plain": repr(value)} | ({} if html is None else {"text/html": html()})


def keep(path: Path) -> None:
    """Run a notebook and keep what it shows."""
    notebook, folder = read(path), os.getcwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        shown = run(notebook)
        os.chdir(folder)
    for number, (cell, data) in enumerate(zip(code_cells(notebook), shown, strict=True), start=1):
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        lines = {kind: text.splitlines(keepends=True) for kind, text in data.items()}
        cell |= {"execution_count": number, "outputs": [{**result, "data": lines}] if data else []}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        keep(Path(name).resolve())
