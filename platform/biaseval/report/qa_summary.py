"""What a QA-bias run found, in sentences, and what to know before trusting the numbers."""

from __future__ import annotations

from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings, heuristic_name
from biaseval.report.summary import join

_N_LARGEST = 2
"""Shortcuts that a model's sentence names."""

_N_NARROWEST = 3
"""Groups that the warning about narrow intervals names."""

_LOW_EXACT_MATCH = 0.5
"""Below this share of exact answers a low significance is no success (P3's debiased models had 0.19 to 0.38)."""


def compare_models(findings: QaFindings) -> list[str]:
    """Return a sentence per in-distribution set that two models or more were measured on."""
    return [sentence for dataset in findings.in_distribution if (sentence := _comparison(findings, dataset))]


def summarize_models(findings: QaFindings) -> list[tuple[str, list[str]]]:
    """Return each model with the sentences of its summary: bias, its largest shortcuts, performance."""
    return [
        (
            model,
            [
                *(one for dataset in findings.in_distribution for one in _bias(findings, model, dataset)),
                *_performances(findings, model),
            ],
        )
        for model in findings.models
    ]


def qa_caveats(findings: QaFindings) -> list[str]:
    """Return what a reader must know before trusting the numbers, beside the plan's notes, a sentence each."""
    return [
        *_low_exact_match(findings),
        *_not_measured(findings),
        *_searched(findings),
        *_narrow_intervals(findings),
        *_missing(findings),
    ]


def side(row: Row, is_better: bool = True) -> str:
    """Return the segment that is answered better, or the other one, as a condition: ``ans-len ≤ 4``."""
    is_lower = (row["biased_segment"] == "lower") == is_better
    return f"{heuristic_name(row['heuristic'])} {'≤' if is_lower else '>'} {row['threshold']:g}"


def _comparison(findings: QaFindings, dataset: str) -> str:
    averages = {
        model: average
        for model in findings.models
        if (average := findings.averages.get((model, dataset))) and average["bias_significance"] is not None
    }
    if len(averages) < 2:
        return ""
    if not any(row["bias_significance"] for row in averages.values()):
        return f"On {dataset}, no bias of any model is significant."
    lowest = min(row["bias_significance"] for row in averages.values())
    least = [model for model, row in averages.items() if row["bias_significance"] == lowest]
    best = max(averages, key=lambda model: findings.by_dataset[model, dataset]["exact_match"])

    def told(model: str) -> str:
        row = findings.by_dataset[model, dataset]
        return f"{averages[model]['bias_significance']:.2f} with EM {100 * row['exact_match']:.1f}"

    same = " and the highest EM." if least == [best] else f"; {best} has the highest EM ({told(best)})."
    have = f"{least[0]} has" if len(least) == 1 else f"{len(least)} models have"
    value = told(least[0]) if len(least) == 1 else f"{lowest:.2f}"
    return f"On {dataset}, {have} the lowest average bias significance ({value}){same}"


def _bias(findings: QaFindings, model: str, dataset: str) -> list[str]:
    average = findings.averages.get((model, dataset))
    if average is None:
        return []
    if average["bias_significance"] is None:
        return [f"No heuristic can be measured on {dataset}."]
    own = [findings.by_heuristic[model, dataset, heuristic] for heuristic in findings.heuristics]
    shortcuts = sorted((row for row in own if row["bias_significance"]), key=lambda row: -row["bias_significance"])
    n_all, n_measurable = average["n_heuristics"], average["n_measurable"]
    over = f"{n_measurable}" if n_measurable == n_all else f"the {n_measurable} measurable of {n_all}"
    sentences = [
        f"Average bias significance {average['bias_significance']:.2f} EM points on {dataset}, over {over} "
        f"{_plural(n_all, 'heuristic', 'heuristics')}; {average['n_significant'] or 'none'} significant."
    ]
    if shortcuts:
        shown = [
            f"{heuristic_name(row['heuristic'])} {row['bias_significance']:.2f} (better where {side(row)}, by "
            f"{_interval(abs(row['difference']), *_bounds(row))}; EM of the worse group at most "
            f"{row['worse_high']:.1f})"
            for row in shortcuts[:_N_LARGEST]
        ]
        sentences.append(f"Largest: {join(shown)}.")
    return sentences


def _bounds(row: Row) -> tuple[float | None, float | None]:
    """Return the interval of the difference in the direction of the bias: better minus worse segment."""
    low, high = row["difference_low"], row["difference_high"]
    if low is None or row["difference"] >= 0:
        return low, high
    return -high, -low


def _performances(findings: QaFindings, model: str) -> list[str]:
    sentences = [
        f"{_performance(row)} on {dataset} (n = {row['n_rows']:,})"
        for dataset in findings.in_distribution
        if (row := findings.by_dataset.get((model, dataset)))
    ]
    row = findings.elsewhere.get(model)
    if row is not None:
        sets = f"mean of {row['n_datasets']} sets, " if row["n_datasets"] > 1 else ""
        sentences.append(f"{_performance(row)} out of distribution ({sets}n = {row['n_rows']:,})")
    return [f"{'; '.join(sentences)}."] if sentences else []


def _performance(row: Row) -> str:
    return " and ".join(
        f"{name} {_interval(*(None if row[key] is None else 100 * row[key] for key in (metric, *_ends(metric))))}"
        for name, metric in (("EM", "exact_match"), ("F1", "f1"))
    )


def _ends(metric: str) -> tuple[str, str]:
    return f"{metric}_low", f"{metric}_high"


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    shown = "–" if value is None else f"{value:.1f}"
    return shown if low is None or high is None else f"{shown} [{low:.1f}, {high:.1f}]".replace("-", "−")


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
        "significance, which is no success; the EM in brackets tells."
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
                heuristic_name(heuristic)
                + ("" if len(models[heuristic]) == n_models else f" (of {', '.join(models[heuristic])})")
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
    bent = "a significance that is the largest of several thresholds leans high"
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
        f"{heuristic_name(heuristic)} on {dataset} ({n_rows:,} questions)"
        for (dataset, heuristic), n_rows in sorted(smallest.items(), key=lambda item: item[1])
    ]
    n_more = len(shown) - _N_NARROWEST
    if n_more > 0:
        shown = [*shown[:_N_NARROWEST], f"{n_more} more"]
    return [
        f"Samples of {bootstrap['sample']:,} without replacement hold much of the smaller group of {join(shown)}: its "
        "interval is too narrow and the significance leans high; see the plain difference."
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
