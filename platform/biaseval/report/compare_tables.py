"""The tables of a comparison of runs: an overview, all pairs, every test, and rows that only one has right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from biaseval.analysis.comparing import Compared
from biaseval.report.compare_kinds import COMPARED_KINDS, Place
from biaseval.report.compare_words import (
    TOLD_APART,
    against_reference,
    band,
    doubt,
    metric_name,
    metric_order,
    place_name,
    place_of,
    subject,
    tone,
    verdict_word,
)
from biaseval.report.findings import Row
from biaseval.report.summary import p_value, signed

_N_KEYS = 12
"""Keys of specs that the table on top of the page has; the page's last table has all."""

_N_DIGITS = 12
"""Digits of a fingerprint that are shown there."""

_NOT_SAID = "–"


@dataclass(frozen=True)
class OverviewCell:
    """What one run is against the first in one metric."""

    value: float | None
    difference: str
    word: str
    doubt: str
    """What makes the word no praise; "" where nothing does."""
    tone: str
    """How the word is coloured (`compare_words.tone`)."""


@dataclass(frozen=True)
class OverviewLine:
    """One metric in one setting."""

    place: str
    metric: str
    reference: float | None
    """Of the first run; None where what it shares with the others is not the same, so that it has several values."""
    baseline: float | None
    """What always giving the most frequent label has, where that is measured and all columns have the same."""
    cells: list[OverviewCell | None]
    """In the order of the columns; None where there is nothing to compare."""


@dataclass(frozen=True)
class Overview:
    """The other runs beside each other, each against the first."""

    columns: list[str]
    lines: list[OverviewLine]


def overview(compared: Compared) -> Overview:
    """Return the other runs beside each other, a line per setting and metric."""
    rows = against_reference(compared)
    are_namesakes = all(row.get("model") == row.get("other_model") for row in rows)

    def column(row: Row) -> tuple[str, str | None]:
        return (row["other_run"], None if are_namesakes else row.get("other_model"))

    columns = list(dict.fromkeys(map(column, rows)))
    lines: dict[tuple[str, Place, tuple[int, str]], dict[tuple[str, str | None], Row]] = {}
    for row in rows:
        line = (row.get("model") or "", place_of(compared.kind, row), metric_order(compared.kind, row))
        lines.setdefault(line, {})[column(row)] = row
    several = len({model for model, _, _ in lines}) > 1
    return Overview(
        columns=[run if model is None else subject(compared, run, model) for run, model in columns],
        lines=[
            _overview_line(compared, model if several else "", found, columns)
            for (model, _, _), found in sorted(lines.items(), key=lambda item: item[0])
        ],
    )


def _overview_line(
    compared: Compared,
    model: str,
    found: dict[tuple[str, str | None], Row],
    columns: Sequence[tuple[str, str | None]],
) -> OverviewLine:
    first = next(iter(found.values()))
    place = place_name(compared.kind, first)
    return OverviewLine(
        place=f"{model}, {place}" if model else place,
        metric=metric_name(compared.kind, {**first, "threshold": _one_value(found.values(), "threshold")}),
        reference=_one_value(found.values(), "value"),
        baseline=_one_value(found.values(), "baseline"),
        cells=[_overview_cell(compared, found.get(column)) for column in columns],
    )


def _one_value(rows: Iterable[Row], column: str) -> float | None:
    """Return the value that all rows have that have one; None where none has, or they differ."""
    values: list[float] = [row[column] for row in rows if row.get(column) is not None]
    return values[0] if values and max(values) - min(values) <= 1e-9 else None


def _overview_cell(compared: Compared, row: Row | None) -> OverviewCell | None:
    if row is None:
        return None
    return OverviewCell(
        row["other_value"], signed(row["estimate"]), verdict_word(row), doubt(row), tone(compared.kind, row)
    )


@dataclass(frozen=True)
class HeaderLine:
    """One thing that is said of each run."""

    name: str
    values: list[str]
    """In the order of the runs."""


def header(compared: Compared) -> tuple[list[HeaderLine], int]:
    """Return what the runs are of, with the keys of their specs that differ, and how many more keys do."""
    shown = {row["fact"] for row in compared.origins}
    differing = [
        row
        for row in compared.facts
        if row["fact"].startswith("spec.") and row["fact"] not in shown and row["fact"] != "spec.name"
    ]
    keys = [row["fact"] for row in differing]
    # Of models that have other names, nothing else needs to be said first.
    differing = [row for row in differing if not any(row["fact"].startswith(f"{key}.") for key in keys)]
    chosen = differing[:_N_KEYS]
    lines = [
        HeaderLine(_key_name(row["fact"]), [_told_value(row["fact"], row["values"][name]) for name in compared.runs])
        for row in [*sorted(compared.origins, key=lambda row: row["fact"] == "spec.seed"), *chosen]
    ]
    return lines, len(differing) - len(chosen)


def _key_name(fact: str) -> str:
    if fact.startswith("fingerprint."):
        name = fact.removeprefix("fingerprint.")
        return "fingerprint of the model" if name == "model" else f"fingerprint of {name}"
    return {"spec.model.path": "model"}.get(fact, fact.removeprefix("spec."))


def _told_value(fact: str, value: str | None) -> str:
    if value is None:
        return _NOT_SAID
    return value[:_N_DIGITS] if fact.startswith("fingerprint.") else value


@dataclass(frozen=True)
class Matrix:
    """One metric in one setting, each run against each."""

    metric: str
    column: str
    """The metric as SQL calls it."""
    place: str
    subjects: list[str]
    lines: list[list[Row | None]]
    """A line per run that is compared with, a cell per run against it."""


def matrix(compared: Compared) -> Matrix | None:
    """Return the verdicts of all pairs in the first metric of the setting that is listed; None with two runs."""
    kind = compared.kind
    metric = COMPARED_KINDS[kind].first_metric
    rows = [row for row in compared.tests if row["metric"] == metric]
    if len(compared.runs) < 3 or not rows:
        return None
    rows = [row for row in rows if row.get("method", "none") == "none"] or rows
    counts = Counter(place_of(kind, row) for row in rows)
    widest = [place for place in counts if counts[place] == max(counts.values())]
    place = COMPARED_KINDS[kind].shown_place(widest)
    chosen = {
        ((row["run"], row.get("model")), (row["other_run"], row.get("other_model"))): row
        for row in rows
        if place_of(kind, row) == place
    }
    order = {name: number for number, name in enumerate(compared.runs)}
    subjects = sorted({side for sides in chosen for side in sides}, key=lambda side: (order[side[0]], side[1] or ""))
    first = next(iter(chosen.values()))
    return Matrix(
        metric=metric_name(kind, first),
        column=metric,
        place=place_name(kind, first),
        subjects=[subject(compared, *side) for side in subjects],
        lines=[[chosen.get((own, other)) for other in subjects] for own in subjects],
    )


def test_lines(compared: Compared) -> list[Row]:
    """Return every test against the first run, with what it is called."""
    return [
        {
            **row,
            "who": subject(compared, row["other_run"], row.get("other_model")),
            "against": subject(compared, row["run"], row.get("model")),
            "place": place_name(compared.kind, row),
            "metric_name": metric_name(compared.kind, row),
            "band": band(row),
            # Of units of which none differs there is no error to tell it from.
            "detectable": row["verdict_smallest_detectable"] or None,
            "word": verdict_word(row),
            "is_told_apart": row["verdict"] in TOLD_APART,
            "doubt": doubt(row),
            "tone": tone(compared.kind, row),
        }
        for row in against_reference(compared)
    ]


def listed_rows(compared: Compared) -> list[Row]:
    """Return for each other run the rows that only it or only the first has right, with their counts."""
    found = []
    for name in compared.others:
        rows = [row for row in compared.disagreements if row["other_run"] == name]
        counts = [row for row in compared.wins if row["other_run"] == name]
        first = rows[0] if rows else None
        kind = COMPARED_KINDS[compared.kind]
        groups = [kind.row_group(row) for row in rows]
        is_one_group = len(set(groups)) == 1
        names = [
            kind.row_name(row) if is_one_group else f"{group}, {kind.row_name(row)}"
            for row, group in zip(rows, groups, strict=True)
        ]
        found.append(
            {
                "run": name,
                "n_wins": sum(row["n_wins"] for row in counts),
                "n_losses": sum(row["n_losses"] for row in counts),
                "mcnemar": _mcnemar(compared, counts),
                "place": kind.listed_place(first) if first else "",
                "group": groups[0] if is_one_group else "",
                "rows": [{**row, "where": name} for row, name in zip(rows, names, strict=True)],
            }
        )
    return found


def _mcnemar(compared: Compared, counts: Sequence[Row]) -> str:
    """Return what McNemar's test says of each pair of models and data set; nothing where there is none."""
    found = [row for row in counts if row.get("mcnemar_p") is not None]
    names = [f"{subject(compared, row['other_run'], row['other_model'])} on {row['dataset']}" for row in found]
    said = [p_value(row["mcnemar_p"]) for row in found]
    return said[0] if len(found) == 1 else ", ".join(f"{name} {p}" for name, p in zip(names, said, strict=True))
