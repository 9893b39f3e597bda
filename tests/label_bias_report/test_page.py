"""The page as a file: it is whole, safe, the same each time, and leads nowhere."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from biaseval.analysis import query
from biaseval.errors import BiasevalError, InputError
from biaseval.report.figures import metric_figures
from biaseval.report.findings import METRICS, Findings
from biaseval.report.page import render_page
from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run
from tests.pages import Page, page_of


def test_the_written_files_are_the_report_and_a_figure_per_suite_and_metric(run: Run) -> None:
    metrics = ("rsd", "accuracy", "macro_f1", "bias_score")
    figures = [f"figures/{metric}{suite}.svg" for suite in ("", "_semantically_equivalent") for metric in metrics]
    assert write_report(run.uri) == [f"{run.uri}/{name}" for name in [*figures, "summary.json", "report.html"]]
    for name in figures:
        assert run.read_text(name).startswith("<?xml")


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    names = [path.relative_to(run.root).as_posix() for path in Path(run.root).glob("figures/*.svg")]
    before = {name: run.read_bytes(name) for name in [*names, "summary.json", "report.html"]}
    code = f"from biaseval.runs import write_report; write_report({run.uri!r})"
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
    assert len(queries) == len(set(queries)) == 11  # two suites, three numbers of demonstrations, six of all tasks
    for sql in queries:
        assert query([run.uri], sql).num_rows > 0, sql


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
        preferred=[{**findings.preferred[0], "task": name, "n_demos": 16} for name in names],
        tasks=[{**findings.tasks[0], "task": name} for name in names],
    )
    page = render_page(large, metric_figures(findings.by_suite))
    assert page.count(names[-1]) == 1 + 4 + 2  # ranked, each number of demonstrations, tasks and templates of settings
    assert len(page.encode()) < 2e6


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


def test_a_suite_of_one_task_repeats_no_table_of_tasks(tmp_path: Path) -> None:
    for n_equivalent, is_shown in ((1, False), (2, True)):
        run = make_run(
            tmp_path / f"run{n_equivalent}", n_tasks=3, n_demos=(0,), calibration=(), n_equivalent=n_equivalent
        )
        files = write_report(run.uri)
        assert ("semantically equivalent labels" in page_of(run).text) is is_shown
        assert any("_semantically_equivalent" in name for name in files) is is_shown


def test_missing_facts_of_plan_and_environment_are_left_out(findings: Findings) -> None:
    page = Page(render_page(replace(findings, plan={}, environment={}), []))
    assert "Settings" in page.text
    assert "None" not in page.text


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
