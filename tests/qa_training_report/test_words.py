"""What is said of trained readers, which is what their intervals show."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_cells import direction, estimate
from biaseval.report.qa_training_data import QaTraining
from biaseval.report.qa_training_verdict import debiasing
from biaseval.report.qa_training_words import correlated
from biaseval.store import Run
from tests.pages import Page
from tests.publishedstudy import Study
from tests.qa_training_report.reading import changed, of_method, page_of, told, trained


def test_the_verdict_counts_what_debiasing_gains_and_costs(
    findings: QaFindings, training: QaTraining, seeded: Run, tmp_path: Path
) -> None:
    [line] = debiasing(findings, training)
    addressed = [row for row in training.debiasing.values() if row["is_addressed"] and row["dataset"] == "squad"]
    assert len(addressed) == 23
    fallen = [
        row["model"]
        for row in addressed
        if not row["is_nearly_broken"] and row["significance_change"] < 0 and row["significance_change_high"] < 0
    ]
    f1 = {row["model"]: training.elsewhere[row["model"], "mean"] for row in addressed}
    n_fallen, n_risen = (
        sum(row["f1_change_high"] < 0 for row in f1.values()),
        sum(row["f1_change_low"] > 0 for row in f1.values()),
    )
    assert (len(fallen), sum(f1[model]["f1_change_high"] < 0 for model in fallen)) == (4, 1)
    assert line == (
        "Debiasing",
        "on squad, the significance of the bias that a reader addresses falls in 4 of 23 (RESAM on ans-len −5.64 "
        "[−7.14, −4.14], PoE on ans-len −4.81 [−6.31, −3.31], 2 more) and rises in none; 6 are nearly broken (the "
        "worse group falls by a third). F1 on squad changes in none; elsewhere (mean of 3 sets) falls in "
        f"{n_fallen} and rises in {n_risen} (of those 4, falls in 1). 25 readers trained, 1 given up.",
    )
    model = "bert-base+confidence_regularization(ans_len)"
    higher = {"significance_change": 3.0, "significance_change_low": 1.0, "significance_change_high": 5.0}
    [line] = debiasing(findings, changed(training, model, "ans_len", **higher))
    assert "falls in 4 of 23 " in line.text
    assert " and rises in 1; 6 are" in line.text
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    [line] = debiasing(own, read)
    assert " falls in 4 of 4 (bert-base RESAM on ans-len (seed 1) −5.64 [" in line.text
    assert line.text.endswith("; on triviaqa falls in 4. 8 readers trained.")
    assert line.text in Page(page_of(seeded)).text
    one = Study(methods=("standard",), outside=(), heuristics=("ans_len",)).write(tmp_path / "one")
    own = read_qa_findings(one)
    assert debiasing(own, trained(one, own)) == [("Readers", "1 reader trained.")]


def test_readers_are_counted_by_what_their_intervals_show(findings: QaFindings, training: QaTraining) -> None:
    sentences = told(findings, training)
    assert of_method(sentences, "RESAM, ") == (
        "RESAM, 6 readers: significance of the bias that each addresses, against the standard reader’s: lower in 2 "
        "(ans-len −5.64 [−7.14, −4.14], word-dist −1.92 [−3.42, −0.42]); higher in none; interval includes 0 in 4."
    )
    assert of_method(sentences, "CREG, ").endswith("lower in none; higher in none; interval includes 0 in 6.")
    assert of_method(sentences, "CREG out of distribution").endswith(
        "(mean F1 of 3 sets, points), 6 readers: lower in none; higher in 6 (word-dist +2.80 [+2.11, +3.49], cos-sim "
        "+2.73 [+2.04, +3.43], ans-len +2.40 [+1.71, +3.09], 3 more)."
    )


@pytest.mark.parametrize(
    ("value", "low", "high", "sort"),
    [
        (-1.0, -2.0, -0.1, "lower"),
        (-1.0, -2.0, 0.0, "unclear"),
        (-1.0, -2.0, 0.1, "unclear"),
        (1.0, 0.1, 2.0, "higher"),
        (0.0, 0.0, 0.0, "unclear"),
        # The published significances and those of the draws differ by the noise of the trials.
        (0.1, -2.0, -0.1, "unclear"),
        (-1.0, None, None, "without an interval"),
        (None, None, None, "not measured"),
    ],
)
def test_a_change_is_lower_or_higher_only_where_its_interval_excludes_0(
    findings: QaFindings,
    training: QaTraining,
    value: float | None,
    low: float | None,
    high: float | None,
    sort: str,
) -> None:
    columns = {"significance_change": value, "significance_change_low": low, "significance_change_high": high}
    assert direction(columns, "significance_change") == sort
    model = "bert-base+resample(ans_len)"
    sentence = of_method(told(findings, changed(training, model, "ans_len", **columns)), "RESAM, ")
    # Beside it, word-dist is lower and four include 0.
    parts = sentence.split("standard reader’s: ")[1].rstrip(".").split("; ")
    assert parts[0].startswith("lower in 2 (" if sort == "lower" else "lower in 1 (word-dist ")
    assert parts[1].startswith("higher in 1 (ans-len " if sort == "higher" else "higher in none")
    assert parts[2] == f"interval includes 0 in {5 if sort == 'unclear' else 4}"
    if sort in ("without an interval", "not measured"):
        assert parts[3].startswith(f"{sort} in 1 (ans-len {estimate(columns, 'significance_change')}")


def test_nearly_broken_readers_are_named_and_not_praised(findings: QaFindings, training: QaTraining) -> None:
    sentences = told(findings, training)
    assert of_method(sentences, "LMIX, ") == "LMIX, 6 readers (all nearly broken, see below)."
    broken = of_method(sentences, "Nearly broken")
    assert "LMIX on ans-len (18.52 against 69.01)" in broken
    assert broken.endswith("a low significance is no success.")
    assert not [name for name in ("RESAM", "CREG", "PoE") if name in broken]
    # A single one of a method that is whole otherwise.
    one = changed(training, "bert-base+resample(ans_len)", "ans_len", is_nearly_broken=True)
    resampled = of_method(told(findings, one), "RESAM, ")
    assert resampled.startswith("RESAM, 6 readers (1 nearly broken, see below): ")
    assert "ans-len" not in resampled
    assert "RESAM on ans-len (69.75 against 69.01)" in of_method(told(findings, one), "Nearly broken")


def test_no_reader_is_called_broken_where_none_is(findings: QaFindings, training: QaTraining) -> None:
    whole = {place: row | {"is_nearly_broken": False} for place, row in training.debiasing.items()}
    sentences = told(findings, dataclasses.replace(training, debiasing=whole))
    assert not [sentence for sentence in sentences if "broken" in sentence]
    assert "lower in 3 (word-dist −8.62" in of_method(sentences, "LMIX, ")


def test_a_shortcut_that_grows_while_another_is_addressed_is_told(findings: QaFindings, training: QaTraining) -> None:
    start = "Biases that a reader does not address"
    columns = {"significance_change": 3.0, "significance_change_low": 1.0, "significance_change_high": 5.0}
    # 17 whole readers on six heuristics each; the nearly broken ones are left out.
    before = of_method(told(findings, training), start)
    assert (
        f"{start}, 102 changes of significance (without nearly broken readers): lower in none; higher in none" in before
    )
    grown = changed(training, "bert-base+resample(ans_len)", "word_dist", **columns)
    assert "higher in 1 (word-dist by RESAM on ans-len +3.00 [+1.00, +5.00])" in of_method(told(findings, grown), start)
    broken = changed(training, "bert-base+learned_mixin(ans_len)", "word_dist", **columns)
    assert of_method(told(findings, broken), start) == before


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((-0.31, -0.63, 0.11), "−0.31 [−0.63, +0.11]: its interval includes 0, so no relation is shown."),
        ((-0.6, -0.8, -0.2), "tend to be those whose F1 elsewhere rose more or fell less."),
        ((0.6, 0.2, 0.8), "tend to be those whose F1 elsewhere rose less or fell more."),
        ((0.9, None, None), "with so few readers it has no interval, and nothing is shown."),
        ((None, None, None), "no correlation can be computed"),
    ],
)
def test_a_correlation_claims_nothing_that_its_interval_does_not_support(
    training: QaTraining, numbers: tuple[float | None, ...], says: str
) -> None:
    columns = dict(zip(("pearson", "pearson_low", "pearson_high"), numbers, strict=True))
    rows = [
        row | columns if (row["method"], row["other_dataset"]) == ("all", "mean") else row
        for row in training.correlations
    ]
    sentence = correlated(dataclasses.replace(training, correlations=tuple(rows)), "squad")
    assert sentence.startswith("Over 23 debiased readers, ")
    assert says in sentence
    assert ("Nearly broken are 6 of them" in sentence) == (numbers[0] is not None)
    assert ("tend to be" in sentence) == ("tend to be" in says)
    assert correlated(dataclasses.replace(training, correlations=()), "squad") == ""
