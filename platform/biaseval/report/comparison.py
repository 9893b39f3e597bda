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
from biaseval.report.majority import Cell, setting_cells
from biaseval.report.majority_words import no_label_caveats
from biaseval.report.methods import is_adapted, mitigation_of
from biaseval.report.page import page_templates
from biaseval.report.proportions import Series, instruction_figures, line_figure
from biaseval.report.summary import join, signed
from biaseval.report.ways import INSTRUCTIONS, row_order, way_name, ways_of
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
    shared: list[Row]
    """The rows of ``majority_shared_data``."""

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
        by_model=sorted(by_model, key=row_order),
        by_setting=sorted(by_setting, key=lambda row: (row_order(row), row["number"])),
        effects=effects,
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


def render_comparison_page(comparison: Comparison) -> str:
    """Return the HTML of the page; everything from the runs is escaped."""
    return page_templates().get_template("comparison.html.j2").render(**comparison_content(comparison))


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """Return what the templates of the page are given."""
    ways = [_way(comparison, number, *way) for number, way in enumerate(ways_of(comparison.by_model))]
    return {
        "comparison": comparison,
        "summary": [_scope(comparison), *ways[0]["sentences"], *_gains(comparison)],
        "caveats": caveats(comparison),
        "ways": ways,
        "runs": _runs(comparison),
        "effects": _EFFECTS,
        "instructions": INSTRUCTIONS,
        "has_adapters": any(is_adapted(row["method"]) for row in comparison.by_model),
    }


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
        counts = _counts([row for of_run in rows.values() for row in of_run])
        overview.append(
            (
                f"{dataset.name} ({counts})",
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
        tables.append({"dataset": dataset, "lines": lines, "counts": counts})
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


def _counts(rows: Sequence[Row]) -> str:
    """Return how many settings, seeds and test rows are behind rows of ``majority_by_model``, in words."""
    numbers = {
        "setting": {row["n_settings"] for row in rows},
        "seed": {row["n_seeds"] for row in rows},
        "test row": {row["n_test_rows"] for row in rows},
    }
    return ", ".join(
        f"{low:,} to {high:,} {thing}s" if (low := min(found)) < (high := max(found)) else _count(low, thing)
        for thing, found in numbers.items()
    )


def _runs(comparison: Comparison) -> list[Row]:
    """Return a line for each run, with its model and data, by data set and model."""
    lines = []
    for dataset in comparison.datasets:
        for model in comparison.models:
            for run in sorted(comparison.of(model, dataset)):
                measured = next(row for row in comparison.by_model if row["run"] == run)
                counts = {"n_settings": measured["n_settings"], "n_seeds": measured["n_seeds"]}
                place = {"run": run, "model": model, "dataset": dataset, "n_demos": measured["n_demos"]}
                lines.append({**place, **counts, "n_test": measured["n_test_rows"]})
    return lines


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
    n_seeds = {row["run"]: row["n_seeds"] for row in comparison.by_model}
    for at, dataset in enumerate(comparison.datasets):
        for number, model in enumerate(comparison.models):
            for row in comparison.effects:
                if row["run"] in comparison.of(model, dataset) and (row["predict"], row["method"]) == (predict, method):
                    larger = next(other for other in comparison.models if row["larger_run"] in other.runs)
                    shown = {"dataset": dataset.name, "smaller": _column(model), "larger": _column(larger)}
                    seeds = sorted({n_seeds[row["run"]], n_seeds[row["larger_run"]]})
                    counts = {"n_settings": len(dataset.settings), "n_seeds": " to ".join(map(str, seeds))}
                    rows.append({**row, **shown, **counts, "order": (at, number)})
    return sorted(rows, key=lambda row: (*row["order"], row["larger"], row_order(row)))


def _scope(comparison: Comparison) -> str:
    names = [dataset.name for dataset in comparison.datasets]
    models = join([_column(model) for model in comparison.models])
    return f"{_count(len(comparison.models), 'model')} ({models}) on {_count(len(names), 'data set')} ({join(names)})."


def _sentences(
    comparison: Comparison, predict: str, method: str, rows: Sequence[Row], effects: Sequence[Row]
) -> list[str]:
    """Return what one way of predicting found, in words."""
    way = way_name(predict, method)
    told = [_widest(comparison, rows), _instruction(comparison, rows), _size(comparison, effects)]
    return [f"{way[0].upper()}{way[1:]}: {sentence}" for sentence in told if sentence]


def _widest(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return which model has the widest boundary on each data set, and with which mean weighted F1.

    Runs with too few test rows for RB@10 are left out.
    """
    found = []
    enough = [row for row in rows if row["has_enough_rows"]]
    for dataset in comparison.datasets:
        there = [row for row in enough if row["run"] in dataset.runs]
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
    return f"the widest boundary, RB@10, is {join(found)}." if found else ""


def _instruction(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return in how many runs the instruction widens the boundary and raises the mean."""
    with_it = {row["run"]: row for row in rows if row["instruction"]}
    without = {row["run"]: row for row in rows if not row["instruction"]}
    runs = sorted(with_it.keys() & without.keys())
    if not runs:
        return ""
    told = []
    for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
        judged = [
            run
            for run in runs
            if metric != "rb_at_10" or (with_it[run]["has_enough_rows"] and without[run]["has_enough_rows"])
        ]
        told.append(_told(name, [with_it[run][metric] - without[run][metric] for run in judged], len(runs)))
    return f"with the instruction, over {_count(len(runs), 'pair')} of a model with a data set, {join(told)}."


def _size(comparison: Comparison, effects: Sequence[Row]) -> str:
    """Return in how many comparisons the larger model has a wider boundary and performs better, and how clearly."""
    if not effects:
        return ""
    told = []
    for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
        judged = [row for row in effects if metric != "rb_at_10" or row["has_enough_rows"]]
        n_clear = sum(bool(row[f"{metric}_sign"]) for row in judged)
        told.append(_told(name, [row[metric] for row in judged], len(effects), f", {n_clear} clearly"))
    number = _count(len(effects), "comparison")
    return f"from a model to the next in size, in {number} with and without instruction, {join(told)}."


def _gains(comparison: Comparison) -> list[str]:
    """Return in how many runs and instructions each method widens the boundary."""
    rows = {(row["predict"], row["run"], row["instruction"], row["method"]): row for row in comparison.by_model}
    sentences = []
    for predict, method in ways_of(comparison.by_model):
        if method == "none":
            continue
        told = []
        for metric, name in (("rb_at_10", "RB@10"), ("mean_f1", "mean weighted F1")):
            pairs = [
                (row, rows[predict, row["run"], row["instruction"], "none"])
                for row in comparison.by_model
                if (row["predict"], row["method"]) == (predict, method)
            ]
            changes = [
                after[metric] - before[metric]
                for after, before in pairs
                if metric != "rb_at_10" or (after["has_enough_rows"] and before["has_enough_rows"])
            ]
            told.append(_told(name, changes, len(pairs)))
        way = way_name(predict, method)
        sentences.append(f"{way[0].upper()}{way[1:]}, against no {mitigation_of([method])}: {join(told)}.")
    return sentences


def _told(name: str, changes: Sequence[float], n_pairs: int, addition: str = "") -> str:
    """Return how a metric changes, in words; pairs that are not among the changes have too few test rows."""
    n_few = n_pairs - len(changes)
    if not changes:
        return f"{name} is not judged (too few test rows)"
    left_out = f"; {n_few} not judged, with too few test rows" if n_few else ""
    return f"{name} {_ups_and_downs(changes)} ({_mean(changes)} on average{addition}{left_out})"


def _mean(changes: Sequence[float]) -> str:
    return signed(sum(changes) / len(changes))


def _ups_and_downs(changes: Sequence[float]) -> str:
    """Return how many rise and fall, such as ``rises in 3, falls in 1 and stays in 2``."""
    counts = Counter("rises" if x > 1e-9 else "falls" if x < -1e-9 else "stays" for x in changes)
    return join([f"{verb} in {counts[verb]}" for verb in ("rises", "falls", "stays") if counts[verb]])


def caveats(comparison: Comparison) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    sentences = no_label_caveats(comparison.by_model)
    sentences += _constant_caveats(comparison)
    coarse = {row["run"] for row in comparison.by_model if not row["has_enough_rows"]}
    if coarse:
        sentences.append(
            f"{join(sorted(coarse))}: too few test rows for RB@10, in at least one way of predicting; the settings' "
            "95 % intervals of weighted F1 reach, in the median, farther than the 10 points of the boundary to either "
            "side, so that chance decides which settings are inside it. The summary judges no RB@10 there."
        )
    sentences += _unpaired_caveats(comparison)
    for dataset in comparison.datasets:
        named: dict[tuple[int, ...], list[str]] = {}
        for setting in dataset.settings:
            named.setdefault(tuple(setting["counts"]), []).append(setting["setting"])
        if same := [
            f"{join(names)} ({'/'.join(map(str, counts))})" for counts, names in named.items() if len(names) > 1
        ]:
            sentences.append(
                f"{dataset.name}: settings with the same counts of demonstrations count as several and are one: "
                f"{', '.join(same)}."
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
    return sentences


def _constant_caveats(comparison: Comparison) -> list[str]:
    """Return which runs give almost always the same answer."""
    by_run: dict[str, list[Row]] = {}
    for row in comparison.by_model:
        if row["is_constant"]:
            by_run.setdefault(row["run"], []).append(row)
    if not by_run:
        return []
    told = []
    for run, rows in sorted(by_run.items()):
        ways = list(dict.fromkeys(way_name(row["predict"], row["method"]) for row in rows))
        constant, mean = rows[0]["constant_f1"], max(row["mean_f1"] for row in rows)
        told.append(f"{run} ({join(ways)}; mean weighted F1 up to {mean:.3f}, the best constant answer {constant:.3f})")
    return [
        f"More than 95% of the predictions are the same answer in {join(told)}: such a model pays no "
        "attention to the demonstrations, and an RB@10 near 1 is then no robustness."
    ]


def _unpaired_caveats(comparison: Comparison) -> list[str]:
    """Return why differences of size have no interval, and in which runs."""
    pairs = {(row["run"], row["larger_run"]) for row in comparison.effects if row["mean_f1_low"] is None}
    shared = {(row["run"], row["other_run"]): row for row in comparison.shared}
    reasons = {
        "has_same_rows": "the next larger model was not run on the same test rows with the same seed",
        "has_same_contexts": "the prompts of the next larger model have other demonstrations or another instruction",
        "has_same_scoring": "the next larger model was scored in another way (scoring.normalization, scoring.eos)",
    }
    sentences = []
    for is_met, reason in reasons.items():
        if runs := sorted({run for run, larger in pairs if not shared[run, larger][is_met]}):
            sentences.append(f"{join(runs)}: {reason}, so that differences of size have no interval.")
    if runs := sorted({run for run, larger in pairs if all(shared[run, larger][is_met] for is_met in reasons)}):
        sentences.append(f"{join(runs)}: there is one test row, so that differences of size have no interval.")
    return sentences


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
