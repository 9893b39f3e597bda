"""The page of a run that trained readers, and what is said of them: numbers of marts written by hand, or published."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from biaseval.analysis import query
from biaseval.analysis.summary_marts import HEADLINES
from biaseval.report import Page as ReportPage
from biaseval.report import run_page
from biaseval.report.qa_training import training_charts
from biaseval.store import Run
from tests.pages import Page, assert_said, assert_whole, printed_queries
from tests.publishedstudy import BIASES, METHODS, OUTSIDE, PUBLISHED, PUBLISHED_F1, Study, measured_run
from tests.relation import Relations, sentences

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """P3's debiased readers, with a product of experts of which one was given up."""
    study = Study()
    for method in ("all", *METHODS[1:]):
        for other in (*OUTSIDE, "mean"):
            study.correlation(method, other, 23 if method == "all" else 6, -0.31, -0.63, 0.11, -0.25)
    study.give_up("bert-base+product_of_experts(sim_word)", "<b>not finite</b> at step 340")
    return study.write(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="session")
def page(whole: Run) -> ReportPage:
    return run_page(whole)


@pytest.fixture(scope="session")
def source(page: ReportPage) -> str:
    return page.html


@pytest.fixture(scope="module")
def relations(whole: Run) -> Iterator[Relations]:
    """Those of the study: marts as it wrote them, as tables that statements can change."""
    found = Relations(whole.root).changeable()
    names = [path.stem for path in Path(whole.root, "marts").glob("*.parquet")]
    found.rows("from qa_bias_conclusions, qa_bias_cautions limit 0")
    for name in names:
        found.connection.execute(
            f"create or replace table {name} as from read_parquet('{whole.root}/marts/{name}.parquet')"
        ).fetchall()
    found.connection.execute(
        "create or replace table qa_out_of_distribution_by_model as " + _sql("qa_out_of_distribution_by_model")
    ).fetchall()
    yield found
    found.connection.close()


def _sql(name: str) -> str:
    from tests.handmade import sql_of

    return sql_of(name)


def test_the_page_is_whole_and_its_queries_are_over_its_marts(source: str, whole: Run) -> None:
    assert_whole(source)
    assert {"trained", "debiasing", "debiased-elsewhere", "training"} <= set(Page(source).values("id"))
    statements = printed_queries(source)
    assert any("f1_change" in statement for statement in statements)
    assert [one for one in statements if not query([whole.uri], one).num_rows] == []
    assert "<b>not finite</b> at step 340" in Page(source).text, "escaped"


def test_a_run_without_trained_readers_has_no_section_on_them(tmp_path: Path) -> None:
    run = measured_run(tmp_path / "plain", [{"name": "t5", "path": "t5"}], ["ans_len"], ())
    page = run_page(run)
    assert_said(page.html, ['!id="(trained|debiasing|training)"'])
    assert not [figure for figure in page.figures if figure.name.startswith(("debiasing", "training"))]


def shown(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")


def test_significances_stand_as_published_with_their_change_and_averages(source: str, whole: Run) -> None:
    text = Page(source).text
    rows = query([whole.uri], "from qa_debiasing where is_addressed").to_pylist()
    assert len(rows) == 23
    for row in rows:
        significance, worse = PUBLISHED[row["method"]][BIASES.index(row["heuristic"])]
        assert (row["bias_significance"], row["worse_high"]) == (significance, worse)
        change, low, high = (shown(row[f"significance_change{end}"]) for end in ("", "_low", "_high"))
        word = (
            "nearly broken"
            if row["is_nearly_broken"]
            else {"unclear": "no clear change"}.get(row["verdict"], row["verdict"])
        )
        assert f" {shown(significance)} {shown(row['standard_significance'])} {change} [{low}, {high}] {word} " in text
    # Protocol 11.3's averages are over six heuristics.
    means = {row["method"]: row for row in query([whole.uri], "from qa_debiasing_by_method").to_pylist()}
    for method in METHODS[1:4]:
        value, worse = np.mean(PUBLISHED[method], axis=0)
        found = [means[method][name] for name in ("bias_significance", "worse_high", "n_heuristics")]
        assert found == [pytest.approx(value), pytest.approx(worse), 6]


def test_changes_out_of_distribution_are_those_of_the_published_table(source: str, whole: Run) -> None:
    # Means of three independent changes with errors of 1.2 / 1.96 each; P3's averages over its 18 cells.
    half = 1.2 / np.sqrt(3)
    [sql] = [one for one in printed_queries(source) if "mean of {}" in one and "f1_change" in one]
    rows = query([whole.uri], sql).to_pylist()
    for method in ("RESAM", "LMIX", "CREG"):
        [own] = [
            row for row in rows if (row["method"], row["bias"], row["dataset"]) == (method, "word_dist", "mean of 3")
        ]
        name = {"RESAM": "resample", "LMIX": "learned_mixin", "CREG": "confidence_regularization"}[method]
        mean = float(np.mean(PUBLISHED_F1[name][0]))
        found = [own[f"f1_change{end}"] for end in ("", "_low", "_high")]
        assert found == pytest.approx([mean, mean - half, mean + half])


def test_table_1_has_the_cells_of_the_paper(whole: Run) -> None:
    rows = {row["bias"]: row for row in query([whole.uri], HEADLINES["qa_bias"].tables["table_1"]).to_pylist()}
    assert list(rows) == [*(name for name in whole.read_yaml("spec.yaml")["heuristics"] if name in BIASES), "average"]
    order = sorted(range(3), key=OUTSIDE.__getitem__)
    for name, published in PUBLISHED_F1.items():
        for bias, changes in zip(BIASES, published, strict=True):
            if (name, bias) == ("product_of_experts", "sim_word"):
                assert rows[bias][name] is None  # it was given up
            else:
                assert rows[bias][name] == " / ".join(f"{changes[place]:+.1f}" for place in order)
    assert rows["average"]["learned_mixin"] == "-12.82"
    assert rows["average"]["confidence_regularization"] == "+2.33"
    assert {(row["datasets"], row["standard"]) for row in rows.values()} == {
        (" / ".join(OUTSIDE[place] for place in order), "29.8 / 67.8 / 46.1")
    }


# Figures


def test_figures_have_a_dot_for_each_reader_and_courses_are_means(whole: Run, page: ReportPage) -> None:
    figures = {figure.name: figure for figure in page.figures}
    dots = json.loads(figures["debiasing_0_bert-base-squad"].json)["data"]["values"]
    assert [dot["series"] for dot in dots if dot["y"] == "ans_len"] == [
        "standard", "RESAM", "LMIX", "CREG", "PoE", "people",
    ]  # fmt: skip
    assert {dot["series"] for dot in dots if not dot["is_filled"]} == {"LMIX"}
    shifts = json.loads(figures["debiasing_elsewhere_squad"].json)["data"]["values"]
    assert (len(shifts), {dot["series"] for dot in shifts if not dot["is_filled"]}) == (23, {"LMIX"})
    evaluations = whole.read_table("evaluations").to_pylist()
    readers = whole.read_table("trained_models").to_pylist()
    models = {row["model"] for row in readers if row["method"] == "product_of_experts" and row["path"]}
    sql = "from qa_training_curves where method = 'product_of_experts'"
    for row in query([whole.uri], sql).to_pylist():
        asked = [one for one in evaluations if (one["step"], one["dataset"]) == (row["step"], row["dataset"])]
        own = [one for one in asked if one["model"] in models]
        assert row["n_readers"] == len(own)
        for metric in ("loss", "f1", "exact_match"):
            values = [one[metric] for one in own]
            found = [row[f"{metric}{end}"] for end in ("", "_low", "_high")]
            assert found == pytest.approx([np.mean(values), min(values), max(values)])
    panels = json.loads(figures["training_0_bert-base_by_shortcut_resample_f1"].json)["concat"]
    assert [panel["title"] for panel in panels] == list(BIASES)
    for panel, bias in zip(panels, BIASES, strict=True):
        for point in panel["data"]["values"]:
            method, dataset = point["series"].split(", ")
            [model] = [
                row["model"]
                for row in readers
                if (row["method"], row["bias"]) == (("standard", None) if method == "standard" else ("resample", bias))
            ]
            [asked] = [
                one
                for one in evaluations
                if (one["model"], one["dataset"], one["step"] + 1) == (model, dataset, point["x"])
            ]
            assert point["y"] == pytest.approx(100 * asked["f1"])
    loss = figures["training_0_bert-base_loss_bias_model"]
    assert "squad (biased) " in loss.text
    assert "weights kept at step 10,000, " in loss.json


def test_a_method_with_one_reader_has_its_groups_at_every_shortcut(relations: Relations) -> None:
    measured = (
        "insert into qa_bias_by_heuristic by name select model, dataset, heuristic, 40 as lower_exact_match, 50 as "
        "higher_exact_match from qa_debiasing"
    )
    others = "delete from {} where method = 'product_of_experts' and bias <> 'ans_len'"
    for changes, places in (
        ((), set(BIASES) - {"sim_word"}), (("qa_debiasing",), {"ans_len"}), (("trained_models",), {*BIASES, "ans_pos"})
    ):  # fmt: skip
        with relations.changed(measured, *map(others.format, changes)):
            [groups] = [one for one in training_charts(relations.rows) if one.name.startswith("debiasing_groups_")]
        assert {dot["y"] for dot in groups.spec["data"]["values"] if dot["series"] == "PoE"} == places


# Sentences

RESAM = "bert-base+resample(ans_len)"
CREG = "bert-base+confidence_regularization(ans_len)"
CHANGE = "update qa_debiasing set {} where model = '{}' and heuristic = 'ans_len'"
F1 = "update qa_out_of_distribution{} set f1_verdict = '{}' where model = '{}'"

test_what_is_said_of_readers_is_what_their_tests_show = sentences("qa_bias_conclusions", {
    "as published": ([], [r"at a price: RESAM on ans_len \(bias significance \d.* → \d.* and gap .* points\)\. F1 fa",
        r"at an unclear price: PoE on ans_len \(.* and PoE on word_dist .*\. A loss of F1 cannot be excluded",
        r"No change of bias shown: .* more \(14 of 23 debiased readers\)",
        r"Nearly broken: 6 of 23 .*LMIX on ans_len \(18\.5 against 69\.0 %\).* 3 more.* a low bias is no success",
        r"not shown to change \(23 readers tested\); out of distribution \(3 sets\), F1 falls in .* 4 more and ri",
        r"25 readers trained for [\d,]+ to [\d,]+ steps; 1 failed", "same holds for all changes", "!Reduces bias:",
        "!Bias rises", "!Not tested"]),
    "a debiased reader is the most accurate": ([f"update qa_by_dataset set exact_match = 0.99, model = '{RESAM}'",
        f"update qa_models set is_people = false, model = '{RESAM}' where model = 'people'"],
        [r"Ready to deploy. .*esample.ans_len. \(debiased by RESAM on ans_len\).*: it is right on 99.0 %"]),
    "a loss of F1 is excluded": ([F1.format("", "negligible", RESAM), F1.format("_by_model", "higher", RESAM),
        "insert into qa_bias_tests by name select model, dataset, heuristic, true as is_supported from qa_debiasing"],
        [r"Reduces bias: RESAM on ans_len .* points; bias remains\). Tests rule out that F1 falls by", "!at a price"]),
    "F1 falls in distribution alone": ([F1.format("", "lower", RESAM), F1.format("_by_model", "higher", RESAM)],
        ["at a price: RESAM on ans_len"]),
    "F1 is not clear elsewhere": ([F1.format("", "higher", RESAM), F1.format("_by_model", "unclear", RESAM)],
        ["unclear price: RESAM on ans_len", "!at a price"]),
    # A change is what its verdict says, whatever its interval, which excludes 0.
    "a bias that rises": ([CHANGE.format("verdict = 'higher'", CREG)], ["Bias rises: CREG on ans_len "]),
    "a change that is negligible": ([CHANGE.format("verdict = 'negligible'", RESAM)], [r"15 of 23 debiased readers\)",
        "!at a price"]),
    "a change that was not tested": ([CHANGE.format("verdict = null, reason = 'threshold by chance'", RESAM)],
        [r"Not tested: 1 of 23 debiased readers \(threshold by chance\)", "!at a price"]),
    "too few articles": ([CHANGE.format("verdict = 'too few'", RESAM)],
        [r"Not tested: 1 of 23 .*\(too few articles\)", "!at a price"]),
    "a single reader that is broken": ([CHANGE.format("is_nearly_broken = true", RESAM)], ["Nearly broken: 7 of 23",
        "!at a price"]),
    "several seeds and bases": (["update trained_models set seed = 1, base = 'other' where method = 'standard'"],
        [r"at a price: bert-base@squad RESAM on ans_len \(seed 42\) "]),
    "standard readers alone": (["delete from qa_debiasing where method <> 'standard'", "update trained_models set "
        "steps = 9"], ["25 readers trained; 1 f", "!debias", "!Reduces bias:", "!at a price"]),
})  # fmt: skip


test_the_cautions_fit_the_study = sentences("qa_bias_cautions", {
    "as published": ([], ["Each reader is a single training", "changes on adversarialqa lean high",
        "Trainings failed.*not finite", "different numbers of steps .*resample.word_dist. 16,000 .bert-base 14,000.",
        "!favours", "!no method can", "!chance"]),
    "several seeds": (["update trained_models set seed = 1 where method = 'resample'"],
        ["Compare the seeds of a method"]),
    "a threshold of a standard reader": ([CHANGE.format("searched_on = 'bert-base'", RESAM)],
        [r"searched on the answers of standard readers \(bert-base\)\. That favours the debiased"]),
    "a standard reader without the bias": ([CHANGE.format("standard_significance = 0", RESAM)],
        ["no bias, no method can lower it: bert-base on ans_len"]),
    "no bias on validation": (["update qa_segments set bias_significance = 0 where bias = 'ans_len'"],
        ["biased may be chance: ans_len of bert-base on squad. A method .* strengthens a bias"]),
    "readers that nothing was tuned for":
        (["delete from trained_models where method in ('learned_mixin', 'confidence_regularization')"],
        ["!lean high"]),
})  # fmt: skip
