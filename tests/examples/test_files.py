"""Files that are too long are read to their end, and a part of them that the seed draws is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.examples import files
from biaseval.examples.files import ExampleFile, Wanted
from biaseval.spec import DataSpec


def _read(path: Path, seed: int) -> ExampleFile:
    data = DataSpec(train=str(path))
    return ExampleFile(str(path), "train", Wanted(data, {"text": ("text",)}, {}, seed))


def test_of_a_long_file_so_many_rows_are_kept_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"row {number},{'ab'[number % 2]}\n" for number in range(500)))
    whole = _read(path, 1)
    assert (len(whole.examples), whole.note) == (500, None)
    monkeypatch.setattr(files, "MOST_EXAMPLES", 100)
    part = _read(path, 1)
    numbers = [int(example.id.removeprefix("train-")) for example in part.examples]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 100
    assert max(numbers) > 400
    assert part.note == "data.train: 100 of 500 rows were drawn; no more are kept"
    assert part.sha256 == whole.sha256
    assert [example.id for example in _read(path, 1).examples] == [example.id for example in part.examples]
    assert [example.id for example in _read(path, 2).examples] != [example.id for example in part.examples]


def test_a_bad_row_behind_those_that_are_kept_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_EXAMPLES", 10)
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "row,a\n" * 40 + "row,\n")
    [problem] = _read(path, 1).shown_problems()
    assert problem == f"{path}: line 42: label: is empty; fill it in, or take the row out"
