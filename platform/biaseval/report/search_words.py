"""Sentences of a search: what was chosen, what tells it from the others, what the choice is worth and cost."""

from __future__ import annotations

from biaseval.report.findings import Row
from biaseval.report.search_cells import estimate, flat_range, parameters
from biaseval.report.search_findings import Choice, Objective, SearchFindings
from biaseval.report.summary import join

_SAMPLERS = {
    "grid": "all combinations",
    "random": "drawn at random",
    "optuna": "chosen by Optuna’s {}, {} at a time",
}
_N_FEW = 10
"""Trials below which shares of variance are called rough."""


def summarize_search(findings: SearchFindings) -> list[str]:
    """Return what was searched, what was chosen, and what that is worth, a finding each."""
    sentences = [_scope(findings)]
    if not findings.choices:
        return [*sentences, "No trial is done, so nothing is chosen."]
    if findings.has_several_choices:
        return [*sentences, *_several(findings), _took(findings)]
    [choice] = findings.choices
    sentences += [_chosen(findings, choice), _worth(findings, choice), _beside_constant(findings, choice)]
    sentences += [told_apart(findings, choice), _gain(findings, choice), _against_reference(findings, choice)]
    return [sentence for sentence in (*sentences, _took(findings)) if sentence]


def search_caveats(findings: SearchFindings) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    sentences, name = [], findings.objective.name
    if findings.n_other_objectives:
        sentences.append(
            f"An older version searched for several objectives. This page shows the first, {name}, and chooses by it "
            "alone; values of the others are in the table trials."
        )
    if findings.choices and not findings.has_unseen:
        sentences.append(
            "choose_on: published. The choice saw all that it is measured on, as in the papers: its value leans to the "
            "good side by an amount that this search does not measure."
        )
    if any(choice.best["n_others"] for choice in findings.choices):
        sentences.append(
            "Each interval is of one trial or of one comparison. None is corrected for how many there are, nor for the "
            "chosen trial’s being chosen: on the data of the choice its value leans to the good side. "
            + (
                f"Words (better, worse, told from it) are of tests on the {findings.samples.evaluation}: the chance of "
                "any wrong one is 5 % over all differences from chosen trials, and 5 % over all gains."
                if findings.has_unseen
                else "So no word is made of them."
            )
        )
    if findings.objective.is_of_bias_score:
        sentences.append(
            f"{name}: sampling noise alone makes BiasScore greater than 0, so no test compares trials by it. "
            "The column squared_preference has no such noise on average."
        )
    if findings.lacks_intervals:
        sentences.append(
            f"Some values of {name} have no interval: with some articles or rows left out, the query returns no number."
        )
    failed = findings.costs.get("failed")
    if failed is not None:
        n = failed["n_trials"]
        points, reasons = _plural(n, "its point", "their points"), _plural(n, "reason is", "reasons are")
        sentences.append(
            f"{_count(n, 'trial')} failed, so that the search did not see what {points} would have come to; the "
            f"{reasons} under Cost."
        )
    return sentences


def told_apart(findings: SearchFindings, choice: Choice) -> str:
    """Return how many of the other trials a test tells from the chosen one, and of how many an interval includes 0."""
    row, name = choice.best, findings.objective.name
    if not row["n_others"]:
        return "No other trial is done: there was nothing to choose from."
    if not row["n_compared"]:
        return f"By {name}, no difference from another trial has an interval: nothing says which are as good."
    n, k = row["n_compared"], row["n_within_noise"]
    has_range = k and findings.keys[0].is_numeric and flat_range(row)
    flat = f" (at {findings.keys[0].name} {flat_range(row)})" if has_range else ""
    seen = f"By {name}, on the {findings.samples.choice}, the interval of the difference from it, each alone,"
    seen += f" includes 0 for {k:,} of the {_count(n, 'other trial')}{flat}"
    if not row["n_tested"]:
        return f"{seen}."
    worse, better = row["n_told_worse"], row["n_told_better"]
    sides = [f"{worse:,} by a worse number"] if worse else []
    sides += [f"{better:,} by a better number"] if better else []
    tested = f"{join(sides)} of {row['n_tested']:,}" if sides else f"none of {row['n_tested']:,}"
    open_ = ": these data do not say which of them is best" if not sides else ""
    return f"{seen}; on the {findings.samples.evaluation}, tests of all together tell {tested} from it{open_}."


def against(row: Row, objective: Objective) -> str:
    """Return what the test of a trial's difference from the chosen one says, on data that the choice did not see.

    Args:
        row: of ``search_trials``.
        objective: of the row.

    Returns:
        ``chosen`` where the chosen trial is better, ``other`` where the other one is, ``none`` where they are not told
        apart, and an empty text where there is no test.
    """
    if row["verdict"] is None:
        return ""
    if row["verdict"] == "unclear":
        return "none"
    return "chosen" if (row["verdict"] == "lower") == objective.is_maximized else "other"


def costs(findings: SearchFindings) -> list[str]:
    """Return what the search took."""
    if not any(row["run"] for row in findings.trials):
        what = "Trials are arithmetic on outputs that all of them share: no model was loaded for one."
    elif any(row["steps"] for row in findings.costs.values()):
        what = _early(findings)
    else:
        what = "Trials trained nothing; each was measured as a run of its own."
    steps = findings.settings["shared_steps"]
    shared = f"What trials share took {_count(steps, 'optimizer step')}, once." if steps else ""
    return [sentence for sentence in (what, shared) if sentence]


def rough_shares(choice: Choice) -> str:
    """Return whether shares of variance come from few trials; nothing where they do not."""
    n_trials = max((row["n_trials"] for row in choice.importance), default=0)
    return f"From {_count(n_trials, 'trial')} they are rough." if n_trials < _N_FEW else ""


def sampler(findings: SearchFindings) -> str:
    """Return how points were chosen."""
    algorithm = "NSGA-II" if findings.n_other_objectives else "TPE"
    return _SAMPLERS[findings.settings["algorithm"]].format(algorithm, findings.settings["batch"])


def _scope(findings: SearchFindings) -> str:
    done, stopped, failed = (
        findings.costs.get(state, {"n_trials": 0})["n_trials"] for state in ("done", "stopped", "failed")
    )
    ends = [
        "all done" if done == len(findings.trials) > 1 else f"{done:,} {_plural(done, 'is', 'are')} done",
        *([f"{stopped:,} {_plural(stopped, 'was', 'were')} stopped early"] if stopped else []),
        *([f"{failed:,} failed"] if failed else []),
    ]
    keys = join([key.name for key in findings.keys])
    return f"{_count(len(findings.trials), 'trial')} of {keys}, {sampler(findings)}: {join(ends)}."


def _chosen(findings: SearchFindings, choice: Choice) -> str:
    row = choice.chosen
    at = parameters(row["parameters"], {key.key: key.name for key in findings.keys})
    return f"Chosen is trial {row['trial']}, at {at}."


def _worth(findings: SearchFindings, choice: Choice) -> str:
    row, objective = choice.best, findings.objective
    value = estimate(row, "value", objective.digits)
    start = f"Its {objective.name} ({'higher' if objective.is_maximized else 'lower'} is better) is {value}"
    if not findings.has_unseen:
        return f"{start}, on the data that it was chosen on."
    evaluation = estimate(row, "evaluation", objective.digits)
    return (
        f"{start} on the {findings.samples.choice}, and {evaluation} on the {findings.samples.evaluation}, which the "
        "choice did not see."
    )


_BESIDE_CONSTANT = {
    False: "is no better than always answering one label",
    None: "is not shown to be better than always answering one label",
}
"""The column ``is_above_constant`` in words, where it is not true."""


def _is_praised(findings: SearchFindings, row: Row) -> bool:
    return not findings.has_constant or row["is_above_constant"] is True


def _beside_constant(findings: SearchFindings, choice: Choice) -> str:
    """Return that the choice may be as good as one label for all; nothing where it is shown to be better."""
    row = choice.best
    if _is_praised(findings, row):
        return ""
    beside = _BESIDE_CONSTANT[row["is_above_constant"]]
    return f"In the settings behind its {findings.objective.name}, the chosen trial {beside}."


def _gain(findings: SearchFindings, choice: Choice) -> str:
    """Return whether the choice is better than the mean trial on data that it did not see."""
    row, objective = choice.best, findings.objective
    if not row["n_others"] or row["evaluation_gain"] is None:
        return ""
    gain = estimate(row, "evaluation_gain", objective.digits, signed=True)
    return (
        f"On the {findings.samples.evaluation}, it gains {gain} of {objective.name} on the mean of all trials that are "
        f"done: {_verdict(findings, row)}."
    )


def _verdict(findings: SearchFindings, row: Row) -> str:
    if row["evaluation_gain_verdict"] == "higher" and not _is_praised(findings, row):
        return f"that number is better than their mean, and the trial {_BESIDE_CONSTANT[row['is_above_constant']]}"
    return {
        "higher": "it is better than their mean",
        "lower": "it is worse than their mean",
        "unclear": "no gain is shown",
        None: "without a test nothing is shown",
    }[row["evaluation_gain_verdict"]]


def _against_reference(findings: SearchFindings, choice: Choice) -> str:
    """Return whether choosing is shown to be worth more than the spec's own values."""
    row, objective = choice.reference, findings.objective
    if row is None:
        return ""
    if row["is_chosen"]:
        return f"The chosen point is {findings.reference}."
    name = f"{objective.name} of trial {row['trial']} ({findings.reference})"
    if not findings.has_unseen:
        shown = estimate(row, "difference", objective.digits, signed=True)
        return f"The {name} differs from that by {shown}, on the data that chose: not what choosing gains elsewhere."
    shown = estimate(row, "evaluation_difference", objective.digits, signed=True)
    says = {
        "chosen": "the chosen one is better there",
        "other": "the chosen one is worse there",
        "none": "they are not told apart, so nothing shows that choosing helps",
        "": "without a test nothing is shown",
    }[against(row, objective)]
    if against(row, objective) == "chosen" and not _is_praised(findings, choice.best):
        says = f"the chosen number is better there, and the trial {_BESIDE_CONSTANT[choice.best['is_above_constant']]}"
    return f"On the {findings.samples.evaluation}, the {name} differs from that of the chosen one by {shown}: {says}."


def _several(findings: SearchFindings) -> list[str]:
    """Return in how many scopes the choice is told from others, and is worth something elsewhere."""
    n, per, name = len(findings.choices), join(findings.settings["per"]), findings.objective.name
    sentences = [f"A point is chosen for each {per}, of which there {_plural(n, 'is', 'are')} {n:,}."]
    rows = [choice.best for choice in findings.choices]
    compared = [row for row in rows if row["n_compared"]]
    alike = [row for row in compared if row["n_within_noise"] == row["n_compared"]]
    if compared:
        sentences.append(
            f"By {name}, on the {findings.samples.choice}, in {len(alike):,} of {len(compared):,} the intervals of the "
            "differences of all other trials from the chosen one, each alone, include 0."
        )
    unpraised = [row for row in rows if not _is_praised(findings, row)]
    if unpraised:
        sentences.append(
            f"In the settings behind {name}, the chosen trial {_BESIDE_CONSTANT[None]} in "
            f"{len(unpraised):,} of {len(rows):,}."
        )
    gains = [row["evaluation_gain_verdict"] for row in rows if row["evaluation_gain_verdict"] is not None]
    if gains:
        sentences.append(
            f"On the {findings.samples.evaluation}, the {name} of the chosen trial is better than the mean of all "
            f"trials in {gains.count('higher'):,} of {len(gains):,}, worse in {gains.count('lower'):,}."
        )
    if findings.verdict is not None:
        sentences.append(_over_scopes(findings.verdict, findings.objective, per, are_praised=not unpraised))
    if findings.has_unseen:
        sentences.append(_several_against_reference(findings))
    return [sentence for sentence in sentences if sentence]


def _over_scopes(row: Row, objective: Objective, per: str, *, are_praised: bool) -> str:
    """Return whether choosing helps over all scopes together."""
    says = {
        "higher": "choosing helps" if are_praised else f"choosing improves {objective.name}",
        "lower": "choosing hurts",
        "negligible": "choosing changes less than the smallest effect of interest",
        "unclear": "nothing shows that choosing helps",
        "too few": "fewer than six are too few to say whether choosing helps",
    }[row["verdict"]]
    named = {"gain": row["estimate"], "gain_low": row["low"], "gain_high": row["high"]}
    shown = estimate(named, "gain", objective.digits, signed=True)
    return f"Over each {per} together, that gain of {objective.name} is {shown} on average: {says}."


def _several_against_reference(findings: SearchFindings) -> str:
    rows, objective = (
        [choice.reference for choice in findings.choices if choice.reference is not None],
        findings.objective,
    )
    if not rows:
        return ""
    sides = [against(row, objective) for row in rows if not row["is_chosen"]]
    better, worse = sides.count("chosen"), sides.count("other")
    itself = f"; in {len(rows) - len(sides):,} it is the same point" if len(rows) > len(sides) else ""
    return (
        f"Against {findings.reference}, on the {findings.samples.evaluation}: the {objective.name} of the chosen point "
        f"is better in {better:,} of {len(rows):,}, worse in {worse:,}, and not told apart in "
        f"{len(sides) - better - worse:,}{itself}."
    )


def _took(findings: SearchFindings) -> str:
    """Return what the choice cost."""
    steps = sum(row["steps"] or 0 for row in findings.costs.values())
    shared = findings.settings["shared_steps"]
    beside = f", and {_count(shared, 'step')} of what they share" if shared else ""
    if steps:
        return f"The choice took {_count(steps, 'optimizer step')} of its trials{beside}."
    is_arithmetic = not any(row["run"] for row in findings.trials)
    return (
        "The choice took arithmetic on stored outputs: nothing was scored or trained for a trial."
        if is_arithmetic
        else ""
    )


def _early(findings: SearchFindings) -> str:
    """Return how trials were stopped."""
    rule = findings.spec.get("stop_early")
    if rule is None:
        return ""
    return (
        "Trials were stopped early by the F1 of their readers on validation: from "
        f"{_count(rule['grace_steps'], 'step')} on, and again at each "
        f"{rule['reduction']:g} times as many, those go on that are among the best "
        f"1 in {rule['reduction']:g} of earlier batches."
    )


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def _plural(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural
