"""Multiple choice with options in columns, or in one column of lists."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.label_bias.plan import TaskPlan, plan_tasks
from biaseval.label_bias.sources import read_sources
from biaseval.spec import LabelBiasSpec
from tests.label_bias.test_own_data import texts, write_csv
from tests.tinymodels import make_tokenizer

COLUMNS = {"A": "a", "B": "b", "C": "c"}


def options_of(number: int) -> list[str]:
    return [f"{word} {number}" for word in ("cat", "dog", "cow")]


def columns(answer: Any, number: int) -> dict[str, Any]:
    """Return a question whose options stand in columns; ``answer`` is made of the place of the right one."""
    return {"question": f"which is {number}?", **dict(zip("abc", options_of(number), strict=True)), "answer": answer}


def plan_of(rows: Sequence[dict[str, Any]], folder: Path, *, item: str | None = None, **data: Any) -> TaskPlan:
    """Return the plan for rows in a JSON file."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return plan_for(path, item=item, **data)


def plan_for(path: Path, *, item: str | None = None, **data: Any) -> TaskPlan:
    content = {
        "kind": "label_bias",
        "name": "animals",
        "model": {"path": "unused"},
        "data": {"train": str(path), "options": COLUMNS} | data,
        "prompt": {"n_demos": [0, 2], "demo_sets": 1} | ({"item": item} if item else {}),
        "calibration": ["cc"],
    }
    spec = LabelBiasSpec.model_validate(content)
    [plan] = plan_tasks(spec, read_sources(spec), make_tokenizer(), None)
    assert plan.problems == []
    return plan


def labels_of(plan: TaskPlan) -> dict[str, str]:
    return {row["instance_id"]: row["label"] for row in plan.splits.to_pylist()}


def expected(n_rows: int = 30) -> dict[str, str]:
    return {f"train-{number}": "ABC"[number % 3] for number in range(n_rows)}


@pytest.mark.parametrize(
    "answer",
    [
        lambda number: "ABC"[number % 3],
        lambda number: number % 3,
        lambda number: f" {number % 3} ",
        lambda number: options_of(number)[number % 3],
    ],
    ids=["label", "place", "place-as-text", "text"],
)
def test_a_row_names_the_right_option_in_one_of_three_ways(tmp_path: Path, answer: Any) -> None:
    plan = plan_of([columns(answer(number), number) for number in range(30)], tmp_path)
    assert labels_of(plan) == expected()
    assert plan.tasks["labels"].to_pylist() == [["A", "B", "C"]]


def test_without_a_template_options_stand_a_line_each(tmp_path: Path) -> None:
    rows = [columns(str(number % 3), number) for number in range(30)]
    plan = plan_for(write_csv(tmp_path / "rows.csv", rows))
    row = next(row for row in plan.splits.to_pylist() if row["role"] == "main")
    number = int(row["instance_id"].split("-")[1])
    item = f"which is {number}?\nA. cat {number}\nB. dog {number}\nC. cow {number}\nAnswer:"
    assert texts(plan, "main")["rows/k0.s0/main/0"] == item
    few = texts(plan, "main")["rows/k2.s0/main/0"]
    assert few.endswith(f"\n\n{item}")
    assert few.split("\n\n")[0][-9:-1] == "Answer: "
    assert texts(plan, "cc")["rows/k0.s0/cc/0"] == "N/A\nA. N/A\nB. N/A\nC. N/A\nAnswer:"


def test_a_template_may_name_the_columns_and_rows_may_count_them(tmp_path: Path) -> None:
    rows = [columns(number % 3, number) for number in range(30)]
    plan = plan_of(rows, tmp_path, item="{question} {a}, {last} or {b}? {label}", fields={"last": "c"})
    assert "? cat " in next(iter(texts(plan, "main").values()))
    with pytest.raises(InputError, match=r"prompt\.item: does not show the option c; write \{c\} in it"):
        plan_of(rows, tmp_path, item="{question} {a} {b} {label}")
    counted = [columns(number % 3 + 1, number) for number in range(30)]
    plan = plan_of(counted, tmp_path, options={"1": "a", "2": "b", "3": "c"})
    assert labels_of(plan) == {f"train-{number}": "123"[number % 3] for number in range(30)}


@pytest.mark.parametrize("kind", ["list", "lists", "numbered"])
def test_options_may_stand_in_one_column(tmp_path: Path, kind: str) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(30):
        names = ["1", "2", "3"] if kind == "numbered" else ["A", "B", "C"]
        right = names[number % 3] if kind != "list" else number % 3
        choices = options_of(number)
        row = {"question": f"which is {number}?", "choices": {"text": choices, "label": names}, "answerKey": right}
        rows.append(row if kind != "list" else row | {"choices": choices})
    rows.append({**rows[0], "question": "few?", "choices": ["x", "y"]})
    if kind != "list":
        rows[-1]["choices"] = {"text": ["x", "y"], "label": ["A", "1"]}
    plan = plan_of(rows, tmp_path, options="choices")
    assert labels_of(plan) == expected()
    assert "data: 1 rows do not have 3 options and are left out" in plan.notes
    shown = plan_of(rows, tmp_path, options="choices", item="{question} {A}/{B}/{C}\n{label}")
    assert "/dog " in next(iter(texts(shown, "main").values()))


def refused(rows: Sequence[dict[str, Any]], folder: Path, **data: Any) -> str:
    with pytest.raises((InputError, ValueError)) as caught:
        plan_of(rows, folder, **data)
    return str(caught.value)


def test_classes_of_a_saved_data_set_are_letters(tmp_path: Path) -> None:
    rows = [{"question": f"q {number}", "choices": options_of(number), "answer": number % 3} for number in range(30)]
    features = {"answer": {"names": ["A", "B", "C"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), tmp_path / "rows.parquet")
    assert labels_of(plan_for(tmp_path / "rows.parquet", options="choices")) == expected()


def test_what_cannot_be_known_is_refused(tmp_path: Path) -> None:
    rows = [columns(number % 3, number) for number in range(30)]
    one_off = [columns("D" if number == 3 else "ABC"[number % 3], number) for number in range(30)]
    numbers = [columns(str(number % 3), number) | {"a": "1", "b": "2", "c": "0"} for number in range(30)]
    empty = [row | {2: {"answer": None}, 4: {"b": " "}}.get(number, {}) for number, row in enumerate(rows)]
    cases: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
        (rows[1::3], {}, "data.label: places of options count from 0, and no row has 0 in answer"),
        (one_off, {}, "line 4: 'D' in answer is neither the label nor the place (from 0) nor the text"),
        (numbers, {}, "line 1: '0' in answer may mean an option by its place, from 0 or its text"),
        (rows, {"options": {"A": "a", "B": "d"}}, "data.options: no row has d"),
        (rows, {"label": "right"}, "data.label: no row has right; it has question, a, b, c, answer"),
        (rows, {"options": "question"}, "question: 'which is 0?' holds no options; write a list"),
        (rows, {"labels": {"0": "A", "1": "B"}}, "data.labels does not go with it"),
        (rows, {"options": {"A": "a"}}, "names fewer than two options"),
        (rows, {"options": {"A": "a", "B": "a"}}, "names a column twice"),
        (rows, {"fields": {"a": "a"}}, "data.fields.a: the prompt has no such field; it has input; write"),
        # Rows without a text are left out.
        (empty, {}, "line 3: answer: is empty; fill it in, or leave such rows out with data.on_bad_row: drop"),
    ]
    for own, data, problem in cases:
        assert problem in refused(own, tmp_path, **data)
