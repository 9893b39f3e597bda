"""Tables of trained readers: their numbers are those of marts written by hand, or published."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from biaseval.analysis import query
from biaseval.report.findings import Row
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_training_data import QaTraining
from biaseval.store import Run
from tests.pages import printed_queries
from tests.publishedstudy import BIASES, HEURISTICS, METHODS, OUTSIDE, PUBLISHED, PUBLISHED_F1
from tests.qa_training_report.reading import changed, lines, of_method, told


def shown(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def shown_change(row: Row, column: str, scale: float = 1) -> str:
    low, high = (shown(scale * row[f"{column}_{end}"]) for end in ("low", "high"))
    return f"{shown(scale * row[column])} [{low}, {high}]"


def shown_significance(row: Row) -> str:
    value = row["bias_significance"]
    return f"{'0' if value == 0 else f'{value:.2f}'} ({row['worse_high']:.2f})"


def test_significances_stand_as_published_with_their_change_and_averages(source: str, training: QaTraining) -> None:
    rows = dict(zip(METHODS, lines(source, "<caption>bert-base on squad: bias significance"), strict=True))
    assert rows["standard"] == (
        "standard 8.62 (70.69) 1.04 (77.50) 0 (82.19) 2.63 (75.44) 12.51 (69.01) 2.48 (78.57) 1.01 (79.19) – –"
    )
    for method, name in zip(METHODS[1:4], ("RESAM", "LMIX", "CREG"), strict=True):
        cells = []
        for heuristic in HEURISTICS:
            row = training.debiasing.get((f"bert-base+{method}({heuristic})", "squad", heuristic))
            broken = " †" if method == "learned_mixin" else ""
            cells.append(
                f"{shown_significance(row)} {shown_change(row, 'significance_change')}{broken}" if row else "–"
            )
        values, worse = np.mean(PUBLISHED[method], axis=0)
        standard, standard_worse = np.mean(PUBLISHED["standard"], axis=0)
        average = f"{values:.2f} ({worse:.2f}) {standard:.2f} ({standard_worse:.2f}) 6"
        assert rows[method] == f"{name} {' '.join(cells)} {average}"
    # Protocol 11.3's averages of the quantiles are over six heuristics.
    for method, worse in (("resample", "74.40"), ("learned_mixin", "25.78"), ("confidence_regularization", "76.06")):
        assert f"({worse})" in rows[method]
    assert rows["product_of_experts"].split()[6:9] == ["–", "–", "1.20"]
    assert rows["product_of_experts"].endswith(" 5")


def test_changes_out_of_distribution_are_those_of_the_published_table(source: str, training: QaTraining) -> None:
    rows = lines(source, "<caption>bert-base: F1")
    assert len(rows) == 7 * 5
    assert rows[0].startswith("word_dist squad (in distribution) 87.60 −0.40 [−1.60, +0.80]")
    assert rows[1] == (
        "word_dist adversarialqa 29.80 +0.50 [−0.70, +1.70] −5.00 [−6.20, −3.80] +1.40 [+0.20, +2.60] +0.10 [−1.10, "
        "+1.30]"
    )
    # Means of three independent changes with errors of 1.2 / 1.96 each; P3's averages over its 18 cells.
    half = 1.2 / np.sqrt(3)
    cells = [
        f"{shown(mean)} [{shown(mean - half)}, {shown(mean + half)}]"
        for mean in (float(np.mean(PUBLISHED_F1[method][0])) for method in METHODS[1:])
    ]
    assert rows[4] == f"word_dist mean of 3 47.90 {' '.join(cells)}"
    assert rows[-1] == "mean over biases mean of 3 47.90 −0.46 −12.82 +2.33 −0.30"
    assert rows[8].endswith("–"), "given up"
    bold = re.findall(r"<b>([+−][\d.]+)</b>", source[source.index("<caption>bert-base: F1") :])
    clear = [row for row in training.elsewhere.values() if row["f1_verdict"] in ("lower", "higher")]
    assert len(clear) > 20
    assert bold == [shown(100 * row["f1_change"]) for row in _in_order(training, clear)]


def _in_order(training: QaTraining, rows: Sequence[Row]) -> list[Row]:
    """Return rows of changes of F1 as the table has them: by bias, set, method."""
    sets = ["squad", *OUTSIDE, "mean"]
    methods = {reader["model"]: METHODS.index(reader["method"]) for reader in training.readers if reader["standard"]}
    order = [name for name in HEURISTICS if name in BIASES]

    def key(row: Row) -> tuple[int, int, int]:
        return order.index(row["bias"]), sets.index(row["dataset"]), methods[row["model"]]

    return sorted(rows, key=key)


def test_what_a_reader_does_not_address_is_in_the_table_too(source: str, training: QaTraining) -> None:
    rows = lines(source, "<caption>bert-base on squad: change of bias significance")
    assert len(rows) == 23
    for reader, text in zip([own for own in training.readers if own["standard"] and own["path"]], rows, strict=True):
        cells = []
        for heuristic in HEURISTICS:
            row = training.debiasing[reader["model"], "squad", heuristic]
            is_broken = reader["method"] == "learned_mixin" and heuristic == reader["bias"]
            cells.append(shown_change(row, "significance_change") + (" †" if is_broken else ""))
        assert text.endswith(f"{reader['bias']} {' '.join(cells)}")


def test_every_reader_has_its_gap_and_exact_match(source: str, training: QaTraining) -> None:
    rows = lines(source, "each debiased reader on the bias")
    assert len(rows) == 23
    own = training.debiasing["bert-base+resample(ans_len)", "squad", "ans_len"]
    [text] = [row for row in rows if row.startswith("RESAM ans_len")]
    assert text == (
        f"RESAM ans_len 4 6.87 12.51 {shown_change(own, 'significance_change')} 0.010 lower 69.75 69.01 11.87 17.51 "
        f"{shown_change(own, 'gap_change')} 80.20 80.20 10,570 48"
    )


def test_bias_models_segments_and_costs_are_those_of_their_tables(source: str, training: QaTraining) -> None:
    assert lines(source, "Bias models on validation")[3] == (
        f"bert-base+bias_model(ans_len) squad {_best(training, 'bias_model', 'ans_len'):,} 60.00 20.00 40.00 39.00 "
        "11.00 8,529 2,041"
    )
    assert lines(source, "Segments of the training questions")[0] == (
        "bert-base squad ans_len 4 published ≤ T – – – 70,000 17,000 599 70,000"
    )
    rows = lines(source, "What each reader cost")
    assert len(rows) == 31
    asked = 14 * 30 * len({"squad", *OUTSIDE})
    assert rows[0] == (
        f"bert-base 14,000 10,000 14 88,000 4,200.0 {asked:,}.0 {2 * (4200 + asked) / 3600:.3f} 2 NVIDIA H100"
    )
    [given_up] = [row for row in rows if "given up" in row]
    assert given_up.startswith("bert-base+product_of_experts(sim_word) (given up) ")


def _best(training: QaTraining, method: str, bias: str) -> int:
    [step] = [row["best_step"] for row in training.readers if (row["method"], row["bias"]) == (method, bias)]
    return int(step) + 1


def test_correlations_stand_by_method_and_set(source: str) -> None:
    rows = lines(source, "Pearson’s correlation")
    assert [row.split(" −")[0] for row in rows] == ["all methods", "RESAM", "LMIX", "CREG", "PoE"]
    assert rows[0] == "all methods" + " −0.31 [−0.63, +0.11] −0.25; n = 23" * 4


def test_a_heuristic_that_cannot_be_measured_is_neither_lower_nor_drawn(
    findings: QaFindings, training: QaTraining
) -> None:
    nothing = {
        name: None
        for name in training.debiasing["bert-base", "squad", "ans_len"]
        if name.startswith(("significance", "bias_significance", "worse", "gap", "is_nearly", "p", "verdict"))
    }
    model = "bert-base+resample(ans_len)"
    unmeasured = changed(training, model, "ans_len", status="groups too small", **nothing)
    assert of_method(told(findings, unmeasured), "RESAM, ").endswith("; not measured in 1 (ans_len –).")
    source = render_qa_page(findings, [], unmeasured)
    assert (
        " 1.99 (73.57) −0.64 [−2.14, +0.86] too small 1.62 "
        in lines(source, "squad: bias significance in EM points of")[1]
    )


def test_what_the_page_prints_as_sql_is_a_query_over_its_marts(whole: Run, source: str) -> None:
    statements = printed_queries(source)
    assert any("f1_change" in statement for statement in statements)
    for statement in statements:
        query([whole.uri], statement)
