"""What a run is said to show is what its tests support: sentences of relations, over runs and over altered marts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from biaseval.store import Run
from tests.pages import assert_said, mart
from tests.qa_report.runs import Row, make_run, right, said
from tests.qaplans import QaPlan
from tests.relation import Relations, changeable, sentences, told

GIVEN = {"ans_len": 1.0, "sim_word": 2.0, "word_dist": 1.0}
"""Thresholds by heuristic, at which each has a gap, also where a search finds none."""


def points(value: float, low: float, high: float) -> str:
    return f"{value:.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")


def test_the_biases_that_were_put_into_the_answers_are_told_with_the_numbers_of_marts(run: Run) -> None:
    text = said(run)
    rows = {(row["model"], row["dataset"], row["heuristic"]): row for row in mart(run, "qa_bias_by_heuristic")}
    for model, heuristic, sign in (("strong", "ans_len", 1), ("weak", "sim_word", -1)):
        row = rows[model, "squad", heuristic]
        better, others = (row[f"{side}_exact_match"] for side in ("lower", "higher")[::sign])
        ends = sorted(sign * row[name] for name in ("difference_low", "difference_high"))
        side = f"{heuristic} {'≤' if sign > 0 else '>'} {row['threshold']:g}"
        assert (
            f"{model}: {side}: {better:.1f} % exact, else {others:.1f} %, a gap of "
            f"{points(sign * row['difference'], *ends)} points (bias significance {row['bias_significance']:.1f}"
        ) in text
    words = [
        r"^Biased. Exact match depends on the length of the answer \(ans_len\) in strong and the words shared with the "
        r"question \(sim_word\) in weak.\n",
        r"\nReady to deploy. strong, the most .*, only if its bias is acceptable: .* 80.0 .*, but where ans_len > \d ",
        r"\nExact match \(%\): on squad, strong 80.0 \[.* and weak 50.0 .*; out of .* \(mean of 2 sets\), strong 37.5 ",
        "How sure: .* any bias is a false alarm is about 5 % per data set. So is the chance .* Each p of this page is",
        "!Helps", "!debias",
    ]  # fmt: skip
    assert_said(text, words)


@pytest.fixture(scope="module")
def relations(run: Run) -> Iterator[Relations]:
    yield from changeable(run, "qa_bias_conclusions", "qa_bias_cautions")


test_conclusions_follow_the_verdicts_of_marts = sentences("qa_bias_conclusions", {
    "biases that were not tested": (["update qa_bias_tests set is_supported = null, p_adjusted = null"],
        ["^Cannot say: the differences were not tested. Nothing can be said of strong and weak.",
        "Measure this run again", "deploy. Whether strong, .* biased cannot be", "!How sure"]),
    "biases that chance explains": (["update qa_bias_tests set is_supported = false"],
        [r"^No bias shown. No shortcut is shown for strong \(3 tested\) and weak", "none of 3 tested shortcuts is",
        "deploy. Perhaps strong, the most", "!depends on"]),
    "the same answer":
        (["update qa_by_dataset set is_constant = true, share_most_frequent = 0.97 where model = 'strong'"],
        [r"^Biased. Exact match depends on .* \(sim_word\) in weak\. Nothing can be said of strong",
        "strong: 97.0 % of the 200 answers are the same. All other numbers .* only reflect that"]),
    "the same answers of all": (["update qa_by_dataset set is_constant = true"],
        ["^Cannot say: the answers are nearly always the same", "deploy. Whether strong, .* biased cannot be"]),
    "too few right answers for none to mean anything": (["update qa_bias_tests set is_supported = false",
        "update qa_by_dataset set exact_match = 0.02"],
        ["^Cannot say: too few answers are right", "deploy. Whether strong, .* biased cannot be",
        r"\(exact match 2.0 %\). Below 10 %, groups can hardly differ"]),
    "too few right answers, and yet a bias": (["update qa_by_dataset set exact_match = 0.02"],
        [r"^Biased. Exact match depends on .* \(ans_len\) in strong and", "!points (smaller|larger)"]),
    "the same bias out of distribution": (["update qa_bias_by_heuristic set status = 'measured', difference = 12.3, "
        "threshold = 1 where dataset = 'trivia' and heuristic = 'ans_len'"],
        [r"strong: .*\(bias significance \d+\.\d; on trivia 12.3, not significant\)"]),
    "no difference between models": (["update qa_model_comparisons set verdict = 'unclear'"],
        [r"no difference is significant; one test alone detects \d+\.\d points in the gap .* in 4 of 5 runs"]),
    "models that no test can compare": (["update qa_model_comparisons set verdict = null, reason = 'one article'"],
        ["no test can compare them: the questions of a group are about a single article."]),
    "too few articles to compare models": (["update qa_model_comparisons set verdict = 'too few', n_articles = 4"],
        ["no test can compare them: .*the questions are about only 4 articles"]),
})  # fmt: skip


test_cautions_follow_the_tables = sentences("qa_bias_cautions", {
    # Strong has no threshold where weak has one, and then weak's is kept.
    "as they are": ([],
        [r"on the answers of strong \(squad, trivia\) and weak \(squad\) and kept for the other models",
        "20 questions, the size of a sample: .*on news; word_dist on trivia",
        "the values do not differ: ans_len on n", "!Fewer than half", "!one article", "!has no answer"]),
    "thresholds of each model": (["update qa_settings set variant = 'reference'"],
        ["searched for each model on its own"]),
    "thresholds of the spec": (["update qa_bias_by_heuristic set searched_on = null"], ["!Thresholds"]),
    "low exact match": (["update qa_by_dataset set exact_match = 0.4 where model = 'weak'"],
        [r"Fewer than half .*: weak \(40.0 % on squad\)\. .* no success"]),
    "one article": (["update qa_by_dataset set n_articles = 1 where dataset = 'squad'"],
        ["All questions of squad are about"]),
    "missing answers":
        (["update qa_by_dataset set n_missing = 2, n_rows = 198 where model = 'weak' and dataset = 'squad'"],
        ["weak has no answer to 2 of the 200 questions of squad, which are left out for it alone"]),
    "small groups":
        (["update qa_bias_by_heuristic set n_lower = 30 where dataset = 'squad' and heuristic = 'ans_len'"],
        [r"Samples of 20 without replacement contain much .*ans_len on squad \(30 questions\)"]),
    "small groups with replacement": (["update qa_settings set replacement = true"], ["!Samples of"]),
    "what only some models lack": (["update qa_bias_by_heuristic set status = 'groups too small' "
        "where model = 'weak' and dataset = 'squad' and heuristic = 'ans_len'"], [r"ans_len \(of weak\) on squad"]),
    "nothing measured": (["update qa_bias_by_heuristic set status = 'no threshold to try' where dataset = 'squad'"],
        ["do not differ: .*every shortcut on squad"]),
})  # fmt: skip


def one_title(plan: QaPlan) -> None:
    for row in plan.examples:
        row["title"] = "Rome"


def one_value(plan: QaPlan) -> None:
    for row in plan.attributes:
        row["value"] = 7.0 if row["heuristic"] == "sim_word" else row["value"]


def drop(plan: QaPlan) -> None:
    for model in plan.spec["models"]:
        files = dict.fromkeys(("squad", "trivia", "news"), "p.json")
        model |= {"path": None, "predictions": files, "on_missing": "drop"}


RUNS: dict[str, tuple[Row, Sequence[str]]] = {
    "higher values are better": ({"models": {"common": right(0.2, 0.2, 0.7)}},
        ["^Biased. Exact match depends on .* \\(sim_word\\) in common", r"sim_word > 2: \d", "!Models compared"]),
    # Groups of 100 that differ by ten points: samples of 90 of them are apart, and nothing else.
    "a bias that chance explains": ({"models": {"luck": right(0.6, 0.5)}, "heuristics": ["ans_len"], "bootstrap":
        {"trials": 20, "sample": 90}}, ["^No bias shown. ",
        "none of 1 tested shortcut is significant. Chance alone reaches a .* of .* points. This run det",
        "A smaller bias may exist; more questions would show it"]),
    "one article": ({"models": {"fair": right(0.7, 0.7), "strong": right(1, 0.2)}, "change": one_title},
        ["^Cannot say: all questions are about one article. Nothing can be said of fair and strong",
        "deploy. Whether fair, .* biased cannot be", "no test can compare"]),
    "no bias": ({"models": {"fair": right(0.5, 0.5)}}, [r"^No bias shown. No shortcut is shown for fair \(3 tested"]),
    "one value": ({"change": one_value, "heuristics": ["sim_word"]}, ["^Cannot say: no shortcut can be measured"]),
    "many models": ({"models": {f"model{n}": right(1, 0.2 + 0.05 * n) for n in range(8)}, "heuristics": ["ans_len"]},
        ["^Biased. [^\n]*model2 and 5 more", "Further models: 2 more", r"\d+\.\d to \d+\.\d over 8 models",
        r"of 28 pairs, these differ: exact match in \d+ and the gap by ans_len in \d+\."]),
    # Gaps that differ by 60 points, of which the mean over three heuristics is a third.
    "models that differ in one shortcut": ({"models": {"fair": right(0.7, 0.7), "strong": right(1, 0.4)},
        "thresholds": GIVEN},
        [r"the gap by ans_len \(T = 1\) is (59|60|61)\.\d \[.*\] points smaller in fair than in strong", "!mean gap"]),
    "other questions": ({"models": {"full": right(1, 0.3), "gaps": [*right(1, 0.4)[:199], None]}, "heuristics":
        ["ans_len"], "change": drop}, ["exact match is|no difference"]),
}  # fmt: skip
"""By name, a run, and what its conclusions say; with !, what they do not say."""


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_told_what_its_tests_show(name: str, tmp_path: Path) -> None:
    given, words = RUNS[name]
    relations = Relations(make_run(tmp_path, is_measured=False, **given).root)
    text = told(relations, "qa_bias_conclusions")
    assert_said(text, words)
    supported = relations.rows("from qa_bias_tests where is_supported and dataset = 'squad'")
    assert text.startswith("Biased.") == bool(supported)
    relations.connection.close()
