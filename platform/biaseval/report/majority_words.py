"""What a majority-bias run may be said to show, in sentences: each word of them is a verdict of the marts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from biaseval.report.cautions import few_notes
from biaseval.report.findings import Row
from biaseval.report.majority_findings import METRICS_OF_VERDICTS, MajorityFindings
from biaseval.report.methods import is_adapted, method_name
from biaseval.report.mitigation import training_caveats
from biaseval.report.summary import BESIDE_CONSTANT, MIN_UNITS, Line, counted, join, p_value, signed
from biaseval.report.ways import INSTRUCTIONS, WAYS, way_name

_WORDS = {
    "unclear": "no clear change",
    "too few rows": "too few rows to say",
    "too few seeds": "too few seeds to say",
    "constant answer": "not judged (not shown to beat one label)",
    "no spread": "not judged, as settings are all alike",
}
_FALLS_IN = {
    "sd_f1 and rb_at_10": "sd is lower and RB@10 higher",
    "sd_f1": "sd is lower",
    "rb_at_10": "RB@10 is higher",
}
_F1_EVIDENCE = {
    "higher": "mean weighted F1 is higher",
    "no loss": "a loss of mean weighted F1 of 0.01 or more is ruled out",
}
_NO_FALL = {"bias rises": "sd is higher or RB@10 lower", "mixed": "sd and RB@10 contradict each other"}
_WHY_NOT = {
    "too few seeds": f"fewer than {MIN_UNITS} seeds",
    "too few rows": "too few test rows",
    "constant answer": "no setting of a side is shown to be better than one label for all",
}
_N_NAMED = 3
"""Ways of predicting that a sentence names."""


def measured(findings: MajorityFindings) -> str:
    """Return what the run measured, in one line."""
    first = findings.by_model[0]
    model = str(findings.spec["model"]["path"]).rstrip("/").rpartition("/")[2]
    methods = list(dict.fromkeys(method for _, method in findings.ways()))
    given = [shown for instruction, shown in INSTRUCTIONS.items() if instruction in _instructions(findings)]
    date = findings.environment.get("date")
    parts = [
        f"{model} on {first['task']}",
        counted(first["n_test_rows"], "test row"),
        f"{counted(first['n_settings'], 'setting')} of {counted(first['n_demos'], 'demonstration')}",
        counted(first["n_seeds"], "seed"),
        join(WAYS.get(predict, predict) for predict in dict.fromkeys(predict for predict, _ in findings.ways())),
        *([join(map(method_name, methods))] if len(methods) > 1 else []),
        f"{' and '.join(given)} instruction",
        *([str(date)] if date else []),
    ]
    return " · ".join(parts)


def conclude(findings: MajorityFindings) -> list[Line]:
    """Return the verdict; what always answers the same comes first."""
    lines = [*_constant(findings), *_proportions(findings), *_boundary(findings), *_changes(findings)]
    return [*lines, *_certainty(findings), *_advice(findings)]


def verdict_word(verdict: Row) -> str:
    """Return what the page says of a difference: its verdict, or why there is none."""
    word = verdict["reason"] or verdict["verdict"]
    return "not judged" if word is None else _WORDS.get(word, str(word))


def evidence(row: Row) -> str:
    """Return what the words on a remedy amount to; a row of ``majority_remedies``."""
    notes = ["RB@10 not judged"] * (not row["is_rb_at_10_judged"])
    notes += [BESIDE_CONSTANT[row["is_above_constant"]]] * (not row["is_above_constant"])
    return f"{row['evidence']} ({', '.join(notes)})" if notes else str(row["evidence"])


def no_label_caveats(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each way of predicting with many outputs that are no label; rows of majority_by_model."""
    shares: dict[str, float] = {}
    for row in rows:
        if row["has_many_without_label"]:
            shares[row["predict"]] = max(shares.get(row["predict"], 0.0), row["share_no_label"])
    return [
        f"Up to {share:.1%} of the outputs of {WAYS.get(predict, predict)} are no label and count as wrong; where most "
        "are, RB@10 is near 1 and says nothing of robustness."
        for predict, share in shares.items()
    ]


def cautions(findings: MajorityFindings) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    sentences = no_label_caveats(findings.by_model)
    n_seeds = max(row["n_seeds"] for row in findings.by_model)
    if n_seeds == 1:
        sentences.append(
            "There is one seed: all numbers hold for one draw of demonstrations in each setting. How much of sd and "
            "RB@10 is the luck of the draw, and whether proportions matter at all, cannot be told."
        )
    elif n_seeds < MIN_UNITS:
        judged = ", and no change of it is judged" if findings.remedies else ""
        sentences.append(
            f"RB@10, and which settings are inside the boundary, hold for these draws of demonstrations; of others "
            f"{n_seeds} seeds say too little, as no test over fewer than {MIN_UNITS} can reach 5 %{judged}."
        )
    if coarse := [row for row in findings.by_model if not row["has_enough_rows"]]:
        every = "every way of predicting" if len(coarse) == len(findings.by_model) else _some(map(_place, coarse))
        sentences.append(
            f"Too few test rows for RB@10 ({every}): the settings' 95 % intervals of weighted F1 reach, in the median, "
            "farther than the 10 points of the boundary to either side, so that chance decides which settings are "
            "inside it. No change of RB@10 is judged there."
        )
    if findings.adaptation is not None:
        sentences += training_caveats(findings.adaptation)
    return [*sentences, *few_notes(findings.plan)]


def _constant(findings: MajorityFindings) -> list[Line]:
    """Return which ways of predicting are not shown to be better than one label for all."""
    lines = []
    for is_above in (False, None):
        if rows := [row for row in findings.by_model if row["is_above_constant"] is is_above]:
            told = [
                f"{_place(row)} (mean weighted F1 {row['mean_f1']:.3f}, accuracy {row['accuracy']:.3f}; "
                f"{100 * row['share_most_frequent']:.1f} % of the answers over all settings are one label)"
                for row in rows
            ]
            constants = f"one label for all has {rows[0]['constant_f1']:.3f} and {rows[0]['majority_accuracy']:.3f}"
            lines.append(Line(BESIDE_CONSTANT[is_above].capitalize(), f"{_some(told)}; {constants}."))
    return lines


def _proportions(findings: MajorityFindings) -> list[Line]:
    """Return whether proportions matter at all to the first way of predicting, and what its predictions follow."""
    rows = findings.first()
    told = []
    if matter := [row for row in rows if _matters(row)]:
        facts = [
            f"({p_value(row['proportions_p_adjusted'])}, sd {row['sd_f1_corrected']:.3f} without what seeds explain)"
            for row in matter
        ]
        told.append(f"weighted F1 depends on them {_by_instruction(matter, facts)}")
    if unclear := [row for row in rows if not _matters(row) and row["proportions_p_adjusted"] is not None]:
        facts = [f"({p_value(row['proportions_p_adjusted'])}{_found(row)})" for row in unclear]
        told.append(f"not shown to matter {_by_instruction(unclear, facts)}")
    if not told:
        told.append("one seed cannot tell whether they matter")
    tested = [row for row in findings.by_model if row["proportions_p_adjusted"] is not None]
    of_all = f"; of all ways, in {sum(map(_matters, tested))} of {len(tested)}" if len(tested) > len(rows) else ""
    return [Line(_lead("Proportions", findings), f"{'; '.join(told)}{of_all}.{_followed(rows)}")]


def _found(row: Row) -> str:
    """Return, behind a semicolon, the smallest effect of proportions that such a run finds, or that it finds none."""
    if (smallest := row["sd_f1_smallest_detectable"]) is None:
        return "; a run of so few settings and seeds hardly finds any effect"
    return f"; four of five such runs find an sd of {smallest:.3f} without what seeds explain" if smallest else ""


def _followed(rows: Sequence[Row]) -> str:
    """Return, with a blank before it, how far predictions follow the proportions, and the last demonstration."""
    effects = [row for row in rows if row["majority_effect"] is not None]
    if not effects:
        return ""
    told = join(_with_interval(row, "majority_effect") for row in effects)
    followed = f" Predictions follow them ({_instructions_of(effects)}) by {told}, where 1 is wholly"
    recent = [row for row in rows if row["recency_at_equal_shares"] is not None]
    if not recent:
        return f"{followed}."
    last = join(_with_interval(row, "recency_at_equal_shares") for row in recent)
    which = "" if recent == effects else f" ({_instructions_of(recent)})"
    return f"{followed}; the last demonstration{which} by {last}."


def _boundary(findings: MajorityFindings) -> list[Line]:
    """Return how wide the robustness boundary of the first way of predicting is, or why that says nothing."""
    told: dict[str, list[Row]] = {}
    for row in findings.first():
        told.setdefault(_width(row), []).append(row)
    text = "; ".join(f"{width} {_instructions_of(rows)}" for width, rows in told.items())
    return [Line(_lead("Robustness boundary", findings), f"{text}.")]


def _width(row: Row) -> str:
    inside = f"{row['n_marked']} of {row['n_settings']} settings are within 10 points of the best setting"
    if row["is_any_setting_above_constant"] is False:
        return "RB@10 says nothing, as no setting is better than one label for all,"
    if not row["has_enough_rows"]:
        reach = "" if row["half_width"] is None else f" (the settings' intervals reach {row['half_width']:.3f})"
        return f"too few rows for RB@10{reach}"
    if row["is_any_setting_above_constant"] is None:
        return "RB@10 says nothing, as no setting is shown to be better than one label for all,"
    if not row["n_marked"]:  # the best setting is within 10 points of itself
        return "RB@10 says nothing, as most outputs are no label,"
    return f"{inside}, for these draws of demonstrations (RB@10 {row['rb_at_10']:.3f}),"


def _changes(findings: MajorityFindings) -> list[Line]:
    """Return what each mitigation and the instruction gain and cost, in the words of the tests."""
    parts = []
    for metric in ("mean_f1", "sd_f1", "rb_at_10"):
        if rows := [row for row in findings.verdicts if row["metric"] == metric]:
            parts.append(f"{METRICS_OF_VERDICTS[metric].removesuffix(' of a seed')} {_by_word(rows, findings)}")
    lines = [Line(f"What {mitigations(findings)} changes", f"{'; '.join(parts)}.")] if parts else []
    gaps = [row for row in findings.gaps if (row["predict"], row["method"]) == findings.ways()[0]]
    if gaps:
        told = [
            f"{'at the' if row['region'] == 'tails' else 'in the'} {row['region']} {signed(row['gap'])}, "
            f"{verdict_word(findings.verdict(row, row['region'] + '_f1'))}"
            for row in gaps
        ]
        text = f"weighted F1 with minus without it: {'; '.join(told)}."
        if lines:
            return [Line(lines[0].lead, f"{lines[0].text} The instruction: {text}")]
        return [Line(_lead("What the instruction changes", findings), text)]
    return lines


def _by_word(rows: Sequence[Row], findings: MajorityFindings) -> str:
    """Return the word of each change, what is higher or lower with names."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(verdict_word(row), []).append(row)
    told = []
    for word, own in groups.items():
        if word not in ("higher", "lower"):
            told.append(word if len(groups) == 1 else f"{word} in {len(own)} of {len(rows)}")
        else:
            changes = [f"{_remedy(row, findings)} ({signed(row['estimate'])})" for row in own]
            told.append(f"{word} with {_some(changes)}")
    return ", ".join(told)


def _certainty(findings: MajorityFindings) -> list[Line]:
    """Return what the words are about, what family their 5 % are over, and how small a change the tests see."""
    if not findings.verdicts:
        return []
    first = findings.by_model[0]
    of_rows, of_seeds = (sum(row["unit"] == unit for row in findings.verdicts) for unit in ("row", "seed"))
    families = [f"the {of_rows} differences of weighted F1{' and sd' if of_seeds else ''}"] if of_rows else []
    families += [f"the {of_seeds} of RB@10"] if of_seeds else []
    told = (
        f"words are for other rows and draws of demonstrations than these {first['n_test_rows']:,} and "
        f"{counted(first['n_seeds'], 'seed')}; the chance of any wrong one is 5 % over "
        f"{' and 5 % over '.join(families)}."
    )
    tests = [row for row in findings.verdicts if row["unit"] == "row" and row["metric"] != "sd_f1"]
    seen = sorted({f"{row['smallest_detectable']:.3f}" for row in tests if row["smallest_detectable"]})
    if seen:
        ends = seen[0] if len(seen) == 1 else f"{seen[0]} to {seen[-1]}"
        told += f" One test over rows alone mostly finds a change of weighted F1 by {ends}."
    return [Line("How sure", told)]


def _advice(findings: MajorityFindings) -> list[Line]:
    """Return the remedies that the evidence supports (``majority_remedies``); else what would tell more."""
    if findings.remedies:
        told = [*_supported(findings), *_only_better(findings), *_below_constant(findings)]
    else:
        told = ["no remedy was measured; the spec's keys calibration and lora name some."]
    if findings.remedies and findings.by_model[0]["n_seeds"] < MIN_UNITS:
        told.append(f"For words on RB@10, draw {MIN_UNITS} seeds or more.")
    if not all(row["has_enough_rows"] for row in findings.by_model):
        told.append("More test rows would tell more of the boundary.")
    return [Line("What to do", " ".join(told))]


def _supported(findings: MajorityFindings) -> list[str]:
    """Return the supported remedies by their evidence, or that none is."""
    groups: dict[str, list[Row]] = {}
    for row in findings.remedies:
        if row["is_supported"]:
            loss = _F1_EVIDENCE[row["f1_evidence"]]
            said = f"{_FALLS_IN[row['bias_falls_in']]}, and {loss}, with {{}}{_unjudged(row)}."
            groups.setdefault(said, []).append(row)
    if not groups:
        return [
            "no remedy is shown to lower sd or raise RB@10, to lose less than 0.01 of mean weighted F1, and to be "
            "better than one label for all."
        ]
    return [said.format(_some(_remedy(row, findings) for row in rows)) for said, rows in groups.items()]


def _only_better(findings: MajorityFindings) -> list[str]:
    """Return the remedies above a constant answer with which mean F1 is higher, and nothing shows less bias."""
    groups: dict[str, list[Row]] = {}
    for row in findings.remedies:
        if row["f1_evidence"] == "higher" and not row["is_supported"] and row["is_above_constant"]:
            bias = _NO_FALL.get(row["evidence"], "no lower sd or higher RB@10 is shown")
            groups.setdefault(f"Mean weighted F1 is higher with {{}}, but {bias}{_unjudged(row)}.", []).append(row)
    return [said.format(_some(_remedy(row, findings) for row in rows)) for said, rows in groups.items()]


def _below_constant(findings: MajorityFindings) -> list[str]:
    """Return the remedies of which a gain is shown, and which are not shown to be better than one label for all."""
    rows = [
        row
        for row in findings.remedies
        if not row["is_above_constant"] and (row["f1_evidence"] == "higher" or row["bias_falls_in"] is not None)
    ]
    told = []
    for row in rows:
        gains = [_FALLS_IN[row["bias_falls_in"]]] if row["bias_falls_in"] else []
        gains += [f"mean weighted F1 rises to {row['mean_f1']:.3f}"] if row["f1_evidence"] == "higher" else []
        told.append(
            f"With {_remedy(row, findings)} {join(gains)}; it is still {BESIDE_CONSTANT[row['is_above_constant']]} "
            f"({row['constant_f1']:.3f})."
        )
    return told


def _unjudged(row: Row) -> str:
    """Return that RB@10 was not judged, and why; nothing where it was."""
    if row["is_rb_at_10_judged"]:
        return ""
    return f" (RB@10 was not judged: {_WHY_NOT.get(row['rb_at_10_reason'], 'it has no test')})"


def mitigations(findings: MajorityFindings) -> str:
    """Return how headings call all that the run measures against none."""
    has_calibration = any(not is_adapted(row["method"]) for row in findings.remedies)
    kinds = ["calibration"] if has_calibration else []
    return " or ".join([*kinds, *(["LoRA"] if findings.adaptation is not None else [])])


def _instructions(findings: MajorityFindings) -> set[bool]:
    return {row["instruction"] for row in findings.by_model}


def _matters(row: Row) -> bool:
    return row["proportions_p_adjusted"] is not None and bool(row["proportions_p_adjusted"] <= 0.05)


def _given(row: Row) -> str:
    return f"{INSTRUCTIONS[row['instruction']]} instruction"


def _by_instruction(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """Return a fact of each row behind its instruction."""
    given = [INSTRUCTIONS[row["instruction"]] for row in rows]
    given[-1] += " instruction"
    return join(f"{one} {fact}" for one, fact in zip(given, facts, strict=True))


def _instructions_of(rows: Sequence[Row]) -> str:
    return f"{join(INSTRUCTIONS[row['instruction']] for row in rows)} instruction"


def _place(row: Row) -> str:
    return f"{way_name(row['predict'], row['method'])} {_given(row)}"


def _remedy(row: Row, findings: MajorityFindings) -> str:
    """Return a mitigation with its place, as far as the run has several."""
    is_only_way = len({predict for predict, _ in findings.ways()}) == 1
    way = "" if is_only_way else f" of {WAYS.get(row['predict'], row['predict'])}"
    given = f" {_given(row)}" if len(_instructions(findings)) > 1 else ""
    return f"{method_name(row['method'])}{way}{given}"


def _lead(lead: str, findings: MajorityFindings) -> str:
    """Return a lead; with the first way of predicting, if there are others."""
    predict = findings.ways()[0][0]
    return lead if len(findings.ways()) == 1 else f"{lead}, {way_name(predict, findings.ways()[0][1])}"


def _with_interval(row: Row, metric: str) -> str:
    low, high = row[f"{metric}_low"], row[f"{metric}_high"]
    interval = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]"
    return f"{signed(row[metric])}{interval}"


def _some(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    every = list(names)
    more = len(every) - _N_NAMED
    return join(every) if more <= 0 else f"{', '.join(every[:_N_NAMED])} and {more:,} more"
