"""Sentences of trained readers: what was trained, what it did to biases and elsewhere, and what to know before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_training_cells import VERDICTS, duration, estimate, number
from biaseval.report.qa_training_data import Block, QaTraining
from biaseval.report.qa_training_names import BIAS_MODEL, MEAN, METHODS
from biaseval.report.summary import join

_N_LISTED = 3
"""Readers that a sentence names of each sort."""

_N_BROKEN_LISTED = 6


def study(training: QaTraining) -> list[str]:
    """Return what was trained, and what it took."""
    readers = [row for row in training.readers if row["method"] != BIAS_MODEL]
    n_bias_models, n_given_up = len(training.readers) - len(readers), _n_given_up(training.readers)
    bases, data, seeds = (list(dict.fromkeys(row[key] for row in training.readers)) for key in ("base", "data", "seed"))
    methods = [METHODS[method].shown for method in METHODS if any(row["method"] == method for row in readers)]
    biases = [name for name in training.blocks[0].heuristics if any(name in block.biases for block in training.blocks)]
    parts = [
        f"{_plural(len(bases), 'Base', 'Bases')}: {', '.join(bases)}",
        f"training data: {', '.join(data)}",
        f"{_plural(len(methods), 'method', 'methods')}: {', '.join(methods)}",
        *([f"biases that are addressed: {', '.join(biases)}"] if biases else []),
        f"{_plural(len(seeds), 'seed', 'seeds')}: {', '.join(map(str, seeds))}",
    ]
    beside = f", and {_count(n_bias_models, 'bias model')}" if n_bias_models else ""
    devices = dict.fromkeys(row["device"] for row in training.readers if row["device"])
    seconds, asking, hours = (_total(training, name) for name in ("seconds", "evaluation_seconds", "accelerator_hours"))
    return [
        f"{'; '.join(parts)}.",
        f"{_count(len(readers), 'reader')}{beside}; {n_given_up or 'none'} given up.",
        f"Their optimizer steps took {duration(seconds)}"
        + (f" and evaluations on the way {duration(asking)}" if asking is not None else "")
        + (f" on {join(devices)}" if devices else "")
        + (f", {number(hours)} accelerator-hours" if hours is not None else "")
        + "; loading and answers are not in it.",
        *map(_windows, training.windows),
    ]


def _windows(row: Row) -> str:
    """Return how the questions of a base's training set were cut."""
    windows = f"{_count(row['n_windows'], 'window')} for {row['base']}"
    answers = f"{row['n_without']:,} of them without some of the answer" if row["n_without"] else "all hold the answer"
    nowhere = (
        f"; of {_count(row['n_unanswerable'], 'question')} no window has all of it" if row["n_unanswerable"] else ""
    )
    questions = f"{row['n_questions']:,} questions of {row['dataset']}"
    return f"{questions} are {windows}, {answers}{nowhere}."


def found(findings: QaFindings, training: QaTraining, block: Block, dataset: str) -> list[str]:
    """Return what a block's readers did to the bias that they address, to the others, and elsewhere."""
    sentences = [_addressed(training, block, dataset, method) for method in block.methods]
    sentences += [_broken(training, block, dataset)]
    sentences += [_not_addressed(training, block, dataset)]
    if findings.out_of_distribution:
        sentences += [_elsewhere(findings, training, block, dataset, method) for method in block.methods]
    return [sentence for sentence in sentences if sentence]


def correlated(training: QaTraining, dataset: str) -> str:
    """Return how the change of the addressed bias goes with that of F1 elsewhere, over all methods.

    No word is made of it: the readers of a study share questions, standard readers and data, so that no test takes them
    as independent.
    """
    for row in training.correlations:
        if (row["dataset"], row["method"], row["other_dataset"]) == (dataset, "all", MEAN):
            break
    else:
        return ""
    over = f"Over {_count(row['n_models'], 'debiased reader')}"
    if row["pearson"] is None:
        return f"{over}, no correlation can be computed: it needs three readers or more that differ."
    of = (
        f"the correlation of the change of the addressed bias on {dataset} with the change of mean F1 out of "
        f"distribution is {estimate(row, 'pearson')}"
    )
    broken = sum(bool(own["is_nearly_broken"]) for own in training.debiasing.values() if _is_addressed_on(own, dataset))
    with_broken = f" Nearly broken are {broken} of them, which may decide it." if broken else ""
    return (
        f"{over}, {of} (below 0: the further the bias fell, the more F1 rose or the less it fell). Readers of one "
        f"study are not independent, as its interval takes them: it tests nothing.{with_broken}"
    )


def training_caveats(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return what to know before trusting the comparisons, a sentence each."""
    if not any(block.methods for block in training.blocks):
        return []
    has_one_seed = all(len(block.seeds) == 1 for block in training.blocks)
    seeds = (
        "Each is a single training"
        if has_one_seed
        else "Compare a method’s seeds: an interval holds for one training, not for the method"
    )
    return [
        f"Intervals are over questions (whole articles, the same for both readers), not over trainings. {seeds}; with "
        "another seed a reader comes out otherwise.",
        *_by_chance(training),
        *_searched(findings, training),
        *_unbiased(findings, training),
        *_tuned(findings, training),
    ]


def reader_name(block: Block, row: Row) -> str:
    """Return the bias that a reader addresses, with its seed where there are several: ``ans_len (seed 2)``."""
    name = str(row["bias"] or "standard")
    return name if len(block.seeds) == 1 else f"{name} (seed {row['seed']})"


def reader_label(block: Block, row: Row) -> str:
    """Return a debiased reader's name among those of all methods: ``RESAM on ans_len (seed 2)``."""
    return f"{METHODS[row['method']].shown} on {reader_name(block, row)}"


def addressed_rows(training: QaTraining, block: Block, dataset: str, method: str) -> list[Row]:
    """Return the rows of ``qa_debiasing`` of a method's readers on the heuristic that each addresses."""
    found = (training.debiasing.get((own["model"], dataset, own["bias"])) for own in block.of_method(method))
    return [row for row in found if row is not None]


def _by_chance(training: QaTraining) -> list[str]:
    """Return for which biases nothing shows that the side that methods work against is the biased one."""
    found = [
        f"{row['bias']} of {row['base']} on {row['data']}" for row in training.segments if row["bias_significance"] == 0
    ]
    if not found:
        return []
    return [
        "The judging reader shows no significant bias on validation, so which side is called biased may be chance, and "
        f"a method that works against the other one strengthens a bias: {_listed(found)}."
    ]


def _searched(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return on which standard readers' predictions thresholds were searched that these readers are measured with."""
    methods = {row["model"]: row["method"] for row in training.readers}
    found = {
        row["searched_on"]
        for (model, _, _), row in findings.by_heuristic.items()
        if model in methods and row["threshold"] is not None and methods.get(row["searched_on"]) == "standard"
    }
    if not found:
        return []
    return [
        f"Thresholds were searched on the predictions of {join(sorted(found))}: that favours the debiased readers, "
        "whose bias is measured where the standard reader’s is largest."
    ]


def _unbiased(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return which standard readers have no significance that a reader could lower."""
    standards = {row["model"]: row["standard"] for row in training.readers}
    found = list(
        dict.fromkeys(
            f"{standards[model]} on {heuristic}"
            for (model, dataset, heuristic), row in training.debiasing.items()
            if row["is_addressed"] and row["standard_significance"] == 0 and dataset in findings.in_distribution
        )
    )
    if not found:
        return []
    return [f"Where the standard reader’s significance is 0 no reader can lower it: {_listed(found)}."]


def _listed(found: Sequence[str]) -> str:
    n_more = len(found) - _N_LISTED
    return join([*found[:_N_LISTED], f"{n_more} more"] if n_more > 0 else found)


def _tuned(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return what P3's settings were chosen by, where a set like that is measured."""
    adversarial = [name for name in findings.out_of_distribution if "adversarial" in name.lower()]
    guided = {"learned_mixin", "confidence_regularization"} & {row["method"] for row in training.readers}
    if not adversarial or not guided:
        return []
    return [
        "Mikula et al. chose the scales and the entropy penalty of LMIX and CREG by F1 on AdversarialQA: with their "
        f"values, changes on {join(adversarial)} lean high."
    ]


def _addressed(training: QaTraining, block: Block, dataset: str, method: str) -> str:
    rows = addressed_rows(training, block, dataset, method)
    if not rows:
        return ""
    whole = [row for row in rows if not row["is_nearly_broken"]]
    n_broken = len(rows) - len(whole)
    broken = f" ({'all' if n_broken == len(rows) > 1 else n_broken} nearly broken, see below)" if n_broken else ""
    start = f"{METHODS[method].shown}, {_count(len(rows), 'reader')}{broken}"
    if not whole:
        return f"{start}."
    told = _by_direction(whole, "significance_change", 1, lambda row: reader_name(block, row))
    return (
        f"{start}: significance of the bias that each addresses, against the standard reader’s: {told}"
        f"{searched(whole, 'lower')}."
    )


def searched(rows: Sequence[Row], word: str) -> str:
    """Return, where a verdict is lower and thresholds were searched, on whose answers, and what that favours."""
    lower = [row for row in rows if row["verdict"] == "lower"]
    sources = sorted({row["searched_on"] for row in lower if row["searched_on"] is not None})
    return f"; thresholds were searched on the answers of {join(sources)}, which favours “{word}”" if sources else ""


def _broken(training: QaTraining, block: Block, dataset: str) -> str:
    rows = [
        row
        for method in block.methods
        for row in addressed_rows(training, block, dataset, method)
        if row["is_nearly_broken"]
    ]
    if not rows:
        return ""
    shown = [
        f"{reader_label(block, row)} ({number(row['worse_high'])} against {number(row['standard_worse_high'])})"
        for row in rows[:_N_BROKEN_LISTED]
    ]
    more = len(rows) - len(shown)
    return (
        f"Nearly broken: {join([*shown, f'{more} more'] if more else shown)}. In brackets, the most that the worse "
        "group’s EM reaches, against the standard reader’s; below two thirds of that, a low significance is no success."
    )


def _not_addressed(training: QaTraining, block: Block, dataset: str) -> str:
    models = {row["model"] for row in block.readers if row["method"] in block.methods}
    own = [row for (model, name, _), row in training.debiasing.items() if model in models and name == dataset]
    broken = {row["model"] for row in own if row["is_nearly_broken"]}
    rows = [
        row
        for row in own
        if not row["is_addressed"] and row["significance_change"] is not None and row["model"] not in broken
    ]
    if not rows:
        return ""

    def named(row: Row) -> str:
        return f"{row['heuristic']} by {reader_label(block, row)}"

    told = _by_direction(rows, "significance_change", 1, named)
    return (
        f"Biases that a reader does not address, {_count(len(rows), 'change')} of significance"
        f"{' (without nearly broken readers)' if broken else ''}: {told}{searched(rows, 'lower')}."
    )


def _elsewhere(findings: QaFindings, training: QaTraining, block: Block, dataset: str, method: str) -> str:
    rows = [row for own in block.of_method(method) if (row := training.elsewhere.get((own["model"], MEAN)))]
    rows = [row for row in rows if row["f1_change"] is not None]
    if not rows:
        return ""
    sets = findings.out_of_distribution
    over = f"mean F1 of {len(sets)} sets" if len(sets) > 1 else f"F1 on {sets[0]}"
    told = _by_direction(rows, "f1_change", 100, lambda row: reader_name(block, row))
    start = f"{METHODS[method].shown} out of distribution ({over}, points)"
    return f"{start}, {_count(len(rows), 'reader')}: {told}."


def _by_direction(rows: Sequence[Row], column: str, scale: float, named: Callable[[Row], str]) -> str:
    """Return in how many rows the verdict on a change is lower, higher, or another, and the largest of each sort."""
    sorts = _sorted(rows, column)
    parts = []
    for sort, words in _DIRECTIONS.items():
        own = sorted(sorts.get(sort, []), key=lambda row: -abs(row[column] or 0))
        if not own:
            parts += [f"{words} none"] if sort in _SHOWN_DIRECTIONS else []
        elif sort in ("negligible", "unclear") and len(rows) > _N_LISTED:
            parts.append(f"{words} {len(own)}")
        else:
            shown = [f"{named(row)} {estimate(row, column, scale)}" for row in own[:_N_LISTED]]
            shown += [f"{len(own) - _N_LISTED} more"] if len(own) > _N_LISTED else []
            parts.append(f"{words} {len(own)} ({', '.join(shown)})")
    return "; ".join(parts)


def _sorted(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    sorts: dict[str, list[Row]] = {}
    for row in rows:
        sort = "not measured" if row[column] is None else row[VERDICTS[column]] or "not tested"
        sorts.setdefault(sort, []).append(row)
    return sorts


_SHOWN_DIRECTIONS = ("lower", "higher")
"""Told also where no row is of that sort."""

_DIRECTIONS = {
    "lower": "lower in",
    "higher": "higher in",
    "negligible": "negligible in",
    "unclear": "unclear in",
    "too few": "too few articles in",
    "not tested": "not tested in",
    "not measured": "not measured in",
}


def _is_addressed_on(row: Row, dataset: str) -> bool:
    return bool(row["is_addressed"]) and row["dataset"] == dataset


def _plural(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural


def _count(number: int, thing: str) -> str:
    return f"{number:,} {_plural(number, thing, f'{thing}s')}"


def _n_given_up(readers: Sequence[Row]) -> int:
    return sum(row["problem"] is not None for row in readers)


def _total(training: QaTraining, column: str) -> float | None:
    """Return what all readers cost together; None where none has such a cost."""
    costs = [row[column] for row in training.readers if row[column] is not None]
    return sum(costs) if costs else None
