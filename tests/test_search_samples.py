"""Halves and groups of what a run measures: what belongs together stays together, and they are about as large."""

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
    plan.write(folder)
    for row in members_of(folder, "qa_bias", choose_on, seed):
        if row["sample"] != "all":
            place = row["dataset"], contexts[row["dataset"], row["example_id"]]
            found.setdefault(place, set()).add((row["sample"], row["group"]))
    return found


def members_of(folder: Path, kind: str, choose_on: ChooseOn = "half", seed: int = 42) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = assigned(Run.open(str(folder)), kind, choose_on, seed).to_pylist()
    return rows


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
    places = Counter(next(iter(own)) for own in articles_of(about(range(43)), tmp_path / "many").values())
    # 20 places have two each, and the halves take turns with the other three.
    assert Counter(places.values()) == {2: 17, 3: 3}
    assert [sum(n for (half, _), n in places.items() if half == own) for own in ("choice", "evaluation")] == [22, 21]
    # There are fewer groups than ten where there is less, and no other half of all that is published.
    few = sorted(place for own in articles_of(about(range(5)), tmp_path / "few").values() for place in own)
    assert few == [("choice", 0), ("choice", 1), ("choice", 2), ("evaluation", 0), ("evaluation", 1)]
    whole = articles_of(about(range(23)), tmp_path / "all", "published").values()
    places = Counter(next(iter(own)) for own in whole)
    assert places.keys() == {("choice", group) for group in range(10)}
    assert Counter(places.values()) == {2: 7, 3: 3}


def test_a_set_about_one_article_is_not_halved(tmp_path: Path) -> None:
    """Articles are told by their titles where they have one."""
    plan = about([0] * 6)
    plan.spec["datasets"]["out_of_distribution"] = {"nq": "nq.json"}
    plan.questions({"ans_len": [1.0] * 4}, dataset="nq")
    plan.examples[-1]["context"] = "another"
    titled = about(range(4), title="one")
    single = (
        "choose_on: squad has a single article or row, which cannot be halved; give more, or choose on all of it "
        r"\(choose_on: published\)"
    )
    for name, lacking in (("half", plan), ("titled", titled)):
        with pytest.raises(BiasevalError, match=single):
            articles_of(lacking, tmp_path / name)
    found = articles_of(plan, tmp_path / "published", "published")
    assert [places for (dataset, _), places in found.items() if dataset == "squad"] == [{("choice", 0)}]
    assert len(articles_of(about(range(4), title=""), tmp_path / "untitled")) == 4


def test_halves_are_those_of_the_seed_whatever_else_is_measured(tmp_path: Path) -> None:
    alone, both = about(range(30)), about(range(30))
    both.spec["datasets"]["out_of_distribution"] = {"nq": "nq.json"}
    both.questions({"ans_len": [1.0] * 30}, dataset="nq")
    for number, row in enumerate(both.examples[30:]):
        row["context"] = f"article {number}"
    found, of_both = articles_of(alone, tmp_path / "one"), articles_of(both, tmp_path / "both")
    assert found.items() < of_both.items()
    assert articles_of(alone, tmp_path / "other", seed=43) != found
    # The same articles of another set are dealt out for themselves.
    assert any(of_both["nq", article] != places for (_, article), places in found.items())


def test_all_questions_stand_beside_the_halves(tmp_path: Path) -> None:
    about(range(6)).write(tmp_path)
    members = assigned(Run.open(str(tmp_path)), "qa_bias", "half", 42)
    assert samples_of(members) == ["choice", "evaluation", "all"]
    everything = kept(members, "all", None).to_pylist()
    assert {row["example_id"] for row in everything} == {f"q{number}" for number in range(6)}
    assert groups(members, "all") == []


def test_a_row_is_in_one_half_whatever_its_setting(tmp_path: Path) -> None:
    plan, tasks = Plan(), ("task001", "task002")
    for task in tasks:
        plan.task(task, ["a", "b"])
        for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
            for purpose, n in (("main", 9), ("bias_score", 4), ("cc", 3)):
                for _ in range(n):
                    gold = None if purpose == "cc" else "a"
                    plan.probabilities(task, purpose, gold, [0.6, 0.4], n_demos=n_demos, demo_set=demo_set)
    plan.write(tmp_path)
    found = members_of(tmp_path, "label_bias")
    # A row stands there once, and calibration inputs are in no half.
    rows = [(purpose, row) for purpose, n in (("main", 9), ("bias_score", 4)) for row in range(n)]
    keys = [(row["task"], row["purpose"], row["row"]) for row in found]
    assert sorted(keys) == sorted((task, *row) for task in tasks for row in rows)
    sizes = Counter((row["task"], row["as_purpose"], row["sample"]) for row in found)
    by_purpose = {("main", "choice"): 5, ("main", "evaluation"): 4, ("bias_score", "choice"): 2}
    expected = {**by_purpose, ("bias_score", "evaluation"): 2}
    assert sizes == {(task, *place): n for task in tasks for place, n in expected.items()}
    assert all(row["as_purpose"] == row["purpose"] for row in found)
    chosen = [{key[1:] for key, row in zip(keys, found, strict=True) if (key[0], row["sample"]) == (task, "choice")}
              for task in tasks]  # fmt: skip
    assert chosen[0] != chosen[1]


def test_a_row_is_in_one_half_whatever_its_proportions_and_seed(tmp_path: Path) -> None:
    MajorityPlan(calibration=("cc", "looc"), n_repeats=5).write(tmp_path)
    found = members_of(tmp_path, "majority_bias")
    assert sorted(row["row"] for row in found) == list(range(20))
    assert {row["purpose"] for row in found} == {"majority"}
    places = Counter((row["sample"], row["group"]) for row in found)
    assert places == {(sample, group): 1 for sample in ("choice", "evaluation") for group in range(10)}


def test_a_task_of_one_row_is_not_halved(tmp_path: Path) -> None:
    plan = Plan()
    plan.task("task001", ["a", "b"])
    plan.probabilities("task001", "main", "a", [0.6, 0.4])
    plan.write(tmp_path)
    with pytest.raises(BiasevalError, match=r"choose_on: task001 main has a single article or row"):
        members_of(tmp_path, "label_bias")
    [row] = members_of(tmp_path, "label_bias", "published")
    assert (row["sample"], row["group"]) == ("choice", 0)


def test_a_group_is_left_out_of_its_sample() -> None:
    c, e = "choice", "evaluation"
    of_group = pa.array([0, 0, 2, 0, 1], pa.int32())
    members = pa.table({"row": [0, 1, 2, 3, 4], "sample": [c, e, c, c, e], "group": of_group})
    assert kept(members, c, None).to_pydict() == {"row": [0, 2, 3]}
    assert kept(members, c, 0).to_pydict() == {"row": [2]}
    assert kept(members, e, 2).to_pydict() == {"row": [1, 4]}
    assert [groups(members, sample) for sample in (c, e)] == [[0, 2], [0, 1]]
    assert samples_of(members) == [c, e]
