"""The page of a run that trained readers: whole, with several seeds, with standard readers alone, and without any."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from biaseval.report.qa import render_qa_page
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_cells import duration
from biaseval.report.qa_training_data import QaTraining, read_qa_training
from biaseval.report.qa_training_figures import training_figures
from biaseval.report.qa_training_words import study, training_caveats
from biaseval.store import Run
from tests.pages import Page
from tests.publishedstudy import Study, measured_run
from tests.qa_training_report.reading import changed, lines, page_of, told, trained
from tests.specs import write_plan, write_spec


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


def test_the_study_is_told_with_what_was_given_up_and_how_long_it_took(
    source: str, training: QaTraining, whole: Run
) -> None:
    hours = sum(row["steps"] * 0.3 for row in training.readers) / 3600
    asking = 30 * whole.read_table("evaluations").num_rows / 3600
    assert study(training) == [
        "Base: bert-base; training data: squad; methods: standard, RESAM, LMIX, CREG, PoE; biases that are addressed: "
        "word_dist, sim_word, cos_sim, ans_len, sim_ents, subj_pos; seed: 42.",
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


def test_the_warnings_fit_the_study(findings: QaFindings, training: QaTraining, seeded: Run) -> None:
    text = " ".join(training_caveats(findings, training))
    assert "Each is a single training" in text
    assert "changes on adversarialqa lean high" in text
    assert "Thresholds were searched" not in text
    assert "significance is 0" not in text
    nothing = changed(training, "bert-base+resample(ans_len)", "ans_len", standard_significance=0.0)
    assert "no reader can lower it: bert-base on ans_len." in " ".join(training_caveats(findings, nothing))
    row = {"threshold": 4.0, "searched_on": "bert-base"}
    searched = dataclasses.replace(findings, by_heuristic={("bert-base", "squad", "ans_len"): row})
    assert "searched on the predictions of bert-base" in " ".join(training_caveats(searched, training))
    assert "chance" not in text
    weak = [{**row, "bias_significance": 0.0 if row["bias"] == "ans_len" else 2.0} for row in training.segments]
    judged = " ".join(training_caveats(findings, dataclasses.replace(training, segments=tuple(weak))))
    assert (
        "may be chance, and a method that works against the other one strengthens a bias: ans_len of bert-base on s"
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
            "ans_len squad (in distribution) 87.60 87.60 −0.40 [−1.60, +0.80] −0.40 [−1.60, +0.80]",
            "ans_len triviaqa 46.10 46.10 −1.70 [−2.90, −0.50] −1.70 [−2.90, −0.50]",
        ]
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    assert "Bases: bert-base, roberta-base; training data: squad; methods: standard, RESAM" in study(read)[0]
    assert study(read)[0].endswith("seeds: 1, 2.")
    assert study(read)[1] == "8 readers; none given up."
    assert "lower in 2 (ans_len (seed 1) −5.64 [−7.14, −4.14], ans_len (seed 2) −5.64" in told(own, read)[0]


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
