"""Which models and data several majority-bias runs are of, and the rows of their marts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from biaseval.analysis import open_runs, run_names
from biaseval.environment import raw_spec, read_environment
from biaseval.errors import InputError
from biaseval.report.findings import Row
from biaseval.report.summary import join
from biaseval.report.ways import row_order
from biaseval.store import Run

_PRESETS = {"boolq": "BoolQ", "rte": "RTE", "covid5g": "COVID-5G"}
_SPLITS = ("train", "test", "dev", "val", "valid", "validation")


@dataclass(frozen=True)
class Model:
    """A column of the tables: one model, with the runs that measured it."""

    name: str
    n_parameters: int | None
    runs: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """What runs over the same test rows and settings share, with one number of demonstrations."""

    name: str
    runs: tuple[str, ...]
    settings: list[Row]
    """The rows of the ``settings`` table."""


@dataclass(frozen=True)
class Comparison:
    """All that the page shows; rows are those of the marts, with ``run``."""

    models: list[Model]
    """From the smallest to the largest; those of unknown size last."""
    datasets: list[DataSet]
    """In the order of the runs."""
    by_model: list[Row]
    by_setting: list[Row]
    effects: list[Row]
    """The rows of ``majority_size_effect``."""
    verdicts: list[Row]
    """The rows of ``majority_verdicts``: what methods and the instruction change in each run."""
    shared: list[Row]
    """The rows of ``majority_shared_data``."""

    def of(self, model: Model, dataset: DataSet) -> set[str]:
        """Return the run of a model on a data set, or nothing."""
        return set(model.runs) & set(dataset.runs)


_READ = (
    "majority_by_model",
    "majority_over_seeds",
    "majority_size_effect",
    "majority_verdicts",
    "majority_shared_data",
    "settings",
)


def read_comparison(run_uris: Sequence[str]) -> Comparison:
    """Return what the page over several runs shows.

    Raises:
        InputError: fewer than two runs; two runs of one model on the same data with as many demonstrations.
        BiasevalError: a run has no metrics yet.
    """
    if len(run_uris) < 2:
        raise InputError("--out: makes one page of several runs, and one is named; name more, or leave --out away")
    runs = dict(zip(run_names(run_uris), map(Run.open, run_uris), strict=True))
    with closing(open_runs(run_uris, " ".join(_READ))) as connection:
        by_model, by_setting, effects, verdicts, shared, settings = (
            connection.sql(f"from {name}").to_arrow_table().to_pylist() for name in _READ
        )
    specs = {name: raw_spec(run) for name, run in runs.items()}
    sizes = {row["run"]: row["n_parameters"] for row in by_model}
    comparison = Comparison(
        models=_models(runs, specs, sizes),
        datasets=_datasets(specs, shared, settings),
        by_model=sorted(by_model, key=row_order),
        by_setting=sorted(by_setting, key=lambda row: (row_order(row), row["number"])),
        effects=effects,
        verdicts=verdicts,
        shared=shared,
    )
    twice = [
        f"{join(sorted(found))}: are runs of one model on the same data; name one of them"
        for dataset in comparison.datasets
        for model in comparison.models
        if len(found := comparison.of(model, dataset)) > 1
    ]
    if twice:
        raise InputError.of(twice)
    return comparison


def _models(runs: dict[str, Run], specs: dict[str, Row], sizes: dict[str, int | None]) -> list[Model]:
    """Return the models: runs of the same weights, read alike, are of one model."""
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        model = specs[name]["model"]
        environment = read_environment(run)
        weights = environment.get("model", {}).get("digest") or [model.get("path"), model.get("adapter")]
        groups.setdefault(json.dumps([weights, model.get("dtype"), model.get("quantization")]), []).append(name)
    named = _distinct(
        list(groups.values()),
        lambda group: join(sorted({specs[run]["name"] for run in group})),
        lambda group: PurePath(specs[group[0]]["model"]["path"]).name,
        prefer_second=lambda group: len({specs[run]["name"] for run in group}) > 1,
    )
    models = [Model(name, sizes.get(group[0]), tuple(group)) for name, group in named]
    return sorted(
        models, key=lambda model: (model.n_parameters is None, model.n_parameters or 0, model.name, model.runs)
    )


def _datasets(specs: dict[str, Row], shared: Sequence[Row], settings: Sequence[Row]) -> list[DataSet]:
    """Return the data sets: runs that have settings and test rows in common, and as many demonstrations."""
    pairs = {(row["run"], row["other_run"]) for row in shared}
    groups: list[list[str]] = []
    for run in specs:
        for group in groups:
            if (group[0], run) in pairs and _n_demos(specs[group[0]]) == _n_demos(specs[run]):
                group.append(run)
                break
        else:
            groups.append([run])
    named = _distinct(
        groups,
        lambda group: _data_name(specs[group[0]]),
        lambda group: f"{_data_name(specs[group[0]])}, {_n_demos(specs[group[0]])} demonstrations",
    )
    return [
        DataSet(
            name=name,
            runs=tuple(group),
            settings=sorted((row for row in settings if row["run"] == group[0]), key=lambda row: row["number"]),
        )
        for name, group in named
    ]


def _distinct(
    groups: list[list[str]],
    *ways: Callable[[list[str]], str],
    prefer_second: Callable[[list[str]], bool] = lambda group: False,
) -> list[tuple[str, list[str]]]:
    """Return the groups with names that tell them apart: the first way that does for all, else their runs."""
    first, second = ways
    preferred = [second(group) if prefer_second(group) else first(group) for group in groups]
    for names in (preferred, [second(group) for group in groups]):
        if len(set(names)) == len(names):
            return list(zip(names, groups, strict=True))
    return [(join(group), group) for group in groups]


def _n_demos(spec: Row) -> Any:
    return spec.get("prompt", {}).get("n_demos")


def _data_name(spec: Row) -> str:
    """Return what a run's data are called: its preset, or the file's name, or its folder's for ``test.jsonl``."""
    preset = spec.get("prompt", {}).get("preset")
    if preset is not None:
        return _PRESETS.get(preset, str(preset))
    data = spec.get("data", {})
    path = PurePath(data.get("test") or data.get("train") or spec["name"])
    return path.parent.name if path.stem in _SPLITS and path.parent.name else path.stem


def column_name(model: Model) -> str:
    """Return how tables call a model: by its name, with its size where that is known."""
    return model.name if model.n_parameters is None else f"{model.name} ({size(model.n_parameters)})"


def size(n_parameters: int) -> str:
    """Return a number of parameters as people say it: 7.2B, 616K."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if n_parameters >= unit:
            return f"{n_parameters / unit:.3g}{name}"
    return str(n_parameters)
