"""Of files that are too long so many rows are kept as the seed draws; rows without a text are left out."""

from __future__ import annotations

import json
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
    assert (len(whole.examples), list(whole.notes)) == (500, [])
    monkeypatch.setattr(files, "MOST_EXAMPLES", 100)
    part = _read(path, 1)
    numbers = [int(example.id.removeprefix("train-")) for example in part.examples]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 100
    assert max(numbers) > 400
    assert list(part.notes) == ["data.train: 100 of 500 rows were drawn; no more are kept"]
    assert part.sha256 == whole.sha256
    assert [example.id for example in _read(path, 1).examples] == [example.id for example in part.examples]
    assert [example.id for example in _read(path, 2).examples] != [example.id for example in part.examples]


def test_a_bad_row_behind_those_that_are_kept_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_EXAMPLES", 10)
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "row,a\n" * 40 + "row,\n")
    [problem] = _read(path, 1).shown_problems()
    assert problem == f"{path}: line 42: label: is empty; fill it in, or leave such rows out with data.on_bad_row: drop"


def test_rows_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    texts = ["one", "", None, " \n", "two"]
    path.write_text("".join(json.dumps({"text": text, "label": "a" if text else ""}) + "\n" for text in texts))
    file = _read(path, 1)
    assert list(file.shown_problems()) == []
    # The others keep the numbers of their rows.
    assert [(each.id, each.fields["text"]) for each in file.examples] == [("train-0", "one"), ("train-4", "two")]
    assert list(file.notes) == ["data.train: 3 of 5 rows have no text (text) and are left out"]


def test_a_column_without_any_text_and_a_row_without_its_field_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "", "label": "a"}\n' * 3)
    [problem] = _read(path, 1).shown_problems()
    assert problem == f"{path}: text: no row has a text; name the columns that have some in data.fields"
    path.write_text('{"text": "x", "label": "a"}\n{"label": "a"}\n')
    [problem] = _read(path, 1).shown_problems()
    assert problem == f"{path}: line 2: text: is missing; add it"


def test_rows_with_the_same_mistake_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"row {number},{'a' if number % 2 else ''}\n" for number in range(12)))
    [problem] = _read(path, 1).shown_problems()
    assert problem.startswith(f"{path}: line 2, line 4, line 6 (and 3 rows more): label: is empty; ")
