"""Simulated label-bias runs that begin at the scores of rows and of calibration inputs, and are calibrated by the SQL.

A calibration divides all rows by one and the same estimate, which is a little off: that moves what a model prefers
without an error over rows. Where methods are drawn apart (`tests.validation.label_bias`), nothing of it is seen.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.analysis.sign_flips import MAX_UNITS, sign_flips
from biaseval.spec import BASE
from biaseval.tables import RUN_SETTINGS, TASKS
from tests.validation import label_bias, label_bias_comparison, label_bias_formats, label_bias_queries
from tests.validation.cells import Cell
from tests.validation.label_bias import METRICS, Floats, Simulated
from tests.validation.outcomes import OUTCOMES, outcomes

Effect = Literal["none", "remedied", "twins", "formats"]
"""A model without preference; with one, which calibrations take away but for the luck of their inputs; a model without
preference beside its twin, whose first label is shifted; formats of the prompt that change nothing."""

SETS = {0: 1, 4: 2}
"""Numbers of demonstrations to their sets."""

_N_INPUTS = {"cc": 3, "dc": 20}
_INPUT_LUCK = 0.3
"""Standard deviation of a label's logit between calibration inputs."""
_PREFERENCE = 0.6
"""Of a label, in logits, in runs with a remedy."""
_SHIFT = 0.3
"""Of the first label, in logits, by which a twin differs."""
_KNOWN, _OF_ROW, _OF_SETTING = 1.5, 1.0, 0.5
"""Logit of the gold label; standard deviations of the rows', the same in all settings, and in each anew."""
_FORMATS = (BASE, "terse", "back")
_N_ENDLESS = 20_000
"""Rows of each gold label that stand for endless ones."""
_PER_PART = 48


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of runs that are calibrated.

    Args:
        n_small: runs of the main cell of each effect.
        n_large: of others, with more labels, rows of BiasScore or tasks.
    """
    others = [(1, 200, 3, 32), (1, 200, 3, 96), (6, 100, 2, 32)]
    effects: tuple[Effect, ...] = ("none", "remedied", "twins", "formats")
    asked = [(effect, (1, 200, 2, 32), n_small) for effect in effects]
    asked += [(effect, size, n_large) for size in others for effect in effects]
    return [_cell(*each) for each in asked]


def _cell(effect: Effect, size: tuple[int, int, int, int], n_runs: int) -> Cell:
    sizes = dict(zip(("n_tasks", "n_rows", "n_labels", "n_BiasScore_rows"), size, strict=True))
    n_per_part = max(1, _PER_PART // size[0] // (len(_FORMATS) if effect == "formats" else 1))
    return Cell("label_bias_calibrated", effect, sizes, n_runs, n_per_part, partial(_judged, effect, size))


def _judged(effect: Effect, size: tuple[int, int, int, int], n_runs: int, seed: list[int]) -> pa.Table:
    simulated = simulate(effect, *size, n_runs=n_runs, seed=seed)
    if effect == "twins":
        return label_bias_comparison.judge(simulated, "same", size[0], is_by_truth=True)
    [own] = simulated
    tables = {**own.tables, "truths": own.truths}
    if effect == "formats":
        found = outcomes("label_bias", tables, ("label_bias_format_changes",), label_bias_formats.QUERIES)
    else:
        wanted = ("label_bias_verdicts", "label_bias_remedies", "label_bias_by_task_over_sets")
        found = outcomes("label_bias", tables | label_bias.NO_PROMPTS, wanted, label_bias_queries.OF_TRUTHS)
    return pa.concat_tables([table.cast(OUTCOMES) for table in found.values()])


def simulate(
    effect: Effect, n_tasks: int, n_rows: int, n_labels: int, n_bias_rows: int, *, n_runs: int, seed: list[int]
) -> list[Simulated]:
    """Return runs of independent tasks: of each model one, with the scores of its prompts.

    Args:
        effect: what is true of them.
        n_tasks: of each suite.
        n_rows: main rows of each task.
        n_labels: of each task; how many rows have each differs between tasks.
        n_bias_rows: rows of BiasScore of each task.
        n_runs: suites.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    labels = [f"l{number:02d}" for number in range(n_labels)]
    tasks = [f"s{run:04d}_t{task:03d}" for run in range(n_runs) for task in range(n_tasks)]
    formats = _FORMATS if effect == "formats" else (BASE,)
    shifts = (0.0, _SHIFT) if effect == "twins" else (0.0,)
    sizes = {"main": n_rows, "bias_score": n_bias_rows}
    made = [_task(rng, effect, task, labels, sizes, formats, shifts) for task in tasks]
    settings = [
        {"context_id": task, "task": task, "n_demos": n_demos, "demo_set": demo_set, "format": form}
        for task in tasks
        for n_demos, n_sets in SETS.items()
        for demo_set in range(n_sets)
        for form in formats
    ]
    shared = {
        **label_bias.NO_ADAPTERS,
        "tasks": TASKS.rows(
            [{"task": task, "category": "", "labels": labels, "is_semantically_equivalent": False} for task in tasks]
        ),
        "bootstrap_draws": label_bias.draws(rng, tasks, [task.split("_")[0] for task in tasks], n_tasks),
        "sign_flips": sign_flips(MAX_UNITS if n_tasks < label_bias.FEWEST_TASKS else n_tasks, int(rng.integers(2**31))),
        "run_settings": RUN_SETTINGS.rows(
            [{"model": "simulated", "seed": 0, "calibration": [*_N_INPUTS], "formats": [*formats]}]
        ),
        "contexts": _with_nulls(pa.Table.from_pylist(settings)),
        "calibration_variants": pa.table(
            {
                "method": [*_N_INPUTS],
                "name": [*_N_INPUTS],
                "purposes": [[name] for name in _N_INPUTS],
                "purpose": [*_N_INPUTS],
                "strength": pa.array([1.0] * len(_N_INPUTS)),
                "n_inputs": pa.nulls(len(_N_INPUTS), pa.int64()),
            }
        ),
    }
    return [
        Simulated(
            {**shared, "prompt_probabilities": pa.concat_tables([table for task in made for table in task[model][0]])},
            pa.Table.from_pylist([truth for task in made for truth in task[model][1]]),
        )
        for model in range(len(shifts))
    ]


def _task(
    rng: np.random.Generator,
    effect: Effect,
    task: str,
    labels: list[str],
    sizes: Mapping[str, int],
    formats: tuple[str, ...],
    shifts: tuple[float, ...],
) -> list[tuple[list[pa.Table], list[dict[str, object]]]]:
    """Return of each model the scores of a task, and what is true of it."""
    n_labels = len(labels)
    shares = rng.dirichlet(np.full(n_labels, 8.0))
    preference = rng.normal(0, _PREFERENCE, size=n_labels) if effect == "remedied" else np.zeros(n_labels)
    gold = {purpose: rng.choice(n_labels, size=n, p=shares) for purpose, n in sizes.items()}
    of_rows = {
        purpose: _KNOWN * np.eye(n_labels)[own] + preference + rng.normal(0, _OF_ROW, size=(len(own), n_labels))
        for purpose, own in gold.items()
    }
    occurs = {purpose: np.unique(own) for purpose, own in gold.items()}
    found: list[tuple[list[pa.Table], list[dict[str, object]]]] = [([], []) for _ in shifts]
    for n_demos, n_sets in SETS.items():
        for form in formats:
            true = np.zeros((len(shifts), 1 + len(_N_INPUTS), len(METRICS)))
            for demo_set in range(n_sets):
                place = {"task": task, "n_demos": n_demos, "demo_set": demo_set, "format": form}
                logits = {purpose: own + rng.normal(0, _OF_SETTING, size=own.shape) for purpose, own in of_rows.items()}
                inputs = {
                    method: preference + rng.normal(0, _INPUT_LUCK, size=(n, n_labels))
                    for method, n in _N_INPUTS.items()
                }
                for model, shift in enumerate(shifts):
                    moved = shift * np.eye(n_labels)[0]
                    found[model][0].extend(
                        _prompts(place, purpose, labels, gold.get(purpose), own + moved)
                        for purpose, own in (logits | inputs).items()
                    )
                    p_hats = [np.ones(n_labels), *(_softmax(own + moved).mean(axis=0) for own in inputs.values())]
                    true[model] += [
                        _truth(preference + moved - np.log(p_hat), shares, occurs) / n_sets for p_hat in p_hats
                    ]
            for model, of_methods in enumerate(true):
                found[model][1].extend(
                    {
                        "task": task,
                        "n_demos": n_demos,
                        "method": method,
                        "format": form,
                        **dict(zip(METRICS, values.tolist(), strict=True)),
                    }
                    for method, values in zip(("none", *_N_INPUTS), of_methods, strict=True)
                )
    return found


@cache
def _endless(n_labels: int) -> Floats:
    """Return logits ``[n_labels, _N_ENDLESS, n_labels]`` of rows of each gold label, the same for all settings."""
    rows = np.random.default_rng(0).normal(0, np.hypot(_OF_ROW, _OF_SETTING), size=(n_labels, _N_ENDLESS, n_labels))
    return rows + _KNOWN * np.eye(n_labels)[:, None]


def _truth(added: Floats, shares: Floats, occurs: Mapping[str, npt.NDArray[np.int64]]) -> Floats:
    """Return what `METRICS` are of endless rows, whose logits have so much added, over the labels that occur."""
    n_labels = len(added)
    probabilities = _softmax(_endless(n_labels) + added)
    answers = probabilities.argmax(axis=2)
    told = np.array([np.bincount(own, minlength=n_labels) / _N_ENDLESS for own in answers])
    recall, predicted = np.diag(told)[occurs["main"]], shares @ told
    accuracy = shares @ np.diag(told)
    f1 = 2 * shares[occurs["main"]] * recall / (shares + predicted)[occurs["main"]]
    mean = probabilities.mean(axis=1)[occurs["bias_score"]].mean(axis=0)
    rsd = recall.std() / accuracy
    return np.array([accuracy, f1.mean(), rsd, 0.5 * np.abs(mean - 1 / n_labels).sum(), rsd**2])


def _softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return shares


def _prompts(
    place: Mapping[str, object], purpose: str, labels: list[str], gold: npt.NDArray[np.int64] | None, logits: Floats
) -> pa.Table:
    """Return rows of ``prompt_probabilities``."""
    n_rows, n_labels = logits.shape
    ends = pa.array(np.arange(n_rows + 1, dtype=np.int32) * n_labels)
    columns = {name: pa.repeat(pa.scalar(value), n_rows) for name, value in {**place, "purpose": purpose}.items()}
    columns["row"] = pa.array(np.arange(n_rows))
    columns["gold"] = pa.nulls(n_rows, pa.string()) if gold is None else pa.array(labels).take(pa.array(gold))
    columns["labels"] = pa.ListArray.from_arrays(ends, pa.array(labels * n_rows))
    columns["log_probabilities"] = pa.ListArray.from_arrays(ends, pa.array(np.log(_softmax(logits)).ravel()))
    columns["adaptation"] = pa.repeat(pa.scalar("none"), n_rows)
    return _with_nulls(pa.table(columns))


def _with_nulls(table: pa.Table) -> pa.Table:
    """Return a table with the columns that only other kinds of runs have."""
    for name in ("setting", "instruction", "instance_id", "prompt_id"):
        table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return table
