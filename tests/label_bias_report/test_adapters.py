"""The page of a run with adapters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from biaseval.cli.printing import print_metrics
from biaseval.pipelines.label_bias import LABEL_BIAS
from biaseval.prompting.calibration import PURPOSES
from biaseval.report.figures import _styles, metric_figures
from biaseval.report.findings import read_findings
from biaseval.report.methods import METHODS, method_name, side_by_side
from biaseval.report.mitigation import training_caveats
from biaseval.report.verdict import conclude
from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run
from tests.pages import mart, page_of

PUBLISHED = [method for method in METHODS if method.rpartition("+")[2] in ("none", *PURPOSES, "lora")]
OF_ANY_DATA = [method for method in PUBLISHED if not method.endswith("pride")]
"""The methods that the run has, which is of no options."""


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "adapted", n_tasks=6, losses=(2.0, 1.5, 1.25, 1.0))
    write_report(run.uri)
    return run


def test_methods_with_lora_have_names_and_stand_side_by_side() -> None:
    assert [METHODS[method] for method in ("lora", "lora+cc", "lora+looc")] == ["LoRA", "LoRA + CC", "LoRA + LOOC"]
    assert (method_name("none"), method_name("none", "mitigation")) == ("no calibration", "no mitigation")
    first, second = side_by_side(reversed(PUBLISHED))
    assert first == ["none", "cc", "dc", "looc", "pride", "lora"]
    assert second == ["none", "lora", "lora+cc", "lora+dc", "lora+looc", "lora+pride"]
    assert side_by_side(["lora", "none"]) == [["none", "lora"]]
    for methods in (first, second):
        styles = _styles(methods)
        for parts in (("color",), ("marker", "line")):  # in colour, and in print
            assert len({tuple(getattr(style, part) for part in parts) for style in styles.values()}) == len(methods)


def test_lora_stands_beside_calibration_and_its_calibration_in_figures_of_their_own(adapted: Run) -> None:
    figures = metric_figures(read_findings(adapted).by_suite)
    assert [(figure.name, figure.line) for figure in figures] == [
        ("rsd", 0),
        ("accuracy", 0),
        ("macro_f1", 0),
        ("bias_score", 0),
        ("rsd_lora", 1),
        ("accuracy_lora", 1),
        ("macro_f1_lora", 1),
        ("bias_score_lora", 1),
    ]
    means = {(row["method"], row["n_demos"]): row["rsd"] for row in mart(adapted, "label_bias_by_model")}
    assert f"; LoRA {means['lora', 0]:.3f} at 0" in figures[0].text
    assert "LoRA +" not in figures[0].text
    assert f"; LoRA + CC {means['lora+cc', 0]:.3f} at 0" in figures[4].text
    assert "; CC" not in figures[4].text
    written = {path.stem for path in Path(adapted.root).glob("figures/*.svg")}
    assert written == {figure.name for figure in figures} | {"training_loss"}
    assert len(page_of(adapted).values("alt")) == 9


def test_remedies_with_and_without_lora_stand_against_nothing(adapted: Run) -> None:
    findings = read_findings(adapted)
    assert {row["against_method"] for row in findings.remedies} == {"none"}
    assert {row["method"] for row in findings.remedies} == set(OF_ANY_DATA)
    text = " ".join(line.text for line in conclude(findings))
    assert "ithout calibration" not in text
    assert "no calibration" not in text
    assert len([place for place in findings.verdicts if place[3] == "none"]) == len(findings.remedies)
    assert "RSD, no mitigation" in {line.lead for line in conclude(findings)}
    against_lora = [place for place in findings.verdicts if place[3] == "lora"]
    assert {method for _, method, _, _ in against_lora} == {"lora+cc", "lora+dc", "lora+looc"}


def test_costs_of_each_method_are_those_of_its_inputs_and_its_training(adapted: Run) -> None:
    """At 2 demonstrations: 6 tasks, 2 sets; inputs of 10 tokens and labels of 2 each; 16 examples of 60 in 2 epochs."""
    source = adapted.read_text("report.html")
    [table] = [part for part in source.split("<table") if "Beyond scoring the rows with the model" in part]
    cells: dict[tuple[int, str], list[str]] = {}
    n_demos = 0
    for line in re.findall(r"<tr>(.*?)</tr>", table, re.S)[1:]:
        texts = [re.sub(r"<span.*?</span>|<.*?>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", line)]
        if "rowgroup" in line:
            n_demos = int(texts.pop(0))
        cells[n_demos, texts[0]] = texts[1:]
    remedies = [row for row in mart(adapted, "label_bias_remedies") if row["against_method"] == "none"]
    assert cells.keys() == {(row["n_demos"], METHODS[row["method"]]) for row in remedies if row["method"] != "none"}
    for row in remedies:
        if row["method"] != "none":
            assert cells[row["n_demos"], METHODS[row["method"]]][0] == f"{row['n_prompts']:,}"
    n_labels = 2 * (2 + 4 + 3)  # of the six tasks
    cc = 2 * 3 * (6 * 10 + 2 * n_labels)
    lora = 6 * 2 * 16 * 60 * 2
    assert cells[2, "CC"][:4] == ["36", f"{cc:,}", "0", "0"]
    assert cells[2, "LoRA"] == ["0", f"{lora:,}", "12", "4,096", "24.0"]  # 12 adapters, 4 steps of half a second
    assert cells[2, "LoRA + CC"][:4] == ["36", f"{lora + cc:,}", "12", "4,096"]
    assert (0, "LoRA + LOOC") not in cells


def test_the_training_loss_is_shown_and_told_where_it_does_not_fall(adapted: Run, tmp_path: Path) -> None:
    findings = read_findings(adapted)
    assert findings.adaptation is not None
    assert [(row["n_demos"], row["n_adapters"], row["n_steps"]) for row in findings.adaptation.training] == [
        (0, 6, 4),
        (2, 12, 4),
        (8, 12, 4),
    ]
    assert [row["n_adapters"] for row in findings.adaptation.losses] == [30] * 4
    first, *_, last = findings.adaptation.losses
    assert first["mean_loss"] == pytest.approx(2 + 14.5 / 1000)  # adapter number n of 30 adds n / 1000
    assert (last["low"], last["high"]) == pytest.approx((1 + 2.9 / 1000, 1 + 26.1 / 1000))
    text = page_of(adapted).text
    assert " 0 6 4 2.0" in text  # demonstrations, adapters, steps, first loss
    assert "mean over adapters: 2.0145 at step 1, 1.0145 at step 4" in " ".join(page_of(adapted).values("alt"))
    assert training_caveats(findings.adaptation) == []
    rising = make_run(tmp_path / "rising", n_tasks=2, n_demos=(0, 2), calibration=(), losses=(1.0, 1.5))
    write_report(rising.uri)
    text = page_of(rising).text
    assert "The loss of 6 of 6 adapters is not lower at the last step than at the first." in text


def test_the_printed_metrics_have_the_methods_in_the_order_of_the_report(
    adapted: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    print_metrics(adapted.uri, LABEL_BIAS.headline(None))
    shown = re.findall(r"│ +2 │ (\S+)", capsys.readouterr().out)
    assert shown == OF_ANY_DATA


def test_the_page_with_adapters_is_whole(adapted: Run) -> None:
    source = adapted.read_text("report.html")
    page = page_of(adapted)
    assert all(link.removeprefix("#") in page.values("id") for link in page.values("href"))
    assert source.count("<caption>") == source.count("<table")
    assert len(re.findall(r"<th\b", source)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', source))
    assert not re.search(r">\s*(None|nan)\s*<", source)
    changes = source[source.index('<section aria-labelledby="changes">') :].split("</section>")[0]
    against = re.findall(r'<td class="text">LoRA \+ CC</td><td class="text">(.*?)</td>', changes)
    assert against == ["no mitigation", "LoRA"] * 3
    assert "no calibration" not in page.text


def test_runs_without_adapters_have_nothing_of_them(run: Run) -> None:
    text, _, spec = page_of(run).text.partition("The spec, with every default")
    assert not re.search("LoRA|mitigation|adapter", text)
    assert "lora" in spec
