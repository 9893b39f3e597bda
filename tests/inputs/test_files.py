"""Rows of files, and prompts of the harness."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from biaseval.inputs import files
from biaseval.inputs.files import ExampleFile, Wanted
from biaseval.inputs.harness import read_lm_eval
from biaseval.prompting.labels import separator
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


def _wanted(path: Path, labels: dict[str, str] | None = None, **data: Any) -> ExampleFile:
    wanted = Wanted(DataSpec(train=str(path), **data), {"text": ("text",)}, labels or {}, 1)
    return ExampleFile(str(path), "train", wanted)


GAPS: list[dict[str, Any]] = [
    {"text": "one", "label": "a"}, {"text": "two", "label": None}, {"text": "three", "label": " "},
    {"text": "four", "label": "b"}, {"text": "", "label": "b"}, {"text": "five", "label": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet"])
def test_rows_without_a_label_may_be_left_out_and_are_counted(tmp_path: Path, name: str) -> None:
    path, frame = tmp_path / name, pd.DataFrame(GAPS[:5])
    if name.endswith("parquet"):
        frame.to_parquet(path)
    elif name.endswith("jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in GAPS[:5]))
    else:
        frame.to_csv(path, sep="\t" if name.endswith("tsv") else ",", index=False)
    refused = list(_wanted(path).shown_problems())
    assert len(refused) == 1
    assert refused[0].endswith(": label: is empty; fill it in, or leave such rows out with data.on_bad_row: drop")
    file = _wanted(path, on_bad_row="drop")
    assert list(file.shown_problems()) == []
    # The others keep the numbers of their rows.
    assert [(each.id, each.label) for each in file.examples] == [("train-0", "a"), ("train-3", "b")]
    assert list(file.notes) == [
        "data.train: 1 of 5 rows have no text (text) and are left out",
        "data.train: 2 of 5 rows are left out (on_bad_row: drop): 2 label: is empty",
    ]


def test_other_bad_rows_are_left_out_by_what_is_wrong_with_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    bad = [{"text": 3, "label": "a"}, {"text": "x", "label": "c"}, {"id": 1, "text": "y", "label": "a"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in [{"id": 1, **GAPS[0]}, *GAPS, *bad]))
    file = _wanted(path, {"a": "A", "b": "B"}, on_bad_row="drop")
    assert list(file.shown_problems()) == []
    assert [each.label for each in file.examples] == ["A", "A", "B"]
    assert list(file.notes)[1] == (
        "data.train: 6 of 10 rows are left out (on_bad_row: drop): 2 label: is empty; 1 label: 0.5 is no label; "
        "1 text: 3 is no text; 1 label: the label 'c' is not in data.labels (a, b); 1 id: '1' is that of line 1 too"
    )
    path.write_text('{"text": "x", "label": null}\n' * 3)
    [problem] = _wanted(path, on_bad_row="drop").shown_problems()
    assert problem == f"{path}: no row can be used (3: label: is empty); check data"
    # What is no row at all is refused.
    path.write_text('{"text": "x", "label": "a"}\n{"text":\n')
    assert list(_wanted(path, on_bad_row="drop").shown_problems())


@pytest.mark.parametrize(
    ("label", "labels", "problem"),
    [
        ("cafe\u0301", {"caf\u00e9": "x", "the": "y"}, "'cafe\\u0301' and 'caf\\xe9' look alike, and only the second"),
        ("Yes", {"yes": "x", "no": "y"}, "'Yes' and 'yes' look alike, and only the second is in data.labels"),
        (-1, {"0": "x", "1": "y"}, "the label -1 stands for one that is hidden, as in test splits of Hugging Face's hub"
         "; name a split with labels, or give its meaning in data.labels"),
        ("-1", {"0": "x", "1": "y"}, "the label -1 stands for one that is hidden"),
        (-1, {}, "the label -1 is no text; say in data.labels what prompts show for it, as in {-1: ...} (-1 mostly"),
        ("-1", {}, "every label is -1, which stands for one that is hidden"),
        (0, {}, "the label 0 is no text; say in data.labels what prompts show for it, as in {0: ...}"),
    ],
)  # fmt: skip
def test_labels_without_a_place_are_said(tmp_path: Path, label: object, labels: dict[str, str], problem: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "x", "label": label}) + "\n")
    [found] = _wanted(path, labels).shown_problems()
    assert f"label: {problem}" in found


def test_how_a_file_is_written_stands_in_its_notes_and_beside_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("text,label\ngrün,a\nrot,b\n".encode("cp1252"))
    [note] = _wanted(path).notes
    assert note.startswith("data.train: is not UTF-8 (byte 13 in line 2: ")
    path.write_text("a fine day,pos\nanother,neg\na third,pos\n")
    problems = list(_wanted(path).shown_problems())
    assert len(problems) == 3
    assert problems[0].startswith(f"{path}: data.fields.text: no row has text; name the file's field")
    assert problems[2].startswith(f"{path}: line 1 looks like a row and not like the names of columns ('pos' stands")


TASKS = Path(__file__).parents[1] / "fixtures" / "lm_eval_tasks"
HARNESS: dict[str, Any] = json.loads((TASKS / "prompts.json").read_text())


@pytest.mark.parametrize("name", HARNESS["tasks"])
def test_prompts_and_labels_are_the_harnesss(name: str) -> None:
    known, found = HARNESS["tasks"][name], read_lm_eval(str(TASKS / f"{name}.yaml"))
    examples = [found.train[place] for place in HARNESS["shown"]]
    shown = [found.form.demonstration(example.fields, example.label) for example in examples]
    assert len(found.test) == len(known["without"]) == len(known["behind"]) == len(known["gold"])
    for key, demonstrations in (("without", []), ("behind", shown)):
        for example, of_harness in zip(found.test, known[key], strict=True):
            prompt = found.form.head + "".join(demonstrations) + found.form.test(example.fields)
            assert prompt == of_harness["prompt"]
            behind = [separator(prompt, label) + label for label in found.choices]
            assert behind == of_harness["continuations"]
    assert [found.choices.index(example.label) for example in found.test] == known["gold"]


def test_the_version_of_the_harness_is_named() -> None:
    assert HARNESS["lm_eval"] == "0.4.13"
