"""The report over several majority-bias runs: P2's Tables 1 and 2, Figures 2 and 3, and the effect of model size."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from biaseval.analysis import open_runs, run_names
from biaseval.errors import InputError
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.majority import Cell, no_label_caveats, setting_cells
from biaseval.report.page import page_templates
from biaseval.report.proportions import Series, instruction_figures, line_figure
from biaseval.report.summary import join, signed
from biaseval.report.ways import INSTRUCTIONS, WAYS, way_name, ways_of
from biaseval.store import Run

_PRESETS = {"boolq": "BoolQ", "rte": "RTE", "covid5g": "COVID-5G"}
_SPLITS = ("train", "test", "dev", "val", "valid", "validation")
_METRICS = {"rb_at_10": "RB@10", "mean_f1": "weighted F1", "sd_f1": "std"}
"""The lines that each data set has in P2's Table 1."""
_EFFECTS = {**_METRICS, "tails_f1": "F1 at the tails", "middle_f1": "F1 in the middle"}


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

    def of(self, model: Model, dataset: DataSet) -> set[str]:
        """Return the run of a model on a data set, or nothing."""
        return set(model.runs) & set(dataset.runs)


def read_comparison(run_uris: Sequence[str]) -> Comparison:
    """Return what the page over several runs shows.

    Raises:
        InputError: fewer than two runs; two runs of one model on the same data with as many demonstrations.
        BiasevalError: a run has no metrics yet.
    """
    if len(run_uris) < 2:
        raise InputError("--out: makes one page of several runs, and one is named; name more, or leave --out away")
    runs = dict(zip(run_names(run_uris), map(Run.open, run_uris), strict=True))
    with closing(open_runs(run_uris)) as connection:
        by_model, by_setting, effects, shared, settings = (
            connection.sql(f"from {name}").to_arrow_table().to_pylist()
            for name in (
                "majority_by_model",
                "majority_over_seeds",
                "majority_size_effect",
                "majority_shared_data",
                "settings",
            )
        )
    specs = {name: yaml.safe_load(run.read_text("spec.yaml")) for name, run in runs.items()}
    sizes = {row["run"]: row["n_parameters"] for row in by_model}
    comparison = Comparison(
        models=_models(runs, specs, sizes),
        datasets=_datasets(specs, shared, settings),
        by_model=by_model,
        by_setting=sorted(by_setting, key=lambda row: row["number"]),
        effects=effects,
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


def render_comparison_page(comparison: Comparison) -> str:
    """Return the HTML of the page; everything from the runs is escaped."""
    ways = [_way(comparison, number, *way) for number, way in enumerate(ways_of(comparison.by_model))]
    return (
        page_templates()
        .get_template("comparison.html.j2")
        .render(
            comparison=comparison,
            summary=[_scope(comparison), *ways[0]["sentences"], *_calibration(comparison)],
            caveats=caveats(comparison),
            ways=ways,
            effects=_EFFECTS,
            instructions=INSTRUCTIONS,
        )
    )


def _models(runs: dict[str, Run], specs: dict[str, Row], sizes: dict[str, int | None]) -> list[Model]:
    """Return the models: runs of the same weights, read alike, are of one model."""
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        model = specs[name]["model"]
        environment = json.loads(run.read_text("environment.json")) if run.has("environment.json") else {}
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


def _way(comparison: Comparison, number: int, predict: str, method: str) -> Row:
    """Return the tables and figures of one way of predicting."""

    def chosen(rows: Iterable[Row], runs: set[str]) -> list[Row]:
        return [row for row in rows if row["run"] in runs and (row["predict"], row["method"]) == (predict, method)]

    every = chosen(comparison.by_model, {run for model in comparison.models for run in model.runs})
    given = [instruction for instruction in INSTRUCTIONS if any(row["instruction"] is instruction for row in every)]
    figures: list[Row] = []
    tables: list[Row] = []
    overview = []
    for at, dataset in enumerate(comparison.datasets):
        by_run = {model.name: comparison.of(model, dataset) for model in comparison.models}
        rows = {name: chosen(comparison.by_model, runs) for name, runs in by_run.items()}
        if not any(rows.values()):
            continue
        points = {name: chosen(comparison.by_setting, runs) for name, runs in by_run.items()}
        overview.append(
            (
                dataset.name,
                [
                    (shown, [_cell(rows[name], metric, one) for name in rows for one in given])
                    for metric, shown in _METRICS.items()
                ],
            )
        )
        settings = [row["setting"] for row in dataset.settings]
        lines = [
            (setting, [cell for name in points for cell in setting_cells(points[name], given, setting)])
            for setting in settings
        ]
        tables.append({"dataset": dataset, "lines": lines})
        prefix = f"f1_{number}_{at}"
        figures.append({"dataset": dataset, **_figures(prefix, dataset, points, given)})
    columns = [(_column(model), [INSTRUCTIONS[one] for one in given]) for model in comparison.models]
    return {
        "name": way_name(predict, method),
        "columns": columns,
        "overview": overview,
        "tables": tables,
        "figures": figures,
        "effects": (effects := _effects(comparison, predict, method)),
        "sentences": _sentences(comparison, predict, method, every, effects),
    }


def _column(model: Model) -> str:
    return model.name if model.n_parameters is None else f"{model.name} ({size(model.n_parameters)})"


def size(n_parameters: int) -> str:
    """Return a number of parameters as people say it: 7.2B, 616K."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if n_parameters >= unit:
            return f"{n_parameters / unit:.3g}{name}"
    return str(n_parameters)


def _cell(rows: Sequence[Row], metric: str, instruction: bool) -> Cell:
    return Cell(next((row for row in rows if row["instruction"] is instruction), None), metric)


def _figures(prefix: str, dataset: DataSet, points: dict[str, list[Row]], given: Sequence[bool]) -> Row:
    """Return P2's Figure 2 (a line per model; none where settings have no order) and Figure 3 (a panel per model)."""
    measured = {name: rows for name, rows in points.items() if rows}
    by_model: list[Figure] = []
    if len(dataset.settings[0]["labels"]) == 2:
        for instruction in given:
            series = [
                Series(name, [row for row in rows if row["instruction"] is instruction])
                for name, rows in measured.items()
            ]
            title = f"{dataset.name}, {INSTRUCTIONS[instruction]} instruction"
            panel = f"{prefix}_{INSTRUCTIONS[instruction]}"
            by_model.append(line_figure(panel, title, [one for one in series if one.rows], dataset.settings))
    by_instruction = [
        figure
        for number, (name, rows) in enumerate(measured.items())
        for figure in instruction_figures(
            f"{prefix}_model{number}",
            name,
            rows,
            dataset.settings,
            compared=[row for others in measured.values() for row in others],
        )
    ]
    return {"by_model": by_model, "by_instruction": by_instruction}


def _effects(comparison: Comparison, predict: str, method: str) -> list[Row]:
    """Return the rows of the effect of size with the names of models and data, from the smallest model on."""
    rows = []
    for dataset in comparison.datasets:
        for number, model in enumerate(comparison.models):
            for row in comparison.effects:
                if row["run"] in comparison.of(model, dataset) and (row["predict"], row["method"]) == (predict, method):
                    larger = next(other for other in comparison.models if row["larger_run"] in other.runs)
                    shown = {"dataset": dataset.name, "smaller": _column(model), "larger": _column(larger)}
                    rows.append({**row, **shown, "order": (dataset.name, number)})
    return sorted(rows, key=lambda row: (*row["order"], row["larger"], row["instruction"]))


def _scope(comparison: Comparison) -> str:
    names = [dataset.name for dataset in comparison.datasets]
    models = join([_column(model) for model in comparison.models])
    return f"{_count(len(comparison.models), 'model')} ({models}) on {_count(len(names), 'data set')} ({join(names)})."


def _sentences(
    comparison: Comparison, predict: str, method: str, rows: Sequence[Row], effects: Sequence[Row]
) -> list[str]:
    """Return what one way of predicting found, in words."""
    way = way_name(predict, method)
    told = [_widest(comparison, rows), _instruction(rows), _size(effects)]
    return [f"{way[0].upper()}{way[1:]}: {sentence}" for sentence in told if sentence]


def _widest(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return which model has the widest boundary on each data set, and with which mean weighted F1."""
    found = []
    for dataset in comparison.datasets:
        there = [row for row in rows if row["run"] in dataset.runs]
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
    return f"the widest boundary, RB@10, is {join(found)}."


def _instruction(rows: Sequence[Row]) -> str:
    """Return in how many runs the instruction widens the boundary and raises the mean."""
    with_it = {row["run"]: row for row in rows if row["instruction"]}
    without = {row["run"]: row for row in rows if not row["instruction"]}
    runs = sorted(with_it.keys() & without.keys())
    if not runs:
        return ""
    told = []
    for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
        changes = [with_it[run][metric] - without[run][metric] for run in runs]
        told.append(f"{name} {_ups_and_downs(changes)} ({_mean(changes)} on average)")
    return f"with the instruction, over {_count(len(runs), 'pair')} of a model with a data set, {join(told)}."


def _size(effects: Sequence[Row]) -> str:
    """Return in how many comparisons the larger model has a wider boundary and performs better, and how clearly."""
    if not effects:
        return ""
    told = []
    for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
        changes = [row[metric] for row in effects]
        clear = sum(
            row[f"{metric}_low"] is not None and not row[f"{metric}_low"] <= 0 <= row[f"{metric}_high"]
            for row in effects
        )
        told.append(f"{name} {_ups_and_downs(changes)} ({_mean(changes)} on average, {clear} clearly)")
    number = _count(len(effects), "comparison")
    return f"from a model to the next in size, in {number} with and without instruction, {join(told)}."


def _calibration(comparison: Comparison) -> list[str]:
    """Return in how many runs and instructions each calibration widens the boundary."""
    rows = {
        (row["run"], row["instruction"], row["method"]): row
        for row in comparison.by_model
        if row["predict"] == "likelihood"
    }
    sentences = []
    for predict, method in ways_of(comparison.by_model):
        if method == "none":
            continue
        told = []
        for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
            changes = [
                row[metric] - rows[run, instruction, "none"][metric]
                for (run, instruction, of), row in rows.items()
                if of == method
            ]
            told.append(f"{name} {_ups_and_downs(changes)} ({_mean(changes)} on average)")
        way = way_name(predict, method)
        sentences.append(f"{way[0].upper()}{way[1:]}, against no calibration: {join(told)}.")
    return sentences


def _mean(changes: Sequence[float]) -> str:
    return signed(sum(changes) / len(changes))


def _ups_and_downs(changes: Sequence[float]) -> str:
    """Return how many rise and fall, such as ``rises in 3, falls in 1 and stays in 2``."""
    counts = Counter("rises" if x > 1e-9 else "falls" if x < -1e-9 else "stays" for x in changes)
    return join([f"{verb} in {counts[verb]}" for verb in ("rises", "falls", "stays") if counts[verb]])


def caveats(comparison: Comparison) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    sentences = no_label_caveats(comparison.by_model)
    unpaired = {row["run"] for row in comparison.effects if row["mean_f1_low"] is None}
    if unpaired:
        sentences.append(
            f"{join(sorted(unpaired))}: the next larger model was not run on the same test rows with the same seed (or "
            "there is one row), so that differences of size have no interval."
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
    always_same = [
        row
        for row in comparison.by_model
        if row["rb_at_10"] == 1 and row["sd_f1"] is not None and row["sd_f1"] < 1e-9 and row["predict"] in WAYS
    ]
    if always_same:
        n_runs = len({row["run"] for row in always_same})
        sentences.append(
            f"In {_count(n_runs, 'run')} a way of predicting has the same weighted F1 in every setting: such a model "
            "pays no attention to the demonstrations, and its RB@10 of 1 is no merit."
        )
    return sentences


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
