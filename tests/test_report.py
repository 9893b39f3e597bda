"""The report against runs whose scores have a known bias; the marts behind it are the real ones."""

from __future__ import annotations

import base64
import hashlib
import html
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

from biaseval.analysis import query
from biaseval.cli.printing import print_metrics
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines import write_report
from biaseval.pipelines.label_bias import LABEL_BIAS
from biaseval.report.cautions import caveats
from biaseval.report.figures import _spread, _styles, metric_figures
from biaseval.report.findings import METRICS, Findings, Row, read_findings
from biaseval.report.methods import METHODS, method_name, side_by_side
from biaseval.report.mitigation import training_caveats
from biaseval.report.page import render_page
from biaseval.report.summary import conclude, measured, scope_of_words
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
    preference: float = PREFERENCE,
) -> Run:
    """Return a finished run whose scores prefer the first label, less with more demonstrations.

    A main row's log-likelihoods are the preference, plus ``signal`` on the gold label, plus noise; inputs without an
    answer show the preference and noise only, so that calibration can take the preference away. With ``losses``, one
    for each step, the run has adapters, which leave a quarter of the preference.
    """
    generator = np.random.default_rng(7)
    run = Run.open(str(folder))
    run.create()
    tasks, contexts, prompts = [], [], []
    scores: list[Row] = []
    adapted_scores: list[Row] = []
    adapters = []
    for number in range(n_tasks):
        task = f"task{number:03d}_synthetic"
        names = sorted(labels or LABELS[number % len(LABELS)])
        strength = preference * generator.uniform(0.3, 1.7)
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
                ahead = np.zeros(len(names))
                ahead[0] = strength / (1 + k / 4)
                n_rows = {"main": n_main, "bias_score": n_bias_score, "cc": 3, "dc": 20, "looc": k}
                for purpose in ("main", "bias_score", *calibration):
                    for row in range(n_rows[purpose]):
                        gold = None if purpose in ("cc", "dc") else row % len(names)
                        logs = ahead + generator.normal(0, 0.5, len(names)) - 2
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
                        for rows, shown in ((scores, logs), (adapted_scores, logs - 0.75 * ahead)):
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
        if self.open_tags[-1:] not in (["style"], ["script"]):
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
    metrics = ("rsd", "accuracy", "macro_f1", "bias_score")
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
    ids = set(page.values("id"))
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link
    for image in page.values("src"):
        assert image.startswith("data:image/svg+xml;base64,")
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_the_only_script_is_the_one_whose_hash_the_page_allows(run: Run) -> None:
    source = run.read_text("report.html")
    [script] = re.findall(r"<script>(.*?)</script>", source, re.S)
    assert source.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = [value for value in page_of(run).values("content") if "default-src" in value]
    assert policy.endswith(f"; script-src 'sha256-{digest}'")
    assert not [name for name in {name for _, name, _ in page_of(run).attributes} if name.startswith("on")]


def test_every_query_of_the_page_gives_rows(run: Run) -> None:
    source = run.read_text("report.html")
    queries = [html.unescape(query) for query in re.findall(r"<summary>SQL</summary><code>(.*?)</code>", source)]
    assert len(queries) == len(set(queries)) == 10  # two suites, three numbers of demonstrations, five of all tasks
    for sql in queries:
        assert query([run.uri], sql).num_rows > 0, sql


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
    change = findings.verdicts[2, "dc", 2, "none"]["rsd"]
    assert change["estimate"] == pytest.approx(differences.mean())
    assert change["standard_error"] == pytest.approx(differences.std(ddof=1) / np.sqrt(12))
    [remedy] = [row for row in findings.remedies if (row["n_demos"], row["method"]) == (2, "dc")]
    assert remedy["rsd"] - remedy["rsd_before"] == pytest.approx(differences.mean())


def without_markup(line: str) -> str:
    """Return the text of a line of HTML, cells apart."""
    return html.unescape(re.sub(r"<[^>]*>", " ", line))


def test_the_table_of_remedies_has_before_after_and_the_word_of_the_test(run: Run, findings: Findings) -> None:
    tables = [
        part.split("</table>")[0] for part in run.read_text("report.html").split('<table class="dense remedies">')
    ]
    assert [re.findall(r'rowspan="\d+">(\d+)</th>', table) for table in tables[1:]] == [["0", "8"], ["2"]]
    words = {"unclear": "no clear change", "lower": "lower", "higher": "higher", "negligible": "negligible"}
    verdicts = {
        (row["n_demos"], row["method"], row["metric"]): row
        for row in mart(run, "label_bias_verdicts")
        if row["suite"] == "all"
    }
    means = {(row["n_demos"], row["method"]): row for row in findings.by_suite["all"]}
    lines = [
        re.sub(r"\s+", " ", without_markup(line))
        for table in tables[1:]
        for line in re.findall(r"<tr>.*?</tr>", table, re.S)
    ]
    for n_demos, method in ((8, "dc"), (0, "cc"), (2, "looc")):
        before, after = means[n_demos, "none"], means[n_demos, method]
        expected = [METHODS[method]]
        for metric in ("rsd", "bias_score", "accuracy"):
            verdict = verdicts[n_demos, method, metric]
            here, others = (words[verdict[name]] for name in ("same_tasks_verdict", "verdict"))
            expected.append(f"{before[metric]:.3f} → {after[metric]:.3f} {here}")
            expected += [f"others: {others}"] if others != here else []
        expected.append(f"{after['majority_accuracy']:.3f}")
        assert [line for line in lines if " ".join(expected) in line], expected
    [more] = [line for line in lines if " 8 rather than 0 " in line]
    assert f"{means[0, 'none']['rsd']:.3f} → {means[8, 'none']['rsd']:.3f}" in more
    both = [(row["same_tasks_verdict"], row["verdict"]) for row in verdicts.values()]
    assert ("lower", "unclear") in both
    assert ("lower", "lower") in both
    # What was put into the scores: calibration takes the preference away.
    assert verdicts[0, "cc", "rsd"]["verdict"] == "lower"
    assert '<span class="word gain">lower</span>' in tables[1]


def test_the_verdict_tells_the_bias_that_was_put_into_the_scores(findings: Findings) -> None:
    assert measured(findings).startswith(
        "12 tasks · 288 test rows, 2 to 4 labels · 0, 2 and 8 demonstrations (2 sets of them) · no calibration, CC"
    )
    assert measured(replace(findings, environment={"date": "2024-02-29"})).endswith(" · 2024-02-29")
    lines = dict(conclude(findings))
    first, last = findings.mean(0, "none"), findings.mean(8, "none")
    assert first is not None
    assert last is not None
    assert lines["RSD, no calibration"] == (
        f"{first['rsd']:.3f} with 0 demonstrations, above the noise of rows ({first['rsd_floor']:.3f}) in "
        f"{first['n_tasks_rsd']} of 12 tasks; {last['rsd']:.3f} with 8, above it "
        f"({last['rsd_floor']:.3f}) in {last['n_tasks_rsd']} of 12 tasks."
    )
    assert lines["BiasScore, no calibration"].startswith(f"{first['bias_score']:.3f} with 0 demonstrations")
    assert first["n_tasks_rsd"] > 0
    assert lines["How sure"].startswith(
        "the first word of each difference is for other rows of these 12 tasks, “others” (where not the same) for "
        "other tasks like these; of each, the chance of any wrong word is 5 %. Of other tasks"
    )
    assert lines["What to do"].startswith("on these tasks, RSD or BiasScore is lower, and no loss of accuracy")
    assert re.search(r"macro-F1 is seen, with CC \(0 ", lines["What to do"])
    assert "For other tasks like these, it is shown with CC (0 demonstrations)" in lines["What to do"]


def test_what_is_recommended_is_lower_in_bias_and_not_in_performance(findings: Findings) -> None:
    [advice] = [line.text for line in conclude(findings) if line.lead == "What to do"]
    here, _, others = advice.partition("For other tasks like these")
    told = {"same_tasks_verdict": ("is_supported_on_these_tasks", here), "verdict": ("is_supported", others)}
    n_supported = {}
    for verdict, (is_supported, text) in told.items():
        for row in findings.remedies:
            words = {
                metric: findings.verdicts[row["n_demos"], row["method"], row["against_n_demos"], "none"][metric]
                for metric in METRICS
            }
            assert all(row[f"{metric}_{verdict}"] == words[metric][verdict] for metric in METRICS)
            gains = {words["rsd"][verdict], words["bias_score"][verdict]}
            losses = {words["accuracy"][verdict], words["macro_f1"][verdict]}
            is_better = "lower" in gains and "higher" not in gains and "lower" not in losses
            expected = is_better and not row["is_below_majority"]
            assert row[is_supported] == expected, row
            name = "more demonstrations" if row["method"] == "none" else METHODS[row["method"]]
            named = re.findall(rf"(?:with |, |and ){name} \(([^)]*)\)", text)
            numbers = [int(number) for each in named for number in re.findall(r"\d+", each)]
            assert (row["n_demos"] in numbers) == expected, (row, advice)
        n_supported[verdict] = sum(row[is_supported] for row in findings.remedies)
    assert 0 < n_supported["verdict"] < n_supported["same_tasks_verdict"]


def test_the_changes_have_the_interval_of_these_tasks_and_the_band_of_others(run: Run, findings: Findings) -> None:
    source = run.read_text("report.html")
    changes = source[source.index('<section aria-labelledby="changes">') :].split("</section>")[0]
    cells = [
        re.sub(r"\s+", " ", without_markup(cell)).strip() for cell in re.findall(r"<td title.*?</td>", changes, re.S)
    ]
    rows = [by_metric[metric] for by_metric in findings.verdicts.values() for metric in METRICS]
    assert len(cells) == len(rows)
    words = {"unclear": "no clear change", "lower": "lower", "higher": "higher", "negligible": "negligible"}
    for cell, row in zip(cells, rows, strict=True):
        shown = [
            f"{row[name]:+.3f}".replace("-0.000", "+0.000").replace("-", "\N{MINUS SIGN}")
            for name in ("estimate", "same_tasks_low", "same_tasks_high", "simultaneous_low", "simultaneous_high")
        ]
        expected = "{} [{}, {}] word others: [{}, {}]".format(*shown).replace("word", words[row["same_tasks_verdict"]])
        assert cell == expected + (f" {words[row['verdict']]}" if row["verdict"] != row["same_tasks_verdict"] else "")


def test_six_tasks_say_what_holds_for_them_where_they_say_nothing_of_others(findings: Findings) -> None:
    verdicts = {
        place: {metric: {**row, "verdict": "unclear"} for metric, row in by_metric.items()}
        for place, by_metric in findings.verdicts.items()
    }
    remedies = [{**row, "is_supported": False, "rsd_verdict": "unclear"} for row in findings.remedies]
    [advice] = [
        line.text
        for line in conclude(replace(findings, verdicts=verdicts, remedies=remedies))
        if line.lead == "What to do"
    ]
    assert advice.startswith("on these tasks, RSD or BiasScore is lower")
    assert "None of this is shown for other tasks like these. To find a change of RSD by 0.05 takes about" in advice
    here = [{**row, "is_supported": row["is_supported_on_these_tasks"]} for row in findings.remedies]
    [advice] = [line.text for line in conclude(replace(findings, remedies=here)) if line.lead == "What to do"]
    assert advice.endswith(" All of this is shown for other tasks like these, too.")


def test_a_remedy_below_the_majority_class_is_marked_and_not_recommended(tmp_path: Path) -> None:
    # Calibration inverts the scores: inputs without an answer prefer what is right.
    run = make_run(tmp_path / "run", n_tasks=8, n_demos=(0,), demo_sets=1, signal=-3.0, labels=["A", "B"])
    write_report(run.uri)
    findings = read_findings(run)
    assert all(row["is_below_majority"] for row in findings.remedies)
    assert all(row["accuracy"] < row["majority_accuracy"] for row in findings.remedies)
    assert not any(row["is_supported"] for row in findings.remedies)
    [advice] = [line.text for line in conclude(findings) if line.lead == "What to do"]
    assert not any(row["is_supported_on_these_tasks"] for row in findings.remedies)
    assert advice.startswith("on these tasks, no remedy is shown to lower RSD or BiasScore without a loss")
    assert "Nor is one for other tasks like these." in advice
    [table] = [part for part in run.read_text("report.html").split("</table>") if 'class="dense remedies"' in part]
    assert table.count('<span class="word cost">below</span>') == len(findings.remedies) + 1  # and without any


def test_how_many_tasks_are_needed_grows_with_the_square_of_what_is_seen(run: Run) -> None:
    verdicts = {
        (row["suite"], row["n_demos"], row["method"]): row
        for row in mart(run, "label_bias_verdicts")
        if row["metric"] == "rsd"
    }
    remedies = mart(run, "label_bias_remedies")
    assert {row["suite"] for row in remedies} == {"all", "semantically_equivalent"}
    for row in remedies:
        verdict = verdicts[row["suite"], row["n_demos"], row["method"]]
        needed = np.ceil(verdict["n_units"] * (verdict["smallest_detectable"] / 0.05) ** 2)
        assert row["rsd_n_needed"] == max(6, needed)


def test_a_constant_answer_comes_first(tmp_path: Path) -> None:
    several = make_run(tmp_path / "several", n_tasks=6, n_demos=(0, 8), preference=40.0)
    rows = {row["n_demos"]: row for row in read_findings(several).by_suite["all"] if row["method"] == "none"}
    assert rows[0]["n_tasks_constant"] == 6
    line, *_ = conclude(read_findings(several))
    assert line.lead == "Nearly always the same answer"
    assert line.text.startswith("in 6 of 6 tasks with 0 demonstrations and ")
    one = make_run(tmp_path / "one", n_tasks=1, n_demos=(0,), n_main=60, labels=["no", "yes"], preference=40.0)
    line, *_ = conclude(read_findings(one))
    assert line.text == (
        "“no” is 100.0 % of the answers and 50.0 % of the gold labels with 0 demonstrations (no calibration)."
    )


def test_fewer_than_six_tasks_have_words_for_themselves_and_none_for_others(tmp_path: Path) -> None:
    run = make_run(tmp_path / "three", n_tasks=3, n_demos=(0, 2), n_main=120, n_bias_score=32)
    write_report(run.uri)
    findings = read_findings(run)
    assert scope_of_words(findings) == (True, False, 3)
    rows = [row for by_metric in findings.verdicts.values() for row in by_metric.values()]
    assert {row["verdict"] for row in rows} == {"too few"}
    assert "lower" in {row["same_tasks_verdict"] for row in rows}
    lines = dict(conclude(findings))
    assert lines["How sure"] == (
        "“lower” and “higher” are for other rows of these 3 tasks, with a 5 % chance of any wrong word; of other tasks "
        "a test over 3 says nothing, at least 6 are needed."
    )
    assert lines["What to do"].startswith("on these tasks, RSD or BiasScore is lower")
    assert lines["What to do"].endswith("For other tasks nothing is shown; measure 6 tasks or more.")
    source = run.read_text("report.html")
    assert '<span class="word gain">lower</span>' in source
    assert "others:" not in source
    assert source.count("too few") == 1  # of the table of changes: why it has no band


def test_a_run_of_fewer_than_six_rows_has_no_word_and_that_is_said_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "rows", n_tasks=1, n_demos=(0,), n_main=4, n_bias_score=4)
    write_report(run.uri)
    findings = read_findings(run)
    assert scope_of_words(findings) == (False, False, 1)
    lines = dict(conclude(findings))
    assert lines["No verdicts"].startswith("a test over 4 rows cannot reach 5 %, at least 6 are needed")
    assert lines["What to do"] == "measure 6 rows or more; nothing can be recommended from these."
    source = run.read_text("report.html")
    assert 'class="word' not in source.replace('class="word cost">below', "")
    assert source.count("too few") == 1  # of the table of changes: why it has no band


def test_rows_behind_a_verdict_are_wrong_and_of_the_preferred_label(run: Run, findings: Findings) -> None:
    assert set(findings.wrong) <= {task["task"] for task in findings.ranked[:10]}
    scores: dict[str, dict[str, float]] = {}
    for row in pq.read_table(f"{run.root}/label_scores").to_pylist():
        scores.setdefault(row["prompt_id"], {})[row["label"]] = sum(row["token_logprobs"])
    prompts = {
        (row["task"], row["n_demos"], row["demo_set"], row["row"]): row
        for row in pq.read_table(f"{run.root}/prompts").to_pylist()
        if row["purpose"] == "main"
    }
    n_rows = 0
    for task, rows in findings.wrong.items():
        labels = findings.labels[task]
        preferred = max(labels, key=lambda label: label["n_predicted"] - label["n_gold"])["label"]
        assert 1 <= len(rows) <= 5
        for row in rows:
            prompt = prompts[task, 8, row["demo_set"], row["row"]]
            logs = scores[prompt["prompt_id"]]
            assert max(logs, key=lambda label: logs[label]) == row["prediction"] == preferred
            assert row["gold"] == prompt["gold"] != preferred
            assert row["gold_probability"] <= row["probability"] < 1
            n_rows += 1
    assert n_rows > 10
    assert query([run.uri], "from wrong_answers where gold = prediction").num_rows == 0
    wrong = query([run.uri], "select count(*) as n from wrong_answers").to_pylist()[0]["n"]
    counts = query([run.uri], "select sum(n_gold - n_correct)::bigint as n from label_bias_by_label").to_pylist()
    assert wrong == counts[0]["n"]


def test_long_texts_of_a_run_are_cut(findings: Findings) -> None:
    task, [row, *_] = next(iter(findings.wrong.items()))
    page = render_page(replace(findings, wrong={task: [{**row, "input_text": "x" * 5000}]}), [])
    assert "x" * 300 + " …" in page
    assert "x" * 301 not in page


def test_the_page_of_a_large_suite_stays_small(findings: Findings) -> None:
    """256 tasks in 15 settings of other numbers of demonstrations and methods."""
    names = [f"task{number:04d}_{'x' * 40}" for number in range(256)]
    settings = [row for row in findings.by_task if row["task"] == findings.tasks[0]["task"]]
    settings += [{**row, "n_demos": 16} for row in settings if row["n_demos"] == 8]
    assert len(settings) == 15
    numbers = np.random.default_rng(0).random(len(names) * len(settings) * 4).tolist()
    by_task = [
        {**row, "task": name, **{metric: numbers.pop() for metric in METRICS}} for name in names for row in settings
    ]
    labels = findings.labels[settings[0]["task"]]
    large = replace(
        findings,
        n_demos=(0, 2, 8, 16),
        by_task=by_task,
        ranked=[row for row in by_task if (row["n_demos"], row["method"]) == (16, "none")],
        labels=dict.fromkeys(names, labels),
        tasks=[{**findings.tasks[0], "task": name} for name in names],
    )
    page = render_page(large, metric_figures(findings.by_suite))
    assert page.count(names[-1]) == 1 + 4 + 2  # ranked, each number of demonstrations, tasks and templates of settings
    assert len(page.encode()) < 2e6


def test_tasks_are_ranked_by_bias_beyond_the_noise_and_ties_by_name(findings: Findings) -> None:
    order = [(-row["rsd_excess"], row["task"]) for row in findings.ranked if row["rsd_excess"] is not None]
    assert order == sorted(order)
    assert len(findings.ranked) == 12


def test_label_shares_add_up_to_one(findings: Findings) -> None:
    assert findings.labels.keys() == {task["task"] for task in findings.ranked}
    for labels in findings.labels.values():
        for share in ("gold_share", "predicted_share", "mean_probability"):
            assert sum(label[share] for label in labels) == pytest.approx(1)


def test_shortened_prompts_inferred_templates_and_left_out_tasks_are_told(run: Run, findings: Findings) -> None:
    # One main row per task and set has 7 of 8 demonstrations; LOOC's one fewer is by design.
    assert findings.cut_prompts == [
        {"n_demos": 8, "purpose": "main", "n_rows": 12 * 24 * 2, "n_fewer_demos": 12 * 2, "n_truncated": 0}
    ]
    told = " ".join(caveats(findings))
    assert "tasks are few" not in told
    assert "24 prompts hold fewer demonstrations" in told
    assert "template of 6 tasks is inferred" in told
    assert "1 task was left out" in told
    text = page_of(run).text
    assert "has <4 labels> & more" in text
    assert "3 inputs do not fit the template" in text
    assert "cd" * 32 in text


def test_a_single_task_is_tested_over_its_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", n_tasks=1, demo_sets=1, n_main=120, n_bias_score=32)
    write_report(run.uri)
    findings = read_findings(run)
    assert {row["unit"] for row in findings.remedies} == {"rows"}
    lines = dict(conclude(findings))
    assert lines["How sure"].startswith(
        "“lower” and “higher” are for other rows of this task (tested over 120), with a 5 %"
    )
    assert lines["What to do"].startswith("on this task, ")
    rows = [row for by_metric in findings.verdicts.values() for row in by_metric.values()]
    assert all(row["verdict"] == row["same_tasks_verdict"] for row in rows)
    assert all(row["is_supported"] == row["is_supported_on_these_tasks"] for row in findings.remedies)
    assert "others:" not in run.read_text("report.html")
    [task] = [row for row in findings.by_task if (row["n_demos"], row["method"]) == (0, "none")]
    assert task["rsd_p"] < 0.001
    assert f"above the noise of rows ({task['rsd_floor']:.3f}; p < 0.001)" in lines["RSD, no calibration"]
    text = page_of(run).text
    assert "95 % interval over the rows of the only task" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "says nothing about other tasks" in text


def test_without_calibration_and_demonstrations_there_is_nothing_to_compare(tmp_path: Path) -> None:
    run = make_run(tmp_path / "plain", n_tasks=3, n_demos=(0,), calibration=())
    write_report(run.uri)
    findings = read_findings(run)
    assert findings.verdicts == {}
    assert findings.remedies == []
    lines = dict(conclude(findings))
    assert lines["What to do"].startswith("no remedy was measured")
    assert "How sure" not in lines
    source = run.read_text("report.html")
    assert 'id="changes"' not in source
    assert 'class="dense remedies"' not in source


def test_a_metric_without_rows_is_not_shown_as_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), n_bias_score=0)
    written = write_report(run.uri)
    findings = read_findings(run)
    assert all(row["bias_score"] is None for row in findings.by_suite["all"])
    assert not any("bias_score" in name for name in written)
    assert not any("BiasScore" in line.lead for line in conclude(findings))
    assert "–" in page_of(run).text


def test_a_model_that_is_always_right_has_no_bias_to_lower(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=6, n_demos=(0, 2), signal=50.0)
    lines = dict(conclude(read_findings(run)))
    assert lines["RSD, no calibration"].startswith(
        "0.000 with 0 demonstrations, of which the rows cannot tell the noise"
    )
    assert lines["What to do"].startswith(
        "on these tasks, no remedy is shown to lower RSD or BiasScore without a loss of"
    )


def test_tasks_without_a_correct_prediction_are_told_for_every_method(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0,), calibration=("dc",), signal=-50.0)
    told = " ".join(caveats(read_findings(run)))
    assert "2 tasks (no calibration, 0 demonstrations) and 2 tasks (DC, 0 demonstrations)." in told
    assert "2 tasks are few" in told


def test_tasks_whose_bias_score_cannot_be_0_and_single_gold_labels_are_named(findings: Findings) -> None:
    first, second, *others = findings.ranked
    ranked = [{**first, "bias_score_of_perfect": 0.5}, {**second, "n_main_gold_labels": 1}, *others]
    told = " ".join(caveats(replace(findings, ranked=ranked)))
    assert f"a model that is always right has more than 0.1 in {first['task']} (0.500)." in told
    assert f"so that RSD is 0 for every method, in {second['task']}." in told
    every = [{**row, "bias_score_of_perfect": 0.2} for row in findings.ranked]
    assert "and 7 more." in " ".join(caveats(replace(findings, ranked=every)))


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


def test_missing_facts_of_plan_and_environment_are_left_out(findings: Findings) -> None:
    page = Page(render_page(replace(findings, plan={}, environment={}), []))
    assert "Settings" in page.text
    assert "None" not in page.text


def test_no_sentence_of_the_page_says_more_than_a_test(run: Run) -> None:
    text = page_of(run).text.partition("Spec and environment")[0]
    assert not re.search(r"\b(clearly|best|lowest|significant\w*|falls|rises)\b", text)


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
    assert [figure.name for figure in figures] == ["rsd", "accuracy", "macro_f1", "bias_score"]
    assert "new_method" in figures[0].text
    floors = [row["rsd_floor"] for row in rows if row["method"] == "none"]
    assert f"noise of rows {floors[0]:.3f} at 0, {floors[1]:.3f} at 2" in figures[0].text
    assert "majority class" in figures[1].text
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
    assert {row["method"] for row in findings.remedies} == set(METHODS)
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
