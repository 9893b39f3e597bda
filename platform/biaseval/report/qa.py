"""The report of a QA-bias run: bias significance (P3's Figure 2), performance elsewhere (Figure 3), and examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from biaseval.qa_bias.heuristics import heuristic_of
from biaseval.qa_bias.search_null import N_PERMUTATIONS
from biaseval.report.compare_words import VERDICTS
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.ids import Ids
from biaseval.report.page import page_templates
from biaseval.report.qa_curves import CURVES, curve_suite
from biaseval.report.qa_figures import ELSEWHERE, SIGNIFICANCE
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_summary import averaged_over, qa_cautions, side
from biaseval.report.qa_training import QaTraining, training_context
from biaseval.report.qa_training_figures import bias_suite, scatter_suite
from biaseval.report.qa_training_names import BIAS_MODEL, METHODS
from biaseval.report.qa_verdict import conclude_qa, first_rows, measured_qa

_NOT_MEASURED = "–"
_FULL_TINT_POINTS = 15.0
"""The significance from which a cell has the full colour."""

_FULL_TINT_PERCENT = 32

_N_CAUTIONS = 4
"""Warnings, and notes of the plan, that stand open; more are folded."""

_N_FIRST_ROWS = 6
"""Rows of the first table that stand open; more are folded."""

_REASONS = {
    "groups too small": "too small",
    "no threshold to try": "one value",
    "not significant": "no T",  # of F1; exact match has 0
}

_HIDDEN_FACTS = ("data", "models", "text", "inputs")
"""Of the environment: what has tables of its own."""


def render_qa_page(findings: QaFindings, figures: Sequence[Figure], training: QaTraining | None = None) -> str:
    """Return the HTML of the report; everything from the run is escaped.

    Args:
        findings: of the run.
        figures: of the run, with those of its trained readers.
        training: what the run tells of the readers that it trained; None: it trained none.
    """
    first = _first(findings, figures, training)
    figures = [figure for figure in figures if first is None or figure is not first.figure]
    return (
        page_templates()
        .get_template("qa.html.j2")
        .render(
            findings=findings,
            measured=measured_qa(findings),
            verdict=conclude_qa(findings, training),
            first=first,
            terms=_terms(findings, training),
            ids=_ids(training),
            first_rows=first_rows(findings),
            n_first_rows=_N_FIRST_ROWS,
            cautions=qa_cautions(findings),
            n_cautions=_N_CAUTIONS,
            n_permutations=max((row["n_permutations"] or 0 for row in findings.tests.values()), default=0)
            or N_PERMUTATIONS,
            significance=_by_suite(figures, SIGNIFICANCE),
            performance=_by_suite(figures, ELSEWHERE),
            curves=_by_suite(figures, CURVES),
            curve_suite=curve_suite,
            explanation=partial(_explanation, findings),
            side=side,
            verdicts=VERDICTS,
            averaged_over=partial(averaged_over, findings),
            with_threshold=_with_threshold,
            points=points,
            significance_of=significance,
            percent_points=percent_points,
            cell=significance_cell,
            tint=_tint,
            thresholds=threshold_sentence,
            shown_models=partial(_shown_models, findings),
            first_example=next(
                (
                    (dataset, heuristic)
                    for dataset in findings.in_distribution
                    for heuristic in findings.heuristics
                    if _shown_models(findings, dataset, heuristic)
                ),
                None,
            ),
            anchor=lambda *names: re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(names)),
            environment={name: fact for name, fact in findings.environment.items() if name not in _HIDDEN_FACTS},
            models=_models(findings),
            trained=training_context(findings, training, figures),
        )
    )


def points(row: Row | None, value: str, low: str = "", high: str = "", *, signed: bool = False) -> str:
    """Return a number of points with its interval, if it has one; two decimals."""
    return _number(row, value, low, high, scale=1, sign="+" if signed else "")


def percent_points(row: Row | None, metric: str) -> str:
    """Return a share of 0 to 1 with its interval, as points of 100."""
    return _number(row, metric, f"{metric}_low", f"{metric}_high", scale=100, sign="")


def significance_cell(row: Row | None, suffix: str = "") -> str:
    """Return a significance and, in brackets, the worse segment's upper bound, as P3's tables have them.

    Without a significant threshold it is 0 without segments; where it cannot be measured, the reason.
    """
    if row is None:
        return _NOT_MEASURED
    value, worse = row[f"bias_significance{suffix}"], row[f"worse_high{suffix}"]
    if value is None:
        return Markup('<span class="interval">{}</span>').format(_REASONS.get(row.get("status", ""), _NOT_MEASURED))
    return Markup('{} <span class="interval">({})</span>').format(
        significance(row, suffix), _NOT_MEASURED if worse is None else f"{worse:.2f}"
    )


def significance(row: Row, suffix: str = "") -> str:
    """Return a significance with two decimals; 0 is written as such."""
    value = row[f"bias_significance{suffix}"]
    if value is None:
        return _NOT_MEASURED
    return "0" if value == 0 else f"{value:.2f}"


def _number(row: Row | None, value: str, low: str, high: str, *, scale: float, sign: str) -> str:
    if row is None or row[value] is None:
        return _NOT_MEASURED
    shown = [
        # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
        format(round(scale * row[name], 2) + 0.0, f"{sign}.2f").replace("-", "\N{MINUS SIGN}")
        for name in (value, low, high)
        if name and row[name] is not None
    ]
    if len(shown) < 3:
        return shown[0]
    return Markup('{} <span class="interval">[{}, {}]</span>').format(*shown)


def _tint(value: float | None) -> str:
    """Return the style of a cell: the larger the significance, the stronger the colour."""
    percent = round(_FULL_TINT_PERCENT * min((value or 0) / _FULL_TINT_POINTS, 1))
    if not percent:
        return ""
    return Markup(' style="background:color-mix(in srgb, var(--mean) {}%, transparent)"').format(percent)


def threshold_sentence(findings: QaFindings, dataset: str, heuristic: str) -> str:
    """Return which threshold each model has and where it comes from, or why it has none."""
    is_shared = findings.spec["variant"] != "reference" and len(findings.models) > 1
    models: dict[str, list[str]] = {}
    for model in findings.models:
        row = findings.by_heuristic.get((model, dataset, heuristic))
        if row is not None:
            sentence = _threshold(row, findings.spec["bootstrap"]["sample"], is_shared=is_shared)
            models.setdefault(sentence, []).append(model)
    return " ".join(
        sentence if len(models) == 1 else f"{', '.join(names)}: {sentence}" for sentence, names in models.items()
    )


def _threshold(row: Row, sample: int, *, is_shared: bool) -> str:
    searched = ""
    if row["n_tried"] is not None:
        whose = "its own answers" if row["searched_on"] == row["model"] and not is_shared else row["searched_on"]
        with_both = f"{row['n_tried_measured']:,} with {sample:,} questions in both groups"
        searched = f", {row['n_tried']:,} tried on {whose}, {with_both}"
    if row["threshold"] is not None:
        return f"T = {row['threshold']:g}{searched or ', given by the spec'}."
    undefined = f"; undefined for {row['n_unmeasured']:,} of {row['n_rows']:,} questions" if row["n_unmeasured"] else ""
    reason = "none separates the groups" if row["status"] == "not significant" else row["status"]
    return f"No T: {reason}{searched}{undefined}."


def _with_threshold(findings: QaFindings, dataset: str, heuristic: str) -> list[Row]:
    rows = [findings.by_heuristic.get((model, dataset, heuristic)) for model in findings.models]
    return [row for row in rows if row is not None and row["threshold"] is not None]


def _explanation(findings: QaFindings, heuristic: str) -> str:
    """Return what a heuristic's values are; of the user's own, the first line of its docstring where it has one."""
    recorded = findings.environment.get("text", {}).get(heuristic, {})
    text = recorded.get("meaning", heuristic_of(heuristic).meaning).rstrip(".")
    return f"{text[0].upper()}{text[1:]}"


def _shown_models(findings: QaFindings, dataset: str, heuristic: str) -> list[str]:
    return [model for model in findings.models if (model, dataset, heuristic) in findings.examples]


_SCATTER = (
    "Debiased readers against the standard reader: change of the bias that they address, and of mean F1 out of "
    "distribution. Hollow: nearly broken. Thin lines: 95 % intervals, of up to 30 readers."
)
_READERS = (
    "Bias significance of the standard and the debiased readers, each of these on the bias that it addresses, and the "
    "most that the worse group’s exact match reaches. Hollow: nearly broken."
)
_SIGNIFICANCES = (
    "Bias significance: how far apart the exact match of two groups of questions lies, where samples of both are taken "
    "at their closest; the plain difference of the groups is larger. Filled: more than chance."
)


class _First(NamedTuple):
    """The figure of the verdict."""

    figure: Figure
    caption: str
    is_broad: bool = False
    """It stands below the sentences, as there is no room for it beside them."""


def _first(findings: QaFindings, figures: Sequence[Figure], training: QaTraining | None) -> _First | None:
    """Return what debiasing gains and costs, else the biases of all readers, else the significances."""
    named = {figure.name: figure for figure in figures}
    debiased = [] if training is None else [block for block in training.blocks if block.methods]
    for dataset in findings.in_distribution:
        if figure := named.get(scatter_suite(dataset)):
            return _First(figure, _SCATTER)
        for block in debiased:
            if figure := named.get(bias_suite(block, dataset)):
                return _First(figure, _READERS, is_broad=True)
        if figure := named.get(f"{SIGNIFICANCE}_{dataset}_exact_match"):
            return _First(figure, _SIGNIFICANCES)
    return None


def _terms(findings: QaFindings, training: QaTraining | None) -> dict[str, str]:
    """Return what the first screen calls things, and what that means."""
    methods = [] if training is None else dict.fromkeys(row["method"] for row in training.readers)
    return {
        "Exact match (EM)": "share of the answers that equal a gold answer.",
        "F1": "overlap of words with the nearest gold answer.",
        "Bias significance": "by how many points one group of questions is answered better than the other, samples of "
        "both taken at their closest (Mikula et al. 2024); the plain difference is larger.",
        **{heuristic: f"{_explanation(findings, heuristic)}." for heuristic in findings.heuristics},
        **{METHODS[method].shown: METHODS[method].meaning for method in methods if method not in _SELF_EVIDENT},
    }


def _ids(training: QaTraining | None) -> list[Ids]:
    """Return what SQL calls the metrics and methods of training; heuristics are shown as they are called."""
    metrics = {"exact_match": "exact match", "f1": "F1", "bias_significance": "bias significance"}
    methods = [] if training is None else list(dict.fromkeys(row["method"] for row in training.readers))
    shown = {method: METHODS[method].shown for method in methods if METHODS[method].shown != method}
    return [("column", metrics), *([("method", shown)] if shown else [])]


_SELF_EVIDENT = ("standard", BIAS_MODEL)
"""Methods of training that need no term."""


def _by_suite(figures: Sequence[Figure], kind: str) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.name.startswith(f"{kind}_"):
            found.setdefault(figure.suite, []).append(figure)
    return found


def _models(findings: QaFindings) -> list[Row]:
    """Return a row per model: where its answers come from, and the beginning of its fingerprint."""
    planned = {model["name"]: model for model in findings.plan.get("models", [])}
    fingerprints = findings.environment.get("models", {})
    rows = []
    for model in findings.spec["models"]:
        name = model["name"]
        digest = (fingerprints.get(name) or {}).get("digest")
        rows.append(
            {
                "name": name,
                "answers": "predictions from files" if model.get("predictions") else model["answers"],
                "path": model.get("path") or _NOT_MEASURED,
                "n_parameters": planned.get(name, {}).get("n_parameters"),
                "n_questions": planned.get(name, {}).get("n_questions"),
                "digest": digest[:12] if digest else _NOT_MEASURED,
            }
        )
    return rows
