"""Searches in the making: trials, and what objectives came to, written by hand, whose relations DuckDB computes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import yaml

from biaseval.analysis import sql_files as relations
from biaseval.analysis.sign_flips import sign_flips
from biaseval.search.objectives import EVERYTHING
from biaseval.spec import stored_spec
from biaseval.store import Run
from biaseval.tables import SEARCH_SETTINGS, TABLES, TRIAL_EVALUATIONS, TRIAL_VALUES, TRIALS, tables_of
from tests.handmade import within_transaction

Rows = list[dict[str, Any]]

BASE: dict[str, Any] = {
    "kind": "label_bias", "name": "tiny", "model": {"path": "models/tiny"}, "tasks": {"path": "tasks"},
}  # fmt: skip
"""What is searched: each of its trials plans and scores for itself where the number of its sets is searched."""


def searched(**changes: Any) -> dict[str, Any]:
    """Return the content of a spec of the kind search."""
    content = {
        "kind": "search", "name": "sets", "spec": BASE, "search": {"prompt.demo_sets": [1, 2, 3, 4]}, "trials": 4,
        "objective": {"sql": "select avg(rsd) as rsd from label_bias_by_task", "maximize": False},
    }  # fmt: skip
    return {key: value for key, value in {**content, **changes}.items() if value is not ...}


def write_file(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


class Search:
    """The tables of a search in the making.

    Args:
        objectives: by name, whether more is better.
        settings: columns of ``search_settings``.
    """

    def __init__(self, objectives: Mapping[str, bool] | None = None, **settings: Any) -> None:
        self.objectives = {"rsd": False} if objectives is None else objectives
        self.settings: dict[str, Any] = {
            "name": "sets", "searched": "label_bias", "keys": ["prompt.demo_sets"], "per": [],
            "objectives": list(self.objectives), "are_maximized": list(self.objectives.values()), "algorithm": "optuna",
            "choose_on": "half", "batch": 4, "seed": 42, "shared_steps": 0, **settings,
        }  # fmt: skip
        self.trials: Rows = []
        self.values: Rows = []

    def trial(
        self,
        point: Mapping[str, Any],
        choice: Sequence[float] | Mapping[str, Sequence[float]] = (),
        evaluation: Sequence[float] | Mapping[str, Sequence[float]] = (),
        **row: Any,
    ) -> int:
        """Add a trial, with its objectives on both halves; one without them did not come to an end.

        Args:
            point: searched key to value.
            choice: value of each objective there, or scope to these.
            evaluation: the same of the other half.
            row: other columns of ``trials``.
        """
        number = len(self.trials)
        state, problem = ("done", None) if choice else ("failed", "it broke")
        outcome = {"state": state, "problem": problem, "steps": 0, "seconds": 1.0, "seed": 42}
        found = {"objectives": self._json(choice), "evaluation": self._json(evaluation), "run": f"trials/{number:05d}"}
        self.trials.append({"trial": number, "parameters": json.dumps(dict(point)), **outcome, **found, **row})
        for sample, own in (("choice", choice), ("evaluation", evaluation)):
            for scope, values in (own if isinstance(own, Mapping) else {EVERYTHING: own}).items():
                for objective, value in zip(self.objectives, values, strict=False):
                    self.value(number, objective, sample, value, [value] * 2, scope)
        return number

    def _json(self, found: Sequence[float] | Mapping[str, Sequence[float]]) -> str | None:
        if not found:
            return None
        if isinstance(found, Mapping):
            places = enumerate(self.objectives)
            return json.dumps({name: {scope: own[place] for scope, own in found.items()} for place, name in places})
        return json.dumps(dict(zip(self.objectives, found, strict=True)))

    def value(
        self,
        trial: int,
        objective: str,
        sample: str,
        value: float | None,
        left_out: Sequence[float | None],
        scope: str = EVERYTHING,
        is_above: bool | None = True,
    ) -> None:
        """Say what an objective is on a half, and with each group of it left out, in place of what it was."""
        place = {"trial": trial, "objective": objective, "scope": scope, "sample": sample}
        self.values = [row for row in self.values if {key: row[key] for key in place} != place]
        self.values.append({**place, "left_out": None, "value": value, "is_above_constant": is_above})
        for group, one in enumerate(left_out):
            self.values.append({**place, "left_out": group, "value": one, "is_above_constant": None})

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection with the search's relations, until the block ends."""
        tables = {
            "trials": TRIALS.rows(self.trials), "trial_values": TRIAL_VALUES.rows(self.values),
            "trial_evaluations": TRIAL_EVALUATIONS.empty(), "search_settings": SEARCH_SETTINGS.rows([self.settings]),
            "sign_flips": sign_flips(12, 42),
        }  # fmt: skip
        with within_transaction() as connection:
            for name in tables_of("search"):
                connection.from_arrow(tables.get(name, TABLES[name].empty())).create(name)
            relations.create_views(_made(), connection)
            yield connection

    def rows(self, sql: str) -> Rows:
        """Return the rows of a query."""
        with self.opened() as connection:
            return connection.sql(sql).to_arrow_table().to_pylist()

    def problems(self, check: str) -> list[str]:
        """Return what a check finds."""
        return sorted(row["problem"] for row in self.rows(f"from {check}"))

    def write(self, folder: Path, **changes: Any) -> str:
        """Write the search as a run directory whose trials have ended, and return its place."""
        run = Run.open(str(folder))
        run.create()
        spec = stored_spec(searched(trials=len(self.trials), **changes), "spec")
        run.write_text("spec.yaml", yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False))
        for row in self.trials:
            own = [value for value in self.values if value["trial"] == row["trial"]]
            run.write_part("trials", row["trial"], TRIALS.rows([row]))
            run.write_part("trial_values", row["trial"], TRIAL_VALUES.rows(own))
            run.write_part("trial_evaluations", row["trial"], TRIAL_EVALUATIONS.empty())
        plan = {"n_trials": len(self.trials), "objectives": list(self.objectives), "batch": 4}
        run.write_json("plan.json", plan)
        run.write_json("environment.json", {})
        return run.uri


@cache
def _made() -> list[relations.Relation]:
    return relations.relations("intermediate", "marts", "checks", tables=tables_of("search"))
