"""The report of a QA-bias run that trained readers: its numbers are those of marts written by hand, or published."""

from __future__ import annotations

import dataclasses
import html
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_advice import advise
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_cells import duration
from biaseval.report.qa_training_data import QaTraining, read_qa_training
from biaseval.report.qa_training_figures import training_figures
from biaseval.report.qa_training_verdict import debiasing
from biaseval.report.qa_training_words import correlated, found, study, training_caveats
from biaseval.store import Run
from biaseval.tables import EVALUATIONS
from tests.pages import Page
from tests.publishedstudy import BIASES, HEURISTICS, METHODS, OUTSIDE, PUBLISHED, PUBLISHED_F1, Study, measured_run
from tests.specs import write_plan, write_spec


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """P3's debiased readers, with a product of experts of which one was given up."""
    study_ = Study()
    for method in ("all", *METHODS[1:]):
        for other in (*OUTSIDE, "mean"):
            study_.correlation(method, other, 23 if method == "all" else 6, -0.31, -0.63, 0.11, -0.25)
    study_.give_up("bert-base+product_of_experts(sim_word)", "<b>not finite</b> at step 340")
    return study_.write(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="module")
def findings(whole: Run) -> QaFindings:
    return read_qa_findings(whole)


@pytest.fixture(scope="module")
def training(whole: Run, findings: QaFindings) -> QaTraining:
    return trained(whole, findings)


@pytest.fixture(scope="module")
def figures(findings: QaFindings, training: QaTraining) -> list[Figure]:
    """Those of the study, of whose training two methods'."""
    courses = {place: rows for place, rows in training.courses.items() if place[1] in ("standard", "bias_model")}
    return training_figures(findings, dataclasses.replace(training, courses=courses))


@pytest.fixture(scope="module")
def source(findings: QaFindings, training: QaTraining, figures: list[Figure]) -> str:
    return render_qa_page(findings, figures, training)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two bases and seeds, against one bias."""
    many = Study(
        ("bert-base", "roberta-base"), METHODS[:2], ("ans_len",), (1, 2), ("triviaqa",), ("ans_len", "cos_sim")
    )
    many.correlation("all", "mean", 4, -0.9, -0.998, 0.5, -0.8)
    return many.write(tmp_path_factory.mktemp("runs") / "seeded", [{"name": "t5", "path": "t5"}])


def trained(run: Run, findings: QaFindings) -> QaTraining:
    read = read_qa_training(run, findings)
    assert read is not None
    return read


def page_of(run: Run) -> str:
    """Return the report without figures."""
    own = read_qa_findings(run)
    return render_qa_page(own, [], read_qa_training(run, own))


def shown(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def shown_change(row: Row, column: str, scale: float = 1) -> str:
    low, high = (shown(scale * row[f"{column}_{end}"]) for end in ("low", "high"))
    return f"{shown(scale * row[column])} [{low}, {high}]"


def shown_significance(row: Row) -> str:
    value = row["bias_significance"]
    return f"{'0' if value == 0 else f'{value:.2f}'} ({row['worse_high']:.2f})"


def lines(source: str, caption: str) -> list[str]:
    """Return the text of a table's rows below its head."""
    [found] = [one for one in re.findall(r"<table.*?</table>", source, re.S) if re.search(caption, one)]
    return [Page(row).text.strip() for row in re.findall(r"<tr>.*?</tr>", found.split("</thead>")[1], re.S)]


def changed(training: QaTraining, model: str, heuristic: str, **columns: Any) -> QaTraining:
    """Return it with other values in a row of ``qa_debiasing``."""
    place = (model, "squad", heuristic)
    row = training.debiasing[place] | columns
    return dataclasses.replace(training, debiasing=training.debiasing | {place: row})


def told(findings: QaFindings, training: QaTraining) -> list[str]:
    return found(findings, training, training.blocks[0], "squad")


def of_method(sentences: Sequence[str], start: str) -> str:
    [sentence] = [sentence for sentence in sentences if sentence.startswith(start)]
    return sentence


def test_a_run_without_trained_readers_has_the_report_that_it_had(tmp_path: Path) -> None:
    run = measured_run(tmp_path / "plain", [{"name": "t5", "path": "t5"}], ["ans_len"], ())
    own = read_qa_findings(run)
    assert read_qa_training(run, own) is None
    assert training_figures(own, None) == []
    source = render_qa_page(own, [], None)
    assert source == render_qa_page(own, [])
    assert [anchor for anchor in ("trained", "debiasing", "training") if f'id="{anchor}"' in source] == []
    assert ".broad" not in source


def test_the_page_is_whole_and_leads_nowhere_outside(source: str) -> None:
    page = Page(source)
    assert page.open_tags == []
    for forbidden in ("http:", "https:", "url(", "@import"):
        assert forbidden not in source
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert {"trained", "debiasing", "debiased-elsewhere", "training"} <= set(ids)
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link
    assert source.count("<caption>") == source.count("<table")
    assert len(re.findall(r"<th\b", source)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', source))


def test_significances_stand_as_published_with_their_change_and_averages(source: str, training: QaTraining) -> None:
    rows = dict(zip(METHODS, lines(source, "<caption>bert-base on squad: bias significance"), strict=True))
    assert rows["standard"] == (
        "standard 8.62 (70.69) 1.04 (77.50) 0 (82.19) 2.63 (75.44) 12.51 (69.01) 2.48 (78.57) 1.01 (79.19) – –"
    )
    for method, name in zip(METHODS[1:4], ("RESAM", "LMIX", "CREG"), strict=True):
        cells = []
        for heuristic in HEURISTICS:
            row = training.debiasing.get((f"bert-base+{method}({heuristic})", "squad", heuristic))
            broken = " †" if method == "learned_mixin" else ""
            cells.append(
                f"{shown_significance(row)} {shown_change(row, 'significance_change')}{broken}" if row else "–"
            )
        values, worse = np.mean(PUBLISHED[method], axis=0)
        standard, standard_worse = np.mean(PUBLISHED["standard"], axis=0)
        average = f"{values:.2f} ({worse:.2f}) {standard:.2f} ({standard_worse:.2f}) 6"
        assert rows[method] == f"{name} {' '.join(cells)} {average}"
    # Protocol 11.3's averages of the quantiles are over six heuristics.
    for method, worse in (("resample", "74.40"), ("learned_mixin", "25.78"), ("confidence_regularization", "76.06")):
        assert f"({worse})" in rows[method]
    assert rows["product_of_experts"].split()[6:9] == ["–", "–", "1.20"]
    assert rows["product_of_experts"].endswith(" 5")


def test_changes_out_of_distribution_are_those_of_the_published_table(source: str, training: QaTraining) -> None:
    rows = lines(source, "<caption>bert-base: F1")
    assert len(rows) == 7 * 5
    assert rows[0].startswith("word-dist squad (in distribution) 87.60 −0.40 [−1.60, +0.80]")
    assert rows[1] == (
        "word-dist adversarialqa 29.80 +0.50 [−0.70, +1.70] −5.00 [−6.20, −3.80] +1.40 [+0.20, +2.60] +0.10 [−1.10, "
        "+1.30]"
    )
    # Means of three independent changes with errors of 1.2 / 1.96 each; P3's averages over its 18 cells.
    half = 1.2 / np.sqrt(3)
    cells = [
        f"{shown(mean)} [{shown(mean - half)}, {shown(mean + half)}]"
        for mean in (float(np.mean(PUBLISHED_F1[method][0])) for method in METHODS[1:])
    ]
    assert rows[4] == f"word-dist mean of 3 47.90 {' '.join(cells)}"
    assert rows[-1] == "mean over biases mean of 3 47.90 −0.46 −12.82 +2.33 −0.30"
    assert rows[8].endswith("–"), "given up"
    bold = re.findall(r"<b>([+−][\d.]+)</b>", source[source.index("<caption>bert-base: F1") :])
    clear = [row for row in training.elsewhere.values() if row["f1_verdict"] in ("lower", "higher")]
    assert len(clear) > 20
    assert bold == [shown(100 * row["f1_change"]) for row in _in_order(training, clear)]


def _in_order(training: QaTraining, rows: Sequence[Row]) -> list[Row]:
    """Return rows of changes of F1 as the table has them: by bias, set, method."""
    sets = ["squad", *OUTSIDE, "mean"]
    methods = {reader["model"]: METHODS.index(reader["method"]) for reader in training.readers if reader["standard"]}
    order = [name for name in HEURISTICS if name in BIASES]

    def key(row: Row) -> tuple[int, int, int]:
        return order.index(row["bias"]), sets.index(row["dataset"]), methods[row["model"]]

    return sorted(rows, key=key)


def test_what_a_reader_does_not_address_is_in_the_table_too(source: str, training: QaTraining) -> None:
    rows = lines(source, "<caption>bert-base on squad: change of bias significance")
    assert len(rows) == 23
    for reader, text in zip([own for own in training.readers if own["standard"] and own["path"]], rows, strict=True):
        cells = []
        for heuristic in HEURISTICS:
            row = training.debiasing[reader["model"], "squad", heuristic]
            is_broken = reader["method"] == "learned_mixin" and heuristic == reader["bias"]
            cells.append(shown_change(row, "significance_change") + (" †" if is_broken else ""))
        assert text.endswith(f"{reader['bias'].replace('_', '-')} {' '.join(cells)}")


def test_every_reader_has_its_gap_and_exact_match(source: str, training: QaTraining) -> None:
    rows = lines(source, "each debiased reader on the bias")
    assert len(rows) == 23
    own = training.debiasing["bert-base+resample(ans_len)", "squad", "ans_len"]
    [text] = [row for row in rows if row.startswith("RESAM ans-len")]
    assert text == (
        f"RESAM ans-len 4 6.87 12.51 {shown_change(own, 'significance_change')} 0.010 lower 69.75 69.01 11.87 17.51 "
        f"{shown_change(own, 'gap_change')} 80.20 80.20 10,570 48"
    )


def test_bias_models_segments_and_costs_are_those_of_their_tables(source: str, training: QaTraining) -> None:
    assert lines(source, "Bias models on validation")[3] == (
        f"bert-base+bias_model(ans_len) squad {_best(training, 'bias_model', 'ans_len'):,} 60.00 20.00 40.00 39.00 "
        "11.00 8,529 2,041"
    )
    assert lines(source, "Segments of the training questions")[0] == (
        "bert-base squad ans-len 4 published ≤ T – – – 70,000 17,000 599 70,000"
    )
    rows = lines(source, "What each reader cost")
    assert len(rows) == 31
    asked = 14 * 30 * len({"squad", *OUTSIDE})
    assert rows[0] == (
        f"bert-base 14,000 10,000 14 88,000 4,200.0 {asked:,}.0 {2 * (4200 + asked) / 3600:.3f} 2 NVIDIA H100"
    )
    [given_up] = [row for row in rows if "given up" in row]
    assert given_up.startswith("bert-base+product_of_experts(sim_word) (given up) ")


def _best(training: QaTraining, method: str, bias: str) -> int:
    [step] = [row["best_step"] for row in training.readers if (row["method"], row["bias"]) == (method, bias)]
    return int(step) + 1


def test_the_study_is_told_with_what_was_given_up_and_how_long_it_took(
    source: str, training: QaTraining, whole: Run
) -> None:
    hours = sum(row["steps"] * 0.3 for row in training.readers) / 3600
    asking = 30 * whole.read_table("evaluations").num_rows / 3600
    assert study(training) == [
        "Base: bert-base; training data: squad; methods: standard, RESAM, LMIX, CREG, PoE; biases that are addressed: "
        "word-dist, sim-word, cos-sim, ans-len, sim-ents, subj-pos; seed: 42.",
        "25 readers, and 6 bias models; 1 given up.",
        f"Their optimizer steps took {hours:.1f} hours and evaluations on the way {asking:.1f} hours on NVIDIA H100, "
        f"{2 * (hours + asking):.2f} accelerator-hours; loading and answers are not in it.",
    ]
    text = Page(source).text
    assert "bert-base+product_of_experts(sim_word): <b>not finite</b> at step 340" in text, "escaped"
    for paper in ("Mikula et al. 2024", "Clark et al. 2019", "Utama et al. 2020", "He et al. 2019, Clark et al. 2019"):
        assert f"({paper})" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (5.04, "5.0 seconds"), (119, "119.0 seconds"), (150, "2.5 minutes"), (9000, "2.5 hours")],
)
def test_times_have_the_unit_that_suits_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


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
        "on squad, the significance of the bias that a reader addresses falls in 3 of 17 (RESAM on ans-len −5.64 "
        "[−7.14, −4.14], PoE on ans-len −4.81 [−6.31, −3.31], 1 more) and rises in none (besides 6 that are nearly "
        "broken). F1 of all 23: on squad shown to change in none; elsewhere (mean of 3 sets) falls in 7 and rises in "
        "6. 25 readers trained, 1 given up.",
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
    assert "; thresholds were searched on the answers of bert-base, which favours “falls”. F1" in line.text
    none = {place: row | {"verdict": row["verdict"] and "unclear"} for place, row in training.debiasing.items()}
    [line] = debiasing(findings, dataclasses.replace(training, debiasing=none))
    assert "addresses is shown to change in none of 17 (besides 6 that are nearly broken)." in line.text
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    [line] = debiasing(own, read)
    assert " falls in 4 of 4 (bert-base RESAM on ans-len (seed 1) −5.64 [" in line.text
    assert line.text.endswith("; on triviaqa shown to change in none. 8 readers trained.")
    assert line.text in Page(page_of(seeded)).text
    one = Study(methods=("standard",), outside=(), heuristics=("ans_len",)).write(tmp_path / "one")
    own = read_qa_findings(one)
    assert debiasing(own, trained(one, own)) == [("Readers", "1 reader trained.")]


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
        "Bias falls, and F1 is shown not to fall by a point, in RESAM on ans-len. Train other seeds before you choose."
    )
    unclear = {place: row | {"verdict": "unclear"} for place, row in training.debiasing.items()}
    assert advice(dataclasses.replace(training, debiasing=unclear)).endswith(
        "No debiased reader is shown to rely less on its bias: prefer none of them for that."
    )


def test_readers_are_counted_by_what_their_tests_show(findings: QaFindings, training: QaTraining) -> None:
    sentences = told(findings, training)
    assert of_method(sentences, "RESAM, ") == (
        "RESAM, 6 readers: significance of the bias that each addresses, against the standard reader’s: lower in 1 "
        "(ans-len −5.64 [−7.14, −4.14]); higher in none; unclear in 5."
    )
    assert of_method(sentences, "CREG, ").endswith("lower in none; higher in none; unclear in 6.")
    assert of_method(sentences, "CREG out of distribution").endswith(
        "(mean F1 of 3 sets, points), 6 readers: lower in none; higher in 6 (word-dist +2.80 [+2.11, +3.49], cos-sim "
        "+2.73 [+2.04, +3.43], ans-len +2.40 [+1.71, +3.09], 3 more)."
    )


@pytest.mark.parametrize("sort", ["lower", "higher", "negligible", "unclear", "too few", None])
def test_a_change_is_what_its_verdict_says_whatever_its_interval(
    findings: QaFindings, training: QaTraining, sort: str | None
) -> None:
    """Its interval excludes 0, and so does that of word-dist, whose test over the page shows nothing."""
    model = "bert-base+resample(ans_len)"
    sentence = of_method(told(findings, changed(training, model, "ans_len", verdict=sort)), "RESAM, ")
    parts = sentence.split("standard reader’s: ")[1].rstrip(".").split("; ")
    assert parts[0] == ("lower in 1 (ans-len −5.64 [−7.14, −4.14])" if sort == "lower" else "lower in none")
    assert parts[1].startswith("higher in 1 (ans-len " if sort == "higher" else "higher in none")
    assert f"unclear in {6 if sort == 'unclear' else 5}" in parts
    words = {"too few": "too few articles", None: "not tested"}
    assert ("negligible in 1" in parts) == (sort == "negligible")
    if sort in words:
        assert f"{words[sort]} in 1 (ans-len −5.64 [−7.14, −4.14])" in parts


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
    assert "higher in 1 (word-dist by RESAM on ans-len +3.00 [+1.00, +5.00])" in of_method(told(findings, grown), start)
    broken = changed(training, "bert-base+learned_mixin(ans_len)", "word_dist", **columns)
    assert of_method(told(findings, broken), start) == before


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


def test_correlations_stand_by_method_and_set(source: str) -> None:
    rows = lines(source, "Pearson’s correlation")
    assert [row.split(" −")[0] for row in rows] == ["all methods", "RESAM", "LMIX", "CREG", "PoE"]
    assert rows[0] == "all methods" + " −0.31 [−0.63, +0.11] −0.25; n = 23" * 4


def test_the_warnings_fit_the_study(findings: QaFindings, training: QaTraining, seeded: Run) -> None:
    text = " ".join(training_caveats(findings, training))
    assert "Each is a single training" in text
    assert "changes on adversarialqa lean high" in text
    assert "Thresholds were searched" not in text
    assert "significance is 0" not in text
    nothing = changed(training, "bert-base+resample(ans_len)", "ans_len", standard_significance=0.0)
    assert "no reader can lower it: bert-base on ans-len." in " ".join(training_caveats(findings, nothing))
    row = {"threshold": 4.0, "searched_on": "bert-base"}
    searched = dataclasses.replace(findings, by_heuristic={("bert-base", "squad", "ans_len"): row})
    assert "searched on the predictions of bert-base" in " ".join(training_caveats(searched, training))
    assert "chance" not in text
    weak = [{**row, "bias_significance": 0.0 if row["bias"] == "ans_len" else 2.0} for row in training.segments]
    judged = " ".join(training_caveats(findings, dataclasses.replace(training, segments=tuple(weak))))
    assert (
        "may be chance, and a method that works against the other one strengthens a bias: ans-len of bert-base on s"
        in (judged)
    )
    assert judged.count(" of bert-base on squad") == 1
    own = read_qa_findings(seeded)
    several = " ".join(training_caveats(own, trained(seeded, own)))
    assert "Compare a method’s seeds" in several
    assert "lean high" not in several


def test_seeds_stand_beside_each_other_and_bases_below(seeded: Run) -> None:
    source = page_of(seeded)
    assert Page(source).open_tags == []
    for base in ("bert-base", "roberta-base"):
        rows = lines(source, f"<caption>{base} on squad: bias significance")
        assert rows[0] == "standard 1 12.51 (69.01) 2.63 (75.44) – –"
        assert rows[1] == "standard 2 12.71 (69.01) 2.83 (75.44) – –"
        assert rows[2] == "RESAM 1 6.87 (69.75) −5.64 [−7.14, −4.14] – 6.87 (69.75) 12.51 (69.01) 1"
        assert rows[3].startswith("RESAM 2 7.07 (69.75) −5.64")
        rows = lines(source, f"<caption>{base}: F1")
        assert rows == [
            "ans-len squad (in distribution) 87.60 87.60 −0.40 [−1.60, +0.80] −0.40 [−1.60, +0.80]",
            "ans-len triviaqa 46.10 46.10 −1.70 [−2.90, −0.50] −1.70 [−2.90, −0.50]",
        ]
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    assert "Bases: bert-base, roberta-base; training data: squad; methods: standard, RESAM" in study(read)[0]
    assert study(read)[0].endswith("seeds: 1, 2.")
    assert study(read)[1] == "8 readers; none given up."
    assert "lower in 2 (ans-len (seed 1) −5.64 [−7.14, −4.14], ans-len (seed 2) −5.64" in told(own, read)[0]


def test_a_study_of_standard_readers_alone_has_no_comparison(tmp_path: Path) -> None:
    plain = Study(methods=("standard",), outside=("triviaqa",), heuristics=("ans_len",))
    plain.readers[0]["device"] = "cpu"
    run = plain.write(tmp_path / "standard", [{"name": "bert-base", "path": "b"}])
    # The spec names no model; the answers are those of the reader.
    train = {"bases": [{"name": "bert-base", "path": "b"}], "data": {"squad": "s"}, "validation": {"dev": "d"}}
    write_spec(run, run.read_yaml("spec.yaml") | {"models": [], "train": train})
    write_plan(run, readers=["bert-base"])
    own = read_qa_findings(run)
    read = trained(run, own)
    drawn, again = training_figures(own, read), training_figures(own, dataclasses.replace(read, courses={}))
    assert [figure.suite for figure in drawn] == [
        "debiasing_0_bert-base-squad", "training_0_bert-base_loss", "training_0_bert-base_f1"
    ]  # fmt: skip
    assert [figure.svg for figure in drawn[:1]] == [figure.svg for figure in again]
    source = render_qa_page(own, drawn, read)
    text = Page(source).text
    assert "1 reader; none given up." in text
    assert "took 70.0 minutes and evaluations on the way 14.0 minutes on cpu; loading" in text
    assert [word for word in ("Findings", "Bias models", "addresses", "RESAM") if word in text] == []
    assert lines(source, "<caption>bert-base: F1") == ["none squad (in distribution) 87.60", "none triviaqa 46.10"]


def test_a_heuristic_that_cannot_be_measured_is_neither_lower_nor_drawn(
    findings: QaFindings, training: QaTraining
) -> None:
    nothing = {
        name: None
        for name in training.debiasing["bert-base", "squad", "ans_len"]
        if name.startswith(("significance", "bias_significance", "worse", "gap", "is_nearly", "p", "verdict"))
    }
    model = "bert-base+resample(ans_len)"
    unmeasured = changed(training, model, "ans_len", status="groups too small", **nothing)
    assert of_method(told(findings, unmeasured), "RESAM, ").endswith("; not measured in 1 (ans-len –).")
    source = render_qa_page(findings, [], unmeasured)
    assert (
        " 1.99 (73.57) −0.64 [−2.14, +0.86] too small 1.62 "
        in lines(source, "squad: bias significance in EM points of")[1]
    )


def test_figure_4_has_standard_debiased_and_peoples_answers(
    findings: QaFindings, figures: list[Figure], source: str
) -> None:
    [figure] = [one for one in figures if one.suite == "debiasing_0_bert-base-squad"]
    assert (
        "ans-len: standard 12.51 (69.01), RESAM 6.87 (69.75), LMIX 6.36 (18.52), CREG 11.18 (70.89), PoE 7.70 (65.40), "
        "people 13.55 (69.76); "
    ) in figure.text
    assert "ans-pos: standard 0.00 (82.19), people 0.00 (84.00); " in figure.text
    assert (
        "sim-word: standard 1.04 (77.50), RESAM 0.23 (76.94), LMIX 0.68 (20.88), CREG 1.86 (78.76), people"
        in figure.text
    )
    assert html.escape(figure.text) in source
    assert source.count("data:image/svg") == len(figures)
    assert len({one.name for one in figures}) == len(figures)


def test_models_that_were_given_have_a_figure_of_their_own_and_seeds_a_point_each(seeded: Run) -> None:
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    no_courses = dataclasses.replace(read, courses={}, correlations=(), elsewhere={})
    texts = {one.suite: one.text for one in training_figures(own, no_courses) if one.metric == "exact_match"}
    assert list(texts) == [
        "debiasing_0_bert-base-squad", "debiasing_1_roberta-base-squad", "debiasing_given_squad"
    ]  # fmt: skip
    assert (
        "ans-len: standard 12.51 (69.01) and 12.71 (69.01), RESAM 6.87 (69.75) and 7.07"
        in texts["debiasing_0_bert-base-squad"]
    )
    assert "ans-len: t5 13.55 (69.76); cos-sim: t5 0.55 (79.88)." in texts["debiasing_given_squad"]


def test_courses_are_the_mean_of_the_readers_that_were_asked(
    whole: Run, training: QaTraining, figures: list[Figure]
) -> None:
    evaluations = whole.read_table("evaluations").to_pylist()
    models = {row["model"] for row in training.readers if row["method"] == "product_of_experts" and row["path"]}
    assert len(models) == 5
    for row in training.courses[0, "product_of_experts"]:
        own = [
            one
            for one in evaluations
            if (one["step"], one["dataset"]) == (row["step"], row["dataset"]) and one["model"] in models
        ]
        assert row["n_readers"] == len(own)
        for metric in ("loss", "f1"):
            values = [one[metric] for one in own]
            expected = [np.mean(values), min(values), max(values)]
            assert [row[metric], row[f"{metric}_low"], row[f"{metric}_high"]] == pytest.approx(expected)
    steps = [row["best_step"] + 1 for row in training.readers if row["method"] == "bias_model"]
    first, *_, last = training.courses[0, "bias_model"]
    for metric in ("loss", "f1"):
        panels = [one for one in figures if one.suite == f"training_0_bert-base_{metric}"]
        assert [one.name.removeprefix(f"training_0_bert-base_{metric}_") for one in panels] == [
            "standard",
            "bias_model",
        ]
        assert panels[1].text.endswith(f"kept at step {', '.join(map(str, steps))}.")
    assert f"squad (biased) {first['loss']:.2f} at step 1000" in bias_models_panel(figures, "loss").text
    assert f"{100 * last['f1']:.2f} at step {last['step'] + 1}; kept" in bias_models_panel(figures, "f1").text


def bias_models_panel(figures: Sequence[Figure], metric: str) -> Figure:
    [figure] = [one for one in figures if one.name == f"training_0_bert-base_{metric}_bias_model"]
    return figure


def test_a_training_that_diverged_is_not_in_the_curves(whole: Run, tmp_path: Path) -> None:
    shutil.copytree(whole.root, tmp_path / "copy")
    copy = Run.open(str(tmp_path / "copy"))
    rows = copy.read_table("evaluations").to_pylist()
    for row in rows:
        if row["model"] == "bert-base+resample(ans_len)":
            row["loss"] = math.inf
    copy.write_part("evaluations", 0, EVALUATIONS.rows(rows))
    courses = trained(copy, read_qa_findings(copy)).courses[0, "resample"]
    assert max(row["n_readers"] for row in courses) == 5
    assert all(math.isfinite(row["loss"]) for row in courses)
