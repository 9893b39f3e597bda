"""Halves and groups of what a run measures: what belongs together stays together, and they are about as large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from biaseval.errors import BiasevalError
from biaseval.search.samples import ChooseOn, assigned, groups, kept, samples_of
from biaseval.store import Run
from tests.labelplans import Plan
from tests.majorityplans import MajorityPlan
from tests.qaplans import QaPlan

Place = tuple[str, int]
"""A sample and a group of it."""


def about(articles: Sequence[object], title: str | None = None) -> QaPlan:
    """Return questions about articles, of which each number is one."""
    plan = QaPlan()
    plan.questions({"ans_len": [1.0] * len(articles)})
    for row, article in zip(plan.examples, articles, strict=True):
        row["context"], row["title"] = f"article {article}", title
    return plan


def articles_of(
    plan: QaPlan, folder: Path, choose_on: ChooseOn = "half", seed: int = 42
) -> dict[tuple[str, str], set[Place]]:
    """Return where the questions about each article of each data set are."""
    contexts = {(row["dataset"], row["example_id"]): row["context"] for row in plan.examples}
    found: dict[tuple[str, str], set[Place]] = {}
    for row in assigned(Run.open(plan.write(folder)), "qa_bias", choose_on, seed).to_pylist():
        if row["sample"] != "all":
            place = row["dataset"], contexts[row["dataset"], row["example_id"]]
            found.setdefault(place, set()).add((row["sample"], row["group"]))
    return found


def members_of(folder: Path, kind: str, choose_on: ChooseOn = "half", seed: int = 42) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = assigned(Run.open(str(folder)), kind, choose_on, seed).to_pylist()
    return rows


# Questions


def test_questions_about_one_article_stay_together(tmp_path: Path) -> None:
    sizes = [7, 1, 3, 1, 1, 4, 2, 1, 1, 1, 6, 2, 1, 3, 1, 1, 1, 5, 2, 1, 3, 1, 1, 2, 8]
    order = [(7 * place) % sum(sizes) for place in range(sum(sizes))]  # neighbours are about different ones
    every = [article for article, size in enumerate(sizes) for _ in range(size)]
    found = articles_of(about([every[place] for place in order]), tmp_path)
    assert len(found) == len(sizes)
    assert {len(places) for places in found.values()} == {1}
    loads = Counter[Place]()
    for (_, article), places in found.items():
        loads[next(iter(places))] += sizes[int(article.split()[1])]
    # Each article goes where there is least: places differ by one article at most.
    assert len(loads) == 20
    assert {group for _, group in loads} == set(range(10))
    assert max(loads.values()) - min(loads.values()) <= max(sizes)


def test_articles_of_one_question_are_dealt_out_evenly(tmp_path: Path) -> None:
    places = Counter(next(iter(own)) for own in articles_of(about(range(43)), tmp_path).values())
    # 20 places have two each, and the halves take turns with the other three.
    assert Counter(places.values()) == {2: 17, 3: 3}
    assert [sum(n for (half, _), n in places.items() if half == own) for own in ("choice", "evaluation")] == [22, 21]


def test_there_are_fewer_groups_than_ten_where_there_is_less(tmp_path: Path) -> None:
    found = articles_of(about(range(5)), tmp_path)
    places = sorted(place for own in found.values() for place in own)
    assert places == [("choice", 0), ("choice", 1), ("choice", 2), ("evaluation", 0), ("evaluation", 1)]


def test_articles_are_told_by_their_titles_where_they_have_one(tmp_path: Path) -> None:
    plan = about(range(4), title="one")
    with pytest.raises(BiasevalError, match=r"choose_on: squad has a single article or row, which cannot be halved"):
        articles_of(plan, tmp_path / "titled")
    assert len(articles_of(about(range(4), title=""), tmp_path / "untitled")) == 4


def test_a_set_about_one_article_is_not_halved(tmp_path: Path) -> None:
    plan = about([0] * 6)
    plan.spec["datasets"]["out_of_distribution"] = {"nq": "nq.json"}
    plan.questions({"ans_len": [1.0] * 4}, dataset="nq")
    plan.examples[-1]["context"] = "another"
    expected = (
        "choose_on: squad has a single article or row, which cannot be halved; give more, or choose on all of it "
        r"\(choose_on: published\)"
    )
    with pytest.raises(BiasevalError, match=expected):
        articles_of(plan, tmp_path / "half")
    found = articles_of(plan, tmp_path / "published", "published")
    assert [places for (dataset, _), places in found.items() if dataset == "squad"] == [{("choice", 0)}]


def test_all_that_is_published_has_groups_and_no_other_half(tmp_path: Path) -> None:
    places = Counter(next(iter(own)) for own in articles_of(about(range(23)), tmp_path, "published").values())
    assert places.keys() == {("choice", group) for group in range(10)}
    assert Counter(places.values()) == {2: 7, 3: 3}


def test_halves_are_those_of_the_seed(tmp_path: Path) -> None:
    plan = about(range(30))
    found = articles_of(plan, tmp_path / "one")
    assert articles_of(plan, tmp_path / "again") == found
    assert articles_of(plan, tmp_path / "other", seed=43) != found


def test_a_set_is_halved_the_same_whatever_else_is_measured(tmp_path: Path) -> None:
    alone, both = about(range(30)), about(range(30))
    both.spec["datasets"]["out_of_distribution"] = {"nq": "nq.json"}
    both.questions({"ans_len": [1.0] * 30}, dataset="nq")
    for number, row in enumerate(both.examples[30:]):
        row["context"] = f"article {number}"
    alone.write(tmp_path / "alone")
    both.write(tmp_path / "both")
    found = [
        {(row["dataset"], row["example_id"]): (row["sample"], row["group"]) for row in own if row["sample"] != "all"}
        for own in (members_of(tmp_path / "alone", "qa_bias"), members_of(tmp_path / "both", "qa_bias"))
    ]
    assert found[0].items() < found[1].items()
    # The same articles of another set are dealt out for themselves.
    assert any(found[1]["nq", question] != found[1]["squad", question] for _, question in found[0])


def test_all_questions_stand_beside_the_halves(tmp_path: Path) -> None:
    about(range(6)).write(tmp_path)
    members = assigned(Run.open(str(tmp_path)), "qa_bias", "half", 42)
    assert samples_of(members) == ["choice", "evaluation", "all"]
    everything = kept(members, "all", None).to_pylist()
    assert {row["example_id"] for row in everything} == {f"q{number}" for number in range(6)}
    assert groups(members, "all") == []


# Rows of prompts


def test_a_row_is_in_one_half_whatever_its_setting(tmp_path: Path) -> None:
    plan = Plan()
    for task in ("task001", "task002"):
        plan.task(task, ["a", "b"])
        for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
            for purpose, n in (("main", 9), ("bias_score", 4)):
                for _ in range(n):
                    plan.probabilities(task, purpose, "a", [0.6, 0.4], n_demos=n_demos, demo_set=demo_set)
            for _ in range(3):
                plan.probabilities(task, "cc", None, [0.6, 0.4], n_demos=n_demos, demo_set=demo_set)
    plan.write(tmp_path)
    found = members_of(tmp_path, "label_bias")
    # A row stands there once, and calibration inputs are in no half.
    keys = [(row["task"], row["purpose"], row["row"]) for row in found]
    assert sorted(keys) == sorted(
        (task, purpose, row)
        for task in ("task001", "task002")
        for purpose, n in (("main", 9), ("bias_score", 4))
        for row in range(n)
    )
    sizes = Counter((row["task"], row["purpose"], row["sample"]) for row in found)
    for task in ("task001", "task002"):
        assert (sizes[task, "main", "choice"], sizes[task, "main", "evaluation"]) == (5, 4)
        assert (sizes[task, "bias_score", "choice"], sizes[task, "bias_score", "evaluation"]) == (2, 2)
    assert all(row["as_purpose"] == row["purpose"] for row in found)
    halves = [
        {(row["purpose"], row["row"]) for row in found if (row["task"], row["sample"]) == (task, "choice")}
        for task in ("task001", "task002")
    ]
    assert halves[0] != halves[1]


def test_a_row_is_in_one_half_whatever_its_proportions_and_seed(tmp_path: Path) -> None:
    MajorityPlan(calibration=("cc", "looc"), n_repeats=5).write(tmp_path)
    found = members_of(tmp_path, "majority_bias")
    assert sorted(row["row"] for row in found) == list(range(20))
    assert {row["purpose"] for row in found} == {"majority"}
    assert Counter((row["sample"], row["group"]) for row in found) == {
        (sample, group): 1 for sample in ("choice", "evaluation") for group in range(10)
    }


def test_a_task_of_one_row_is_not_halved(tmp_path: Path) -> None:
    plan = Plan()
    plan.task("task001", ["a", "b"])
    plan.probabilities("task001", "main", "a", [0.6, 0.4])
    plan.write(tmp_path)
    with pytest.raises(BiasevalError, match=r"choose_on: task001 main has a single article or row"):
        members_of(tmp_path, "label_bias")
    [row] = members_of(tmp_path, "label_bias", "published")
    assert (row["sample"], row["group"]) == ("choice", 0)


# What is kept of a sample


def test_a_group_is_left_out_of_its_sample() -> None:
    members = pa.table(
        {
            "row": [0, 1, 2, 3, 4],
            "sample": ["choice", "evaluation", "choice", "choice", "evaluation"],
            "group": pa.array([0, 0, 2, 0, 1], pa.int32()),
        }
    )
    assert kept(members, "choice", None).to_pydict() == {"row": [0, 2, 3]}
    assert kept(members, "choice", 0).to_pydict() == {"row": [2]}
    assert kept(members, "evaluation", 2).to_pydict() == {"row": [1, 4]}
    assert [groups(members, sample) for sample in ("choice", "evaluation")] == [[0, 2], [0, 1]]
    assert samples_of(members) == ["choice", "evaluation"]
