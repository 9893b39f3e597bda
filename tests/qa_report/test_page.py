"""The page as a file is whole, safe and the same each time; its numbers, examples and figures are those of the run."""

import json
import re
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.cli.printing import print_metrics
from biaseval.pipelines.directory import read_spec
from biaseval.report import run_page
from biaseval.report.charts import Chart
from biaseval.runs import headline, write_report
from biaseval.store import Run
from tests.pages import assert_answered, assert_of_marts, assert_said, assert_whole, mart, page_of, printed_queries
from tests.qa_report.runs import Row, make_run
from tests.qaplans import QaPlan
from tests.specs import write_plan


def test_the_page_is_whole_the_same_each_time_and_its_numbers_are_those_of_marts(run: Run) -> None:
    metrics = ("exact_match", "f1")
    names = ["segments_squad", *(f"significance_squad_{metric}" for metric in metrics)]
    names += [f"out_of_distribution_{metric}" for metric in reversed(metrics)]
    names += [f"curve_squad_{name}_{metric}" for name in ("ans_len", "sim_word", "word_dist") for metric in metrics]
    files = [*(f"figures/{name}.svg" for name in names), "summary.json", "report.html"]
    before = {name: run.read_bytes(name) for name in files}
    assert write_report(run.uri) == [f"{run.uri}/{name}" for name in files]
    assert {name: run.read_bytes(name) for name in files} == before
    source, page = run.read_text("report.html"), page_of(run)
    assert_whole(source)
    assert_answered(source, [run.uri], 8)
    assert_of_marts(source, run)
    assert len(page.values("src")) == len(names)
    for name in ("conclusions", "cautions"):
        for row in query([run.uri], f"from qa_bias_{name}").to_pylist():
            assert row["text"] in page.text
    words = [
        "strong, weak · squad .200 questions. · out of distribution: news .20 .* variant paper",
        "note 7: <approxi",
    ]
    assert_said(page.text, [*words, "sim_word Different words that question and context share", "!None"])


def test_a_users_heuristic_goes_by_its_name(tmp_path: Path) -> None:
    run = make_run(tmp_path, heuristics=["ans_len", "my.module:n_commas"])
    source = {"my.module:n_commas": {"name": "a function", "is_approximate": False, "meaning": "How many commas."}}
    for text, meaning in (({}, "The user's function n_commas of the module my.module."), (source, "How many commas.")):
        run.write_json("environment.json", {"text": text})
        assert f"{run.uri}/figures/curve_squad_my.module-n_commas_f1.svg" in write_report(run.uri)
        assert f"my.module:n_commas {meaning}" in page_of(run).text


def test_the_terminal_says_of_each_bias_what_tests_make_of_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics(run.uri, headline(read_spec(run)))
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert max(map(len, lines)) <= 110
    told_of = {tuple(cells[:3]): cells for line in lines if (cells := [cell.strip() for cell in line[1:-1].split("│")])}
    biases, tests = ({_place(row): row for row in mart(run, f"qa_bias_{name}")} for name in ("by_heuristic", "tests"))
    assert set(told_of) == set(biases)
    for key, row in biases.items():
        *_, significance, worse, p, detectable, finding = told_of[key]
        test, value = tests[key], row["bias_significance"]
        groups = [row[f"{side}_exact_match"] for side in ("lower", "higher")]
        numbers = [value, None if None in groups else min(groups), test["p_adjusted"], test["smallest_detectable"]]
        assert [significance, worse, p, detectable] == ["" if one is None else f"{one:.4f}" for one in numbers]
        if test["is_supported"]:
            assert finding == f"better where {'≤' if row['biased_segment'] == 'lower' else '>'} {row['threshold']:g}"
        elif value is None:
            assert finding == {"no threshold to try": "one value only"}.get(row["status"], row["status"])
        else:
            assert finding == ("within chance" if value else "no bias found")
    assert {"better", "no bias found"} <= {cells[-1].split(" where")[0] for cells in told_of.values()}


def _place(row: Row) -> tuple[str, ...]:
    return row["model"], row["dataset"], row["heuristic"]


def test_examples_are_right_where_the_bias_helps_and_wrong_where_it_does_not(run: Run, tmp_path: Path) -> None:
    def examples(own: Run) -> list[Row]:
        [shown] = {
            sql
            for sql in printed_queries(own.read_text("report.html"))
            if "from qa_attributes" in sql or "as marked" in sql
        }
        found: list[Row] = query([own.uri], shown).to_pylist()
        return found

    biases = {_place(row): row for row in mart(run, "qa_bias_by_heuristic")}
    found = examples(run)
    assert len(found) == 4 * len({_place(row) for row in found}) == 8
    for row in found:
        bias = biases[_place(row)]
        assert (row["dataset"], row["exact_match"]) == ("squad", row["is_better"])
        assert row["is_better"] == ((row["value"] <= bias["threshold"]) == (bias["biased_segment"] == "lower"))
        before, marked, after = row["marked"]
        assert (marked, before[0], after[-1]) == (row["gold"], "…", "…")
        assert before.endswith("word99 ")
    assert "<mark>answer" in run.read_text("report.html")

    def reverse(plan: QaPlan) -> None:
        plan.predictions.reverse()
        plan.attributes.reverse()

    again = make_run(tmp_path, change=reverse, n_parts=3)
    write_report(again.uri)
    assert examples(again) == found


MARKED = [
    ("a b c", ["b"], [2], ["a ", "b", " c"]),
    ("b a b c", ["b"], [4], ["b a ", "b", " c"]),
    ("a b c", ["b"], [0], ["a ", "b", " c"]),  # the start is not that of the text
    ("a b c", ["x"], [0], ["a b c", "", ""]),
]
"""Contexts with answers and their starts, and the parts around what is marked."""


def test_the_gold_answer_is_marked_where_it_stands(tmp_path: Path) -> None:
    def change(plan: QaPlan) -> None:
        for number, example in enumerate(plan.examples):
            context, answers, starts, _ = MARKED[number % 4]
            example.update(question=str(number % 4), context=context, answers=answers, answer_starts=starts)

    run = make_run(tmp_path, heuristics=["ans_len"], change=change)
    write_report(run.uri)
    [shown] = {sql for sql in printed_queries(run.read_text("report.html")) if "as marked" in sql}
    few = query([run.uri], shown).num_rows
    rows = query([run.uri], shown.replace(") <= 2", ") <= 200")).to_pylist()
    assert {(int(row["question"]), *row["marked"]) for row in rows} == {
        (number, *parts) for number, (*_, parts) in enumerate(MARKED)
    }
    assert few < len(rows)


def test_markup_in_texts_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    answer, before = "<b>&amp; 'it'</b>", f"</mark></p>{hostile} "
    texts = {"question": f"Who? {hostile}", "context": f"{before}{answer} <script>alert(2)</script>"}
    texts |= {"answers": [answer], "answer_starts": [len(before)]}

    def predict(plan: QaPlan) -> None:
        for row in plan.predictions:
            row["prediction"] = f"</b>{hostile}"

    run = make_run(tmp_path, texts=texts, change=predict)
    write_plan(run, notes=[hostile], models=[])
    run.write_text("environment.json", json.dumps({"text": {hostile: {"name": hostile, "is_approximate": True}}}))
    write_report(run.uri)
    page, source = page_of(run), run.read_text("report.html")
    for text in (f"Who? {hostile}", before.strip(), answer, "<script>alert(2)</script>", f"</b>{hostile}"):
        assert text in page.text
    assert "onerror" not in {name for _, name, _ in page.attributes}
    assert ("<script>alert" in source, "<b>&amp; '" in source) == (False, False)


def test_figures_mark_what_is_significant_by_shape_and_width(run: Run) -> None:
    figures: dict[str, Chart] = {figure.name: figure for figure in run_page(run).figures}
    tests = [row for row in mart(run, "qa_bias_tests") if row["dataset"] == "squad"]
    dots = json.loads(figures["significance_squad_exact_match"].json)["data"]["values"]
    shown = {(dot["series"], re.sub(r" \(T.*", "", dot["y"])): dot for dot in dots}
    for row in tests:
        dot = shown[row["model"], row["heuristic"]]
        assert (dot["is_filled"], dot["is_thick"], dot["x"]) == (*[row["is_supported"]] * 2, row["bias_significance"])
    n = sum(row["is_supported"] for row in tests)
    assert 0 < n < len(tests)
    averages = [row for row in mart(run, "qa_by_model") if row["dataset"] == "squad"]
    for row in averages:
        dot = shown[row["model"], "average"]
        assert (dot["is_filled"], dot["x"]) == (bool(row["is_above_null"]), row["bias_significance"])
    n_hollow = len(tests) - n + sum(not row["is_above_null"] for row in averages)
    assert figures["significance_squad_exact_match"].text.count("(hollow)") == n_hollow
    assert "none found" in figures["significance_squad_f1"].text
    groups = json.loads(figures["segments_squad"].json)["data"]["values"]
    assert {dot["is_thick"] for dot in groups if (dot["series"], dot["y"]) == ("strong", "ans_len")} == {True}
    assert "T = 1" in figures["curve_squad_ans_len_f1"].json
