"""The verdict of a QA-bias run, in at most seven lines: each says no more than a test of the marts supports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from biaseval.report.findings import Row
from biaseval.report.qa_advice import advise
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_summary import FEW_RIGHT, averaged_over, has_few_right, obstacle, side
from biaseval.report.qa_training_cells import number
from biaseval.report.qa_training_data import QaTraining
from biaseval.report.qa_training_verdict import debiasing
from biaseval.report.summary import Line, counted, join

_N_MODELS = 3
"""Models and pairs of models that a sentence names; the table has all."""

_N_BIASES = 2
"""Biases of a model that a sentence names."""


def conclude_qa(findings: QaFindings, training: QaTraining | None = None) -> list[Line]:
    """Return the verdict: constant answers, biases, answers, how models differ, debiasing, how sure, and what to do."""
    return [
        *_constant(findings),
        *_biases(findings),
        *_answers(findings),
        *_comparisons(findings),
        *([] if training is None else debiasing(findings, training)),
        *_certainty(findings, training),
        *advise(findings, training),
    ]


def measured_qa(findings: QaFindings) -> str:
    """Return what the run measured, in one line."""
    models = findings.models
    date = findings.environment.get("date")
    sets = [_sizes(findings, findings.in_distribution)]
    if findings.out_of_distribution:
        sets.append(f"out of distribution {_sizes(findings, findings.out_of_distribution)}")
    parts = [
        join(models) if len(models) <= _N_MODELS else f"{len(models)} models",
        *(one for one in sets if one),
        join(findings.heuristics),
        f"variant {findings.spec['variant']}",
        *([str(date)] if date else []),
    ]
    return " · ".join(parts)


def first_rows(findings: QaFindings) -> list[Row]:
    """Return the rows of the first table: a model on a data set in distribution, in the spec's order."""
    return [
        {
            "model": model,
            "dataset": dataset,
            "average": findings.averages.get((model, dataset)),
            "answers": findings.by_dataset[model, dataset],
            "elsewhere": findings.elsewhere.get(model),
            "over": averaged_over(findings, model, dataset),
            "has_few_right": has_few_right(findings, model, dataset),
        }
        for model in findings.models
        for dataset in findings.in_distribution
        if (model, dataset) in findings.by_dataset
    ]


def _sizes(findings: QaFindings, datasets: Sequence[str]) -> str:
    sizes = {
        dataset: max(
            row["n_rows"] + row["n_missing"] for (_, own), row in findings.by_dataset.items() if own == dataset
        )
        for dataset in datasets
    }
    return join([f"{dataset} ({counted(size, 'question')})" for dataset, size in sizes.items()]) if sizes else ""


def _constant(findings: QaFindings) -> list[Line]:
    """Return whose answers are nearly always the same, trained readers included."""
    rows = [row for row in findings.by_dataset.values() if row["is_constant"]]
    models = [*findings.models, *sorted({row["model"] for row in rows} - set(findings.models))]
    told = [
        f"{model} to {number(100 * row['share_most_frequent'], 1)} % of the {row['n_rows']:,} questions of {dataset}"
        for model in models
        for dataset in findings.datasets
        if (row := findings.by_dataset.get((model, dataset))) and row["is_constant"]
    ]
    if not told:
        return []
    return [Line("The same answer", f"{_some(told)}; nothing else that is measured there says anything but that.")]


def _biases(findings: QaFindings) -> list[Line]:
    """Return which biases of each model are more than chance; where none is, what a search finds in noise, or that too
    few answers are right for any to show.
    """
    if not findings.in_distribution:
        return []
    rows = [row for row in _averages(findings) if row["bias_significance"] is not None]
    if not rows:
        return [Line("Biases", f"no heuristic can be measured on {join(findings.in_distribution)}.")]
    tested = [row for row in rows if row["n_significant"] is not None]
    if not tested:
        return [Line("Biases", "whether they are more than chance was not tested.")]
    found = [row for row in tested if row["n_significant"]]
    few = [row for row in tested if row not in found and has_few_right(findings, row["model"], row["dataset"])]
    without = [row for row in tested if row not in found and row not in few]
    if not found and not without:
        return [Line("Biases", f"{_too_few(findings, few)}.")]
    if not found:
        n_biases = sum(row["n_measurable"] for row in without)
        n_models = len({row["model"] for row in without})
        of = f"{n_biases}" + (f" ({n_models} models)" if n_models > 1 else "")
        averages = _some([f"{_place(findings, row)}{_in_noise(findings, row)}" for row in without])
        return [
            Line(
                "Biases",
                f"none of {of} is shown to be more than chance. Average significance, and what the same search finds: "
                f"{averages}."
                f"{f' {_capital(_too_few(findings, few))}.' if few else ''}",
            )
        ]
    told = [f"{_place(findings, row)}{_named(findings, row)}" for row in found]
    told = told if len(told) <= _N_MODELS else [*told[:_N_MODELS], _further(findings, len(told) - _N_MODELS)]
    if without:
        told.append(f"none of {_some([_place(findings, row).rstrip() for row in without])}")
    if few:
        told.append(_too_few(findings, few))
    return [Line("Biases more than chance", f"{'; '.join(told)}.")]


def _too_few(findings: QaFindings, rows: Sequence[Row]) -> str:
    """Return of which models nothing can be told, and why."""
    named = [
        f"{_place(findings, row)}(exact match "
        f"{number(100 * findings.by_dataset[row['model'], row['dataset']]['exact_match'], 1)} %)"
        for row in rows
    ]
    return (
        f"too few right answers to tell of {_some(named)}: below {100 * FEW_RIGHT:.0f} % exact match, groups can "
        "hardly lie apart, whatever a model relies on"
    )


def _further(findings: QaFindings, n_more: int) -> str:
    return f"{n_more} more (below)" if len(findings.in_distribution) > 1 else counted(n_more, "further model")


def _averages(findings: QaFindings) -> list[Row]:
    places = [(model, dataset) for model in findings.models for dataset in findings.in_distribution]
    return [row for place in places if (row := findings.averages.get(place)) is not None]


def _place(findings: QaFindings, row: Row) -> str:
    """Return the model of a row, with its data set where there are several, and a blank."""
    return f"{row['model']} on {row['dataset']} " if len(findings.in_distribution) > 1 else f"{row['model']} "


def _in_noise(findings: QaFindings, row: Row) -> str:
    names = ("bias_significance", "bias_significance_null", "bias_significance_null_high")
    value, null, high = (number(row[name]) for name in names)
    over = averaged_over(findings, row["model"], row["dataset"])
    return f"{value} ({null} in answers without bias, in 95 % of them up to {high}{f'; {over}' if over else ''})"


def _named(findings: QaFindings, row: Row) -> str:
    """Return how much better a model answers one group than the other by the significance, which figures show, then
    plainly, and how well the other.
    """
    own = [findings.by_heuristic.get((row["model"], row["dataset"], heuristic)) for heuristic in findings.heuristics]
    biases = sorted(
        (one for one in own if one is not None and findings.is_supported(one)),
        key=lambda one: -one["bias_significance"],
    )
    told = [
        f"questions with {side(one)} better by a bias significance of {number(one['bias_significance'], 1)} points "
        f"(plain difference {_difference(one)}; exact match of the others "
        f"{number(one['higher_exact_match' if one['biased_segment'] == 'lower' else 'lower_exact_match'], 1)} %)"
        for one in biases[:_N_BIASES]
    ]
    more = [f"{len(biases) - _N_BIASES} more"] if len(biases) > _N_BIASES else []
    return f"answers {join([*told, *more])}"


def _difference(row: Row) -> str:
    """Return better minus worse group, with the interval."""
    sign = -1 if row["difference"] < 0 else 1
    value, *ends = (
        None if row[name] is None else sign * row[name] for name in ("difference", "difference_low", "difference_high")
    )
    return _with_interval(value, *ends[::sign])


def _answers(findings: QaFindings) -> list[Line]:
    """Return exact match and F1 in and out of distribution: of each model, or of many the least and the most."""
    places: list[tuple[str, list[tuple[str, Row]]]] = [
        (dataset, [(model, row) for model in findings.models if (row := findings.by_dataset.get((model, dataset)))])
        for dataset in findings.in_distribution
    ]
    n_sets = max((row["n_datasets"] for row in findings.elsewhere.values()), default=0)
    elsewhere = f"out of distribution (mean of {n_sets} sets)" if n_sets > 1 else "out of distribution"
    places.append(
        (elsewhere, [(model, findings.elsewhere[model]) for model in findings.models if model in findings.elsewhere])
    )
    told = []
    for place, rows in places:
        own = (
            [f"{model} {_two(row)}" for model, row in rows]
            if len(rows) <= _N_MODELS
            else [_span([row for _, row in rows])]
        )
        if own:
            told.append(f"{place if place.startswith('out') else f'on {place}'}, {'; '.join(own)}")
    return [Line("Exact match and F1 (%)", f"{'. '.join(_capital(one) for one in told)}.")] if told else []


def _two(row: Row) -> str:
    return " and ".join(_percent(row, metric) for metric in ("exact_match", "f1"))


def _span(rows: Sequence[Row]) -> str:
    ends = [
        least if least == most else f"{least} to {most}"
        for metric in ("exact_match", "f1")
        for least, most in [[number(100 * end([row[metric] for row in rows]), 1) for end in (min, max)]]
    ]
    return f"{' and '.join(ends)} over {len(rows)} models"


def _percent(row: Row, metric: str) -> str:
    return _with_interval(
        *(None if row[name] is None else 100 * row[name] for name in (metric, f"{metric}_low", f"{metric}_high"))
    )


def _comparisons(findings: QaFindings) -> list[Line]:
    """Return how models differ where the verdict of the marts says so, else what difference would have been seen."""
    told = [sentence for dataset in findings.in_distribution if (sentence := _comparison(findings, dataset))]
    return [Line("Models against each other", " ".join(told))] if told else []


def _comparison(findings: QaFindings, dataset: str) -> str:
    averages = {
        model: row
        for model in findings.models
        if (row := findings.averages.get((model, dataset))) and row["bias_significance"] is not None
    }
    gaps = [row for heuristic in findings.heuristics for row in _pairs(findings, dataset, "gap", heuristic)]
    matches = _pairs(findings, dataset, "exact_match")
    if not matches:
        return ""
    reason = obstacle(averages, findings.compared(dataset, "gap", "mean")) if len(averages) > 1 else "too few have any"
    where = f"On {dataset}: " if len(findings.in_distribution) > 1 else ""
    if reason and not any(row["verdict"] not in (None, "too few") for row in matches):
        return f"{where}no test can compare them: {reason}."
    told_gaps = sorted((row for row in gaps if _is_told(row)), key=lambda row: -abs(row["estimate"]))
    told_matches = [row for row in matches if _is_told(row)]
    shown = [_differs(row, 100, "exact match", ("lower", "higher")) for row in told_matches]
    shown += [_differs(row, 100, _gap(findings, row), ("smaller", "larger")) for row in told_gaps]
    if len(matches) > 1 and len(shown) > _N_MODELS:
        told = {"exact match": len(told_matches)}
        told |= Counter(f"the gap by {row['heuristic']}" for row in told_gaps)
        shown = [f"{name} differs in {n or 'none'} of {counted(len(matches), 'pair')}" for name, n in told.items()]
    sentences = [f"{where}{_some(shown)}." if shown else f"{where}nothing tells them apart."]
    unseen = [_seen(gaps, 100, "the gap by a heuristic"), _seen(matches, 100, "exact match")]
    if not shown and any(unseen):
        sentences.append(f"One test alone would find, four times in five, {join([one for one in unseen if one])}.")
    if reason:
        sentences.append(f"Means over heuristics cannot be compared: {reason}.")
    return " ".join(sentences)


def _gap(findings: QaFindings, row: Row) -> str:
    """Return what the gap of a comparison is called: by its heuristic, and where that splits the questions."""
    threshold = findings.by_heuristic[row["model"], row["dataset"], row["heuristic"]]["threshold"]
    return f"the gap by {row['heuristic']} (T = {threshold:g})"


def _pairs(findings: QaFindings, dataset: str, metric: str, heuristic: str | None = None) -> list[Row]:
    """Return the comparisons of the models, each pair once, in the spec's order."""
    compared = findings.compared(dataset, metric, heuristic)
    places = {model: place for place, model in enumerate(findings.models)}
    return [
        row
        for (model, other), row in compared.items()
        if model in places and other in places and places[model] < places[other]
    ]


def _is_told(row: Row) -> bool:
    return row["verdict"] in ("lower", "higher")


def _differs(row: Row, scale: float, name: str, words: tuple[str, str]) -> str:
    """Return a difference whose verdict is ``lower`` or ``higher``, with the interval that holds beside all others."""
    sign = 1 if row["verdict"] == "higher" else -1
    keys = ("estimate", "simultaneous_low", "simultaneous_high")
    value, *ends = (None if row[key] is None else sign * scale * row[key] for key in keys)
    by = _with_interval(value, *ends[::sign])
    return f"{name} is {by} points {words[sign > 0]} in {row['other_model']} than in {row['model']}"


def _seen(rows: Sequence[Row], scale: float, name: str) -> str:
    """Return the smallest difference that a test would have seen, over pairs."""
    values = [scale * row["smallest_detectable"] for row in rows if row["smallest_detectable"]]
    if not values:
        return ""
    least, most = (number(value, 1) for value in (min(values), max(values)))
    return f"{least if least == most else f'{least} to {most}'} points of {name}"


def _certainty(findings: QaFindings, training: QaTraining | None) -> list[Line]:
    """Return over what the chance of a wrong sentence is 5 %."""
    told = []
    sizes = [
        f"{dataset} ({counted(size, 'test')})"
        for dataset in findings.in_distribution
        if (size := findings.n_tests.get(dataset))
    ]
    if sizes:
        told.append(
            f"over all models and heuristics of {join(sizes)}, the chance that any bias is one by mistake is 5 %"
        )
    if any(row["p_adjusted"] is not None for row in findings.comparisons):
        told.append("so is that of any difference between models, over all pairs, data sets, metrics and heuristics")
    if training is not None and any(block.methods for block in training.blocks):
        told.append(
            "so is that of any change by debiasing, over all readers, biases and sets; it holds for these trainings, "
            "not for a method"
        )
    return [Line("How sure", f"{'; '.join(told)}.")] if told else []


def _some(told: Sequence[str]) -> str:
    n_more = len(told) - _N_MODELS
    return join([*told[:_N_MODELS], f"{n_more} more (below)"]) if n_more > 0 else join(list(told))


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _with_interval(value: float | None, low: float | None = None, high: float | None = None) -> str:
    shown = number(value, 1)
    return shown if low is None or high is None else f"{shown} [{number(low, 1)}, {number(high, 1)}]"
