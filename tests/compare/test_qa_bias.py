"""Differences of QA-bias runs, by article, and what such runs do not share."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.compared_kinds import KINDS
from biaseval.analysis.comparing import cautions_of
from biaseval.errors import InputError
from biaseval.report import write_comparison
from tests.compare.runs import Array, compared_rows, flipped, make
from tests.pages import Page, assert_answered, assert_said, assert_whole
from tests.qaplans import QaPlan
from tests.relation import Together


def qa_plan(
    seed: int,
    models: Sequence[str] = ("bert",),
    lean: float = 0.0,
    n_articles: int = 40,
    spec: Mapping[str, Any] | None = None,
) -> QaPlan:
    """Return a run over questions of articles of 1 to 5 questions; longer answers are found more often by ``lean``."""
    shared, own = np.random.default_rng(0), np.random.default_rng(seed)
    articles = np.repeat(np.arange(n_articles), np.arange(n_articles) % 5 + 1)
    lengths = shared.integers(1, 10, size=len(articles)).astype(float)
    plan = QaPlan(models, **{"heuristics": ["ans_len"], "bootstrap": {"trials": 20, "sample": 20}, **(spec or {})})
    plan.questions({"ans_len": lengths.tolist()})
    for example, article in zip(plan.examples, articles, strict=True):
        example["title"] = f"article {article:03}"
        example["question"] = f"What is {example['row']}?"
        example["answers"] = ["right"]
    for model in models:
        right = (own.random(len(articles)) < 0.5 + lean * (lengths > 5)).astype(float)
        plan.answers(right.tolist(), model=model)
    return plan


def hits_of(plan: QaPlan, model: str = "bert") -> Array:
    found = {row["example_id"]: row["exact_match"] for row in plan.predictions if row["model"] == model}
    return np.array([found.get(example["example_id"], np.nan) for example in plan.examples])


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[QaPlan]]:
    folder = tmp_path_factory.mktemp("runs")
    plans = [qa_plan(1), qa_plan(2, lean=0.45)]
    return [make(plan, folder / name) for plan, name in zip(plans, ("plain", "leaning"), strict=True)], plans


@pytest.fixture(scope="module")
def pair(readers: tuple[list[str], list[QaPlan]]) -> Iterator[Together]:
    """Return what compares the two runs, over tables that statements can change."""
    names = ("comparison", "shared", "wins", "agreement", "compare_cautions", "compare_conclusions")
    found = Together(readers[0], "qa_thresholds", *(f"qa_bias_{name}" for name in names))
    yield found
    found.connection.close()


def test_exact_match_of_questions_is_tested_by_article(readers: tuple[list[str], list[QaPlan]], pair: Together) -> None:
    _, plans = readers
    with pair.changed():
        [row] = pair.rows("from qa_bias_comparison where run = 'plain' and metric = 'exact_match'")
        drawn = [one["signs"] for one in pair.rows("from comparison_sign_flips order by draw")]
        [wins] = pair.rows("from qa_bias_wins where run = 'plain'")
    before, after = map(hits_of, plans)
    _, articles = np.unique([example["title"] for example in plans[0].examples], return_inverse=True)
    sums = np.bincount(articles, weights=after - before) * 40 / len(before)
    assert row["estimate"] == pytest.approx((after - before).mean(), abs=1e-12)
    left_out = np.array([(after - before)[articles != one].mean() for one in range(40)])
    error = np.sqrt(39 / 40 * np.sum((left_out - (after - before).mean()) ** 2))
    assert row["standard_error"] == pytest.approx(error, abs=1e-9)
    signs = np.array(drawn, dtype=float)[:, :40]
    statistics = flipped(sums, signs)
    assert row["p"] == pytest.approx(np.mean(statistics >= statistics[0]))
    assert (row["unit"], row["n_units"], row["n_questions"]) == ("article", 40, 120)
    assert (wins["n_wins"], wins["n_losses"]) == (int((after > before).sum()), int((after < before).sum()))
    p = stats.binomtest(wins["n_wins"], wins["n_wins"] + wins["n_losses"]).pvalue
    assert wins["mcnemar_p"] == pytest.approx(p, rel=1e-9)


def test_the_gap_is_at_the_threshold_that_both_models_together_choose(
    readers: tuple[list[str], list[QaPlan]], pair: Together
) -> None:
    _, plans = readers
    with pair.changed():
        asked = (f"from qa_bias_comparison where metric = 'gap' and run = '{run}'" for run in ("plain", "leaning"))
        [row], [back] = map(pair.rows, asked)
        tried = [one["threshold"] for one in pair.rows("from qa_thresholds where run = 'leaning'")]
    before, after = map(hits_of, plans)
    values = np.array([row["value"] for row in plans[0].attributes])
    mean = (before + after) / 2
    scores = {}
    for threshold in tried:
        lower = values <= threshold
        if min(lower.sum(), (~lower).sum()) >= 20:
            spread = mean.mean() * (1 - mean.mean()) * (1 / lower.sum() + 1 / (~lower).sum())
            scores[threshold] = abs(mean[lower].mean() - mean[~lower].mean()) / np.sqrt(spread)
    best = max(scores, key=lambda threshold: (round(scores[threshold], 9), -threshold))
    lower = values <= best
    gaps = [hits[~lower].mean() - hits[lower].mean() for hits in (before, after)]
    assert (row["threshold"], row["better_segment"]) == (best, "higher")
    assert [row["value"], row["other_value"]] == pytest.approx(gaps, abs=1e-9)
    assert row["estimate"] == pytest.approx(gaps[1] - gaps[0], abs=1e-9)
    assert row["verdict"] == "higher"
    assert (back["estimate"], back["threshold"], back["verdict"]) == (-row["estimate"], best, "lower")


OTHER = "run = 'leaning' and example_id"


def test_only_questions_that_both_answered_count(readers: tuple[list[str], list[QaPlan]], pair: Together) -> None:
    _, plans = readers
    changes = (
        f"delete from qa_predictions where {OTHER} in ('q3', 'q50')",
        f"update qa_examples set question = 'Something else?' where {OTHER} = 'q10'",
    )
    with pair.changed(*changes):
        [shared] = pair.rows("from qa_bias_shared where run = 'plain'")
        [row] = pair.rows("from qa_bias_comparison where run = 'plain' and metric = 'exact_match'")
        said = [one["text"] for one in pair.rows(cautions_of("qa_bias", ["plain", "leaning"]))]
    assert (shared["n_questions"], shared["n_differing"], shared["n_lacking"]) == (119, 1, 0)
    kept = np.array([row not in (3, 50, 10) for row in range(120)])
    assert row["n_questions"] == 117
    assert row["estimate"] == pytest.approx((hits_of(plans[1]) - hits_of(plans[0]))[kept].mean())
    assert "leaning against plain: left out: 1 question with the same id and another text." in said


def test_all_that_differs_is_said_in_order(pair: Together) -> None:
    changes = (
        "update qa_settings set variant = 'reference', seed = 7 where run = 'leaning'",
        "insert into qa_bias_by_heuristic by name select 'leaning' as run, 'squad' as dataset, 'own' as heuristic",
        f"update qa_examples set question = 'Another?' where {OTHER} = 'q0'",
        f"update qa_attributes set value = value + 1 where {OTHER} = 'q2'",
        f"delete from qa_examples where {OTHER} = 'q1'",
    )
    with pair.changed(*changes):
        found = pair.rows("from qa_bias_compare_cautions where run = 'plain' order by line")
    assert [(row["line"], row["text"]) for row in found if row["line"] in range(10, 17)] == [
        (10, "left out: 1 question with the same id and another text."),
        (11, "left out: 1 question in one of the two runs only."),
        (12, "the values of ans_len differ (text tools); those of the run first by name are used."),
        (13, "another variant of the measurement (variant)."),
        (14, "other seeds in the specs (seed)."),
        (16, "not compared, because only one of the two runs has it: own (leaning)."),
    ]


def test_runs_over_other_questions_are_refused(
    readers: tuple[list[str], list[QaPlan]], pair: Together, tmp_path: Path
) -> None:
    with pair.changed("update qa_examples set context = 'elsewhere' where run = 'leaning'"):
        [shared] = pair.rows("from qa_bias_shared where run = 'plain'")
    said = "no question is in both, by dataset, id and text; 120 questions have the same"
    assert (shared["is_comparable"], said in KINDS["qa_bias"].why_not(shared)) == (False, True)
    # The command report with --out is the comparison of such runs, too.
    page = Path(write_comparison(readers[0], str(tmp_path / "page.html"))).read_text()
    assert_whole(page)
    assert_answered(page, readers[0], 4)
    assert_said(Page(page).text, ["On squad; shared: 120 questions on 40 articles", "gap by ans_len"])
    with pytest.raises(InputError, match=r"does not end in \.html"):
        write_comparison(readers[0], str(tmp_path / "page.txt"))


def test_runs_of_the_same_answers_are_identical_until_an_answer_is_another(pair: Together) -> None:
    same = (
        "delete from qa_predictions where run = 'leaning'",
        "insert into qa_predictions select * replace ('leaning' as run) from qa_predictions",
    )
    said = "from qa_bias_compare_conclusions where run = 'plain' order by line"
    with pair.changed(*same):
        assert "not one of 120 predictions differs" in pair.rows(said)[0]["text"]
    another = (
        f"update qa_predictions set prediction = {to} where {OTHER} = '{at}'"
        for to, at in (("'it'", "q0"), ("null", "q1"))
    )
    with pair.changed(*same, *another):
        assert "and 2 of 120 predictions differ." in pair.rows(said)[0]["text"]
        for row in pair.rows("from qa_bias_agreement"):
            assert (row["n_predictions"], row["n_differing"]) == (120, 2)


def test_equal_answers_without_a_gap_differ_by_nothing(tmp_path: Path) -> None:
    """In half of the articles the short answers are right, in half the long ones: the gap is 0, and varies."""
    plan = QaPlan(("bert",), heuristics=["ans_len"], thresholds={"ans_len": 5}, bootstrap={"trials": 20, "sample": 20})
    plan.questions({"ans_len": [1.0, 9.0] * 40})
    for example in plan.examples:
        example["title"] = f"article {example['row'] // 4}"
    plan.answers([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0] * 10)
    runs = [make(plan, tmp_path / "first"), str(tmp_path / "other")]
    shutil.copytree(*runs)
    [row] = compared_rows(runs, "qa_bias", "metric = 'gap' and run = 'first'")
    assert (row["value"], row["other_value"], row["estimate"]) == (0, 0, 0)
    assert row["standard_error"] == 0
