"""What several majority-bias runs show together, in sentences, and what to know before trusting them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from biaseval.report.comparison_data import Comparison, column_name
from biaseval.report.findings import Row
from biaseval.report.majority_words import no_label_caveats
from biaseval.report.methods import mitigation_of
from biaseval.report.summary import join, signed
from biaseval.report.ways import INSTRUCTIONS, way_name, ways_of


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
    told = [_widest(comparison, rows), _instruction(comparison, rows), _size(comparison, effects)]
    return [f"{way[0].upper()}{way[1:]}: {sentence}" for sentence in told if sentence]


def _widest(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return which model has the widest boundary on each data set, and with which mean weighted F1.

    Runs with too few test rows for RB@10 are left out.
    """
    found = []
    enough = [row for row in rows if row["has_enough_rows"]]
    for dataset in comparison.datasets:
        there = [row for row in enough if row["run"] in dataset.runs]
        if not there:  # a way that no run of this data has
            continue
        best = max(row["rb_at_10"] for row in there)
        widest = [row for row in there if row["rb_at_10"] >= best - 1e-9]
        models = []
        for model in comparison.models:
            given = {row["instruction"] for row in widest if row["run"] in model.runs}
            if given:
                models.append(f"{model.name} {join([INSTRUCTIONS[one] for one in sorted(given)])}")
        f1s = sorted({f"{row['mean_f1']:.3f}" for row in widest})
        found.append(
            f"{best:.3f} on {dataset.name} ({', '.join(models)} instruction; mean weighted F1 "
            f"{' to '.join(dict.fromkeys((f1s[0], f1s[-1])))})"
        )
    return f"the widest boundary, RB@10, is {join(found)}." if found else ""


def _instruction(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return in how many runs the instruction widens the boundary and raises the mean."""
    with_it = {row["run"]: row for row in rows if row["instruction"]}
    without = {row["run"]: row for row in rows if not row["instruction"]}
    runs = sorted(with_it.keys() & without.keys())
    if not runs:
        return ""
    told = []
    for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
        judged = [
            run
            for run in runs
            if metric != "rb_at_10" or (with_it[run]["has_enough_rows"] and without[run]["has_enough_rows"])
        ]
        told.append(_told(name, [with_it[run][metric] - without[run][metric] for run in judged], len(runs)))
    return f"with the instruction, over {count(len(runs), 'pair')} of a model with a data set, {join(told)}."


def _size(comparison: Comparison, effects: Sequence[Row]) -> str:
    """Return in how many comparisons the larger model has a wider boundary and performs better, and what tests say."""
    if not effects:
        return ""
    told = []
    for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
        judged = [row for row in effects if metric != "rb_at_10" or row["has_enough_rows"]]
        signs = Counter(row[f"{metric}_sign"] for row in judged)
        tested = f", told apart in {signs[1] + signs[-1]}: higher in {signs[1]}, lower in {signs[-1]}"
        is_tested = metric != "rb_at_10"
        told.append(
            _told(name, [row[metric] for row in judged], len(effects), tested if is_tested else ", which nothing tests")
        )
    number = count(len(effects), "comparison")
    return f"from a model to the next in size, in {number} with and without instruction, {join(told)}."


def gain_sentences(comparison: Comparison) -> list[str]:
    """Return in how many runs and instructions each method widens the boundary."""
    rows = {(row["predict"], row["run"], row["instruction"], row["method"]): row for row in comparison.by_model}
    sentences = []
    for predict, method in ways_of(comparison.by_model):
        if method == "none":
            continue
        told = []
        for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
            pairs = [
                (row, rows[predict, row["run"], row["instruction"], "none"])
                for row in comparison.by_model
                if (row["predict"], row["method"]) == (predict, method)
            ]
            changes = [
                after[metric] - before[metric]
                for after, before in pairs
                if metric != "rb_at_10" or (after["has_enough_rows"] and before["has_enough_rows"])
            ]
            told.append(_told(name, changes, len(pairs)))
        way = way_name(predict, method)
        sentences.append(f"{way[0].upper()}{way[1:]}, against no {mitigation_of([method])}: {join(told)}.")
    return sentences


def _told(name: str, changes: Sequence[float], n_pairs: int, addition: str = "") -> str:
    """Return how a metric changes, in words; pairs that are not among the changes have too few test rows."""
    n_few = n_pairs - len(changes)
    if not changes:
        return f"{name} is not judged (too few test rows)"
    left_out = f"; {n_few} not judged, with too few test rows" if n_few else ""
    return f"{name} {_ups_and_downs(changes)} ({_mean(changes)} on average{addition}{left_out})"


def _mean(changes: Sequence[float]) -> str:
    return signed(sum(changes) / len(changes))


def _ups_and_downs(changes: Sequence[float]) -> str:
    """Return how many rise and fall, such as ``rises in 3, falls in 1 and stays in 2``."""
    counts = Counter("rises" if x > 1e-9 else "falls" if x < -1e-9 else "stays" for x in changes)
    return join([f"{verb} in {counts[verb]}" for verb in ("rises", "falls", "stays") if counts[verb]])


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
    """Return which runs give almost always the same answer."""
    by_run: dict[str, list[Row]] = {}
    for row in comparison.by_model:
        if row["is_constant"]:
            by_run.setdefault(row["run"], []).append(row)
    if not by_run:
        return []
    told = []
    for run, rows in sorted(by_run.items()):
        ways = list(dict.fromkeys(way_name(row["predict"], row["method"]) for row in rows))
        constant, mean = rows[0]["constant_f1"], max(row["mean_f1"] for row in rows)
        told.append(f"{run} ({join(ways)}; mean weighted F1 up to {mean:.3f}, the best constant answer {constant:.3f})")
    return [
        f"More than 95% of the predictions are the same answer in {join(told)}: such a model pays no "
        "attention to the demonstrations, and an RB@10 near 1 is then no robustness."
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
