"""The examples run, and show what is kept in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks import code_cells, read, run

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_kept_in_it(
    path: Path, here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = read(path)
    kept = ["".join(output["data"]["text/plain"]) for cell in code_cells(notebook) for output in cell["outputs"]]
    assert len(kept) == len(code_cells(notebook))
    assert [shown["text/plain"] for shown in run(notebook)] == kept
    assert [folder.name for folder in tmp_path.iterdir()] == ["runs"]
