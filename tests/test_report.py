"""The report against runs whose scores have a known bias; the marts behind it are the real ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.cli.printing import print_metrics
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines import write_report
from biaseval.pipelines.label_bias import LABEL_BIAS
from biaseval.report.figures import _spread, _styles, metric_figures
from biaseval.report.findings import Findings, Row, read_findings
from biaseval.report.methods import METHODS, method_name, side_by_side
from biaseval.report.mitigation import training_caveats
from biaseval.report.page import render_page
from biaseval.report.summary import caveats, summarize
from biaseval.store import Run
from biaseval.tables import (
    ADAPTED_SCORES,
    CONTEXTS,
    LABEL_SCORES,
    PROMPTS,
    SPLITS,
    TASKS,
    TRAINING,
    TRAINING_ROWS,
)
from tests.measuring import measure
from tests.specs import write_plan, write_spec

LABELS = (("no", "yes"), ("A", "B", "C", "D"), ("contradiction", "entailment", "neutral"))
PREFERENCE = 1.6
"""Nats by which the first label is ahead whatever the input, without demonstrations."""


def make_run(
    folder: Path,
    *,
    n_tasks: int,
    n_demos: Sequence[int] = (0, 2, 8),
    demo_sets: int = 2,
    calibration: Sequence[str] = ("cc", "dc", "looc"),
    n_equivalent: int = 0,
    n_main: int = 24,
    n_bias_score: int = 8,
    signal: float = 1.0,
    labels: Sequence[str] | None = None,
    name: str = "synthetic",
    losses: Sequence[float] = (),
) -> Run:
    """Return a finished run whose scores prefer the first label, less with more demonstrations.

    A main row's log-likelihoods are the preference, plus ``signal`` on the gold label, plus noise; inputs without an
    answer show the preference and noise only, so that calibration can take the preference away. With ``losses``, one
    for each step, the run has adapters, which leave a quarter of the preference.
    """
    generator = np.random.default_rng(7)
    run = Run.open(str(folder))
    run.create()
    tasks, contexts, prompts, scores, adapted_scores = [], [], [], [], []
    adapters = []
    for number in range(n_tasks):
        task = f"task{number:03d}_synthetic"
        names = sorted(labels or LABELS[number % len(LABELS)])
        strength = PREFERENCE * generator.uniform(0.3, 1.7)
        tasks.append(
            {
                "task": task,
                "number": number,
                "run_key": task,
                "category": "Sentiment Analysis",
                "definition": f"Say which of the labels fits <input> & task {number}.",
                "labels": names,
                "n_instances": 396,
                "n_main": n_main,
                "template": "Text: {INPUT}" if "dc" in calibration else None,
                "template_source": ("inferred" if number % 2 else "table") if "dc" in calibration else None,
                "is_semantically_equivalent": number < n_equivalent,
            }
        )
        for k in n_demos:
            for demo_set in range(demo_sets if k else 1):
                place = f"{task}/k{k}.s{demo_set}"
                setting = {"task": task, "n_demos": k, "demo_set": demo_set}
                of_adapters = {"instruction": True, "n_tokens": 40} if losses else {}
                contexts.append({"context_id": place, **setting, "text": "...", **of_adapters})
                adapters.append({"adapter": place, "model": name, "instruction": True, **setting})
                preference = np.zeros(len(names))
                preference[0] = strength / (1 + k / 4)
                n_rows = {"main": n_main, "bias_score": n_bias_score, "cc": 3, "dc": 20, "looc": k}
                for purpose in ("main", "bias_score", *calibration):
                    for row in range(n_rows[purpose]):
                        gold = None if purpose in ("cc", "dc") else row % len(names)
                        logs = preference + generator.normal(0, 0.5, len(names)) - 2
                        if gold is not None:
                            logs[gold] += signal
                        prompt_id = f"{place}/{purpose}/{row}"
                        prompts.append(
                            {
                                "prompt_id": prompt_id,
                                "context_id": place,
                                "task": task,
                                "purpose": purpose,
                                "n_demos": k,
                                "demo_set": demo_set,
                                "row": row,
                                "instance_id": None if gold is None else f"{task}-{purpose}-{row}",
                                "gold": None if gold is None else names[gold],
                                "labels": names,
                                "input_text": "Input:",
                                "n_demos_used": k - (purpose == "looc") - (k == 8 and purpose == "main" and row == 0),
                                "is_truncated": False,
                                "n_tokens": 50 if losses else None,
                            }
                        )
                        for rows, shown in ((scores, logs), (adapted_scores, logs - 0.75 * preference)):
                            logprobs = (shown - np.logaddexp.reduce(shown)).tolist()
                            rows += [
                                {"prompt_id": prompt_id, "label": label, "token_logprobs": [x, x], "n_label_tokens": 1}
                                for label, x in zip(names, logprobs, strict=True)
                            ]
    run.write_part("tasks", 0, TASKS.rows(tasks))
    run.write_part("splits", 0, SPLITS.empty())
    run.write_part("contexts", 0, CONTEXTS.rows(contexts))
    run.write_part("prompts", 0, PROMPTS.rows(prompts))
    run.write_part("label_scores", 0, LABEL_SCORES.rows(scores))
    if losses:
        run.write_part("adapted_scores", 0, ADAPTED_SCORES.rows(adapted_scores))
        examples = [
            {**adapter, "row": row, "instance_id": f"example{row}", "n_tokens": 60}
            for adapter in adapters
            for row in range(16)
        ]
        run.write_part("training_rows", 0, TRAINING_ROWS.rows(examples))
        steps = [
            {**adapter, "step": step, "epoch": step // 2, "loss": loss + number / 1000, "seconds": 0.5}
            for number, adapter in enumerate(adapters)
            for step, loss in enumerate(losses)
        ]
        run.write_part("training", 0, TRAINING.rows(steps))
    spec = {
        "kind": "label_bias",
        "name": name,
        "seed": 42,
        "model": {"path": "models/synthetic", "dtype": "float32"},
        "prompt": {"n_demos": list(n_demos), "demo_sets": demo_sets},
        "calibration": list(calibration),
        "scoring": {"normalization": "mean", "eos": True},
    }
    if losses:
        spec["lora"] = {"preset": "reif2024", "epochs": len(losses) // 2}
    write_spec(run, spec)
    plan = {
        "n_tasks": n_tasks,
        "n_prompts": len(prompts),
        "n_scores": len(scores),
        "tokens": 12345,
        "tokens_unshared": 67890,
        "notes": ["task001_synthetic: 3 inputs do not fit the template and give no words to dc"],
        "left_out": {"task900_broken": "has <4 labels> & more"},
    }
    write_plan(run, **plan)
    environment = {
        "versions": {"biaseval": "0.1.0"},
        "python": "3.11.9",
        "hardware": {"cpu": "some", "n_cores": 2, "gpus": []},
        "model": {"sha256": "ab" * 32},
        "data": {f"{task['task']}.json": "cd" * 32 for task in tasks},
        "scorer": {"path": "packed"},
        "seed": 42,
    }
    if losses:
        environment |= {"trained_parameters": 4096, "scorer": {"path": "packed", "scoring_s": 100.0}}
    run.write_text("environment.json", json.dumps(environment))
    measure(run.uri)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "many", n_tasks=12, n_equivalent=4)
    write_report(run.uri)
    return run


@pytest.fixture(scope="module")
def findings(run: Run) -> Findings:
    return read_findings(run)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "adapted", n_tasks=6, losses=(2.0, 1.5, 1.25, 1.0))
    write_report(run.uri)
    return run


class Page(HTMLParser):
    """What a browser would see: text, and every attribute."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.open_tags: list[str] = []
        self.pieces: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.pieces))

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def page_of(run: Run) -> Page:
    page = Page(run.read_text("report.html"))
    assert page.open_tags == []
    return page


def mart(run: Run, name: str) -> list[Row]:
    rows: list[Row] = pq.read_table(f"{run.root}/marts/{name}.parquet").to_pylist()
    return rows


def test_the_written_files_are_the_report_and_a_figure_per_suite_and_metric(run: Run) -> None:
    metrics = ("macro_f1", "rsd", "bias_score")
    figures = [f"figures/{metric}{suite}.svg" for suite in ("", "_semantically_equivalent") for metric in metrics]
    assert write_report(run.uri) == [f"{run.uri}/{name}" for name in [*figures, "report.html"]]
    for name in figures:
        assert run.read_text(name).startswith("<?xml")


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    names = [path.relative_to(run.root).as_posix() for path in Path(run.root).glob("figures/*.svg")]
    before = {name: run.read_bytes(name) for name in [*names, "report.html"]}
    code = f"from biaseval.pipelines import write_report; write_report({run.uri!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert {name: run.read_bytes(name) for name in before} == before


def test_nothing_in_the_file_leads_outside_it(run: Run) -> None:
    source = run.read_text("report.html")
    page = page_of(run)
    assert "http:" not in source
    assert "https:" not in source
    assert "url(" not in source
    assert "<script" not in source
    ids = set(page.values("id"))
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link
    for image in page.values("src"):
        assert image.startswith("data:image/svg+xml;base64,")
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_every_number_of_the_suite_stands_in_the_report(run: Run) -> None:
    text = page_of(run).text
    rows = mart(run, "label_bias_by_model")
    assert {row["suite"] for row in rows} == {"all", "semantically_equivalent"}
    for row in rows:
        for metric in ("macro_f1", "accuracy", "rsd", "bias_score"):
            assert f"{row[metric]:.3f} [{row[f'{metric}_low']:.3f}, {row[f'{metric}_high']:.3f}]" in text
    assert f" {12 * 24 * 2:,} " in text  # main rows with demonstrations: tasks x instances x sets
    assert f" {12 * 8 * 2:,} " in text  # BiasScore rows likewise


def test_every_task_has_its_numbers_averaged_over_sets(run: Run, findings: Findings) -> None:
    text = page_of(run).text
    rows = mart(run, "label_bias_by_task")
    for task in {row["task"] for row in rows}:
        sets = [row["rsd"] for row in rows if (row["task"], row["n_demos"], row["method"]) == (task, 8, "looc")]
        assert len(sets) == 2
        [shown] = [row for row in findings.by_task if (row["task"], row["n_demos"], row["method"]) == (task, 8, "looc")]
        assert shown["rsd"] == pytest.approx(np.mean(sets))
        assert f"{shown['rsd']:.3f}" in text


def test_the_paired_difference_is_the_mean_over_tasks_of_the_differences(run: Run, findings: Findings) -> None:
    rows = mart(run, "label_bias_by_task")
    values = {(row["task"], row["n_demos"], row["demo_set"], row["method"]): row["rsd"] for row in rows}
    per_task: dict[str, list[float]] = {}
    for (task, n_demos, demo_set, method), rsd in values.items():
        if n_demos == 2 and method == "dc":
            per_task.setdefault(task, []).append(rsd - values[task, 2, demo_set, "none"])
    differences = np.array([np.mean(sets) for sets in per_task.values()])
    [change] = [row for row in findings.changes if row["n_demos"] == 2 and row["method"] == "dc"]
    assert change["rsd"] == pytest.approx(differences.mean())
    assert change["n_tasks_lower_rsd"] == (differences < 0).sum()
    # The bootstrap's spread is about the standard error of the mean.
    half_width = 1.96 * differences.std() / np.sqrt(len(differences))
    assert change["rsd_high"] - change["rsd_low"] == pytest.approx(2 * half_width, rel=0.2)


def test_the_summary_tells_the_bias_that_was_put_into_the_scores(findings: Findings) -> None:
    text = " ".join(summarize(findings))
    assert "synthetic was scored on 288 test instances of 12 tasks with 2 to 4 labels, with 0, 2 and 8" in text
    assert "mean RSD falls from" in text
    assert "mean BiasScore falls from" in text
    assert "mean macro-F1 rises from" in text
    assert re.search(r"Calibration lowers mean RSD most with (CC|DC) at 0 demonstrations", text)
    assert re.search(r"Most biased without calibration and with 8 demonstrations is task\d+_synthetic", text)
    worst = findings.most_biased[0]
    assert f"it prefers “{worst['labels'][0]['label']}”" in text  # the scores prefer the first label
    assert worst["rsd"] == max(
        row["rsd"] for row in findings.by_task if row["n_demos"] == 8 and row["method"] == "none"
    )


def test_label_shares_add_up_to_one(findings: Findings) -> None:
    for task in findings.most_biased:
        for share in ("gold_share", "predicted_share", "mean_probability"):
            assert sum(label[share] for label in task["labels"]) == pytest.approx(1)


def test_shortened_prompts_inferred_templates_and_left_out_tasks_are_told(run: Run, findings: Findings) -> None:
    # One main row per task and set has 7 of 8 demonstrations; LOOC's one fewer is by design.
    assert findings.cut_prompts == [
        {"n_demos": 8, "purpose": "main", "n_rows": 12 * 24 * 2, "n_fewer_demos": 12 * 2, "n_truncated": 0}
    ]
    told = " ".join(caveats(findings))
    assert "24 prompts hold fewer demonstrations" in told
    assert "template of 6 tasks is inferred" in told
    assert "1 task was left out" in told
    text = page_of(run).text
    assert "has <4 labels> & more" in text
    assert "3 inputs do not fit the template" in text
    assert "cd" * 32 in text


def test_a_single_task_has_no_interval(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", n_tasks=1, demo_sets=1)
    write_report(run.uri)
    findings = read_findings(run)
    text = page_of(run).text
    assert "paired" not in " ".join(summarize(findings))
    assert "There is no interval" in text
    assert "these numbers say nothing about other tasks" in text
    assert f" {mart(run, 'label_bias_by_model')[0]['rsd']:.3f} " in text


def test_without_calibration_and_demonstrations_there_is_nothing_to_compare(tmp_path: Path) -> None:
    run = make_run(tmp_path / "plain", n_tasks=3, n_demos=(0,), calibration=())
    write_report(run.uri)
    findings = read_findings(run)
    assert findings.changes == []
    summary = " ".join(summarize(findings))
    assert "with 0 demonstrations in the prompt, and not calibrated" in summary
    assert "Without calibration and with 0 demonstrations, mean RSD is" in summary
    assert "Calibration" not in summary
    assert 'id="changes"' not in run.read_text("report.html")


def test_a_metric_without_rows_is_not_shown_as_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), n_bias_score=0)
    written = write_report(run.uri)
    findings = read_findings(run)
    assert all(row["bias_score"] is None for row in findings.by_suite["all"])
    assert not any("bias_score" in name for name in written)
    assert "BiasScore" not in " ".join(summarize(findings))
    assert "–" in page_of(run).text


def test_a_model_that_is_always_right_has_no_bias_to_rank(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), signal=50.0)
    summary = " ".join(summarize(read_findings(run)))
    assert "mean RSD stays the same, from 0.000" in summary
    assert "No calibration method lowers mean RSD" in summary
    assert "No task has RSD above 0" in summary


def test_tasks_without_a_correct_prediction_are_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0,), calibration=(), signal=-50.0)
    assert "2 tasks without a single correct prediction" in " ".join(caveats(read_findings(run)))


def test_markup_in_labels_and_names_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), labels=[hostile, "ok & <b>fine</b>"])
    write_report(run.uri)
    page = page_of(run)
    assert hostile in page.text
    assert "ok & <b>fine</b>" in page.text
    assert "Say which of the labels fits <input> & task 1." in page.text
    assert "onerror" not in {name for _, name, _ in page.attributes}
    assert "<b>" not in run.read_text("report.html")


def test_tables_have_captions_and_scoped_headers_and_figures_have_text(run: Run, findings: Findings) -> None:
    source = run.read_text("report.html")
    assert source.count("<caption>") == source.count("<table")
    assert len(re.findall(r"<th\b", source)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', source))
    dc = findings.mean(8, "dc")
    assert dc is not None
    [text] = [alt for alt in page_of(run).values("alt") if alt.startswith("RSD") and f"{dc['rsd']:.3f} at 8" in alt]
    assert "LOOC" in text


def test_the_best_method_is_marked_once_for_each_metric(findings: Findings) -> None:
    page = render_page(findings, [])
    for row in findings.by_suite["all"]:
        others = [other for other in findings.by_suite["all"] if other["n_demos"] == row["n_demos"]]
        best = min(round(other["rsd"], 3) for other in others)
        marked = f'<td class="best">{row["rsd"]:.3f} <span class="interval">[{row["rsd_low"]:.3f}'
        assert (marked in page) == (round(row["rsd"], 3) == best)


def test_missing_facts_of_plan_and_environment_are_left_out(findings: Findings) -> None:
    page = Page(render_page(replace(findings, plan={}, environment={}), []))
    assert "Settings" in page.text
    assert "None" not in page.text


def test_ties_name_every_method(findings: Findings) -> None:
    changes = [{**row, "rsd": -0.25, "n_tasks_lower_rsd": 12} for row in findings.changes if row["n_demos"] == 2]
    text = " ".join(summarize(replace(findings, changes=changes)))
    assert "most with CC at 2 demonstrations, DC at 2 demonstrations and LOOC at 2 demonstrations" in text


def test_an_interval_around_zero_is_no_clear_change(findings: Findings) -> None:
    changes = [{**row, "rsd_low": -0.9, "rsd_high": 0.1} for row in findings.changes]
    text = " ".join(summarize(replace(findings, changes=changes)))
    assert "mean RSD does not clearly change, from" in text
    assert "[−0.900, +0.100], which includes 0" in text


def test_names_of_lines_keep_apart_and_inside_the_figure() -> None:
    assert _spread([0.1, 0.5], 0.1, 1.0) == [0.1, 0.5]
    assert _spread([0.5, 0.5, 0.5], 0.1, 1.0) == pytest.approx([0.5, 0.6, 0.7])
    assert _spread([0.95, 0.99], 0.1, 1.0) == pytest.approx([0.9, 1.0])
    assert _spread([], 0.1, 1.0) == []


def test_an_unknown_method_and_missing_values_are_drawn(findings: Findings) -> None:
    rows = [dict(row) for row in findings.by_suite["all"]]
    for row in rows:
        if row["method"] == "dc":
            row["method"] = "new_method"
        if row["method"] == "cc":
            row["rsd"] = row["rsd_low"] = row["rsd_high"] = None
    figures = metric_figures({"all": rows})
    assert [figure.name for figure in figures] == ["macro_f1", "rsd", "bias_score"]
    assert "new_method" in figures[1].text
    assert all(b"</svg>" in figure.svg for figure in figures)


def test_figures_do_not_depend_on_matplotlib_settings_and_leave_them_alone(findings: Findings) -> None:
    import matplotlib

    before = metric_figures(findings.by_suite)
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "none"}):
        assert metric_figures(findings.by_suite) == before
        assert matplotlib.rcParams["font.size"] == 30


# Runs with adapters


def test_methods_with_lora_have_names_and_stand_side_by_side() -> None:
    assert [METHODS[method] for method in ("lora", "lora+cc", "lora+looc")] == ["LoRA", "LoRA + CC", "LoRA + LOOC"]
    assert (method_name("none"), method_name("none", "mitigation")) == ("no calibration", "no mitigation")
    first, second = side_by_side(reversed(METHODS))
    assert first == ["none", "cc", "dc", "looc", "lora"]
    assert second == ["none", "lora", "lora+cc", "lora+dc", "lora+looc"]
    assert side_by_side(["lora", "none"]) == [["none", "lora"]]
    for methods in (first, second):
        styles = _styles(methods)
        for parts in (("color",), ("marker", "line")):  # in colour, and in print
            assert len({tuple(getattr(style, part) for part in parts) for style in styles.values()}) == len(methods)


def test_lora_stands_beside_calibration_and_its_calibration_in_figures_of_their_own(adapted: Run) -> None:
    figures = metric_figures(read_findings(adapted).by_suite)
    assert [(figure.name, figure.line) for figure in figures] == [
        ("macro_f1", 0),
        ("rsd", 0),
        ("bias_score", 0),
        ("macro_f1_lora", 1),
        ("rsd_lora", 1),
        ("bias_score_lora", 1),
    ]
    means = {(row["method"], row["n_demos"]): row["rsd"] for row in mart(adapted, "label_bias_by_model")}
    assert f"; LoRA {means['lora', 0]:.3f} at 0" in figures[1].text
    assert "LoRA +" not in figures[1].text
    assert f"; LoRA + CC {means['lora+cc', 0]:.3f} at 0" in figures[4].text
    assert "; CC" not in figures[4].text
    written = {path.stem for path in Path(adapted.root).glob("figures/*.svg")}
    assert written == {figure.name for figure in figures} | {"training_loss"}
    assert len(page_of(adapted).values("alt")) == 7


def test_the_summary_tells_lora_and_calibration_apart(adapted: Run) -> None:
    findings = read_findings(adapted)
    sentences = summarize(findings)
    text = " ".join(sentences)
    assert "in the prompt, by itself and with 30 LoRA adapters, and calibrated by CC, DC and LOOC." in sentences[0]
    assert "ithout calibration" not in text
    changes = {(row["n_demos"], row["method"], row["against_method"]): row for row in findings.changes}
    for against, subject, methods in (
        ("none", "Calibration lowers mean RSD most with ", ("cc", "dc", "looc")),
        ("none", "LoRA alone lowers mean RSD most at ", ("lora",)),
        ("lora", "On top of LoRA, calibration lowers mean RSD most with ", ("lora+cc", "lora+dc", "lora+looc")),
    ):
        chosen = [row for row in changes.values() if row["method"] in methods and row["against_method"] == against]
        best = min(chosen, key=lambda row: row["rsd"])
        before, after = findings.mean(best["n_demos"], against), findings.mean(best["n_demos"], best["method"])
        assert before is not None
        assert after is not None
        [told] = [sentence for sentence in sentences if sentence.startswith(subject)]
        assert f"{best['n_demos']} demonstrations: from {before['rsd']:.3f}" in told
        assert f" to {after['rsd']:.3f} [" in told
        assert f"paired difference {best['rsd']:+.3f}".replace("-", "−") in told
    assert changes[0, "lora", "none"]["rsd_high"] < 0  # what was put into the scores
    assert re.search(r"LoRA alone against no mitigation, by paired intervals .*: mean RSD falls with 0", text)


def test_calibration_on_top_of_lora_that_changes_nothing_is_said_to(adapted: Run) -> None:
    findings = read_findings(adapted)
    unclear = [
        {**row, "rsd_low": -0.1, "rsd_high": 0.1} if row["against_method"] == "lora" else row
        for row in findings.changes
    ]
    told = "Against LoRA alone, no calibration clearly changes mean RSD at any number of demonstrations."
    assert told in summarize(replace(findings, changes=unclear))
    worse = [
        {**row, "rsd": 0.2, "rsd_low": 0.1, "rsd_high": 0.3} if row["against_method"] == "lora" else row
        for row in findings.changes
    ]
    text = " ".join(summarize(replace(findings, changes=worse)))
    assert told not in text
    assert "No calibration method on top of LoRA lowers mean RSD" in text
    assert "Mean RSD clearly rises against LoRA alone" in text
    alone = [
        {**row, "rsd": 0.2, "rsd_low": 0.1, "rsd_high": 0.3} if row["method"] == "lora" else row
        for row in findings.changes
    ]
    text = " ".join(summarize(replace(findings, changes=alone)))
    assert "LoRA alone lowers mean RSD at no number of demonstrations." in text
    assert "mean RSD rises with 0, 2 and 8" in text


def test_costs_stand_beside_the_gain_of_each_method(adapted: Run) -> None:
    """At 2 demonstrations: 6 tasks, 2 sets; inputs of 10 tokens and labels of 2 each; 16 examples of 60 in 2 epochs."""
    source = adapted.read_text("report.html")
    [table] = [part for part in source.split("<table") if "what the method needs beyond scoring" in part]
    cells: dict[tuple[int, str], list[str]] = {}
    n_demos = 0
    for line in re.findall(r"<tr>(.*?)</tr>", table, re.S)[1:]:
        texts = [re.sub(r"<span.*?</span>|<.*?>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", line)]
        if "rowgroup" in line:
            n_demos = int(texts.pop(0))
        cells[n_demos, texts[0]] = texts[1:]
    changes = {
        (row["n_demos"], METHODS[row["method"]]): row
        for row in mart(adapted, "label_bias_changes")
        if row["against_method"] == "none" and row["method"] != "none"
    }
    assert cells.keys() == changes.keys()
    for place, change in changes.items():
        shown = [float(cell.replace("−", "-")) for cell in cells[place][:3]]
        assert shown == pytest.approx([change[metric] for metric in ("rsd", "bias_score", "macro_f1")], abs=6e-4)
    n_labels = 2 * (2 + 4 + 3)  # of the six tasks
    cc = 2 * 3 * (6 * 10 + 2 * n_labels)
    lora = 6 * 2 * 16 * 60 * 2
    assert cells[2, "CC"][3:7] == ["36", f"{cc:,}", "0", "0"]
    assert cells[2, "LoRA"][3:] == ["0", f"{lora:,}", "12", "4,096", "24.0"]  # 12 adapters, 4 steps of half a second
    assert cells[2, "LoRA + CC"][3:7] == ["36", f"{lora + cc:,}", "12", "4,096"]
    assert (0, "LoRA + LOOC") not in cells
    [told] = [sentence for sentence in summarize(read_findings(adapted)) if sentence.startswith("Beyond scoring")]
    assert f"LoRA {30 * 16 * 60 * 2:,} tokens of training for 30 adapters of 4,096 parameters in 60.0 s" in told
    assert [told.index(f" {name} ") for name in ("CC", "DC", "LOOC", "LoRA")] == sorted(
        told.index(f" {name} ") for name in ("CC", "DC", "LOOC", "LoRA")
    )


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
    assert (
        "The mean training loss of 30 adapters falls from 2.0145 nats at the first step to 1.0145 at the last" in text
    )
    assert "mean over adapters: 2.0145 at step 1, 1.0145 at step 4" in " ".join(page_of(adapted).values("alt"))
    assert training_caveats(findings.adaptation) == []
    rising = make_run(tmp_path / "rising", n_tasks=2, n_demos=(0, 2), calibration=(), losses=(1.0, 1.5))
    write_report(rising.uri)
    text = page_of(rising).text
    assert "The mean training loss of 6 adapters rises from 1.0025 nats at the first step to 1.5025 at the last" in text
    assert "The loss of 6 of 6 adapters is not lower at the last step than at the first." in text
    assert "by itself and with 6 LoRA adapters, and not calibrated" in text
    assert "alibration lowers" not in text


def test_the_printed_metrics_have_the_methods_in_the_order_of_the_report(
    adapted: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    print_metrics(adapted.uri, LABEL_BIAS.headline(None))
    shown = re.findall(r"│ +2 │ (\S+)", capsys.readouterr().out)
    assert shown == list(METHODS)


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


def test_a_run_without_marts_says_what_writes_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=1, n_demos=(0,), calibration=())
    for path in (tmp_path / "run" / "marts").iterdir():
        path.unlink()
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        write_report(run.uri)
    assert not run.has("report.html")


def test_what_is_no_label_bias_run_is_refused(tmp_path: Path) -> None:
    scored = {"kind": "score", "model": {"path": "models/tiny"}, "prompts_sha256": "0"}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(scored))
    with pytest.raises(InputError, match="holds a run of the kind score, which has no metrics"):
        write_report(str(tmp_path))
    with pytest.raises(InputError, match="is not a run directory"):
        write_report(str(tmp_path / "absent"))


def test_the_report_needs_no_torch_and_no_ray() -> None:
    code = (
        "import sys, biaseval.report; print(sorted({'torch', 'ray', 'transformers', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"
