"""Questions whose options are permuted: which they are, what they show, and where there are none."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from biaseval.errors import InputError
from biaseval.label_bias.orders import cyclic_orders
from biaseval.label_bias.plan import TaskPlan
from biaseval.label_bias.sources import read_sources
from biaseval.label_bias.splits import Sampler
from biaseval.prompting.task_files import Instance
from biaseval.spec import LabelBiasSpec
from tests.label_bias.test_lm_eval_tasks import spec_of as harness_spec
from tests.label_bias.test_options import COLUMNS, columns
from tests.label_bias.test_own_data import plan_of, texts, write_csv
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.test_indistinct_labels import label_bias_spec


def quiz(folder: Path, n_rows: int, name: str = "quiz.csv") -> Path:
    """Write questions with three options, the right one of which has each label in turn."""
    return write_csv(folder / name, [columns("ABC"[number % 3], number) for number in range(n_rows)])


def quiz_spec(train: Path, **changes: Any) -> LabelBiasSpec:
    content: dict[str, Any] = {
        "kind": "label_bias",
        "name": "quiz",
        "model": {"path": "unused"},
        "data": {"train": str(train), "options": COLUMNS},
        "prompt": {"n_demos": [0, 2], "demo_sets": 2},
        "calibration": ["pride"],
    }
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
    plan = plan_of(quiz_spec(quiz(tmp_path, 60)))
    without = plan_of(quiz_spec(quiz(tmp_path, 60), calibration=[]))
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


def test_the_texts_of_an_item_template_are_permuted_too(tmp_path: Path) -> None:
    item = "{question} {a}, {last} or {b}? {label}"
    plan = plan_of(quiz_spec(quiz(tmp_path, 30), data={"fields": {"last": "c"}}, prompt={"item": item}))
    shown = [[word for word in text.split() if word in ("cat", "dog", "cow")] for text in texts(plan, "pride").values()]
    assert shown[:3] == [["cat", "cow", "dog"], ["dog", "cat", "cow"], ["cow", "dog", "cat"]]


@pytest.mark.parametrize(("n_rows", "has_test_file", "n_pool"), [(400, False, 64), (97, True, 64), (40, True, 34)])
def test_test_rows_of_a_split_or_file_stay_what_they_are(
    tmp_path: Path, n_rows: int, has_test_file: bool, n_pool: int
) -> None:
    data = {"test": str(write_csv(tmp_path / "test.csv", [columns("B", number) for number in range(900, 912)]))}
    spec = quiz_spec(quiz(tmp_path, n_rows), data=data if has_test_file else {}, prompt={"n_demos": [0, 16]})
    both = [plan_of(spec.model_copy(update={"calibration": own})).splits.to_pylist() for own in (["pride"], ["cc"])]
    assert both[0] == both[1]
    assert sum(row["role"] == "demonstration" for row in both[0]) == n_pool


def test_adapters_are_trained_on_other_questions(tmp_path: Path) -> None:
    plan = plan_of(quiz_spec(quiz(tmp_path, 100), lora={"preset": "reif2024"}))
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
