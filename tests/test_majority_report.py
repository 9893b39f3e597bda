"""Reports of majority-bias runs: one run's page, one page over several, and the triangle of three labels."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import same_color, to_hex
from matplotlib.figure import Figure as Canvas
from typer.testing import CliRunner

from biaseval.analysis import query
from biaseval.cli import app, main
from biaseval.errors import InputError
from biaseval.pipelines import write_report
from biaseval.report import write_comparison
from biaseval.report.comparison import caveats, read_comparison, size
from biaseval.report.findings import Row
from biaseval.report.majority import f1_figures, render_majority_page
from biaseval.report.majority_findings import read_majority_findings
from biaseval.report.proportions import instruction_figures
from biaseval.report.ternary import plot_ternary, ternary_place
from biaseval.store import Run
from biaseval.tables import ADAPTED_GENERATIONS, ADAPTED_SCORES, TRAINING, TRAINING_ROWS, output_tables
from tests.measuring import measure
from tests.specs import write_plan
from tests.test_analysis import two_tasks
from tests.test_majority_comparisons import LARGE
from tests.test_majority_sql import ANSWERS, F1, MajorityPlan
from tests.test_report import Page

HOSTILE = "<img src=//evil onerror=alert(1)>"


def make_run(
    folder: Path,
    n_parameters: int | None,
    answers: Mapping[tuple[str, bool], tuple[str, str]] = ANSWERS,
    data: str = "boolq",
    calibration: tuple[str, ...] = (),
    digest: str | None = None,
    predict: tuple[str, ...] = ("likelihood",),
    n_repeats: int = 50,
    adapted: Mapping[tuple[str, bool], tuple[str, str]] | None = None,
    **spec: Any,
) -> str:
    """Return a finished run of the model ``models/{n_parameters}``; the questions of other data are others.

    With ``adapted``, what the model answers with adapters.
    """
    plan = MajorityPlan(predict, calibration, answers, n_repeats=n_repeats)
    plan.n_parameters = n_parameters
    plan.spec |= {"name": folder.name, "model": {"path": f"models/llm-{n_parameters}", "dtype": "float32"}, **spec}
    if data != "boolq":
        plan.spec["prompt"] = {"item": "Text: {sentence}\nStance: {label}", "n_demos": 2}
        plan.spec["data"] = {"train": f"data/{data}/train.jsonl", "test": f"data/{data}/test.jsonl"}
        for row in plan.prompts:
            row["input_text"] = f"{data} {row['input_text']}"
    if adapted is not None:
        plan.spec["lora"] = {"preset": "reif2024"}
        for rows, n_tokens in ((plan.contexts, 10), (plan.prompts, 15)):
            for row in rows:
                row["n_tokens"] = n_tokens
    run = plan.write(folder)
    if adapted is not None:
        _write_adapted(Run.open(run), plan, MajorityPlan(predict, calibration, adapted, n_repeats=n_repeats))
    if digest is not None:
        environment = {"model": {"digest": digest}, "model_facts": {"n_parameters": n_parameters}}
        Run.open(run).write_text("environment.json", json.dumps(environment))
    measure(run)
    return run


def _write_adapted(run: Run, plan: MajorityPlan, with_adapters: MajorityPlan) -> None:
    """Write what the model gives with adapters, and their training: two steps over four rows of 20 tokens each."""
    if "label_scores" in output_tables(plan.spec["predict"]):
        run.write_part("adapted_scores", 0, ADAPTED_SCORES.rows(with_adapters.label_scores))
    if set(plan.spec["predict"]) != {"likelihood"}:
        run.write_part("adapted_generations", 0, ADAPTED_GENERATIONS.rows(with_adapters.generations))
    adapters = [
        {"adapter": context["context_id"], **{name: context[name] for name in ("n_demos", "setting", "instruction")}}
        for context in plan.contexts
        if context["context_id"].count("/") == 3
    ]
    examples = [
        {**adapter, "row": row, "instance_id": f"example{row}", "n_tokens": 20}
        for adapter in adapters
        for row in range(4)
    ]
    steps = [
        {**adapter, "step": step, "epoch": 0, "loss": loss, "seconds": 0.5}
        for adapter in adapters
        for step, loss in enumerate((2.0, 1.0))
    ]
    run.write_part("training_rows", 0, TRAINING_ROWS.rows(examples))
    run.write_part("training", 0, TRAINING.rows(steps))
    write_plan(run)
    environment = {"model_facts": {"n_parameters": plan.n_parameters}, "trained_parameters": 512}
    run.write_text("environment.json", json.dumps(environment))


@pytest.fixture(scope="module")
def adapted_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run whose model is like a larger one with adapters, of another size than those of ``runs``."""
    run = make_run(
        tmp_path_factory.mktemp("runs") / "adapted",
        30_000_000_000,
        calibration=("looc",),
        predict=("likelihood", "generate"),
        adapted=LARGE,
    )
    write_report(run)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return two models on two data sets, the larger named first, and always True on BoolQ's 100/0."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "boolq-large", 13_000_000_000, LARGE, calibration=("looc",)),
        make_run(folder / "boolq-small", 7_000_000_000, calibration=("looc",)),
        make_run(folder / "stance-small", 7_000_000_000, data="stance"),
        make_run(folder / "stance-large", 13_000_000_000, LARGE, data="stance"),
    ]


@pytest.fixture(scope="module")
def page(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "all.html"
    assert write_comparison(runs, str(out)) == str(out)
    return out.read_text()


def tables(source: str) -> dict[str, list[list[str]]]:
    """Return the cells of each table by its caption; a table that comes again is left out."""
    found: dict[str, list[list[str]]] = {}
    for table in re.findall(r"<table.*?</table>", source, re.S):
        caption = re.sub(r"\s+", " ", re.search(r"<caption>(.*?)</caption>", table, re.S)[1])  # type: ignore[index]
        rows = [
            [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.S)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)
        ]
        found.setdefault(caption, rows)
    return found


def table(source: str, word: str) -> list[list[str]]:
    [rows] = [rows for caption, rows in tables(source).items() if word in caption]
    return rows


# One run


def test_the_page_of_a_run_answers_whether_calibration_widens_the_boundary(runs: list[str]) -> None:
    write_report(runs[1])
    source = Run.open(runs[1]).read_text("report.html")
    shown = table(source, "Each calibration of the label likelihoods against none")
    gains = {
        (row["method"].upper(), "with" if row["instruction"] else "without"): row
        for row in query([runs[1]], "from majority_calibration_gain").to_pylist()
    }
    tested = {
        (row["method"].upper(), "with" if row["instruction"] else "without"): row
        for row in query([runs[1]], "from majority_verdicts where metric = 'mean_f1'").to_pylist()
    }
    assert len(shown) - 2 == len(gains) == 2
    for method, instruction, before, after, rb, _, _, mean, *_ in shown[2:]:
        gain, test = gains[method, instruction], tested[method, instruction]
        assert "[" not in rb  # the test of RB@10 is of its mean over seeds
        assert rb.split()[0].replace("−", "-") == f"{gain['rb_at_10'] + 0.0:+.3f}"
        assert float(after) - float(before) == pytest.approx(gain["rb_at_10"], abs=2e-3)
        assert f"[{test['low'] + 0.0:+.3f}, {test['high'] + 0.0:+.3f}]" in mean.replace("−", "-")
    text = Page(source).text
    # By leave-one-out FFFF of 0/100, seed 3, becomes TTTT, which moves the mean and leaves one setting inside.
    assert [line[1] for line in shown[2:]] == ["without", "with"]
    assert [line[4].split(" ", 1)[1] for line in shown[2:]] == ["too few seeds to say"] * 2
    assert [line[7].split("]")[1].strip() for line in shown[2:]] == ["no clear change", "negligible"]
    changed = "mean weighted F1 no clear change in 1 of 2, negligible in 1 of 2"
    assert f"What calibration changes: {changed}; " in text
    assert "; RB@10 too few seeds to say. The instruction: weighted F1 with minus without it: at the tails" in text
    assert "There are 2 seeds: RB@10 depends on which demonstrations were drawn" in text


@pytest.mark.parametrize(
    ("verdict", "reason", "word"),
    [
        ("higher", None, "higher"),
        ("lower", None, "lower"),
        ("negligible", None, "negligible"),
        ("unclear", None, "no clear change"),
        ("unclear", "constant answer", "not judged beside a constant answer"),
        ("too few", "too few seeds", "too few seeds to say"),
        (None, None, "not judged"),
    ],
)
def test_the_page_says_of_the_boundary_what_its_test_says(
    verdict: str | None, reason: str | None, word: str, runs: list[str]
) -> None:
    findings = read_majority_findings(Run.open(runs[1]))
    of_boundary = {"metric": "rb_at_10", "verdict": verdict, "reason": reason}
    verdicts = [row | of_boundary if row["metric"] == "rb_at_10" else row for row in findings.verdicts]
    source = render_majority_page(replace(findings, verdicts=verdicts), [])
    _, *lines = table(source, "Means over 3 settings")
    assert [line[5] for line in lines] == ["0.333", "0.333", f"0.333 {word}", f"0.333 {word}"]
    told = re.search(r"What calibration changes: .*; RB@10 (.*?)\. The instruction", Page(source).text)
    assert told is not None
    named = f"{word} with LOOC without instruction (+0.000) and LOOC with instruction (+0.000)"
    assert told[1] == (named if word in ("higher", "lower") else word)


@pytest.mark.parametrize(
    ("words", "is_supported"),
    [
        ({"mean_f1": "higher", "sd_f1": "unclear", "rb_at_10": "too few"}, True),
        ({"mean_f1": "higher", "sd_f1": "lower", "rb_at_10": "higher"}, True),
        ({"mean_f1": "higher", "sd_f1": "unclear", "rb_at_10": "lower"}, False),
        ({"mean_f1": "higher", "sd_f1": "higher", "rb_at_10": "unclear"}, False),
        ({"mean_f1": "unclear", "sd_f1": "lower", "rb_at_10": "higher"}, False),
    ],
)
def test_a_remedy_is_advised_where_a_test_supports_a_gain_and_none_a_loss(
    words: Mapping[str, str], is_supported: bool, runs: list[str]
) -> None:
    findings = read_majority_findings(Run.open(runs[1]))
    verdicts = [
        {**row, "verdict": words[row["metric"]], "reason": None}
        if row["instruction"] and row["metric"] in words
        else row
        for row in findings.verdicts
    ]
    text = Page(render_majority_page(replace(findings, verdicts=verdicts), [])).text
    assert ("gain of sd is seen, with LOOC with instruction. For words on RB@10, draw 6 seeds" in text) is is_supported
    assert ("no remedy is shown to raise mean weighted F1" in text) is not is_supported


def test_the_first_screen_has_the_verdict_and_one_figure_with_the_constant_answer(runs: list[str]) -> None:
    write_report(runs[1])
    source = Run.open(runs[1]).read_text("report.html")
    first = source[source.index("<main>") : source.index('id="boundary"')]
    assert first.index('id="verdict"') < first.index("<li>") < first.index("<img") < first.index("<table")
    assert first.count("<img") == 1
    leads = re.findall(r"<strong>(.*?):</strong>", first)
    assert leads == [
        "Proportions, label likelihood",
        "Robustness boundary, label likelihood",
        "What calibration changes",
        "How sure",
        "What to do",
    ]
    assert "; the best constant answer 0.643." in Page(first).values("alt")[0]
    measured = "llm-7000000000 on boolq · 200 test rows · 3 settings of 2 demonstrations · 2 seeds · label likelihood"
    assert f"{measured} · no calibration and LOOC · without and with instruction" in Page(first).text
    [effect, _, *_] = query([runs[1]], "from majority_by_model where method = 'none' order by instruction").to_pylist()
    assert f"Predictions follow them (without and with instruction) by {effect['majority_effect']:+.3f} [" in first


def test_each_table_of_numbers_has_the_query_that_shows_it(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    queries = {html.unescape(code) for code in re.findall(r'class="query">.*?<code>(.*?)</code>', source)}
    assert len(queries) > 10
    for one in queries:
        assert query([adapted_run], one).num_rows > 0, one


def test_long_lists_of_ways_are_folded_behind_whole_ways(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    first, rest, *_ = source.split('<table class="dense remedies">')[1:]
    places = [re.findall(r'<th scope="row">(.*?)</th>', part.split("</table>")[0]) for part in (first, rest)]
    assert places[0] == [f"label likelihood{way}" for way in ("", ", LOOC", ", LoRA") for _ in range(2)]
    assert len(places[1]) == 6
    assert first.rindex("<details>") > first.index("</table>")


def test_too_few_test_rows_give_no_verdict_on_the_boundary(tmp_path: Path) -> None:
    few = make_run(tmp_path / "few", 7_000, calibration=("looc",), n_repeats=1)
    write_report(few)
    text = Page(Run.open(few).read_text("report.html")).text
    assert "Robustness boundary, label likelihood: too few rows for RB@10 (the settings' intervals reach 0." in text
    assert "RB@10 too few rows to say." in text
    assert "More test rows would tell more of the boundary." in text
    assert "Too few test rows for RB@10 (every way of predicting)" in text
    more = make_run(tmp_path / "more", 13_000, LARGE, n_repeats=1)
    write_comparison([few, more], str(tmp_path / "page.html"))
    text = Page((tmp_path / "page.html").read_text()).text
    assert "few and more: too few test rows for RB@10" in text
    assert "the widest boundary" not in text
    assert "RB@10 is not judged (too few test rows)" in text
    assert not re.search(r"RB@10 (rises|falls|stays)", text)


def test_a_run_that_always_answers_the_same_is_said_to_have_no_robustness(runs: list[str], tmp_path: Path) -> None:
    always = make_run(tmp_path / "always", 13_000_000_000, dict.fromkeys(ANSWERS, ("TTTT", "TTTT")))
    write_report(always)
    text = Page(Run.open(always).read_text("report.html")).text
    same = "100.0 % of the predictions of label likelihood"
    told = f"Nearly always the same answer: {same} without instruction (mean weighted F1 0.643) and"
    assert f"{told} {same} with instruction (mean weighted F1 0.643); the best constant answer has 0.643." in text
    [lines] = [
        rows for caption, rows in tables(Run.open(always).read_text("report.html")).items() if "as Table 1" in caption
    ]
    assert [line[10:12] for line in lines[1:]] == [["50.0%", "50.0%"]] * 2
    told = " ".join(caveats(read_comparison([runs[1], always])))
    assert "the same answer in always (label likelihood; mean weighted F1 up to 0.643" in told


def test_equal_f1_in_every_setting_is_no_constant_answer(runs: list[str], tmp_path: Path) -> None:
    right = make_run(tmp_path / "right", 13_000_000_000, dict.fromkeys(ANSWERS, ("TTTF", "TTTF")))
    findings = read_majority_findings(Run.open(right))
    assert {(row["rb_at_10"], row["sd_f1"]) for row in findings.by_model} == {(1.0, 0.0)}
    assert "no attention" not in " ".join(caveats(read_comparison([runs[1], right])))
    write_report(right)
    assert "Nearly always the same answer" not in Page(Run.open(right).read_text("report.html")).text


def test_settings_with_the_same_counts_are_named_on_the_page_over_several_runs(runs: list[str]) -> None:
    comparison = read_comparison(runs[:2])
    assert "same counts" not in " ".join(caveats(comparison))
    [dataset] = comparison.datasets
    doubled = [*dataset.settings, {**dataset.settings[0], "setting": "10/90"}]
    told = " ".join(caveats(replace(comparison, datasets=[replace(dataset, settings=doubled)])))
    assert (
        "BoolQ: settings with the same counts of demonstrations count as several and are one: 0/100 and 10/90 (0/2)"
        in told
    )


@pytest.mark.parametrize("predictions", ["----", "FF-T", "T---"])
def test_nothing_is_marked_inside_where_the_boundary_says_nothing(predictions: str, tmp_path: Path) -> None:
    """No right answer at all (FF-T has none for T T T F, as one output more is no label), or mostly no label."""
    answers = dict.fromkeys(ANSWERS, (predictions, predictions))
    run = make_run(tmp_path / "run", 7_000, answers, predict=("generate",))
    findings = read_majority_findings(Run.open(run))
    assert any(row["is_within"] for row in findings.by_setting)
    source = render_majority_page(findings, f1_figures(findings))
    assert '<td class="best">' not in source
    assert "inside the boundary)" not in source
    told = Page(source).text
    assert "settings are within 10 points" not in told
    settings, rows = ternary()
    axes = Canvas().add_subplot()
    points = [{**row, "boundary": None, "is_marked": False} for row in rows if row["instruction"]]
    plot_ternary(axes, title="a", points=points, settings=settings, limits=(0.4, 0.8))
    assert {to_hex(line.get_markeredgecolor()) for line in axes.lines if line.get_marker() == "o"} == {"#ffffff"}


def test_the_most_frequent_outputs_stand_with_the_label_they_were_taken_for(tmp_path: Path) -> None:
    answers = {("0/100", True): ("TTTF", "TTT-"), ("50/50", True): ("TTTF",) * 2, ("100/0", True): ("TTTF",) * 2}
    plan = MajorityPlan(("likelihood", "generate"), answers=answers)
    for row in plan.generations:
        row["text"] = {"True": " true\n", "False": HOSTILE, None: ""}[row["prediction"]]
    run = plan.write(tmp_path)
    measure(run)
    write_report(run)
    source = Run.open(run).read_text("report.html")
    _, *lines = table(source, "most frequent outputs of free generation")
    # 0/100, seed 3, has one more output that is no label.
    assert [line[1:] for line in lines] == [["True", "17", "70.8%"], ["False", "5", "20.8%"], ["no label", "2", "8.3%"]]
    found = Page(source)
    assert all(shown in found.text for shown in ('" true\\n"', f'"{HOSTILE}"', '""'))
    assert "onerror" not in {name for _, name, _ in found.attributes}


def test_ways_instructions_and_regions_have_one_order(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 7_000, predict=("generate", "likelihood"))
    write_report(run)
    source = Run.open(run).read_text("report.html")
    ways = ["label likelihood", "free generation"]
    assert [row[:2] for row in table(source, "as Table 1")[1:]] == [
        [way, instruction] for way in ways for instruction in ("without", "with")
    ]
    head, *gaps = table(source, "What the instruction changes")
    assert [row[:2] for row in gaps] == [[way, region] for way in ways for region in ("tails", "middle")]
    assert head[-3:] == ["Settings", "Seeds", "Rows"]
    assert gaps[0][-3:] == ["2", "2", "1,600"]  # 2 settings and 2 seeds, with and without, of 200 rows
    alt = Page(source).values("alt")[0]
    assert alt.index("without 0.100") < alt.index("; with 0.767")


def test_the_page_of_a_run_has_the_settings_in_the_layout_of_table_2(runs: list[str]) -> None:
    write_report(runs[1])
    source = Run.open(runs[1]).read_text("report.html")
    head, names, *lines = table(source, "layout of Table 2")
    assert head == ["Setting", "label likelihood", "label likelihood, LOOC"]
    assert names == ["without", "with"] * 2
    assert [line[0] for line in lines] == ["0/100", "50/50", "100/0"]
    for line in lines:
        for cell, instruction in zip(line[1:3], (False, True), strict=True):
            expected = sum(F1[answer] for answer in ANSWERS[line[0], instruction]) / 2
            assert cell.startswith(f"{expected:.3f} [")
    # Only the best of 0.767, 1 and 0.821, and of 0.1, 0.883 and 0.643, is inside.
    assert re.findall(r'<td class="best">(\d\.\d+)', source) == ["0.883", "1.000"] * 2


# A run with adapters


def test_the_boundary_stands_with_and_without_lora(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    ways = ["label likelihood", "label likelihood, LOOC", "label likelihood, LoRA", "label likelihood, LoRA + LOOC"]
    ways += ["free generation", "free generation, LoRA"]
    shown = table(source, "as Table 1")[1:]
    assert [row[:2] for row in shown] == [[way, instruction] for way in ways for instruction in ("without", "with")]
    marts = {
        (row["predict"], row["method"], row["instruction"]): row
        for row in query([adapted_run], "from majority_by_model").to_pylist()
    }
    assert float(shown[5][2].split()[0]) == pytest.approx(marts["likelihood", "lora", True]["rb_at_10"], abs=6e-4)
    # With instruction 0/100, 50/50 and 100/0 have 23/30, 1 and (9/14 + 1)/2; 1, 1 and 9/14 with adapters.
    assert [shown[place][2].split()[0] for place in (1, 5)] == ["0.333", "0.667"]
    inside = "1 of 3 settings are within 10 points of the best setting (RB@10 0.333) without and with instruction"
    assert f"Robustness boundary, label likelihood: {inside}." in Page(source).text


def test_the_page_says_whether_lora_widens_the_boundary(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    text = Page(source).text
    assert "What calibration or LoRA changes: mean weighted F1 no clear change in " in text
    head, _, *lines = table(source, "LoRA and both against neither")
    assert head[:3] == ["Prediction", "Method", "Instruction"]
    assert [tuple(line[:3]) for line in lines] == [
        *[
            ("label likelihood", method, instruction)
            for method in ("LOOC", "LoRA", "LoRA + LOOC")
            for instruction in ("without", "with")
        ],
        ("free generation", "LoRA", "without"),
        ("free generation", "LoRA", "with"),
    ]
    assert lines[3][3:5] == ["0.333", "0.667"]
    assert lines[3][5] == "+0.333 too few seeds to say"


def test_costs_of_mitigation_stand_by_way_and_method(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    _, *lines = table(source, "Beyond scoring the rows")
    places = [line[0] for line in lines if len(line) == 7]  # over the methods of each
    place = ""
    ways = ("label likelihood", "free generation")
    assert places == [f"{way}, {given} instruction" for way in ways for given in ("without", "with")]
    cells: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        place = line.pop(0) if len(line) == 7 else place
        cells[place, line[0]] = line[1:]
    # 3 settings and 2 seeds; the run does not say how long scoring took.
    assert cells["label likelihood, with instruction", "LoRA"] == ["0", "480", "6", "512", "6.0"]
    assert cells["free generation, with instruction", "LoRA"] == ["0", "480", "6", "512", "6.0"]
    # Each demonstration is left out of a context of its own, of 10 tokens, and has 5 more and two labels of 2.
    assert cells["label likelihood, with instruction", "LOOC"][:2] == ["12", f"{12 * (10 + 5 + 4)}"]
    assert cells["label likelihood, with instruction", "LoRA + LOOC"][-1] == "–"
    assert [line[:5] for line in table(source, "Loss in nats a target token")[1:]] == [
        ["without", "6", "2", "2.0000", "1.0000"],
        ["with", "6", "2", "2.0000", "1.0000"],
    ]


def test_figures_with_and_without_lora_stand_beside_each_other(adapted_run: str) -> None:
    findings = read_majority_findings(Run.open(adapted_run))
    assert [(figure.name, figure.line) for figure in f1_figures(findings)] == [
        ("f1_likelihood", 0),
        ("f1_likelihood_lora", 0),
        ("f1_likelihood_looc", 1),
        ("f1_likelihood_lora_looc", 1),
        ("f1_generate", 2),
        ("f1_generate_lora", 2),
    ]
    source = Run.open(adapted_run).read_text("report.html")
    assert source.count('<div class="figures">') == 1 + 3 + 1
    assert (Path(adapted_run) / "figures" / "training_loss.svg").exists()
    assert table(source, "Weighted F1, means over seeds")[0][1:] == [
        "label likelihood",
        "label likelihood, LOOC",
        "free generation",
    ]
    assert table(source, "Weighted F1 with LoRA")[0][1:] == [
        "label likelihood, LoRA",
        "label likelihood, LoRA + LOOC",
        "free generation, LoRA",
    ]


def test_triangles_with_and_without_lora_stand_beside_each_other_in_the_same_colours(adapted_run: str) -> None:
    settings, rows = ternary()
    ways: list[Row] = [{"predict": "likelihood", "method": method} for method in ("none", "lora")]
    # With LoRA each setting is better by 0.15, so that the scale of both goes beyond that of either.
    plain, better = (
        [{**row, **way, "weighted_f1": row["weighted_f1"] + 0.15 * number} for row in rows]
        for number, way in enumerate(ways)
    )
    findings = read_majority_findings(Run.open(adapted_run))
    by_model = [{**way, "instruction": given, "constant_f1": 0.5} for way in ways for given in (False, True)]
    figures = f1_figures(replace(findings, by_model=by_model, by_setting=[*plain, *better], settings=settings))
    assert [(figure.name, figure.line) for figure in figures] == [
        (f"f1_likelihood{lora}_{given}", 0) for lora in ("", "_lora") for given in ("without", "with")
    ]
    drawn = ("f1_likelihood", "label likelihood", plain, settings)
    assert figures[:2] == instruction_figures(*drawn, compared=better)
    assert figures[:2] != instruction_figures(*drawn)


def test_outputs_of_free_generation_are_counted_without_and_with_lora(adapted_run: str) -> None:
    findings = read_majority_findings(Run.open(adapted_run))
    for is_adapted in (False, True):
        shares = [row["share"] for row in findings.outputs if row["is_adapted"] is is_adapted]
        assert sum(shares) == pytest.approx(1)
    head, *lines = table(Run.open(adapted_run).read_text("report.html"), "most frequent outputs")
    assert head[1] == "Model"
    assert {line[1] for line in lines} == {"without LoRA", "LoRA"}


def test_the_page_of_a_run_with_adapters_is_whole(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    page = Page(source)
    assert page.open_tags == []
    assert all(link.removeprefix("#") in page.values("id") for link in page.values("href"))
    assert source.count("<caption>") == source.count("<table")
    assert not re.search(r">\s*(None|nan)\s*<", source)


def test_runs_with_and_without_adapters_have_one_page(adapted_run: str, runs: list[str], tmp_path: Path) -> None:
    write_comparison([runs[1], adapted_run], str(tmp_path / "page.html"))
    source = (tmp_path / "page.html").read_text()
    page = Page(source)
    assert page.open_tags == []
    marts = {
        (row["run"], row["predict"], row["method"], row["instruction"]): row
        for row in query([runs[1], adapted_run], "from majority_by_model").to_pylist()
    }
    for predict, name in (("likelihood", "Label likelihood, LoRA"), ("generate", "Free generation, LoRA")):
        changes = [
            marts["adapted", predict, "lora", given]["mean_f1"] - marts["adapted", predict, "none", given]["mean_f1"]
            for given in (False, True)
        ]
        told = f"{sum(changes) / 2:+.3f} on average".replace("-", "−")
        assert re.search(
            rf"{name}, against no mitigation: RB@10 [^.]*\..*?mean weighted F1 [^.]*{re.escape(told)}", page.text
        )
    assert "Label likelihood, LOOC, against no calibration: RB@10" in page.text
    assert "By label likelihood, LoRA + LOOC" in page.text
    [lora] = re.findall(r'<h2 id="way-\d+">By label likelihood, LoRA</h2>.*?</section>', source, re.S)
    head, _, *lines = table(lora, "layout of Table 1")
    assert [cell.split(" ")[0] for cell in head] == ["Data", "boolq-small", "adapted"]
    assert lines[0][-4:-2] == ["–", "–"]
    assert lines[0][-1].startswith("0.667")


# Several runs


def test_table_1_has_models_by_size_and_a_line_per_data_set_and_metric(page: str, runs: list[str]) -> None:
    head, names, *lines = table(page, "Table 1")
    assert head == ["Data", "llm-7000000000 (7B)", "llm-13000000000 (13B)"]
    assert names == ["without", "with"] * 2
    assert [line[:-4] for line in lines] == [
        ["BoolQ (3 settings, 2 seeds, 200 test rows)", "RB@10"],
        ["weighted F1"],
        ["std"],
        ["stance (3 settings, 2 seeds, 200 test rows)", "RB@10"],
        ["weighted F1"],
        ["std"],
    ]
    marts = {
        (row["run"], row["instruction"]): row
        for row in query(runs, "from majority_by_model where predict = 'likelihood' and method = 'none'").to_pylist()
    }
    places = [(run, instruction) for run in ("boolq-small", "boolq-large") for instruction in (False, True)]
    for line, metric in zip(lines[:3], ("rb_at_10", "mean_f1", "sd_f1"), strict=True):
        assert [cell.split()[0] for cell in line[-4:]] == [f"{marts[place][metric]:.3f}" for place in places]


def test_table_2_marks_the_settings_inside_the_boundary(page: str) -> None:
    head, _, *lines = table(page, "percentages of True / False")
    assert head[0] == "Setting"
    # Without and with instruction of the smaller model, then of the larger.
    assert [line[0] for line in lines] == ["0/100", "50/50", "100/0"]
    assert [cell.split()[0] for cell in lines[0][1:]] == ["0.100", "0.767", "0.100", "1.000"]
    row = re.search(r'<th scope="row" class="text">0/100</th>(.*?)</tr>', page)
    assert row is not None
    assert re.findall(r'<td( class="best")?>', row[1]) == ["", "", "", ' class="best"']


def test_the_effect_of_size_stands_in_the_page_with_intervals(page: str, runs: list[str]) -> None:
    head, *lines = table(page, "The larger model minus the smaller")
    assert head[:5] == ["Data", "From", "To", "Instruction", "RB@10"]
    assert [line[0] for line in lines] == ["BoolQ", "BoolQ", "stance", "stance"]
    [effect] = query(
        runs,
        "from majority_size_effect "
        "where run = 'boolq-small' and instruction and predict = 'likelihood' and method = 'none'",
    ).to_pylist()
    assert lines[1][1:4] == ["llm-7000000000 (7B)", "llm-13000000000 (13B)", "with"]
    interval = f"[{effect['rb_at_10_low'] + 0.0:+.3f}, {effect['rb_at_10_high'] + 0.0:+.3f}]".replace("-", "−")
    assert lines[1][4] == f"+0.333 {interval}"
    text = Page(page).text
    assert "2 models (llm-7000000000 (7B) and llm-13000000000 (13B)) on 2 data sets (BoolQ and stance)" in text
    assert "from a model to the next in size, in 4 comparisons with and without instruction, RB@10 rises in 2" in text
    assert "the widest boundary, RB@10, is 0.667 on BoolQ (llm-13000000000 with instruction" in text
    assert "Label likelihood, LOOC, against no calibration: RB@10" in text


def test_the_runs_stand_with_their_settings_seeds_and_test_rows(page: str) -> None:
    head, *lines = table(page, "The runs behind the numbers")
    assert head[-4:] == ["Demonstrations", "Settings", "Seeds", "Test rows"]
    assert [line[0] for line in lines] == ["boolq-small", "boolq-large", "stance-small", "stance-large"]
    assert {tuple(line[-4:]) for line in lines} == {("2", "3", "2", "200")}
    head, *effects = table(page, "The larger model minus the smaller")
    assert head[-3:] == ["Settings", "Seeds", "Test rows of both"]
    assert {tuple(line[-3:]) for line in effects} == {("3", "2", "200")}
    assert [caption for caption in tables(page) if "3 settings, 2 seeds, 200 test rows" in caption]


def test_differences_without_interval_have_their_reason_on_the_page(runs: list[str], tmp_path: Path) -> None:
    for change, reason in (
        ({"seed": 43}, "not run on the same test rows with the same seed"),
        ({"scoring": {"normalization": "sum", "eos": True}}, "was scored in another way"),
    ):
        large = make_run(tmp_path / next(iter(change)), 13_000_000_000, LARGE, **change)
        told = [sentence for sentence in caveats(read_comparison([runs[1], large])) if "have no interval" in sentence]
        assert len(told) == 1
        assert told[0].startswith("boolq-small: ")
        assert reason in told[0]


def test_figures_are_a_line_per_model_and_a_panel_per_model(page: str) -> None:
    alts = Page(page).values("alt")
    # 2 data sets with 2 instructions (Figure 2), 2 data sets with 2 models (Figure 3); with LOOC one data set.
    assert len(alts) == 2 * 2 + 2 * 2 + (2 + 2)
    assert "BoolQ, with instruction: llm-7000000000 0.767 at 0/100" in alts[1]
    assert "llm-13000000000 1.000 at 0/100" in alts[1]
    assert "llm-13000000000: without 0.100 at 0/100" in alts[3]
    assert "; with 1.000 at 0/100" in alts[3]
    assert page.count("<details open>") == 1
    assert page.count("<details") == 2


def test_the_page_leads_nowhere_and_is_the_same_each_time(page: str, runs: list[str], tmp_path: Path) -> None:
    assert Page(page).open_tags == []
    assert not re.search(r"https?:|<script|url\(", page)
    assert all(link.removeprefix("#") in Page(page).values("id") for link in Page(page).values("href"))
    assert not re.search(r">\s*(None|nan)\s*<", page)
    assert page.count("<caption>") == page.count("<table")
    before = {run: sorted(Path(run).rglob("*")) for run in runs}
    write_comparison(runs, str(tmp_path / "again" / "page.html"))
    assert (tmp_path / "again" / "page.html").read_text() == page
    assert {run: sorted(Path(run).rglob("*")) for run in runs} == before


def test_markup_in_names_is_shown_and_not_interpreted(runs: list[str], tmp_path: Path) -> None:
    hostile = make_run(tmp_path / "hostile & co", 20_000, name="plain", model={"path": "m", "dtype": "float32"})
    store = Run.open(hostile)
    store.write_text("spec.yaml", store.read_text("spec.yaml").replace("plain", json.dumps(HOSTILE)))
    write_comparison([runs[1], hostile], str(tmp_path / "page.html"))
    found = Page((tmp_path / "page.html").read_text())
    assert f"{HOSTILE} (20K)" in found.text
    assert "hostile & co" in found.text
    assert "onerror" not in {name for _, name, _ in found.attributes}


def test_a_model_is_what_has_the_same_weights_and_is_called_by_one_name(tmp_path: Path) -> None:
    """The weights' digest tells models apart, not the path; of several names of runs the model's own is left."""
    one, two = ({"path": f"{folder}/llm", "dtype": "float32"} for folder in ("one", "two"))
    comparison = read_comparison(
        [
            make_run(tmp_path / "a", 1_000, model=one, digest="x"),
            make_run(tmp_path / "b", 1_000, model=two, digest="x", data="stance"),
            make_run(tmp_path / "c", None, model=one, digest="y"),
        ]
    )
    assert [(model.name, model.runs, model.n_parameters) for model in comparison.models] == [
        ("llm", ("a", "b"), 1_000),
        ("c", ("c",), None),
    ]
    assert [(dataset.name, dataset.runs) for dataset in comparison.datasets] == [
        ("BoolQ", ("a", "c")),
        ("stance", ("b",)),
    ]
    told = " ".join(caveats(comparison))
    assert "Not measured: c on stance." in told
    assert "c: the runs do not say the size" in told


def test_two_runs_of_one_model_on_the_same_data_are_refused(runs: list[str], tmp_path: Path) -> None:
    twin = make_run(tmp_path / "twin", 7_000_000_000)
    with pytest.raises(InputError, match="boolq-small and twin: are runs of one model on the same data"):
        write_comparison([runs[1], twin], str(tmp_path / "page.html"))
    with pytest.raises(InputError, match="one is named"):
        write_comparison([runs[1]], str(tmp_path / "page.html"))
    assert not (tmp_path / "page.html").exists()


def test_one_page_is_over_majority_bias_runs_only(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    monkeypatch.setattr("sys.argv", ["biaseval", "report", runs[0], label_bias, "--out", str(tmp_path / "page.htm")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"{label_bias}: holds no majority-bias run" in error
    assert "does not end in .html" in error
    assert not Path(label_bias, "marts").exists()


def test_the_command_writes_the_page_and_leaves_the_reports_alone(runs: list[str], tmp_path: Path) -> None:
    Path(runs[0], "report.html").unlink(missing_ok=True)
    done = CliRunner().invoke(app, ["report", *runs[:2], "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"report: {tmp_path}/page.html\n"
    assert "Majority-label bias, 2 models" in (tmp_path / "page.html").read_text()
    assert not Path(runs[0], "report.html").exists()


@pytest.mark.parametrize(
    ("n_parameters", "expected"), [(999, "999"), (616_000, "616K"), (7_241_732_096, "7.24B"), (34_000_000, "34M")]
)
def test_sizes_are_said_shortly(n_parameters: int, expected: str) -> None:
    assert size(n_parameters) == expected


# Three labels


def ternary(step: int = 4, labels: tuple[str, ...] = ("against", "favor", "none $x$")) -> tuple[list[Row], list[Row]]:
    """Return the settings of a grid of three labels and a row for each with and without instruction."""
    settings: list[Row] = []
    rows: list[Row] = []
    for first in range(step + 1):
        for second in range(step + 1 - first):
            shares = [first / step, second / step, 1 - (first + second) / step]
            setting = "/".join(f"{share:.0%}" for share in shares)
            settings.append({"setting": setting, "number": len(settings), "labels": list(labels), "shares": shares})
            for instruction, f1 in ((True, 0.4 + 0.4 * shares[0]), (False, 0.5)):
                is_within = not instruction or shares[0] >= 0.75 - 1e-9
                place = {"setting": setting, "instruction": instruction}
                rows.append(
                    {**place, "weighted_f1": f1, "boundary": 0.7 if instruction else 0.4, "is_marked": is_within}
                )
    return settings, rows


@pytest.mark.parametrize(
    ("shares", "place"),
    [
        ((1, 0, 0), (0, 0)),
        ((0, 1, 0), (1, 0)),
        ((0, 0, 1), (0.5, 3**0.5 / 2)),
        ((0.5, 0.5, 0), (0.5, 0)),
        ((1 / 3, 1 / 3, 1 / 3), (0.5, 3**0.5 / 6)),
    ],
)
def test_a_setting_of_one_label_alone_stands_in_its_corner(shares: tuple[float, ...], place: tuple[float, ...]) -> None:
    assert ternary_place(shares) == pytest.approx(place)


def test_marks_stand_at_the_label_that_they_hold_and_have_a_ring_inside_the_boundary() -> None:
    settings, rows = ternary()
    axes = Canvas().add_subplot()
    points = [row for row in rows if row["instruction"]]
    plot_ternary(axes, title="a", points=points, settings=settings, limits=(0.4, 0.8))
    texts = {text.get_text(): text.get_position() for text in axes.texts}
    marks = {line.get_xydata()[0].round(9).tobytes(): line for line in axes.lines if line.get_marker() == "o"}  # type: ignore[index, union-attr]
    assert len(marks) == len(points) == 15
    corners = {"against": (0.0, 0.0), "favor": (1.0, 0.0), r"none \$x\$": (0.5, 3**0.5 / 2)}
    for label, corner in corners.items():
        x, y = texts[label]
        assert min(corners.values(), key=lambda other: (other[0] - x) ** 2 + (other[1] - y) ** 2) == corner
    rings = {to_hex(line.get_markeredgecolor()) for line in marks.values()}
    assert rings == {"#d1490c", "#ffffff"}
    ringed = [line for line in marks.values() if same_color(line.get_markeredgecolor(), "#d1490c")]
    # 0.4 + 0.4 * share of the first label is within 0.1 of 0.8 at shares of 3/4 (two settings) and 1.
    assert sorted(round(float(line.get_xdata()[0]), 3) for line in ringed) == [0, 0.125, 0.25]  # type: ignore[index]
    assert {".80", ".70", ".40"} <= texts.keys()
    assert {"25%", "50%", "75%"} <= texts.keys()


def test_a_fine_grid_has_smaller_marks_that_do_not_overlap() -> None:
    settings, rows = ternary(step=20)
    axes = Canvas().add_subplot()
    points = [row for row in rows if row["instruction"]]
    plot_ternary(axes, title="a", points=points, settings=settings, limits=(0.4, 0.8))
    sizes = {line.get_markersize() for line in axes.lines if line.get_marker() == "o"}
    assert max(sizes) < 150 / 20
    assert ".80" not in {text.get_text() for text in axes.texts}


def test_three_labels_have_a_triangle_with_and_one_without_instruction() -> None:
    settings, rows = ternary()
    figures = instruction_figures("f1", "label likelihood", rows, settings)
    without, with_ = figures
    assert [figure.name for figure in figures] == ["f1_without", "f1_with"]
    assert figures == instruction_figures("f1", "label likelihood", rows, settings)
    assert "Weighted F1 by % of against, favor, none $x$, label likelihood, with instruction" in with_.text
    assert "0.800 at 100%/0%/0%" in with_.text
    assert "(3 of 15 inside the boundary)" in with_.text
    assert "(15 of 15 inside the boundary)" in without.text


@pytest.mark.parametrize("n_labels", [2, 4])
def test_two_labels_have_lines_and_four_a_strip_in_one_figure(n_labels: int) -> None:
    labels = ["A", "B", "C", "D"][:n_labels]
    settings = [
        {"setting": name, "number": number, "labels": labels, "shares": [share, 1 - share] + [0.0] * (n_labels - 2)}
        for number, (name, share) in enumerate((("0", 0.0), ("50", 0.5), ("100", 1.0)))
    ]
    rows = [
        {"setting": row["setting"], "instruction": instruction, "weighted_f1": 0.5}
        | {"weighted_f1_low": None, "weighted_f1_high": None, "boundary": 0.4, "is_marked": True}
        for row in settings
        for instruction in (True, False)
    ]
    [figure] = instruction_figures("f1", "label likelihood", rows, settings)
    assert (figure.name, b"</svg>" in figure.svg) == ("f1", True)


def test_findings_of_a_run_name_the_ways_in_the_order_of_tables(runs: list[str]) -> None:
    findings = read_majority_findings(Run.open(runs[0]))
    assert findings.ways() == [("likelihood", "none"), ("likelihood", "looc")]
