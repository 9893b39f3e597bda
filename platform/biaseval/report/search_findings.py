"""What the report of a search tells: marts and tables by SQL, arranged by what a point is chosen for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import duckdb

from biaseval.analysis import open_runs
from biaseval.environment import raw_spec, read_environment
from biaseval.parsing import json_value
from biaseval.prompting.calibration import Variant
from biaseval.report.findings import Row
from biaseval.report.search_cells import decimals, short_keys
from biaseval.store import Run

N_SHOWN = 5
"""Trials that are named of those with the same problem."""

N_DRAWN = 24
"""Choices of which every trial is read; the figures and tables of trials are of these."""


@dataclass(frozen=True)
class Samples:
    """What chose, and what the choice did not see, in words."""

    choice: str
    evaluation: str | None
    """None: there is nothing that the choice did not see."""


_STRENGTH = ".strength"

_SAMPLES = {
    "half": Samples("half that chose", "other half"),
    "held_out": Samples("held-out rows", "main rows"),
    "published": Samples("all data", None),
}


@dataclass(frozen=True)
class Objective:
    """A number that is looked for."""

    name: str
    is_maximized: bool
    sql: str
    digits: int
    """Decimals that its values are shown with."""
    is_of_bias_score: bool = False
    """Whether it reads ``bias_score``, by which no test compares trials."""


@dataclass(frozen=True)
class Key:
    """A searched key."""

    key: str
    name: str
    """As figures and tables have it: the end of the key that tells it from the others."""
    domain: str
    values: Sequence[Any]
    """What the domain lists."""

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers in their order."""
        return self.domain != "choice"


@dataclass(frozen=True)
class Choice:
    """A point that is chosen, and the trials that it is chosen from."""

    scope: str
    """What it is chosen for, where the spec has several (``per``)."""
    best: dict[str, Row]
    """Objective to its row of ``search_best``, with ``n_others`` and ``parameters`` by key."""
    reference: dict[str, Row]
    """Objective to the row of ``search_trials`` of the trial at the spec's own values; empty where there is none."""
    trials: list[Row]
    """A row per trial, the best by the first objective first, those without it last: of ``trials``, with ``parameters``
    by key, ``is_on_front``, ``is_chosen``, and ``of``: objective to the row of ``search_trials``. Empty from the
    choice `N_DRAWN` on."""
    importance: list[Row]
    """The rows of ``search_importance``, by objective and share."""

    @property
    def chosen(self) -> Row:
        """The row of the chosen trial, where ``trials`` has any."""
        return next(row for row in self.trials if row["is_chosen"])

    @property
    def front(self) -> list[Row]:
        """The rows of the trials that no other beats in all objectives."""
        return [row for row in self.trials if row["is_on_front"]]

    def measured(self, objective: str) -> list[Row]:
        """Return the rows of the trials that have an objective."""
        return [row for row in self.trials if objective in row["of"]]


@dataclass(frozen=True)
class SearchFindings:
    """All that one report shows. What was not measured is None; there is no choice where no trial is done."""

    name: str
    objectives: tuple[Objective, ...]
    keys: tuple[Key, ...]
    choices: tuple[Choice, ...]
    trials: list[Row]
    """The rows of ``trials``, with ``parameters`` by key."""
    reference_trial: int | None
    """The first trial at the spec's own values; None where there is none."""
    costs: dict[str, Row]
    """State of trials to its row of ``search_costs``."""
    problems: list[Row]
    """One row per (state, problem): ``n_trials`` and the first of them."""
    thresholds: list[list[Row]]
    """The rows of ``search_thresholds``, of a rule and scope each: chosen on one half, and on all of it."""
    without_interval: list[str]
    """Objectives of which some trial has a value without an interval."""
    verdicts: dict[str, Row]
    """Objective to its row of ``search_verdicts``, where a point is chosen for each of several scopes."""
    settings: Row
    """The row of ``search_settings``."""
    spec: Row
    environment: Row

    @property
    def samples(self) -> Samples:
        """What chose, and what the choice did not see."""
        return _SAMPLES[self.settings["choose_on"]]

    @property
    def has_unseen(self) -> bool:
        """Whether there is something that the choice did not see."""
        return self.samples.evaluation is not None

    @property
    def drawn(self) -> tuple[Choice, ...]:
        """The choices of which every trial is read."""
        return self.choices[:N_DRAWN]

    @property
    def reference(self) -> str:
        """What the spec's own values are, in words."""
        are_strengths = all(key.key.endswith(_STRENGTH) for key in self.keys)
        return "strength 1, as published" if are_strengths else "the spec’s own values"

    @property
    def has_constant(self) -> bool:
        """Whether an answer that is always the same can be had of what is searched: QA has none."""
        return bool(self.settings["searched"] != "qa_bias")

    @property
    def has_several_choices(self) -> bool:
        """Whether a point is chosen for each of several scopes."""
        return bool(self.settings["per"])


def read_search_findings(run: Run) -> SearchFindings:
    """Return what the report of a search shows.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    spec = raw_spec(run)
    keys = _keys(spec["search"])
    with closing(open_runs([run.uri])) as connection:
        [settings] = _rows(connection, "from search_settings")
        trials = _with_points(_rows(connection, "from trials order by trial"))
        best = _with_points(_rows(connection, _BEST))
        scopes = list(dict.fromkeys(row["scope"] for row in best))
        values = _rows(connection, _VALUES, [scopes[:N_DRAWN]])
        reference_trial = _reference(spec["spec"], keys, trials)
        reference = _rows(connection, _REFERENCE, [reference_trial])
        importance = _rows(connection, "from search_importance")
        costs = _rows(connection, "from search_costs")
        problems = _rows(connection, _PROBLEMS, [N_SHOWN])
        thresholds = _rows(connection, "from search_thresholds order by scope, rule, sample desc")
        lacking = _rows(connection, _WITHOUT_INTERVAL)
        verdicts = _rows(connection, "from search_verdicts")
        looked_for = _rows(connection, "from search_objectives order by number")
    objectives = tuple(
        Objective(
            name=row["objective"],
            is_maximized=row["is_maximized"],
            sql=own["sql"],
            digits=decimals(value["value"] for value in values if value["objective"] == row["objective"]),
            is_of_bias_score=row["is_of_bias_score"],
        )
        for row, own in zip(looked_for, spec["objective"], strict=True)
    )
    found = [_by_scope(rows) for rows in (best, reference, values, importance)]
    return SearchFindings(
        name=spec["name"],
        objectives=objectives,
        keys=keys,
        choices=tuple(_choice(scope, objectives, trials, *(rows.get(scope, []) for rows in found)) for scope in scopes),
        trials=trials,
        reference_trial=reference_trial,
        costs={row["state"]: row for row in costs},
        problems=problems,
        thresholds=[list(rows) for _, rows in groupby(thresholds, key=lambda row: (row["scope"], row["rule"]))],
        without_interval=[row["objective"] for row in lacking],
        verdicts={row["objective"]: row for row in verdicts},
        settings={**settings, "per": settings["per"] or []},
        spec=spec,
        environment=read_environment(run),
    )


def _with_points(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "parameters": json_value(row["parameters"])} for row in rows]


def _by_scope(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["scope"], []).append(row)
    return found


def _reference(spec: Row, keys: Sequence[Key], trials: Sequence[Row]) -> int | None:
    """Return the first trial at the spec's own values, if one is."""
    point = {key.key: _own_value(spec, key.key) for key in keys}
    return next((row["trial"] for row in trials if row["state"] == "done" and row["parameters"] == point), None)


def _own_value(spec: Row, key: str) -> Any:
    """Return the value that a spec has of a key; of a calibration's strength, the published one."""
    if key.startswith("calibration."):
        _, method, what = key.split(".")
        return (
            1
            if what == "strength"
            else next(own for own in map(Variant.of, spec["calibration"]) if own.method == method).inputs
        )
    value: Any = spec
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _keys(search: dict[str, dict[str, list[Any]]]) -> tuple[Key, ...]:
    names = short_keys(list(search))
    return tuple(Key(key, names[key], domain, values) for key, own in search.items() for domain, values in own.items())


def _choice(
    scope: str,
    objectives: Sequence[Objective],
    trials: Sequence[Row],
    best: Sequence[Row],
    reference: Sequence[Row],
    values: Sequence[Row],
    importance: Sequence[Row],
) -> Choice:
    of: dict[int, dict[str, Row]] = {}
    for row in values:
        of.setdefault(row["trial"], {})[row["objective"]] = row
    first = objectives[0]

    def place(row: Row) -> tuple[bool, float, int]:
        value = row["of"][first.name]["value"] if first.name in row["of"] else None
        return value is None, 0.0 if value is None else -value if first.is_maximized else value, row["trial"]

    rows = [{**row, **_flags(of.get(row["trial"], {})), "of": of.get(row["trial"], {})} for row in trials if of]
    order = {objective.name: number for number, objective in enumerate(objectives)}
    return Choice(
        scope=scope,
        best={row["objective"]: row for row in best},
        reference={row["objective"]: row for row in reference},
        trials=sorted(rows, key=place),
        importance=sorted(importance, key=lambda row: order[row["objective"]]),
    )


def _flags(of: dict[str, Row]) -> Row:
    return {name: any(row[name] for row in of.values()) for name in ("is_on_front", "is_chosen")}


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
    rows: list[Row] = connection.sql(sql, params=parameters).to_arrow_table().to_pylist()
    return rows


_BEST = """
select
    *,
    n_done - 1 as n_others
from search_best
order by scope
"""

_VALUES = """
select *
from search_trials
where value is not null and list_contains($1, scope)
"""

_REFERENCE = "from search_trials where trial = $1 and value is not null"

_WITHOUT_INTERVAL = """
select distinct objective
from search_trials
where value is not null and value_low is null
order by objective
"""

_PROBLEMS = """
select
    state,
    problem,
    count(*) as n_trials,
    list(trial order by trial)[:$1] as first_trials
from trials
where problem is not null
group by all
order by state, n_trials desc, problem
"""
