"""Multiple choice: options, and their orders."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from biaseval.errors import InputError
from biaseval.label_bias.data import cyclic_orders
from biaseval.label_bias.plan import TaskPlan
from biaseval.label_bias.sources import read_sources
from biaseval.label_bias.splits import Sampler
from biaseval.prompting.task_files import Instance
from biaseval.spec import LabelBiasSpec
from tests.label_bias.test_lm_eval_tasks import spec_of as harness_spec
from tests.label_bias.test_own_data import plan_of as csv_plan_of
from tests.label_bias.test_own_data import texts, write_csv
from tests.labelplans import plan_tasks
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.test_indistinct_labels import label_bias_spec
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
        "kind": "label_bias", "name": "animals", "model": {"path": "unused"},
        "data": {"train": str(path), "options": COLUMNS} | data,
        "prompt": {"n_demos": [0, 2], "demo_sets": 1} | ({"item": item} if item else {}), "calibration": ["cc"],
    }  # fmt: skip
    spec = LabelBiasSpec.model_validate(content)
    [plan] = plan_tasks(spec, make_tokenizer())
    assert plan.problems == []
    return plan


def labels_of(plan: TaskPlan) -> dict[str, str]:
    return {row["instance_id"]: row["label"] for row in plan.splits.to_pylist()}


def expected(n_rows: int = 30) -> dict[str, str]:
    return {f"train-{number}": "ABC"[number % 3] for number in range(n_rows)}


@pytest.mark.parametrize("answer", [
    lambda number: "ABC"[number % 3], lambda number: number % 3, lambda number: f" {number % 3} ",
    lambda number: options_of(number)[number % 3],
], ids=["label", "place", "place-as-text", "text"])  # fmt: skip
def test_a_row_names_the_right_option_in_one_of_three_ways(tmp_path: Path, answer: Any) -> None:
    plan = plan_of([columns(answer(number), number) for number in range(30)], tmp_path)
    assert labels_of(plan) == expected()
    assert plan.tasks["labels"].to_pylist() == [["A", "B", "C"]]


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


def quiz(folder: Path, n_rows: int, name: str = "quiz.csv") -> Path:
    """Write questions with three options, the right one of which has each label in turn."""
    return write_csv(folder / name, [columns("ABC"[number % 3], number) for number in range(n_rows)])


def quiz_spec(train: Path, **changes: Any) -> LabelBiasSpec:
    content: dict[str, Any] = {
        "kind": "label_bias", "name": "quiz", "model": {"path": "unused"},
        "data": {"train": str(train), "options": COLUMNS}, "prompt": {"n_demos": [0, 2], "demo_sets": 2},
        "calibration": ["pride"],
    }  # fmt: skip
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(content.get(key), dict) else value
    return LabelBiasSpec.model_validate(content)


def prompts(plan: TaskPlan, purpose: str, n_demos: int, demo_set: int = 0) -> list[dict[str, Any]]:
    rows = [row for part in plan.parts for row in part.prompts.to_pylist()]
    return [row for row in rows if (row["purpose"], row["n_demos"], row["demo_set"]) == (purpose, n_demos, demo_set)]


def test_every_option_stands_once_behind_each_label_and_takes_the_answer_along() -> None:
    question = Instance("q", "", ("b",), {"text": "?", "1": "x", "2": "y", "3": "z", "again": "y"})
    orders = list(cyclic_orders(question, {"c": ["1"], "a": ["2", "again"], "b": ["3"]}))
    shown = [[order.texts[field] for field in ("1", "2", "3")] for order in orders]
    assert shown == [["x", "y", "z"], ["y", "z", "x"], ["z", "x", "y"]]
    assert [order.label for order in orders] == ["b", "a", "c"]
    rest = [(order.id, order.texts["text"], order.texts["again"]) for order in orders]
    assert rest == [("q", "?", order.texts["2"]) for order in orders]


def test_questions_are_those_beside_the_demonstrations_of_a_setting(tmp_path: Path) -> None:
    plan = csv_plan_of(quiz_spec(quiz(tmp_path, 60)))
    without = csv_plan_of(quiz_spec(quiz(tmp_path, 60), calibration=[]))
    roles: dict[str, set[str]] = {}
    for row in plan.splits.to_pylist():
        roles.setdefault(row["role"], set()).add(row["instance_id"])
    assert {role: len(ids) for role, ids in roles.items()} == {"demonstration": 8, "bias_score": 6, "main": 46}
    # The demonstrations that settings show, and all but the last of the test rows, are those of a run without it.
    for n_demos, purpose in ((2, "bias_score"), (2, "main")):
        own = [row["input_text"] for row in prompts(plan, purpose, n_demos)]
        assert own == [row["input_text"] for row in prompts(without, purpose, n_demos)][: len(own)]
    shown = {row["context_id"]: row["demo_ids"] for row in plan.contexts.to_pylist()}
    for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
        rows = prompts(plan, "pride", n_demos, demo_set)
        ids = [row["instance_id"] for row in rows]
        assert ids == [name for name in dict.fromkeys(ids) for _ in range(3)]
        assert len(rows) == 6 * 3
        assert set(ids) <= roles["demonstration"] - set(shown[rows[0]["context_id"]])
        assert [row["row"] for row in rows] == list(range(18))
        main = {row["context_id"] for row in prompts(plan, "main", n_demos, demo_set)}
        assert {row["context_id"] for row in rows} == main
        for first in range(0, 18, 3):
            assert {row["gold"] for row in rows[first : first + 3]} == set("ABC")
    for row in prompts(plan, "pride", 0):
        animal = dict(zip("ABC", ("cat", "dog", "cow"), strict=True))["ABC"[int(row["instance_id"][6:]) % 3]]
        assert f"\n{row['gold']}. {animal} " in row["input_text"]


def test_adapters_are_trained_on_other_questions(tmp_path: Path) -> None:
    plan = csv_plan_of(quiz_spec(quiz(tmp_path, 100), lora={"preset": "reif2024"}))
    trained = plan.training_rows.to_pylist()
    for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
        own = {row["instance_id"] for row in trained if row["adapter"].endswith(f"k{n_demos}.s{demo_set}")}
        questions = {row["instance_id"] for row in prompts(plan, "pride", n_demos, demo_set)}
        assert (len(own), len(questions), own & questions) == (16, 8, set())


def test_too_few_rows_are_named_with_what_they_are_needed_for(tmp_path: Path) -> None:
    spec = quiz_spec(quiz(tmp_path, 22))
    needed = r"8 demonstrations \(6 of them questions for pride, which a setting does not show\), 6 BiasScore rows and "
    rows = rf"data\.train: has 22 rows that can be used, and {needed}10 test rows are needed; add rows, or take pride"
    with pytest.raises(InputError, match=rows):
        read_sources(spec).tasks[0].draw(spec, Sampler("per_task", 0))


def test_without_options_there_is_nothing_to_permute(tmp_path: Path) -> None:
    train = quiz(tmp_path, 30)
    tasks = label_bias_spec(tmp_path).model_dump() | {"calibration": ["cc", "pride@0.7"]}
    for which, make in (
        ("data set quiz has", lambda: quiz_spec(train, data={"options": None})),
        ("task files have", lambda: LabelBiasSpec.model_validate(tasks)),
        ("data set odd has", lambda: harness_spec([{"lm_eval": "odd.yaml"}], calibration=["pride"])),
    ):
        message = rf"calibration: pride permutes the options of questions, and {which} none; name them in data\.options"
        with pytest.raises(ValidationError, match=message):
            make()
    write_jsonl(tmp_path / "train.jsonl", boolq_rows("dog", 4, 4))
    write_jsonl(tmp_path / "test.jsonl", boolq_rows("cat", 4, 2))
    with pytest.raises(ValidationError, match=r"pride is of label_bias with data\.options alone; take it out"):
        boolq_spec(tmp_path, calibration=["pride"])
