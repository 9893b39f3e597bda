"""What the page concludes is what the tests support."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biaseval.report.findings import METRICS, Findings, Row, read_findings
from biaseval.report.methods import METHODS
from biaseval.report.page import render_page
from biaseval.report.summary import measured, scope_of_words
from biaseval.report.verdict import conclude
from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run, told
from tests.pages import mart, page_of


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
        for metric in ("rsd", "bias_score", "accuracy", "macro_f1"):
            verdict = verdicts[n_demos, method, metric]
            here, others = (words[verdict[name]] for name in ("same_tasks_verdict", "verdict"))
            expected.append(f"{before[metric]:.3f} → {after[metric]:.3f} {here}")
            others = "cannot tell" if verdict["verdict"] == "unclear" else others
            expected += [f"other tasks: {others}"] if verdict["verdict"] != verdict["same_tasks_verdict"] else []
        expected.append(f"{after['majority_accuracy']:.3f} / {after['majority_macro_f1']:.3f} ")
        assert [line for line in lines if " ".join(expected) in line], expected
    [more] = [line for line in lines if " 8 demonstrations, compared with 0 " in line]
    assert f"{means[0, 'none']['rsd']:.3f} → {means[8, 'none']['rsd']:.3f}" in more
    both = [(row["same_tasks_verdict"], row["verdict"]) for row in verdicts.values()]
    assert {("lower", "lower"), ("unclear", "unclear")} <= set(both)
    # What was put into the scores: calibration takes the preference away.
    assert verdicts[0, "cc", "bias_score"]["verdict"] == "lower"
    assert '<span class="word gain">lower</span>' in tables[1]


def test_the_verdict_tells_the_bias_that_was_put_into_the_scores(findings: Findings) -> None:
    assert measured(findings).startswith(
        "12 tasks · 288 test rows, 2 to 4 labels · 0, 2 and 8 demonstrations (2 sets of them) · no calibration, CC"
    )
    assert measured(replace(findings, environment={"date": "2024-02-29"})).endswith(" · 2024-02-29")
    lines = told(findings)
    first, last = findings.mean(0, "none"), findings.mean(8, "none")
    assert first is not None
    assert last is not None
    assert lines["RSD, no calibration"] == (
        f"{first['rsd']:.3f} with 0 demonstrations, above the noise of rows ({first['rsd_floor']:.3f} on average) in "
        f"{first['n_tasks_rsd']} of 12 tasks{smallest(first)}; {last['rsd']:.3f} with 8, above it "
        f"({last['rsd_floor']:.3f} on average) in {last['n_tasks_rsd']} of 12 tasks{named_above(findings, 8, 'rsd')}"
        f"{smallest(last)}."
    )
    assert smallest(last)
    assert lines["BiasScore, no calibration"].startswith(f"{first['bias_score']:.3f} with 0 demonstrations")
    assert first["n_tasks_rsd"] > 0
    assert lines["How sure"] == (
        "“lower” and “higher” hold for new rows of these 12 tasks behind the same demonstrations; the chance that any "
        "of them is wrong is about 5 %. “No clear change”: this run cannot tell; a test alone would mostly find "
        f"{detectable(findings, 'rsd'):.3f} of RSD and {detectable(findings, 'accuracy'):.3f} of accuracy there, "
        "and half of it in four times as many rows. For other tasks like these “other tasks” has a word of its own, "
        "with the same 5 %."
    )
    assert lines["What to do"].startswith("on these tasks: RSD and BiasScore fall, accuracy rises: ")
    assert lines["What to do"].endswith(" Remedies are compared with no remedy, not with each other.")


def test_a_bias_that_is_highest_between_the_ends_is_told(findings: Findings) -> None:
    assert " with 2, " not in told(findings)["RSD, no calibration"]
    rows = [
        {**row, "rsd": 9.0} if (row["n_demos"], row["method"]) == (2, "none") else row
        for row in findings.by_suite["all"]
    ]
    line = told(replace(findings, by_suite={**findings.by_suite, "all": rows}))["RSD, no calibration"]
    assert "; 9.000 with 2, above it " in line
    assert line.index(" with 0 demonstrations") < line.index(" with 2") < line.index(" with 8")


def smallest(row: Row) -> str:
    """Return what is said of the smallest RSD that a task's test would see, where some task is not above the noise."""
    if row["n_tasks_rsd"] == row["n_tasks_rsd_tested"]:
        return ""
    found = row["rsd_smallest_detectable"]
    if found is None:
        return "; a run of this size cannot show any"
    return f"; a run of this size shows {found:.3f} in a task tested alone in four of five cases"


def detectable(findings: Findings, metric: str) -> float:
    """Return from which size on the changes that have no word would mostly be found, the largest of the page."""
    return max(
        row[metric]["same_tasks_smallest_detectable"] or 0
        for place, row in findings.verdicts.items()
        if place[3] == "none" and row[metric]["same_tasks_verdict"] == "unclear"
    )


def named_above(findings: Findings, n_demos: int, metric: str) -> str:
    """Return in brackets the tasks whose p is small enough by Holm's procedure, where they are at most three."""
    rows = [row for row in findings.by_task if (row["n_demos"], row["method"]) == (n_demos, "none")]
    tested = sorted((row[f"{metric}_p"], row["task"]) for row in rows if row[f"{metric}_p"] is not None)
    names = []
    for number, (p, task) in enumerate(tested):
        if p * (len(tested) - number) > 0.05:
            break
        names.append(task)
    if not 0 < len(names) <= 3:
        return ""
    *others, last = names
    return f" ({', '.join(others)} and {last})" if others else f" ({last})"


def test_tasks_still_above_the_noise_are_named_where_they_are_few(findings: Findings) -> None:
    last = findings.mean(8, "none")
    assert last is not None
    names = [row["task"] for row in findings.by_task if (row["n_demos"], row["method"]) == (8, "none")]
    endings = {
        0: "",
        1: f" ({names[0]})",
        3: f" ({names[0]}, {names[1]} and {names[2]})",
        4: "",
    }
    smallest = (
        f"; a run of this size shows {last['rsd_smallest_detectable']:.3f} in a task tested alone in four of five cases"
    )
    for n_above, ending in endings.items():
        by_suite = {
            "all": [{**row, "n_tasks_rsd": n_above} if row is last else row for row in findings.by_suite["all"]]
        }
        by_task = [{**row, "is_rsd_above": row["task"] in names[:n_above]} for row in findings.by_task]
        text = told(replace(findings, by_suite=by_suite, by_task=by_task))["RSD, no calibration"]
        assert text.endswith(f"in {n_above} of 12 tasks{ending}{smallest}.")


RISES = "{}, accuracy rises"
WORSE = "Do not use"
"""Before a colon: bias rises, or accuracy or macro-F1 falls, and nothing is gained."""
UNSHOWN = "No change of bias is shown"


def strength(words: dict[str, str], low: float | None, row: Row) -> str:
    """Return the strength of the evidence for a remedy by the words of its four metrics and the band of accuracy."""
    biases, performances = (words["rsd"], words["bias_score"]), (words["accuracy"], words["macro_f1"])
    is_gain = "lower" in biases or "higher" in performances
    if not is_gain and ("higher" in biases or "lower" in performances):
        return WORSE
    if "lower" not in biases:
        return "Bias rises, and accuracy or macro-F1 rises" if "higher" in biases else UNSHOWN
    if "higher" in biases:
        return "One of RSD and BiasScore falls, the other rises"
    falls = "RSD falls" if words["rsd"] == "lower" else "Only BiasScore falls"
    if words["rsd"] == words["bias_score"]:
        falls = "RSD and BiasScore fall"
    if not row["is_above_constant"]:
        beside = "no better" if row["is_above_constant"] is False else "not shown to be better"
        return f"{falls}, and the answers are {beside} than one label for all"
    if "lower" in performances:
        return f"{falls}, accuracy or macro-F1 falls"
    if words["accuracy"] == "higher":
        return RISES.format(falls)
    if low is not None and low > -0.01:
        return f"{falls}, no loss of accuracy beyond 0.01"
    return f"{falls}, a loss of accuracy is not ruled out (band of all tests at once)"


def named_in(lines: Sequence[str]) -> dict[tuple[int, str], str]:
    """Return (n_demos, name of a remedy) to the strength of evidence under which it is named."""
    found = {}
    for line in lines:
        title, _, names = line.partition(": ")
        for name, numbers in re.findall(r"(?:^|, | and )(more demonstrations|LOOC|CC|DC) \(([^)]*)\)", names):
            own = numbers.partition(", compared with")[0]
            for part in own.split("; "):
                for number in re.findall(r"\d+", part.partition(":")[0]):
                    found[int(number), name] = title
    return found


def test_each_remedy_stands_under_the_strength_of_its_evidence(findings: Findings) -> None:
    [line] = [line for line in conclude(findings) if line.lead == "What to do"]
    begins = "For other tasks like these: "
    here = named_in([item for item in line.items if not item.startswith(begins)])
    others = named_in([item.removeprefix(begins) for item in line.items if item.startswith(begins)])
    strengths = set()
    for row in findings.remedies:
        place = (row["n_demos"], "more demonstrations" if row["method"] == "none" else METHODS[row["method"]])
        verdicts = findings.verdicts[row["n_demos"], row["method"], row["against_n_demos"], "none"]
        for told_of, verdict, low in (
            (here, "same_tasks_verdict", "same_tasks_simultaneous_low"),
            (others, "verdict", "simultaneous_low"),
        ):
            expected = strength(
                {metric: verdicts[metric][verdict] for metric in METRICS}, verdicts["accuracy"][low], row
            )
            if told_of is others:
                expected = f"{expected[0].lower()}{expected[1:]}" if not expected.startswith("RSD") else expected
            if told_of is here or expected != f"{UNSHOWN[0].lower()}{UNSHOWN[1:]}":
                assert told_of[place] == expected, place
            else:
                assert place not in told_of
            strengths.add(expected)
    assert {RISES.format("RSD and BiasScore fall"), UNSHOWN} <= strengths


def test_an_interval_stands_where_a_loss_is_not_ruled_out(findings: Findings) -> None:
    changed = [
        {
            **row,
            "same_tasks_advice": "bias falls, loss not ruled out",
            "same_tasks_bias_falls_in": "rsd" if row["method"] == "dc" else "bias_score",
            "accuracy_same_tasks_verdict": "unclear",
            "macro_f1_same_tasks_verdict": "unclear",
        }
        for row in findings.remedies
        if row["method"] in ("dc", "looc")
    ]
    [line] = [line for line in conclude(replace(findings, remedies=changed)) if line.lead == "What to do"]
    for title, method in (("RSD falls", "dc"), ("Only BiasScore falls", "looc")):
        rows = [row for row in changed if row["method"] == method]
        bands = []
        for row in rows:
            verdict = findings.verdicts[row["n_demos"], method, row["against_n_demos"], "none"]["accuracy"]
            ends = [verdict[f"same_tasks_simultaneous_{end}"] for end in ("low", "high")]
            bands.append(" to ".join(f"{end:+.3f}".replace("-", "\N{MINUS SIGN}") for end in ends))
        numbers = [row["n_demos"] for row in rows]
        first = f"{numbers[0]} demonstrations: {bands[0]}"
        further = [f"{number}: {band}" for number, band in zip(numbers[1:], bands[1:], strict=True)]
        scope = "a loss of accuracy is not ruled out (band of all tests at once)"
        expected = f"{title}, {scope}: {METHODS[method]} ({'; '.join([first, *further])})."
        assert expected in line.items


def test_the_closest_miss_for_other_tasks_is_named(findings: Findings) -> None:
    verdicts = {
        place: {metric: {**row, "verdict": "unclear", "word_p_adjusted": 0.5} for metric, row in by_metric.items()}
        for place, by_metric in findings.verdicts.items()
    }
    row = verdicts[8, "dc", 8, "none"]["accuracy"]
    row |= {"word_p_adjusted": 0.0625, "estimate": 0.1, "n_tasks_higher": 9}
    remedies = [{**row, "evidence": "not shown", "advice": "not shown"} for row in findings.remedies]
    lines = told(replace(findings, verdicts=verdicts, remedies=remedies))
    assert lines["How sure"].endswith(
        "For other tasks like these nothing is shown; the closest is accuracy with DC, 8 demonstrations: higher in 9 "
        "of 12 tasks on their own, adjusted p = 0.062."
    )
    verdicts[8, "cc", 8, "none"]["accuracy"] |= {"word_p_adjusted": 0.0625, "estimate": 0.1}
    tied = told(replace(findings, verdicts=verdicts, remedies=remedies))
    assert tied["How sure"].endswith("; the closest are 2 differences of adjusted p = 0.062.")
    assert "No change of bias is shown for other tasks like these. Remedies are" in lines["What to do"]
    assert "other tasks: cannot tell" not in render_page(replace(findings, verdicts=verdicts, remedies=remedies), [])
    here = [
        {
            **row,
            "advice": row["same_tasks_advice"],
            "bias_falls_in": row["same_tasks_bias_falls_in"],
            **{f"{metric}_verdict": row[f"{metric}_same_tasks_verdict"] for metric in METRICS},
        }
        for row in findings.remedies
    ]
    alike = {
        place: {
            metric: {
                **row,
                "simultaneous_low": row["same_tasks_simultaneous_low"],
                "simultaneous_high": row["same_tasks_simultaneous_high"],
            }
            for metric, row in by_metric.items()
        }
        for place, by_metric in findings.verdicts.items()
    }
    lines = told(replace(findings, remedies=here, verdicts=alike))
    assert "All of this is shown for other tasks like these, too." in lines["What to do"]


def test_what_is_not_shown_here_is_not_shown_for_other_tasks_too(findings: Findings) -> None:
    nothing = {f"{side}{name}": "not shown" for side in ("", "same_tasks_") for name in ("evidence", "advice")}
    nothing |= {f"{metric}_{side}verdict": "unclear" for metric in METRICS for side in ("", "same_tasks_")}
    remedies = [{**row, **nothing} for row in findings.remedies]
    [line] = [line for line in conclude(replace(findings, remedies=remedies)) if line.lead == "What to do"]
    assert [item.partition(":")[0] for item in line.items] == [UNSHOWN]
    assert line.end.startswith("No change of bias is shown for other tasks like these. ")


def test_the_terms_of_the_first_table_stand_above_it(run: Run) -> None:
    first, _, _ = run.read_text("report.html").partition('<table class="dense remedies">')
    terms = re.findall(r"<dt>(.*?)</dt> <dd>(.*?)</dd>", first)
    assert [term for term, _ in terms] == ["RSD", "BiasScore", "Noise of rows", "CC", "DC", "LOOC"]
    assert all(len(meaning) > 20 for _, meaning in terms)
    assert "<details" not in first.partition('<dl class="terms">')[2]


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
        others = "cannot tell" if row["verdict"] == "unclear" else words[row["verdict"]]
        expected = "{} [{}, {}] word other tasks: [{}, {}]".format(*shown)
        expected = expected.replace(" word ", f" {words[row['same_tasks_verdict']]} ")
        assert cell == expected + (f" {others}" if row["verdict"] != row["same_tasks_verdict"] else "")


def test_a_remedy_below_the_majority_class_is_marked_and_not_recommended(tmp_path: Path) -> None:
    # Calibration inverts the scores: inputs without an answer prefer what is right.
    run = make_run(tmp_path / "run", n_tasks=8, n_demos=(0,), demo_sets=1, signal=-3.0, labels=["A", "B"])
    write_report(run.uri)
    findings = read_findings(run)
    assert all(row["is_below_majority"] for row in findings.remedies)
    assert all(row["accuracy"] < row["majority_accuracy"] for row in findings.remedies)
    assert {row["is_above_constant"] for row in findings.remedies} <= {False, None}
    assert not any(row["is_supported"] for row in findings.remedies)
    assert not any(row["is_supported_on_these_tasks"] for row in findings.remedies)
    [line] = [line for line in conclude(findings) if line.lead == "What to do"]
    assert not any(title in item for item in line.items for title in ("accuracy rises", "no loss"))
    [table] = [part for part in run.read_text("report.html").split("</table>") if 'class="dense remedies"' in part]
    assert table.count('<span class="word cost">no</span>') == len(findings.remedies) + 1  # and without any
    assert 'class="word gain"' not in table


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
    assert (rows[0]["n_tasks_constant"], rows[0]["n_tasks_not_above"]) == (6, 6)
    line, *_ = conclude(read_findings(several))
    assert line.lead == "No better than one label for all"
    assert line.text.startswith("in 6 of 6 tasks with 0 demonstrations and ")
    one = make_run(tmp_path / "one", n_tasks=1, n_demos=(0,), n_main=60, labels=["no", "yes"], preference=40.0)
    line, *_ = conclude(read_findings(one))
    assert line.lead == "No better than one label for all"
    assert line.text == (
        "accuracy 0.500 and macro-F1 0.333, where one label for all has 0.500 and 0.333, with 0 demonstrations (“no” "
        "is 100.0 % of the answers) (no calibration)."
    )
    shares = (("no", 0.548), ("yes", 0.772))
    answers = [{"n_demos": 0, "label": label, "predicted_share": share} for label, share in shares]
    line, *_ = conclude(replace(read_findings(one), answers=answers))
    told = (
        "the most frequent answer differs between sets of demonstrations: “no” 54.8 % and “yes” 77.2 % of the answers"
    )
    assert f"({told})" in line.text


def test_fewer_than_six_tasks_have_words_for_themselves_and_none_for_others(tmp_path: Path) -> None:
    run = make_run(tmp_path / "three", n_tasks=3, n_demos=(0, 2), n_main=120, n_bias_score=32)
    write_report(run.uri)
    findings = read_findings(run)
    assert scope_of_words(findings) == (True, False, 3)
    rows = [row for by_metric in findings.verdicts.values() for row in by_metric.values()]
    assert {row["verdict"] for row in rows} == {"too few"}
    assert "lower" in {row["same_tasks_verdict"] for row in rows}
    lines = told(findings)
    assert lines["How sure"].startswith(
        "“lower” and “higher” hold for new rows of these 3 tasks behind the same demonstrations; the chance that any "
        "of them is wrong is about 5 %. “No clear change”: this run cannot tell"
    )
    assert lines["How sure"].endswith(". Of other tasks 3 say nothing; at least 6 are needed.")
    assert lines["What to do"].startswith("on these tasks: ")
    assert "None of this is shown for other tasks; measure 6 tasks or more. Remedies are" in lines["What to do"]
    source = run.read_text("report.html")
    assert '<span class="word gain">lower</span>' in source
    assert "other tasks:" not in source
    assert source.count("too few") == 1  # of the table of changes: why it has no band


def test_a_run_of_fewer_than_six_rows_has_no_word_and_that_is_said_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "rows", n_tasks=1, n_demos=(0,), n_main=4, n_bias_score=4)
    write_report(run.uri)
    findings = read_findings(run)
    assert scope_of_words(findings) == (False, False, 1)
    lines = told(findings)
    assert lines["No verdicts"].startswith("a test over 4 rows cannot reach 5 %, at least 6 are needed")
    assert lines["What to do"] == "measure 6 rows or more; nothing can be recommended from these."
    source = run.read_text("report.html")
    assert 'class="word' not in source.replace('class="word cost">no<', "")
    assert source.count("too few") == 1  # of the table of changes: why it has no band


@pytest.mark.parametrize(
    ("n_bias_score", "said"),
    [
        (8, "which cannot be tested: 4 of its 8 rows are “no”."),
        (3, "which cannot be tested: 1 of its 3 rows is “yes”."),
        (1, "which cannot be tested: none of its 1 rows is “yes”."),
        (10, "above the noise of rows ("),
    ],
)
def test_bias_score_of_too_few_rows_of_a_label_is_not_said_to_be_noise(
    tmp_path: Path, n_bias_score: int, said: str
) -> None:
    run = make_run(tmp_path / "one", n_tasks=1, n_demos=(0,), n_main=20, n_bias_score=n_bias_score)
    write_report(run.uri)
    assert said in told(read_findings(run))["BiasScore, no calibration"]


def test_bias_score_that_no_task_can_test_is_not_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "two", n_tasks=2, n_demos=(0,), n_main=20, n_bias_score=8)
    write_report(run.uri)
    said = "which cannot be tested: each task has a label with fewer than 5 of its rows"
    assert said in told(read_findings(run))["BiasScore, no calibration"]


def test_a_single_task_is_tested_over_its_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", n_tasks=1, demo_sets=1, n_main=120, n_bias_score=32)
    write_report(run.uri)
    findings = read_findings(run)
    assert {row["unit"] for row in findings.remedies} == {"rows"}
    lines = told(findings)
    assert lines["How sure"].startswith(
        "“lower” and “higher” hold for new rows of this task behind the same demonstrations; the chance"
    )
    assert lines["What to do"].startswith("on this task: ")
    rows = [row for by_metric in findings.verdicts.values() for row in by_metric.values()]
    assert all(row["verdict"] == row["same_tasks_verdict"] for row in rows)
    assert all(row["is_supported"] == row["is_supported_on_these_tasks"] for row in findings.remedies)
    assert "other tasks:" not in run.read_text("report.html")
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
    lines = told(findings)
    assert lines["What to do"].startswith("no remedy was measured")
    assert "How sure" not in lines
    source = run.read_text("report.html")
    assert 'id="changes"' not in source
    assert 'class="dense remedies"' not in source


def test_a_model_that_is_always_right_has_no_bias_to_lower(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=6, n_demos=(0, 2), signal=50.0)
    lines = told(read_findings(run))
    assert lines["RSD, no calibration"].startswith(
        "0.000 with 0 demonstrations, of which the rows cannot tell the noise"
    )
    assert not re.search(r"(RSD|BiasScore) falls?\b", lines["What to do"])


def test_no_sentence_of_the_page_says_more_than_a_test(run: Run) -> None:
    text = page_of(run).text.partition("Spec and environment")[0]
    assert not re.search(r"\b(clearly|best|lowest|significant\w*)\b", text)
