"""Data sets of the user's own: their rows, their prompts, and what is wrong with them."""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.label_bias.plan import TaskPlan
from biaseval.prompting.labels import flipped
from biaseval.spec import LabelBiasSpec, load_spec
from tests.labelplans import plan_tasks
from tests.tinymodels import make_tokenizer

ITEM = "Review: {review}\nShop: {shop}\nMood: {label}"


def reviews(n_rows: int, prefix: str = "row") -> list[dict[str, str]]:
    """Return rows of two fields and three labels, the first of which is as frequent as both others."""
    labels = ("good", "bad", "good", "mixed")
    return [
        {"review": f"{prefix} {number}, it was fine", "shop": f"shop {number % 5}", "mood": labels[number % 4]}
        for number in range(n_rows)
    ]


def write_csv(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def spec_of(folder: Path, **changes: Any) -> LabelBiasSpec:
    """Return a spec on ``reviews.csv`` in ``folder``; ``changes`` go over its sections."""
    content: dict[str, Any] = {
        "kind": "label_bias", "name": "reviews", "model": {"path": "unused"},
        "data": {"train": str(folder / "reviews.csv"), "fields": {"input": "review"}, "label": "mood"},
        "prompt": {"n_demos": [0, 2], "demo_sets": 2},
    }  # fmt: skip
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(content.get(key), dict) else value
    return LabelBiasSpec.model_validate(content)


def plans(spec: LabelBiasSpec) -> list[TaskPlan]:
    return plan_tasks(spec, make_tokenizer())


def plan_of(spec: LabelBiasSpec) -> TaskPlan:
    (plan,) = plans(spec)
    assert plan.problems == []
    return plan


def texts(plan: TaskPlan, purpose: str) -> dict[str, str]:
    """Return the whole text of each prompt of a purpose."""
    contexts = {row["context_id"]: row["text"] for row in plan.contexts.to_pylist()}
    prompts = [row for part in plan.parts for row in part.prompts.to_pylist() if row["purpose"] == purpose]
    return {row["prompt_id"]: contexts[row["context_id"]] + row["input_text"] for row in prompts}


def test_a_csv_of_thirty_rows_is_measured(tmp_path: Path) -> None:
    write_csv(tmp_path / "reviews.csv", reviews(30))
    plan = plan_of(spec_of(tmp_path, calibration=["cc", "dc", "looc"]))
    roles = Counter(row["role"] for row in plan.splits.to_pylist())
    assert roles == {"demonstration": 4, "bias_score": 6, "main": 20}
    assert len({row["instance_id"] for row in plan.splits.to_pylist()}) == 30
    [task] = plan.tasks.to_pylist()
    assert (task["task"], task["labels"], task["template"]) == ("reviews", ["bad", "good", "mixed"], None)
    assert task["n_instances"] == 30
    whole = texts(plan, "main")["reviews/k2.s0/main/0"]
    assert whole.startswith("Input: row ")
    assert whole.count("\n Output: ") == 2
    assert whole.endswith(", it was fine.\n\nOutput:")
    assert texts(plan, "cc")["reviews/k0.s0/cc/0"] == "Input: N/A.\n\nOutput:"


def moods(*counts: int, prefix: str = "row") -> list[dict[str, str]]:
    """Return so many rows of each label, in a random order."""
    drawn = [mood for mood, n in zip(("good", "bad", "mixed"), counts, strict=True) for _ in range(n)]
    np.random.default_rng(0).shuffle(drawn)
    return [{"review": f"{prefix} {number}", "shop": "one", "mood": mood} for number, mood in enumerate(drawn)]


def ids_of(plan: TaskPlan, role: str) -> list[str]:
    rows = sorted(plan.splits.to_pylist(), key=lambda row: int(row["position"]))
    return [row["instance_id"] for row in rows if row["role"] == role]


def bias_score_labels(plan: TaskPlan) -> dict[str, int]:
    return Counter(row["label"] for row in plan.splits.to_pylist() if row["role"] == "bias_score")


@pytest.mark.parametrize(("counts", "max_test", "expected"), [
    ((640, 250, 110), 250, [32, 32, 32]),  # rows are left over
    ((640, 250, 110), 100, [16, 17, 17]),  # half as many as test rows
    ((640, 250, 110), 20, [10, 11, 11]),  # as many as published
    ((256, 100, 44), 1000, [10, 11, 11]),  # nothing is left over
    ((600, 391, 9), 250, [32, 32, 3]),  # of a rare label a third
    ((990, 8, 2), 990, [29, 2, 1]),  # so many in any case
])  # fmt: skip
def test_rows_of_bias_score_are_balanced_and_more_where_rows_are_left_over(
    tmp_path: Path, counts: tuple[int, ...], max_test: int, expected: list[int]
) -> None:
    write_csv(tmp_path / "reviews.csv", moods(*counts))
    plan = plan_of(spec_of(tmp_path, data={"max_test": max_test}))
    assert [bias_score_labels(plan)[label] for label in ("good", "bad", "mixed")] == expected
    told = [note for note in plan.notes if "BiasScore cannot be tested" in note]
    assert len(told) == (min(expected) < 5)
    few = f"{min(expected)} of {sum(expected)} BiasScore rows have the label 'mixed'"
    assert all(few in note for note in told)
    n_main = min(max_test, sum(counts) - 64 - sum(expected))
    assert (len(ids_of(plan, "main")), len(ids_of(plan, "demonstration"))) == (n_main, 64)
    assert len({row["instance_id"] for row in plan.splits.to_pylist()}) == n_main + 64 + sum(expected)


def test_main_rows_may_have_a_file_of_their_own(tmp_path: Path) -> None:
    write_csv(tmp_path / "reviews.csv", reviews(40))
    write_csv(tmp_path / "test.csv", [*reviews(2), *reviews(10, "other")])
    plan = plan_of(spec_of(tmp_path, data={"test": str(tmp_path / "test.csv"), "max_test": 8}))
    assert [name.split("-")[0] for name in ids_of(plan, "main")] == ["test"] * 8
    shown = {row["input"] for row in plan.splits.to_pylist() if row["role"] != "main"}
    assert shown.isdisjoint(row["review"] for row in reviews(2))
    assert any("2 of 40 rows have another row's, or a test row's, text" in note for note in plan.notes)


def test_a_template_of_ones_own_has_the_fields_of_the_file(tmp_path: Path) -> None:
    write_csv(tmp_path / "reviews.csv", reviews(30))
    prompt = {"item": ITEM, "instruction_text": "What is the mood?", "separator": "\n###\n".replace("#", " ")}
    spec = spec_of(tmp_path, data={"fields": {}}, prompt=prompt, calibration=["cc", "dc", "looc"])
    plan = plan_of(spec)
    separator = prompt["separator"]
    by_id = {f"train-{number}": row for number, row in enumerate(reviews(30))}
    context = next(row for row in plan.contexts.to_pylist() if row["context_id"] == "reviews/k2.s1/all")
    expected = "What is the mood?" + separator
    for name in context["demo_ids"]:
        row = by_id[name]
        expected += f"Review: {row['review']}\nShop: {row['shop']}\nMood: {row['mood']}{separator}"
    assert context["text"] == expected
    assert texts(plan, "cc")["reviews/k0.s0/cc/1"] == f"What is the mood?{separator}Review: \nShop: \nMood:"
    # Every field has random words of its own.
    random_words = texts(plan, "dc")["reviews/k0.s0/dc/0"].split("\n")
    assert any("shop" in word for word in random_words[-2].split()[1:])
    assert {row["input"].split(":")[0] for row in plan.splits.to_pylist()} == {"review"}


@pytest.mark.parametrize("n_demos", [2, 4, 6, 7])
def test_balanced_sets_are_even_wherever_in_a_round_they_begin(tmp_path: Path, n_demos: int) -> None:
    """And have orders of their own: where labels take turns, all sets would end with the same one."""
    rows = [{**row, "mood": ("good", "bad", "mixed")[number % 3]} for number, row in enumerate(reviews(150))]
    write_csv(tmp_path / "reviews.csv", rows)
    for demos in ("balanced", "random"):
        spec = spec_of(tmp_path, prompt={"n_demos": [n_demos], "demo_sets": 6, "demos": demos})
        sets = [row["demo_labels"] for row in plan_of(spec).contexts.to_pylist()]
        assert [len(shown) for shown in sets] == [n_demos] * 6
        counts = [[shown.count(label) for label in ("good", "bad", "mixed")] for shown in sets]
        assert all(max(own) - min(own) <= 1 for own in counts) == (demos == "balanced")
        assert len(set(map(tuple, sets))) > 1


@pytest.mark.parametrize(
    "more", [{"prompt": {"formats": {"back": {"order": "reversed"}}}}, {"lora": {"n_examples": 4}}], ids=str
)
def test_flipped_demonstrations_show_another_label_alike_in_all_prompts_of_a_set(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    rows = [{**row, "mood": ("good", "bad", "mixed")[number % 3]} for number, row in enumerate(reviews(400))]
    write_csv(tmp_path / "reviews.csv", rows)
    prompt = {"n_demos": [0, 16], "demo_sets": 3, "demos": "balanced", **more.get("prompt", {})}
    keys = {**more, "calibration": ["looc"], "held_out": True}
    clean, noisy = (plan_of(spec_of(tmp_path, **{**keys, "prompt": {**prompt, "flip": share}})) for share in (0, 0.3))
    assert "demo_golds" not in clean.contexts.column_names
    assert clean.splits == noisy.splits
    assert clean.notes == noisy.notes
    contexts = {row["context_id"]: row for row in noisy.contexts.to_pylist()}
    shown: dict[tuple[int, str], set[str]] = {}
    changes = Counter[tuple[str, str]]()
    for row, same in zip(contexts.values(), clean.contexts.to_pylist(), strict=True):
        assert (row["demo_ids"], row["demo_golds"]) == (same["demo_ids"], same["demo_labels"])
        assert re.findall(r"Output: (\w+)", row["text"]) == row["demo_labels"]
        for demo, label in zip(row["demo_ids"], row["demo_labels"], strict=True):
            shown.setdefault((row["demo_set"], demo), set()).add(label)
        if re.fullmatch(r"reviews/k16\.s\d/all", row["context_id"]):
            pairs = zip(row["demo_golds"], row["demo_labels"], strict=True)
            changes.update((gold, label) for gold, label in pairs if gold != label)
    assert Counter(map(len, shown.values())) == {1: 48}
    assert 5 <= changes.total() <= 25  # 14.4 on average
    rows_of = [[row for part in plan.parts for row in part.prompts.to_pylist()] for plan in (noisy, clean)]
    for row, same in zip(*rows_of, strict=True):
        assert row["prompt_id"] == same["prompt_id"]
        if row["purpose"] != "looc":
            assert row["gold"] == same["gold"]
        else:
            whole = contexts[re.sub("/without[0-9]+$", "/all", row["context_id"])]
            assert row["gold"] == whole["demo_labels"][row["row"]]
    assert noisy.training_rows["label"] == clean.training_rows["label"]
    for row in noisy.training_rows.to_pylist():
        assert row["prompt"].startswith(contexts[f"reviews/k{row['n_demos']}.s{row['demo_set']}/all"]["text"])


def test_a_label_is_flipped_as_often_as_asked_and_to_each_other_label_alike() -> None:
    own = [label for label in "abc" for _ in range(4000)]
    draw = partial(flipped, own, ["a", "b", "c"])
    some, more = (draw(share, np.random.default_rng(1)) for share in (0.3, 0.6))
    counts = Counter(zip(own, some, strict=True))
    for label, other in itertools.permutations("abc", 2):
        assert counts[label, other] == pytest.approx(600, abs=4 * (4000 * 0.15 * 0.85) ** 0.5)
    assert [one for one, label in zip(some, own, strict=True) if one != label] == [
        other for other, one, label in zip(more, some, own, strict=True) if one != label
    ]
    assert draw(0, np.random.default_rng(1)) == own
    assert not any(map(str.__eq__, draw(1, np.random.default_rng(1)), own))


def _refused(spec: LabelBiasSpec) -> str:
    try:
        [plan] = plans(spec)
    except InputError as error:
        return str(error)
    return "\n".join(plan.problems)


@pytest.mark.parametrize(("rows", "changes", "problem"), [
    (reviews(10), {},
        "data.train: has 10 rows that can be used, and 4 demonstrations (prompt.n_demos 2 x prompt.demo_sets 2), "
        "6 BiasScore rows and 10 test rows are needed; add rows"),
    (reviews(30), {"prompt": {"n_demos": [16]}}, "lower prompt.n_demos to at most 7, or demo_sets"),
    (reviews(30), {"data": {"label": "mode"}},
        "data.label: no row has mode; name the file's field in data.label (its fields: review, shop, mood); "
        "did you mean mood?"),
    (reviews(30), {"data": {"fields": {"review": "review"}}}, "data.fields.review: the prompt has no such field"),
    (reviews(30), {"data": {"fields": {}}}, "data.fields.input: no row has input or text"),
    ([*reviews(30), {"review": "x", "shop": "x", "mood": " "}], {}, "line 32: mood: is empty; fill it in"),
    ([{**row, "review": ""} for row in reviews(30)], {}, "review: no row has a text; name the columns that have"),
    ([{**row, "mood": "good"} for row in reviews(30)], {}, "every row has the label 'good'"),
])  # fmt: skip
def test_mistakes_have_a_remedy(
    tmp_path: Path, rows: list[dict[str, str]], changes: dict[str, Any], problem: str
) -> None:
    write_csv(tmp_path / "reviews.csv", rows)
    assert problem in _refused(spec_of(tmp_path, **changes))


def test_labels_that_say_little_are_noted(tmp_path: Path) -> None:
    rows = [*reviews(30), {"review": "rare", "shop": "x", "mood": "good enough"}]
    write_csv(tmp_path / "reviews.csv", rows)
    notes = plan_of(spec_of(tmp_path)).notes
    assert any("the label 'good enough' occurs once" in note for note in notes)
    assert any("the label 'good' is the beginning of 'good enough'" in note for note in notes)


def test_a_spec_has_tasks_or_data(tmp_path: Path) -> None:
    base = "kind: label_bias\nname: x\nmodel: {path: m}\n"
    for text, problem in (
        ("", "tasks and data: are missing; name a folder of Super-NaturalInstructions in tasks.path, or files of your"),
        ("tasks: {path: t}\ndata: {train: a.csv}\n", "tasks and data: stand there both"),
        ("data: {tran: a.csv}\n", "data.tran: unknown key; did you mean train?"),
        ("tasks: {path: t, sampling: reif2024}\nprompt: {demos: balanced}\n", "prompt.demos: balanced does not go"),
    ):
        (tmp_path / "spec.yaml").write_text(base + text)
        with pytest.raises(InputError, match=problem.replace(".", r"\.")):
            load_spec(tmp_path / "spec.yaml")
    (tmp_path / "spec.yaml").write_text(base + "data: {train: a.csv, test: b.csv}\n")
    spec = load_spec(tmp_path / "spec.yaml")
    assert isinstance(spec, LabelBiasSpec)
    assert spec.files() == {"data of a, train": str(tmp_path / "a.csv"), "data of a, test": str(tmp_path / "b.csv")}


@pytest.mark.parametrize("column", ["number", "review"])
def test_a_column_of_names_or_texts_is_no_label(tmp_path: Path, column: str) -> None:
    rows = [{"number": str(number), "review": f"text {number}", "mood": f"mood {number}"} for number in range(60)]
    write_csv(tmp_path / "reviews.csv", rows)
    spec = spec_of(tmp_path, data={"label": column, "fields": {"input": "mood"}})
    with pytest.raises(InputError, match=r"60 labels in 60 rows, 60 of which occur once; .* name it in data\.label"):
        plan_of(spec)
