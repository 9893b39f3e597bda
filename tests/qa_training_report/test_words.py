"""What is said of trained readers, which is what their tests show."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from biaseval.report.qa import render_qa_page
from biaseval.report.qa_advice import advise
from biaseval.report.qa_figures import prediction_bias_figures
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_data import QaTraining
from biaseval.report.qa_training_figures import training_figures
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
    f1 = [training.elsewhere[row["model"], "mean"]["f1_verdict"] for row in addressed]
    assert (f1.count("lower"), f1.count("higher")) == (7, 6)
    assert line == (
        "Debiasing",
        "on squad, the significance of the bias that a reader addresses falls in 3 of 17 (RESAM on ans_len −5.64 "
        "[−7.14, −4.14], PoE on ans_len −4.81 [−6.31, −3.31], 1 more) and rises in none (besides 6 that are nearly "
        "broken); other numbers of training steps: RESAM on word_dist 16,000 (the standard reader 14,000), RESAM on "
        "sim_word 18,000 (the standard reader 14,000) and 16 more. F1 of all 23: on squad shown to change in none; "
        "elsewhere (mean of 3 sets) falls in 7 and rises in 6. 25 readers trained, 1 given up.",
    )
    model = "bert-base+confidence_regularization(ans_len)"
    [line] = debiasing(findings, changed(training, model, "ans_len", verdict="higher"))
    assert "falls in 3 of 17 " in line.text
    assert " and rises in 1 (besides 6 " in line.text
    [line] = debiasing(findings, changed(training, model, "ans_len", verdict=None, reason="threshold by chance"))
    assert "falls in 3 of 16 " in line.text
    assert "(besides 6 that are nearly broken and 1 that cannot be tested)" in line.text
    # Next to the word, on whose answers the threshold was searched.
    [line] = debiasing(findings, changed(training, "bert-base+resample(ans_len)", "ans_len", searched_on="bert-base"))
    searched = "; thresholds were searched on the answers of bert-base, which favours “falls”; other numbers of"
    assert searched in line.text
    none = {place: row | {"verdict": row["verdict"] and "unclear"} for place, row in training.debiasing.items()}
    [line] = debiasing(findings, dataclasses.replace(training, debiasing=none))
    assert "addresses is shown to change in none of 17 (besides 6 that are nearly broken); other numbers" in line.text
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    [line] = debiasing(own, read)
    assert " falls in 4 of 4 (bert-base RESAM on ans_len (seed 1) −5.64 [" in line.text
    assert line.text.endswith("; on triviaqa shown to change in none. 8 readers trained.")
    assert line.text in Page(page_of(seeded)).text
    one = Study(methods=("standard",), outside=(), heuristics=("ans_len",)).write(tmp_path / "one")
    own = read_qa_findings(one)
    assert debiasing(own, trained(one, own)) == [("Readers", "1 reader trained.")]


def test_readers_with_other_steps_are_told_beside_the_verdict_and_drawn_there(tmp_path: Path) -> None:
    study = Study(methods=("standard", "product_of_experts"), biases=("ans_len",), outside=(), heuristics=("ans_len",))
    run = study.write(tmp_path / "small")
    own = read_qa_findings(run)
    read = trained(run, own)
    steps = {row["method"]: row["steps"] for row in read.readers}
    [line] = debiasing(own, read)
    told_steps = f"PoE on ans_len {steps['product_of_experts']:,} (the standard reader {steps['standard']:,})"
    assert f"; other numbers of training steps: {told_steps}. F1 of the reader: " in line.text
    figures = [*prediction_bias_figures(own), *training_figures(own, read)]
    source = render_qa_page(own, figures, read)
    first = source[source.index('id="verdict"') : source.index('<dl class="terms">')]
    [drawn] = re.findall(r'alt="(.*?)"', first)
    assert "ans_len: standard 12.51 (69.01), PoE 7.70 (65.40)" in drawn
    assert source.count(f'alt="{drawn}"') == 1
    assert "<dt>PoE</dt> <dd>Product of experts: " in source
    equal = dataclasses.replace(read, readers=tuple(row | {"steps": 14000} for row in read.readers))
    [line] = debiasing(own, equal)
    assert "steps" not in line.text


def test_nearly_broken_readers_are_named_and_not_praised(findings: QaFindings, training: QaTraining) -> None:
    sentences = told(findings, training)
    assert of_method(sentences, "LMIX, ") == "LMIX, 6 readers (all nearly broken, see below)."
    broken = of_method(sentences, "Nearly broken")
    assert "LMIX on ans_len (18.52 against 69.01)" in broken
    assert broken.endswith("a low significance is no success.")
    assert not [name for name in ("RESAM", "CREG", "PoE") if name in broken]
    # A single one of a method that is whole otherwise.
    one = changed(training, "bert-base+resample(ans_len)", "ans_len", is_nearly_broken=True)
    resampled = of_method(told(findings, one), "RESAM, ")
    assert resampled.startswith("RESAM, 6 readers (1 nearly broken, see below): ")
    assert "ans_len" not in resampled
    assert "RESAM on ans_len (69.75 against 69.01)" in of_method(told(findings, one), "Nearly broken")


def test_no_reader_is_called_broken_where_none_is(findings: QaFindings, training: QaTraining) -> None:
    whole = {place: row | {"is_nearly_broken": False} for place, row in training.debiasing.items()}
    sentences = told(findings, dataclasses.replace(training, debiasing=whole))
    assert not [sentence for sentence in sentences if "broken" in sentence]
    assert "lower in 3 (word_dist −8.62" in of_method(sentences, "LMIX, ")


def test_a_shortcut_that_grows_while_another_is_addressed_is_told(findings: QaFindings, training: QaTraining) -> None:
    start = "Biases that a reader does not address"
    columns = {
        "significance_change": 3.0,
        "significance_change_low": 1.0,
        "significance_change_high": 5.0,
        "verdict": "higher",
    }
    # 17 whole readers on six heuristics each; the nearly broken ones are left out.
    before = of_method(told(findings, training), start)
    assert (
        f"{start}, 102 changes of significance (without nearly broken readers): lower in none; higher in none" in before
    )
    grown = changed(training, "bert-base+resample(ans_len)", "word_dist", **columns)
    assert "higher in 1 (word_dist by RESAM on ans_len +3.00 [+1.00, +5.00])" in of_method(told(findings, grown), start)
    broken = changed(training, "bert-base+learned_mixin(ans_len)", "word_dist", **columns)
    assert of_method(told(findings, broken), start) == before


def test_what_to_do_goes_by_verdicts_on_bias_and_f1(findings: QaFindings, training: QaTraining) -> None:
    def advice(read: QaTraining) -> str:
        [line] = advise(findings, read)
        return line.text

    assert advice(training).endswith(
        "Of 3 readers whose bias falls, none is shown to keep its F1 within a point everywhere: weigh both. Train "
        "other seeds before you choose."
    )
    model = "bert-base+resample(ans_len)"
    kept = {
        (model, place): training.elsewhere[model, place] | {"f1_verdict": word}
        for place, word in (("squad", "negligible"), ("mean", "higher"))
    }
    assert advice(dataclasses.replace(training, elsewhere=training.elsewhere | kept)).endswith(
        "Bias falls, and F1 is shown not to fall by a point, in RESAM on ans_len. Train other seeds before you choose."
    )
    unclear = {place: row | {"verdict": "unclear"} for place, row in training.debiasing.items()}
    assert advice(dataclasses.replace(training, debiasing=unclear)).endswith(
        "No debiased reader is shown to rely less on its bias: prefer none of them for that."
    )


def test_readers_are_counted_by_what_their_tests_show(findings: QaFindings, training: QaTraining) -> None:
    sentences = told(findings, training)
    assert of_method(sentences, "RESAM, ") == (
        "RESAM, 6 readers: significance of the bias that each addresses, against the standard reader’s: lower in 1 "
        "(ans_len −5.64 [−7.14, −4.14]); higher in none; unclear in 5."
    )
    assert of_method(sentences, "CREG, ").endswith("lower in none; higher in none; unclear in 6.")
    assert of_method(sentences, "CREG out of distribution").endswith(
        "(mean F1 of 3 sets, points), 6 readers: lower in none; higher in 6 (word_dist +2.80 [+2.11, +3.49], cos_sim "
        "+2.73 [+2.04, +3.43], ans_len +2.40 [+1.71, +3.09], 3 more)."
    )


@pytest.mark.parametrize("sort", ["lower", "higher", "negligible", "unclear", "too few", None])
def test_a_change_is_what_its_verdict_says_whatever_its_interval(
    findings: QaFindings, training: QaTraining, sort: str | None
) -> None:
    """Its interval excludes 0, and so does that of word_dist, whose test over the page shows nothing."""
    model = "bert-base+resample(ans_len)"
    sentence = of_method(told(findings, changed(training, model, "ans_len", verdict=sort)), "RESAM, ")
    parts = sentence.split("standard reader’s: ")[1].rstrip(".").split("; ")
    assert parts[0] == ("lower in 1 (ans_len −5.64 [−7.14, −4.14])" if sort == "lower" else "lower in none")
    assert parts[1].startswith("higher in 1 (ans_len " if sort == "higher" else "higher in none")
    assert f"unclear in {6 if sort == 'unclear' else 5}" in parts
    words = {"too few": "too few articles", None: "not tested"}
    assert ("negligible in 1" in parts) == (sort == "negligible")
    if sort in words:
        assert f"{words[sort]} in 1 (ans_len −5.64 [−7.14, −4.14])" in parts


def test_a_correlation_has_no_word(training: QaTraining) -> None:
    """Readers of one study are not independent, as its interval takes them."""
    for numbers in ((-0.31, -0.63, 0.11), (-0.6, -0.8, -0.2), (0.9, None, None), (None, None, None)):
        columns = dict(zip(("pearson", "pearson_low", "pearson_high"), numbers, strict=True))
        rows = [
            row | columns if (row["method"], row["other_dataset"]) == ("all", "mean") else row
            for row in training.correlations
        ]
        sentence = correlated(dataclasses.replace(training, correlations=tuple(rows)), "squad")
        assert sentence.startswith("Over 23 debiased readers, ")
        assert ("no correlation can be computed" in sentence) == (numbers[0] is None)
        assert ("it tests nothing" in sentence) == (numbers[0] is not None)
        assert ("Nearly broken are 6 of them" in sentence) == (numbers[0] is not None)
    assert "−0.31 [−0.63, +0.11] (below 0: " in correlated(training, "squad")
    assert correlated(dataclasses.replace(training, correlations=()), "squad") == ""
