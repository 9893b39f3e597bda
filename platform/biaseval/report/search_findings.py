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
from biaseval.errors import BiasevalError
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
    best: Row
    """The row of ``search_best``, with ``n_others`` and ``parameters`` by key."""
    reference: Row | None
    """The row of ``search_trials`` of the trial at the spec's own values; None: there is none."""
    trials: list[Row]
    """A row per trial, the best first, those without a value last: of ``trials``, with ``parameters`` by key,
    ``is_chosen``, and ``of``: the row of ``search_trials``, None without a value. Empty from choice `N_DRAWN` on."""
    importance: list[Row]
    """The rows of ``search_importance``, by share."""

    @property
    def chosen(self) -> Row:
        """The row of the chosen trial, where ``trials`` has any."""
        return next(row for row in self.trials if row["is_chosen"])

    @property
    def measured(self) -> list[Row]:
        """The rows of the trials that have a value."""
        return [row for row in self.trials if row["of"] is not None]


@dataclass(frozen=True)
class SearchFindings:
    """All that one report shows. What was not measured is None; there is no choice where no trial is done."""

    name: str
    objective: Objective
    n_other_objectives: int
    """That an older version searched for, too: their values are in ``trials`` alone."""
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
    lacks_intervals: bool
    """Whether some trial has a value without an interval."""
    verdict: Row | None
    """The row of ``search_verdicts``, where a point is chosen for each of several scopes."""
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
        BiasevalError: the run has no metrics yet, or those that an older version computed for several objectives.
    """
    spec = raw_spec(run)
    keys = _keys(spec["search"])
    with closing(open_runs([run.uri])) as connection:
        [settings] = _rows(connection, "from search_settings cross join search_objectives")
        if len(settings["objectives"]) > 1:
            raise BiasevalError(
                f"{run.uri}: its marts are those of several objectives; biaseval report {run.uri} computes them "
                "for the first alone"
            )
        trials = _with_points(_rows(connection, "from trials order by trial"))
        best = _with_points(_rows(connection, _BEST))
        values = _by_scope(_rows(connection, _VALUES, [[row["scope"] for row in best[:N_DRAWN]]]))
        reference_trial = _reference(spec["spec"], keys, trials)
        reference = {row["scope"]: row for row in _rows(connection, _REFERENCE, [reference_trial])}
        importance = _by_scope(_rows(connection, "from search_importance"))
        costs = _rows(connection, "from search_costs")
        problems = _rows(connection, _PROBLEMS, [N_SHOWN])
        thresholds = _rows(connection, "from search_thresholds order by scope, rule, sample desc")
        lacking = _rows(connection, _WITHOUT_INTERVAL)
        verdicts = _rows(connection, "from search_verdicts")
    objectives = spec["objective"] if isinstance(spec["objective"], list) else [spec["objective"]]
    objective = Objective(
        name=settings["objective"],
        is_maximized=settings["is_maximized"],
        sql=objectives[0]["sql"],
        digits=decimals(row["value"] for rows in values.values() for row in rows),
        is_of_bias_score=settings["is_of_bias_score"],
    )

    def choice(row: Row) -> Choice:
        scope = row["scope"]
        own = _trials(objective, trials, values.get(scope, []))
        return Choice(scope, row, reference.get(scope), own, importance.get(scope, []))

    return SearchFindings(
        name=spec["name"],
        objective=objective,
        n_other_objectives=len(objectives) - 1,
        keys=keys,
        choices=tuple(map(choice, best)),
        trials=trials,
        reference_trial=reference_trial,
        costs={row["state"]: row for row in costs},
        problems=problems,
        thresholds=[list(rows) for _, rows in groupby(thresholds, key=lambda row: (row["scope"], row["rule"]))],
        lacks_intervals=bool(lacking),
        verdict=next(iter(verdicts), None),
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


def _trials(objective: Objective, trials: Sequence[Row], values: Sequence[Row]) -> list[Row]:
    """Return ``Choice.trials`` of a scope: the rows of all trials, with those of ``search_trials``."""
    of = {row["trial"]: row for row in values}

    def place(row: Row) -> tuple[bool, float, int]:
        value = row["of"] and row["of"]["value"]
        return value is None, 0.0 if value is None else -value if objective.is_maximized else value, row["trial"]

    rows = [{**row, "of": (own := of.get(row["trial"])), "is_chosen": bool(own and own["is_chosen"])} for row in trials]
    return sorted(rows, key=place) if of else []


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

_WITHOUT_INTERVAL = "from search_trials where value is not null and value_low is null limit 1"

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
