"""Formats of a prompt: what each plans, and what is wrong with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.label_bias.plan import TaskPlan
from biaseval.spec import spec_of
from tests.label_bias.test_own_data import ITEM, plan_of, plans, reviews, write_csv
from tests.label_bias.test_own_data import spec_of as own_spec
from tests.label_bias.test_plan import _prompts

QUESTION = "{shop} was reviewed: {review}\nMood? {label}"
FORMATS: dict[str, Any] = {
    "question": {"item": QUESTION, "separator": "\n", "instruction_text": "Say the mood."},
    "reversed": {"order": "reversed"},
    "shuffled": {"order": 3},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_csv(tmp_path / "reviews.csv", reviews(120))
    return tmp_path


def planned(folder: Path, formats: Mapping[str, Any], **changes: Any) -> TaskPlan:
    data = {"train": str(folder / "reviews.csv"), "label": "mood", "fields": {}}
    prompt = {"item": ITEM, "n_demos": [0, 4], "demo_sets": 2, "formats": formats, **changes.pop("prompt", {})}
    return plan_of(own_spec(folder, data=data, prompt=prompt, calibration=["cc", "dc", "looc"], **changes))


def texts(plan: TaskPlan, form: str) -> dict[str, str]:
    """Return the whole text of each prompt of a format, by its id without that."""
    contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    return {
        row["prompt_id"].replace(f".{form}/", "/"): contexts[row["context_id"]]["text"] + row["input_text"]
        for row in _prompts(plan)
        if row["format"] == form
    }


def test_the_base_keeps_its_bytes_and_a_run_of_one_format_has_no_column(folder: Path) -> None:
    alone, several = planned(folder, {}), planned(folder, FORMATS)
    assert not alone.problems
    assert not several.problems
    assert "format" not in _prompts(alone)[0]
    assert "format" not in alone.contexts.column_names
    base = [{**row} for row in _prompts(several) if row.pop("format") == "base"]
    assert base == _prompts(alone)
    contexts = [row for row in several.contexts.to_pylist() if row.pop("format") == "base"]
    assert contexts == alone.contexts.to_pylist()
    assert several.splits.equals(alone.splits)


def test_everything_that_belongs_to_a_prompt_is_built_in_each_format(folder: Path) -> None:
    plan = planned(folder, FORMATS)
    base, question = texts(plan, "base"), texts(plan, "question")
    assert base.keys() == question.keys()
    assert {name.split("/")[2] for name in question} == {"main", "bias_score", "cc", "dc", "looc"}
    splits = {row["instance_id"]: row for row in plan.splits.to_pylist()}
    fields = {name: dict(line.split(": ", 1) for line in row["input"].split("\n")) for name, row in splits.items()}
    [context] = [row for row in plan.contexts.to_pylist() if row["context_id"] == "reviews/k4.s1.question/all"]
    demos = [(fields[demo], splits[demo]["label"]) for demo in context["demo_ids"]]
    shown = [f"{own['shop']} was reviewed: {own['review']}\nMood? {label}\n" for own, label in demos]
    assert context["text"] == "Say the mood.\n" + "".join(shown)
    # The words of an input without content are the same in every format.
    for name, text in base.items():
        if name.split("/")[2] == "dc":
            review, shop = text.rsplit("Review: ", 1)[1].removesuffix("\nMood:").split("\nShop: ")
            assert question[name].endswith(f"{shop} was reviewed: {review}\nMood?")


def test_orders_show_the_same_demonstrations_and_none_of_fewer_than_two(folder: Path) -> None:
    plan = planned(folder, FORMATS)
    assert plan.contexts.equals(planned(folder, FORMATS).contexts)
    contexts = [row for row in plan.contexts.to_pylist() if row["context_id"].endswith("/all")]
    shown = {(row["format"], row["demo_set"]): row["demo_ids"] for row in contexts}
    for demo_set in range(2):
        drawn = shown["base", demo_set]
        assert shown["question", demo_set] == drawn
        assert shown["reversed", demo_set] == drawn[::-1] != drawn
        assert sorted(shown["shuffled", demo_set]) == sorted(drawn) != shown["shuffled", demo_set] != drawn
    assert {row["format"] for row in _prompts(plan) if row["n_demos"] == 0} == {"base", "question"}


def test_options_without_an_item_take_another_instruction_and_separator(tmp_path: Path) -> None:
    letters = "ABCD"
    options = {a: f"o{a}" for a in letters}
    asked = [{"question": f"Number {n}?", "answer": letters[n % 4]} for n in range(80)]
    rows = [{**row, **{o: f"{n} {a}" for a, o in options.items()}} for n, row in enumerate(asked)]
    write_csv(tmp_path / "quiz.csv", rows)
    data = {"train": str(tmp_path / "quiz.csv"), "options": options, "label": "answer", "fields": {}}
    told = {"told": {"instruction_text": "Choose.", "separator": "\n"}}
    plan = plan_of(own_spec(tmp_path, data=data, prompt={"formats": told}))
    assert texts(plan, "told")["quiz/k0.s0/main/0"] == "Choose.\n" + texts(plan, "base")["quiz/k0.s0/main/0"]
    with pytest.raises(InputError, match=r"prompt\.formats\.x\.item: cannot name options without prompt\.item"):
        plans(own_spec(tmp_path, data=data, prompt={"formats": {"x": {"item": "{input} {label}"}}}))


@pytest.mark.parametrize(("formats", "message"), [
    ({"same": {}}, r"formats\.same: is the same as base; change something of it"),
    ({"a": {"order": 1}, "b": {"order": 1}}, r"formats\.b: is the same as a"),
    ({"same": {"item": ITEM}}, r"formats\.same: is the same as base"),
    ({"base": {"order": 1}}, r"formats\.base: is the name of what the section itself says; choose another"),
    ({"a": {"item": "{review} {label}"}}, r"formats\.a\.item: shows review, and prompt\.item review, shop"),
    ({"a": {"item": "{review}, {shop}"}}, r"prompt\.formats\.a\.item: .*has the fields \['review', 'shop'\]"),
    ({"a": {"separator": "--"}}, r"prompt\.formats\.a\.separator: .*is not white space"),
    ({"a": {"order": "sorted"}}, r"prompt\.formats\.a\.order: .*'drawn' or 'reversed'"),
    ({"a": {"order": 0}}, r"prompt\.formats\.a\.order: .*greater than or equal to 1"),
    ({"a": {"wording": "x"}}, r"prompt\.formats\.a\.wording: "), ({"a/b": {"order": 1}}, r"prompt\.formats\.a/b"),
])  # fmt: skip
def test_mistakes_are_named(folder: Path, formats: dict[str, Any], message: str) -> None:
    content = own_spec(folder, prompt={"item": ITEM}).model_dump(mode="json", exclude_none=True)
    content["prompt"]["formats"] = formats
    with pytest.raises(InputError, match=message):
        spec_of(content, "x", folder)


def test_orders_need_two_demonstrations_and_adapters_one_format(folder: Path) -> None:
    content = own_spec(folder, prompt={"n_demos": [0, 1]}).model_dump(mode="json", exclude_none=True)
    content["prompt"]["formats"] = {"a": {"order": "reversed"}}
    with pytest.raises(InputError, match=r"formats\.a\.order: there are never two demonstrations to order"):
        spec_of(content, "x", folder)
    content["prompt"]["n_demos"] = [0, 2]
    with pytest.raises(InputError, match=r"lora: adapters are trained on one format of the prompt"):
        spec_of({**content, "lora": {}}, "x", folder)
