"""What several majority-bias runs show together, in sentences, and what to know before trusting them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from biaseval.report.comparison_data import Comparison, column_name
from biaseval.report.findings import Row
from biaseval.report.majority_words import no_label_caveats
from biaseval.report.methods import mitigation_of
from biaseval.report.summary import join
from biaseval.report.ways import way_name, ways_of


def scope_sentence(comparison: Comparison) -> str:
    """Return which models were measured on which data."""
    names = [dataset.name for dataset in comparison.datasets]
    models = join([column_name(model) for model in comparison.models])
    return f"{count(len(comparison.models), 'model')} ({models}) on {count(len(names), 'data set')} ({join(names)})."


def sentences(
    comparison: Comparison, predict: str, method: str, rows: Sequence[Row], effects: Sequence[Row]
) -> list[str]:
    """Return what one way of predicting found, in words."""
    way = way_name(predict, method)
    told = [_boundaries(comparison, rows), _instruction(comparison, predict, method), _size(effects)]
    return [f"{way[0].upper()}{way[1:]}: {sentence}" for sentence in told if sentence]


def _boundaries(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return from where to where RB@10 and mean weighted F1 reach on each data set.

    Left out are runs with too few test rows for RB@10, and those of which no setting is shown to be better than one
    label for all, whose RB@10 is no robustness; of these it says how many.
    """
    found, n_constant, n_judged = [], 0, 0
    for dataset in comparison.datasets:
        judged = [row for row in rows if row["run"] in dataset.runs and row["has_enough_rows"]]
        there = [row for row in judged if row["is_any_setting_above_constant"]]
        n_judged += len(judged)
        n_constant += len(judged) - len(there)
        if there:
            f1 = _range([row["mean_f1"] for row in there])
            found.append(f"{_range([row['rb_at_10'] for row in there])} on {dataset.name} (mean weighted F1 {f1})")
    left_out = (
        f"in {n_constant} of {n_judged} with and without instruction no setting is shown to be better than one label "
        "for all, and RB@10 says nothing there"
        if n_constant
        else ""
    )
    told = f"the boundary, RB@10, is {join(found)}, for these draws of demonstrations" if found else ""
    return f"{'; '.join(filter(None, (told, left_out)))}." if told or left_out else ""


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values))))


def _instruction(comparison: Comparison, predict: str, method: str) -> str:
    """Return in how many runs the instruction is told to change weighted F1, at the tails and in the middle."""
    changes = [
        row
        for row in comparison.verdicts
        if (row["predict"], row["method"]) == (predict, method) and row["instruction"] is not row["against_instruction"]
    ]
    if not changes:
        return ""
    told = [
        _told_apart(name, [row["verdict"] for row in changes if row["metric"] == metric])
        for metric, name in (("tails_f1", "weighted F1 at the tails"), ("middle_f1", "weighted F1 in the middle"))
    ]
    n_pairs = len({row["run"] for row in changes})
    return (
        f"with the instruction, over {count(n_pairs, 'pair')} of a model with a data set, {join(filter(None, told))}."
    )


def _size(effects: Sequence[Row]) -> str:
    """Return in how many comparisons the larger model is told to have a wider boundary and to perform better."""
    if not effects:
        return ""
    words = {1: "higher", -1: "lower"}
    told = [
        _told_apart(name, [words.get(row[f"{metric}_sign"], "unclear") for row in effects])
        for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1"))
    ]
    number = count(len(effects), "comparison")
    return f"from a model to the next in size, in {number} with and without instruction, {join(told)}."


def gain_sentences(comparison: Comparison) -> list[str]:
    """Return in how many runs and instructions each method is told to widen the boundary and to perform better."""
    sentences = []
    for predict, method in ways_of(comparison.by_model):
        gains = [
            row
            for row in comparison.verdicts
            if (row["predict"], row["method"], row["against_method"]) == (predict, method, "none")
            and row["instruction"] is row["against_instruction"]
        ]
        if not gains:
            continue
        told = [
            _told_apart(name, [row["verdict"] for row in gains if row["metric"] == metric])
            for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1"))
        ]
        way = way_name(predict, method)
        sentences.append(f"{way[0].upper()}{way[1:]}, against no {mitigation_of([method])}: {join(told)}.")
    return sentences


def _told_apart(name: str, verdicts: Sequence[str | None]) -> str:
    """Return of how many differences a test says which way they go; nothing where there is none."""
    if not verdicts:
        return ""
    counts = Counter(verdicts)
    n_few = counts["too few"] + counts[None]
    few = f", and {n_few} cannot be judged" if n_few else ""
    return f"{name} is higher in {counts['higher']} and lower in {counts['lower']} of {len(verdicts)}{few}"


def caveats(comparison: Comparison) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    sentences = no_label_caveats(comparison.by_model)
    sentences += _constant_caveats(comparison)
    coarse = {row["run"] for row in comparison.by_model if not row["has_enough_rows"]}
    if coarse:
        sentences.append(
            f"{join(sorted(coarse))}: too few test rows for RB@10, in at least one way of predicting; the settings' "
            "95 % intervals of weighted F1 reach, in the median, farther than the 10 points of the boundary to either "
            "side, so that chance decides which settings are inside it. The summary judges no RB@10 there."
        )
    sentences += _unpaired_caveats(comparison)
    if comparison.verdicts:
        sentences.append(
            "How often a method or the instruction is higher or lower is counted over the runs' own tests "
            "(majority_verdicts), of which each run's words have a chance of 5 % that one of them is wrong."
        )
    for dataset in comparison.datasets:
        named: dict[tuple[int, ...], list[str]] = {}
        for setting in dataset.settings:
            named.setdefault(tuple(setting["counts"]), []).append(setting["setting"])
        if same := [
            f"{join(names)} ({'/'.join(map(str, counts))})" for counts, names in named.items() if len(names) > 1
        ]:
            sentences.append(
                f"{dataset.name}: settings with the same counts of demonstrations count as several and are one: "
                f"{', '.join(same)}."
            )
    unknown = [model.name for model in comparison.models if model.n_parameters is None]
    if unknown:
        sentences.append(f"{join(unknown)}: the runs do not say the size, so that the effect of size leaves them out.")
    missing = [
        f"{model.name} on {dataset.name}"
        for dataset in comparison.datasets
        for model in comparison.models
        if not comparison.of(model, dataset)
    ]
    if missing:
        sentences.append(f"Not measured: {join(missing)}.")
    return sentences


def _constant_caveats(comparison: Comparison) -> list[str]:
    """Return which runs have no setting that is shown to be better than one label for all."""
    by_run: dict[str, list[Row]] = {}
    for row in comparison.by_model:
        if not row["is_any_setting_above_constant"]:
            by_run.setdefault(row["run"], []).append(row)
    if not by_run:
        return []
    told = []
    for run, rows in sorted(by_run.items()):
        ways = list(dict.fromkeys(way_name(row["predict"], row["method"]) for row in rows))
        constant, mean = rows[0]["constant_f1"], max(row["mean_f1"] for row in rows)
        told.append(f"{run} ({join(ways)}; mean weighted F1 up to {mean:.3f}, one label for all {constant:.3f})")
    return [
        f"No setting is shown to be better than one label for all in {join(told)}: an RB@10 near 1 is then no "
        "robustness."
    ]


def _unpaired_caveats(comparison: Comparison) -> list[str]:
    """Return why differences of size have no interval, and in which runs."""
    pairs = {(row["run"], row["larger_run"]) for row in comparison.effects if row["mean_f1_low"] is None}
    shared = {(row["run"], row["other_run"]): row for row in comparison.shared}
    reasons = {
        "has_same_rows": "the next larger model was not run on the same test rows with the same seed",
        "has_same_contexts": "the prompts of the next larger model have other demonstrations or another instruction",
        "has_same_scoring": "the next larger model was scored in another way (scoring.normalization, scoring.eos)",
    }
    sentences = []
    for is_met, reason in reasons.items():
        if runs := sorted({run for run, larger in pairs if not shared[run, larger][is_met]}):
            sentences.append(f"{join(runs)}: {reason}, so that differences of size have no interval.")
    if runs := sorted({run for run, larger in pairs if all(shared[run, larger][is_met] for is_met in reasons)}):
        sentences.append(f"{join(runs)}: there is one test row, so that differences of size have no interval.")
    return sentences


def count(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
