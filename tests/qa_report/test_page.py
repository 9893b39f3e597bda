"""The page as a file: it is whole, safe, the same each time, and leads nowhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.errors import BiasevalError
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_findings import read_qa_findings
from biaseval.runs import write_report
from biaseval.store import Run
from tests.pages import Page, page_of, printed_queries
from tests.qa_report.runs import make_run
from tests.qaplans import QaPlan
from tests.specs import write_plan


def test_the_written_files_are_the_report_and_its_figures(run: Run) -> None:
    metrics = ("exact_match", "f1")
    names = [f"significance_squad_{metric}" for metric in metrics]
    names += [f"out_of_distribution_{metric}" for metric in reversed(metrics)]
    names += [f"curve_squad_{name}_{metric}" for name in ("ans_len", "sim_word", "word_dist") for metric in metrics]
    files = [*(f"figures/{name}.svg" for name in names), "summary.json", "report.html"]
    assert write_report(run.uri) == [f"{run.uri}/{name}" for name in files]
    for name in files[:-2]:
        assert run.read_text(name).startswith("<?xml")


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    names = [path.relative_to(run.root).as_posix() for path in Path(run.root).glob("figures/*.svg")]
    before = {name: run.read_bytes(name) for name in [*names, "summary.json", "report.html"]}
    code = f"from biaseval.runs import write_report; write_report({run.uri!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert {name: run.read_bytes(name) for name in before} == before


def test_what_the_page_prints_as_sql_returns_what_it_shows(run: Run) -> None:
    page = page_of(run)
    statements = printed_queries(run.read_text("report.html"))
    answers = {statement: query([run.uri], statement).to_pylist() for statement in statements}
    assert all(answers.values())
    shares, compared, questions = (
        [row for statement, rows in answers.items() if marked in statement for row in rows]
        for marked in ("from qa_by_dataset", "from qa_model_comparisons", "join qa_examples")
    )
    for row in shares:
        for metric in ("exact_match", "f1"):
            assert f"{row[metric]:.2f} [{row[f'{metric}_low']:.2f}, {row[f'{metric}_high']:.2f}]" in page.text

    def of(row: dict[str, Any]) -> str:
        return "EM" if row["metric"] == "exact_match" else f"gap by {row['heuristic']}"

    assert any(
        f"{row['models']} {of(row)} {row['estimate']:+.2f} [{row['simultaneous_low']:+.2f},"
        in page.text.replace("\N{MINUS SIGN}", "-")
        for row in compared
        if row["estimate"] is not None
    )
    assert {"value", "is_lower", "exact_match", "prediction", "question", "answers", "context"} <= set(questions[0])


def test_each_of_several_runs_has_its_own_page(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.root, tmp_path / "copy")
    (tmp_path / "copy" / "report.html").unlink()
    assert [write_report(uri)[-1] for uri in (run.uri, str(tmp_path / "copy"))] == [
        f"{run.uri}/report.html",
        f"{tmp_path}/copy/report.html",
    ]
    assert (tmp_path / "copy" / "report.html").read_bytes() == run.read_bytes("report.html")


def test_nothing_in_the_file_leads_outside_it(run: Run) -> None:
    source = run.read_text("report.html")
    page = page_of(run)
    for forbidden in ("http:", "https:", "url(", "@import"):
        assert forbidden not in source
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link
    assert len(page.values("src")) == 10
    for image in page.values("src"):
        assert image.startswith("data:image/svg+xml;base64,")
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_the_only_script_is_the_one_whose_hash_the_page_allows(run: Run) -> None:
    source = run.read_text("report.html")
    [script] = re.findall(r"<script>(.*?)</script>", source, re.S)
    assert source.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}'" in " ".join(page_of(run).values("content"))


def test_a_click_sorts_by_the_column_of_the_heading(run: Run) -> None:
    tables = re.findall(r'<table class="[^"]*sortable.*?</table>', run.read_text("report.html"), re.S)
    assert len(tables) >= 4
    for one in tables:
        columns = [int(number) for number in re.findall(r'data-column="(\d+)"', one)]
        assert "rowspan" not in one
        for row in re.findall(r"<tr>(?:(?!</tr>).)*</tr>", one.partition("<tbody>")[2], re.S):
            assert columns == list(range(len(re.findall(r"<t[hd]\b", row))))


def test_tables_have_captions_and_scoped_headers(run: Run) -> None:
    source = run.read_text("report.html")
    assert source.count("<caption>") == source.count("<table")
    assert len(re.findall(r"<th\b", source)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', source))


def test_markup_in_texts_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    answer = "<b>&amp; 'it'</b>"
    texts = {
        "question": f"Who? {hostile}",
        "context": f"</mark></p>{hostile} {answer} <script>alert(2)</script>",
        "answers": [answer],
        "answer_starts": [len(f"</mark></p>{hostile} ")],
    }

    def predict(plan: QaPlan) -> None:
        for row in plan.predictions:
            row["prediction"] = f"</b>{hostile}"

    run = make_run(tmp_path, texts=texts, change=predict)
    write_plan(run, notes=[hostile], models=[])
    run.write_text("environment.json", json.dumps({"text": {hostile: {"name": hostile, "is_approximate": True}}}))
    write_report(run.uri)
    page = page_of(run)
    for text in (f"Who? {hostile}", f"</mark></p>{hostile}", answer, "<script>alert(2)</script>", f"</b>{hostile}"):
        assert text in page.text
    assert "onerror" not in {name for _, name, _ in page.attributes}
    assert not any(value.startswith("//") for value in page.values("src"))
    source = run.read_text("report.html")
    assert source.count("<script") == 1
    assert "<b>&amp; '" not in source


def test_missing_facts_of_plan_and_environment_are_left_out(tmp_path: Path) -> None:
    text = Page(render_qa_page(read_qa_findings(make_run(tmp_path)), [])).text
    assert "Where the heuristics" not in text
    assert "None" not in text


def test_a_run_without_marts_says_what_writes_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for path in (tmp_path / "run" / "marts").iterdir():
        path.unlink()
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        write_report(run.uri)
    assert not run.has("report.html")
