"""What a reader of a label-bias report must know before trusting its numbers, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from biaseval.environment import PRIMARY_BEFORE
from biaseval.report.findings import Findings
from biaseval.report.formats import Formats
from biaseval.report.methods import method_name
from biaseval.report.mitigation import training_caveats
from biaseval.report.summary import counted, demos, join

FEW_NOTES = 3
"""Notes of a plan that stand among the cautions."""

_N_NAMED = 5
_ENOUGH_TASKS = 40
"""From which on intervals of means over tasks hold as often as they say, in simulations (docs/statistics.md)."""


def caveats(findings: Findings) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    n_tasks = findings.scope["n_tasks"]
    inferred = [task["task"] for task in findings.tasks if task["template_source"] == "inferred"]
    left_out = findings.plan.get("left_out") or {}
    sentences = []
    if n_tasks == 1:
        sentences.append("One task: what holds for rows like these says nothing about other tasks.")
    elif n_tasks < 10:
        sentences.append(f"{n_tasks} tasks are few: what holds for them need not hold for others.")
    if 1 < n_tasks < _ENOUGH_TASKS:
        sentences.append(
            "Intervals over tasks are pictures, and no word is made of them: of RSD and BiasScore, with so few tasks, "
            "they hold the mean in 90 to 98 % of simulated runs in place of 95 %."
        )
    if "imported" in findings.spec:
        sentences += findings.plan["notes"]
    sentences += [
        *_primary(findings),
        *_scoring(findings),
        *_out_of_reach(findings),
        *_single_gold(findings),
        *_without_hit(findings),
    ]
    sentences += [*_single_label(findings), *_turned(findings.formats)]
    if n_fewer := findings.n_cut["n_fewer_demos"]:
        of = f" of {findings.plan['n_prompts']:,}" if "n_prompts" in findings.plan else ""
        sentences.append(
            f"{n_fewer:,}{of} prompts hold fewer demonstrations than asked for: the length limit was reached."
        )
    if n_truncated := findings.n_cut["n_truncated"]:
        sentences.append(f"{n_truncated:,} prompts were cut on the right: they pass the limit without demonstrations.")
    if inferred:
        sentences.append(
            f"The domain-context template of {counted(len(inferred), 'task')} is inferred from the inputs; "
            "templates change what DC measures."
        )
    if left_out:
        were = "was" if len(left_out) == 1 else "were"
        sentences.append(f"{counted(len(left_out), 'task')} {were} left out; the reasons are under Settings.")
    if findings.adaptation is not None:
        sentences += training_caveats(findings.adaptation)
    return [*sentences, *few_notes(findings.plan)]


def _primary(findings: Findings) -> list[str]:
    """Return that the primary question was named when scores were there already, if so."""
    asked, before = findings.spec.get("primary"), findings.environment.get(PRIMARY_BEFORE, _AS_IT_IS)
    if not asked or before in (_AS_IT_IS, asked):
        return []
    was = f"before, it was {before['metric']} with {before['method']}" if before else "before, there was none"
    return [
        f"The primary question was chosen when the scores were there already ({was}). Its words are as sure as they "
        "say only if nobody had seen results by then."
    ]


_AS_IT_IS = "the primary question never changed"


def _scoring(findings: Findings) -> list[str]:
    """Return how labels are scored where that is not the published way; imports say it in their notes."""
    scoring = findings.spec.get("scoring") or {}
    normalization, eos = scoring.get("normalization", "mean"), scoring.get("eos", True)
    if "imported" in findings.spec or (normalization, eos) == ("mean", True):
        return []
    end = "with EOS" if eos else "without EOS"
    return [f"Labels are scored by the {normalization} over their tokens, {end}; published: the mean, with EOS."]


def few_notes(plan: Mapping[str, Any]) -> list[str]:
    """Return the notes of a plan where they are few; others stand folded under the settings."""
    notes = list(plan.get("notes") or [])
    return notes if len(notes) <= FEW_NOTES else []


def _out_of_reach(findings: Findings) -> list[str]:
    high = [row for row in findings.ranked if (row["bias_score_of_perfect"] or 0) > 0.1]
    if not high:
        return []
    high.sort(key=lambda row: (-row["bias_score_of_perfect"], row["task"]))
    named = _named([f"{row['task']} ({row['bias_score_of_perfect']:.3f})" for row in high])
    return [
        f"BiasScore cannot come near 0 where gold labels are missing among its rows; a model that is always right has "
        f"more than 0.1 in {named}."
    ]


def _single_gold(findings: Findings) -> list[str]:
    single = [row["task"] for row in findings.ranked if row["n_main_gold_labels"] == 1]
    if not single:
        return []
    return [f"All test rows have one gold label, so that RSD is 0 for every method, in {_named(single)}."]


def _single_label(findings: Findings) -> list[str]:
    several = [row for row in findings.demo_sets if row["n_demos_used"] > 1]
    single = [row for row in several if row["is_single_label"]]
    if not single:
        return []
    places = [f"{row['task']} ({demos(row['n_demos'])}, set {row['demo_set']})" for row in single]
    return [
        f"All demonstrations have one label in {len(single):,} of {counted(len(several), 'demonstration set')} of two "
        f"or more: {_named(places)}. A preference for that label may be theirs."
    ]


def _turned(formats: Formats | None) -> list[str]:
    if formats is None or not formats.turned:
        return []
    places = []
    for row in formats.turned:
        labels = join(f"“{label}” in {name}" for label, name in row["labels"].items())
        places.append(f"{row['task']} ({demos(row['n_demos'])}: {labels})")
    return [f"The preferred label is another in another format of the prompt: {_named(places)}."]


def _without_hit(findings: Findings) -> list[str]:
    rows = [row for row in findings.by_suite["all"] if row["n_tasks_without_hit"]]
    if not rows:
        return []
    places = [
        f"{counted(row['n_tasks_without_hit'], 'task')} "
        f"({method_name(row['method'], findings.mitigation)}, {demos(row['n_demos'])})"
        for row in rows
    ]
    return [f"Without a single correct answer RSD counts as 0, which makes the mean RSD look better: {_named(places)}."]


def _named(names: Sequence[str]) -> str:
    more = len(names) - _N_NAMED
    return join(names) if more <= 0 else f"{', '.join(names[:_N_NAMED])} and {more:,} more"
