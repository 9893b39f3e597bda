"""What to know before trusting the numbers of a QA-bias run, in sentences."""

from __future__ import annotations

from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.summary import join

_N_NARROWEST = 3
"""Groups that the warning about narrow intervals names."""

_LOW_EXACT_MATCH = 0.5
"""Below this share of exact answers a low significance is no success (P3's debiased models had 0.19 to 0.38)."""

FEW_RIGHT = 0.1
"""Below this share of exact answers a model's groups can hardly lie apart, whatever it relies on."""


def qa_cautions(findings: QaFindings) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each; the plan's notes come last."""
    return [*qa_caveats(findings), *findings.plan.get("notes", [])]


def qa_caveats(findings: QaFindings) -> list[str]:
    """Return what a reader must know before trusting the numbers, beside the plan's notes, a sentence each."""
    return [
        *_low_exact_match(findings),
        *_single_articles(findings),
        *_searched(findings),
        *_fixed_after_a_search(findings),
        *_narrow_intervals(findings),
        *_missing(findings),
        *_not_measured(findings),
    ]


def has_few_right(findings: QaFindings, model: str, dataset: str) -> bool:
    """Return whether a model answers too few questions exactly for a bias to show, so that none found tells nothing."""
    row = findings.by_dataset.get((model, dataset))
    return row is not None and bool(row["exact_match"] < FEW_RIGHT)


def averaged_over(findings: QaFindings, model: str, dataset: str, suffix: str = "") -> str:
    """Return which heuristics a model's average significance is over; nothing where all models have it over the same.

    Args:
        findings: of the run.
        model: whose average it is.
        dataset: that it is on.
        suffix: ``_f1`` of the significance of F1.
    """
    own: dict[str, list[str]] = {}
    for (name, place, heuristic), row in findings.by_heuristic.items():
        if place == dataset and row[f"bias_significance{suffix}"] is not None:
            own.setdefault(name, []).append(heuristic)
    is_same = len({tuple(sorted(names)) for names in own.values()}) < 2
    return "" if is_same or model not in own else f"over {join(own[model])}"


def side(row: Row, is_better: bool = True) -> str:
    """Return the segment that is answered better, or the other one, as a condition: ``ans_len ≤ 4``."""
    is_lower = (row["biased_segment"] == "lower") == is_better
    return f"{row['heuristic']} {'≤' if is_lower else '>'} {row['threshold']:g}"


def obstacle(averages: dict[str, Row], gaps: dict[tuple[str, str], Row]) -> str:
    """Return why models cannot be compared by the average of their biases, or nothing where they can."""
    first, *others = averages.values()
    everywhere = set(first["measurable"]).intersection(*(row["measurable"] for row in others))
    partly = [name for row in averages.values() for name in row["measurable"] if name not in everywhere]
    if partly:
        names = join(dict.fromkeys(partly))
        return f"{names} could not be measured for all of them"
    own = [row for pair, row in gaps.items() if set(pair) <= averages.keys()]
    if any(row["n_lacking"] for row in own):
        return "they did not answer the same questions"
    reasons = dict.fromkeys(row["reason"] for row in own if row["reason"])
    if reasons:
        return "; ".join(_REASONS.get(reason, reason) for reason in reasons)
    if any(row["verdict"] == "too few" for row in own):
        return f"the questions are about {own[0]['n_articles']} articles, and no test of so few can be sure"
    return "" if all(row["verdict"] for row in own) else "it was not tested"


_REASONS = {
    "one article": "the questions of a group are about a single article",
    "other thresholds": "each has thresholds of its own",
    "no threshold": "no heuristic has a threshold",
    "threshold by chance": "thresholds were searched on answers whose bias is not more than chance",
    "not measured for both": "no heuristic could be measured for both",
    "no question that both answered": "they answered no question in common",
}
"""Of ``qa_model_comparisons``, in words."""


def _low_exact_match(findings: QaFindings) -> list[str]:
    low = [
        f"{model} ({100 * row['exact_match']:.1f} % on {dataset})"
        for model in findings.models
        for dataset in findings.in_distribution
        if (row := findings.by_dataset.get((model, dataset))) and row["exact_match"] < _LOW_EXACT_MATCH
    ]
    if not low:
        return []
    return [
        f"Fewer than half of the answers are exact: {join(low)}. A model that answers badly everywhere has a low "
        "significance, which is no success; the exact match in brackets tells."
    ]


def _not_measured(findings: QaFindings) -> list[str]:
    sample = findings.spec["bootstrap"]["sample"]
    reasons = {
        "groups too small": f"a group has fewer than {sample:,} questions, the sample",
        "no threshold to try": "the values do not differ",
    }
    sentences = []
    for dataset in findings.datasets:
        for status, reason in reasons.items():
            models: dict[str, list[str]] = {}
            for (model, own, heuristic), row in findings.by_heuristic.items():
                if own == dataset and row["status"] == status:
                    models.setdefault(heuristic, []).append(model)
            n_models = sum((model, dataset) in findings.by_dataset for model in findings.models)
            shown = [
                heuristic + ("" if len(models[heuristic]) == n_models else f" (of {', '.join(models[heuristic])})")
                for heuristic in findings.heuristics
                if heuristic in models
            ]
            if len(shown) == len(findings.heuristics) and all(len(own) == n_models for own in models.values()):
                shown = ["no bias"]
                sentences.append(f"{dataset}: no bias can be measured, {reason}.")
            elif shown:
                sentences.append(f"{dataset}: {join(shown)} cannot be measured, {reason}.")
    return sentences


def _searched(findings: QaFindings) -> list[str]:
    places: dict[str, list[str]] = {}
    for (_, dataset, _), row in findings.by_heuristic.items():
        if (
            row["searched_on"] is not None
            and row["threshold"] is not None
            and dataset not in places.setdefault(row["searched_on"], [])
        ):
            places[row["searched_on"]].append(dataset)
    if not places:
        return []
    bent = "a significance that is the largest of several thresholds leans high, also where there is no bias"
    if findings.spec["variant"] == "reference":
        return [f"Thresholds are searched for each model on its own predictions: {bent}."]
    if len(findings.models) == 1:
        return [f"Thresholds are searched on the predictions that are measured: {bent}."]
    where = [
        model if len(places) == 1 else f"{model} ({', '.join(name for name in findings.datasets if name in own)})"
        for model, own in places.items()
    ]
    return [
        f"Thresholds are searched on the predictions of {join(where)} and kept for the other models: {bent}, and the "
        "others may have thresholds that separate their groups further."
    ]


def _fixed_after_a_search(findings: QaFindings) -> list[str]:
    if findings.spec["thresholds"] == "mikula2024":  # no search of this run suggested those
        return []
    rows = findings.by_heuristic.values()
    fixed = {row["heuristic"] for row in rows if row["searched_on"] is None and row["threshold"] is not None}
    names = [heuristic for heuristic in findings.heuristics if heuristic in fixed & findings.searched_before]
    if not names:
        return []
    return [
        f"The spec gives the threshold of {join(names)}, which an earlier spec of this run searched on the same "
        "answers: where that search suggested it, significance, p and interval, which take it as given, are too good."
    ]


def _narrow_intervals(findings: QaFindings) -> list[str]:
    bootstrap = findings.spec["bootstrap"]
    if bootstrap["replacement"]:
        return []
    smallest: dict[tuple[str, str], int] = {}
    for (_, dataset, heuristic), row in findings.by_heuristic.items():
        n_rows = min(row["n_lower"] or 0, row["n_higher"] or 0)
        if row["status"] == "measured" and n_rows < 2 * bootstrap["sample"]:
            smallest[dataset, heuristic] = min(n_rows, smallest.get((dataset, heuristic), n_rows))
    if not smallest:
        return []
    shown = [
        f"{heuristic} on {dataset} ({n_rows:,} questions)"
        for (dataset, heuristic), n_rows in sorted(smallest.items(), key=lambda item: item[1])
    ]
    n_more = len(shown) - _N_NARROWEST
    if n_more > 0:
        shown = [*shown[:_N_NARROWEST], f"{n_more} more"]
    return [
        f"Samples of {bootstrap['sample']:,} without replacement hold much of the smaller group of {join(shown)}: its "
        "interval is too narrow and the significance leans high; see the plain difference."
    ]


def _single_articles(findings: QaFindings) -> list[str]:
    single = [
        dataset
        for dataset in findings.datasets
        if any(own == dataset and row["n_articles"] == 1 for (_, own), row in findings.by_dataset.items())
    ]
    if not single:
        return []
    return [
        f"All questions of {join(single)} are about one article: there are no intervals, and no bias can be told from "
        "that article’s peculiarities."
    ]


def _missing(findings: QaFindings) -> list[str]:
    return [
        f"{model} has no answer to {row['n_missing']:,} of the {row['n_rows'] + row['n_missing']:,} questions of "
        f"{dataset}, which are left out for it alone."
        for model in findings.models
        for dataset in findings.datasets
        if (row := findings.by_dataset.get((model, dataset))) and row["n_missing"]
    ]


def _plural(number: int, singular: str, plural: str) -> str:
    return singular if number == 1 else plural
