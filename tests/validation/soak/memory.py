"""Metrics and pages that a command need not compute again, because it did from the same tables before.

Queries over a handful of rows take most of the time of a tiny run. `use` has a process take their results from a folder
where the tables and the spec of a run are equal to those that the results came from, and adds what it computes. All
that writes files stays the product's.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from biaseval.store import Run, sha256_of
from biaseval.tables import TABLES
from tests.validation.soak.oracle import content_digest


def key_of(run: Run, known: dict[Any, str]) -> str:
    """Return a digest of all tables of a run but its marts, and of its spec; ``known`` has those of files."""
    infos = [own for table in TABLES for own in run.listed(table, in_folders=False).items()]
    every = []
    for name, seen in sorted(infos):
        place = (run.uri, name, seen)
        if place not in known:
            known[place] = content_digest(run, name)
        every.append(f"{name} {known[place]}")
    return sha256_of("\n".join([*every, run.read_text("spec.yaml")]).encode())[:32]


def use(folder: Path) -> None:
    """Have this process remember in a folder what it computes from tables, and take from there what is known."""
    names = ("biaseval.cli.making", "biaseval.analysis.marts", "biaseval.pipelines.run", "biaseval.search.objectives")
    modules: list[Any] = [import_module(name) for name in names]
    making, marts, path, objectives = modules
    own_marts, own_database, own_summary = marts._computed_marts, marts.results_database, path.summarize
    own_page, own_values = path.write_page, objectives.Objective.values
    known: dict[Any, str] = {}

    def kept(name: str, run: Run, compute: Callable[[], Any]) -> Any:
        file = folder / f"{key_of(run, known)}.{name}"
        if file.exists():
            return pickle.loads(file.read_bytes())  # written by `use` in this very suite
        found = compute()
        part = file.with_suffix(".part")
        part.write_bytes(pickle.dumps(found))
        part.replace(file)
        return found

    def computed_marts(run: Run, kind: str) -> Any:
        return kept("marts", run, lambda: own_marts(run, kind))

    def results_database(run: Run, kind: str) -> Any:
        return kept("database", run, lambda: own_database(run, kind))

    def summarize(run: Run, *given: Any) -> Any:
        return kept("summary", run, lambda: own_summary(run, *given))

    def write_page(run: Run, kind: Any) -> Any:
        def page(run: Run) -> Any:
            def made() -> Any:
                found = kind.page(run)
                figures = [SimpleNamespace(name=one.name, svg=one.svg) for one in found.figures]
                return SimpleNamespace(
                    figures=figures, html=found.html, conclusions=found.conclusions, cautions=found.cautions
                )

            return kept("page", run, made)

        return own_page(run, dataclasses.replace(kind, page=page) if kind.page is not None else kind)

    def values(self: Any, run: Run, computings: Any, **named: Any) -> Any:
        cells = [cell.cell_contents for one in computings for cell in one.derive.__closure__]
        specs = [one.model_dump_json() for one in cells if hasattr(one, "model_dump_json")]
        asked = sha256_of(repr((self, specs, [list(one.own) for one in computings])).encode())[:12]
        return kept(f"values-{asked}", run, lambda: list(own_values(self, run, computings, **named)))

    marts._computed_marts, marts.results_database = computed_marts, results_database
    path.summarize, path.write_page, objectives.Objective.values = summarize, write_page, values
    making.show_finished = lambda *given, **named: None
