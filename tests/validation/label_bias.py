"""Simulated label-bias runs whose truth is known: tables that begin where the model's answers are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.analysis.sign_flips import MAX_UNITS, N_PATTERNS, sign_flips
from biaseval.spec import BASE
from biaseval.tables import BOOTSTRAP_DRAWS, PROMPTS, RUN_SETTINGS, TASKS
from tests.validation.cells import Cell
from tests.validation.label_bias_queries import QUERIES, VERDICTS, Effect
from tests.validation.outcomes import OUTCOMES, outcomes

Floats = npt.NDArray[np.float64]

METHODS = ("none", "cc", "dc")
METRICS = ("accuracy", "macro_f1", "rsd", "bias_score", "relative_variance")
SETS = {0: 1, 4: 2}
"""Numbers of demonstrations to their sets."""

N_DRAWS = 1000
N_BIAS_ROWS = 32

_PER_PART = 4_000_000
"""Rows that a part has at most in its largest relation."""
FEWEST_TASKS = 6
"""Below which rows are the units where runs are compared, and a run has signs for as many (``derive_label_bias``)."""
_SMALL = 2000
"""Main rows of a small run, at most."""

_ACCURACY, _SPREAD = 0.65, 0.1
"""Of tasks: the mean and the standard deviation."""
_INTERACTION = 0.03
"""Standard deviation of what a method changes in a task, around nothing on average."""
_SET_EFFECT = 0.02
_TILT = 0.12
"""Standard deviation of recalls between the labels of a task, in biased runs."""
_GAINS = {"remedied": 0.05, "sharper": 0.2}
"""Accuracy that the method cc adds; in remedied runs it halves the tilt."""
_UNBIASED = ("none", "sharper")
_SHARED = 0.7
"""Of rows that two settings answer by the same luck."""
_SURENESS, _KNOWN, _LEANING = 4.0, 0.5, 0.6
"""Of probabilities on bias_score rows: concentration, the share that goes to the gold label, preference in logits."""


@dataclass(frozen=True)
class Simulated:
    """Several runs, each as a suite of its own, and what is true of them."""

    tables: dict[str, pa.Table]
    """By relation: ``tasks``, ``calibrated_predictions``, ``bootstrap_draws``, ``sign_flips``, ``run_settings``."""
    truths: pa.Table
    """By (suite, task, n_demos, method, format): what ``label_bias_by_task_over_sets`` estimates, of endless rows."""


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of label bias: without bias, with it, and with a remedy.

    Args:
        n_small: runs of small cells.
        n_large: runs of those with more than 2,000 rows.
    """
    sizes = [
        *((1, rows, labels) for rows in (30, 100, 300, 1000) for labels in (2, 5)),
        (1, 1000, 45),
        *((tasks, 100, 2) for tasks in (2, 3, 6, 10, 30, 100, 279)),
        *((6, rows, labels) for rows in (30, 1000) for labels in (2, 5)),
        (6, 100, 45),
        (30, 30, 5),
        (30, 300, 3),
        (30, 1000, 2),
        (30, 100, 45),
    ]
    effects: tuple[Effect, ...] = ("none", "biased", "remedied")
    asked = [(effect, size) for size in sizes for effect in effects]
    asked += [("sharper", size) for size in [(1, 1000, 2), (6, 100, 2), (30, 100, 2), (30, 30, 5), (279, 100, 2)]]
    return [_cell(effect, *size, n_small if size[0] * size[1] <= _SMALL else n_large) for effect, size in asked]


def _cell(effect: Effect, n_tasks: int, n_rows: int, n_labels: int, n_runs: int) -> Cell:
    sizes = {"n_tasks": n_tasks, "n_rows": n_rows, "n_labels": n_labels}
    return Cell("label_bias", effect, sizes, n_runs, n_per_part(n_tasks, n_rows), partial(_judged, effect, sizes))


def n_per_part(n_tasks: int, n_rows: int) -> int:
    """Return how many runs are simulated at a time."""
    weight = n_tasks * (sum(SETS.values()) * len(METHODS) * n_rows + N_DRAWS)
    return max(1, _PER_PART // max(weight, 20 * N_PATTERNS))


def _judged(effect: Effect, sizes: Mapping[str, int], n_runs: int, seed: list[int]) -> pa.Table:
    return judge(simulate(effect, n_runs=n_runs, seed=seed, **sizes), effect)


def simulate(effect: Effect, *, n_runs: int, n_tasks: int, n_rows: int, n_labels: int, seed: list[int]) -> Simulated:
    """Return runs of independent tasks, each with so many main rows and labels.

    Args:
        effect: what is true of them.
        n_runs: suites.
        n_tasks: of each.
        n_rows: main rows of each task.
        n_labels: of each task; how many rows have each differs between tasks.
        seed: of the generator.
    """
    [simulated] = simulate_paired(
        effect, [0.0], n_runs=n_runs, n_tasks=n_tasks, n_rows=n_rows, n_labels=n_labels, seed=seed
    )
    return simulated


def simulate_paired(
    effect: Effect,
    gains: Sequence[float],
    formats: Mapping[str, float] = MappingProxyType({BASE: 0.0}),
    /,
    *,
    n_runs: int,
    n_tasks: int,
    n_rows: int,
    n_labels: int,
    seed: list[int],
) -> list[Simulated]:
    """Return the runs of several models on the same rows, each model better than the first by a gain in accuracy.

    Args:
        effect: what is true of them.
        gains: of each model.
        formats: of the prompt, the base first, to their gains in accuracy.
        n_runs: suites.
        n_tasks: of each.
        n_rows: main rows of each task.
        n_labels: of each task.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    # Of a single task nothing is random but rows: what methods and sets change there is an effect.
    spread = np.array([_INTERACTION, _SET_EFFECT]) if n_tasks > 1 else np.zeros(2)
    labels = np.array([f"l{number:02d}" for number in range(n_labels)])
    tasks = [f"s{run:04d}_t{task:03d}" for run in range(n_runs) for task in range(n_tasks)]
    made = [_task(rng, effect, gains, formats, task, n_rows, labels, spread) for task in tasks]
    suites = [task.split("_")[0] for task in tasks]
    shared = {
        "tasks": TASKS.rows(
            [
                {"task": task, "category": "", "labels": labels.tolist(), "is_semantically_equivalent": False}
                for task in tasks
            ]
        ),
        "bootstrap_draws": draws(rng, tasks, suites, n_tasks),
        "sign_flips": sign_flips(MAX_UNITS if n_tasks < FEWEST_TASKS else n_tasks, int(rng.integers(2**31))),
        "run_settings": RUN_SETTINGS.rows(
            [{"model": "simulated", "seed": 0, "calibration": ["cc", "dc"], "formats": [*formats]}]
        ),
    }
    return [
        Simulated(
            {
                **shared,
                "calibrated_predictions": pa.concat_tables([table for task in made for table in task[model][0]]),
            },
            pa.Table.from_pylist([truth for task in made for truth in task[model][1]]),
        )
        for model in range(len(gains))
    ]


def _task(
    rng: np.random.Generator,
    effect: Effect,
    gains: Sequence[float],
    formats: Mapping[str, float],
    task: str,
    n_rows: int,
    labels: npt.NDArray[np.str_],
    spread: Floats,
) -> list[tuple[list[pa.Table], list[dict[str, object]]]]:
    """Return of each model its predictions in a task, and what is true of it."""
    n_labels = len(labels)
    shares = rng.dirichlet(np.full(n_labels, 8.0))
    gold = rng.choice(n_labels, size=n_rows, p=shares)
    bias_gold = rng.choice(n_labels, size=N_BIAS_ROWS, p=shares)
    accuracy = np.clip(rng.normal(_ACCURACY, _SPREAD), 0.2, 0.9)
    tilt = np.zeros(n_labels) if effect in _UNBIASED else rng.normal(0, _TILT, size=n_labels)
    tilt -= shares @ tilt
    leaning = np.zeros(n_labels) if effect in _UNBIASED else rng.normal(0, _LEANING, size=n_labels)
    luck, other = rng.random(n_rows), rng.random(n_rows)
    found = []
    for gain in gains:
        tables, truths = [], []
        for n_demos, n_sets in SETS.items():
            for method in METHODS:
                helps = effect == "remedied" and method == "cc"
                change = gain + rng.normal(0, spread[0]) + (_GAINS.get(effect, 0) if method == "cc" else 0)
                # One leans the other way, as far: on a sample the more frequent label favours one of the two by luck.
                part = 0.5 if helps else -1.0 if effect == "biased" and method == "dc" else 1.0
                preference = _softmax(part * leaning)
                place = {"task": task, "n_demos": n_demos, "method": method}
                true = {form: np.zeros(len(METRICS)) for form in formats}
                for demo_set in range(n_sets):
                    of_set = accuracy + change + rng.normal(0, spread[1])
                    for form, better in formats.items():
                        recall = np.clip(of_set + better + part * tilt, 0.02, 0.98)
                        predicted = _answers(rng, gold, recall, luck, other)
                        probabilities, mean = _probabilities(rng, bias_gold, preference)
                        true[form] += _truth(gold, shares, recall, mean) / n_sets
                        own = {**place, "demo_set": demo_set, "format": form}
                        tables += [
                            _rows(own, "main", labels, gold, predicted, None),
                            _rows(own, "bias_score", labels, bias_gold, probabilities.argmax(axis=1), probabilities),
                        ]
                truths += [
                    {**place, "format": form, **dict(zip(METRICS, values.tolist(), strict=True))}
                    for form, values in true.items()
                ]
        found.append((tables, truths))
    return found


def _answers(
    rng: np.random.Generator, gold: npt.NDArray[np.int64], recall: Floats, luck: Floats, other: Floats
) -> npt.NDArray[np.int64]:
    """Return predictions: right by the recall of the gold label, else any other label alike."""
    n_rows, n_labels = len(gold), len(recall)
    is_shared = rng.random(n_rows) < _SHARED
    own_luck = np.where(is_shared, luck, rng.random(n_rows))
    own_other = np.where(is_shared, other, rng.random(n_rows))
    wrong = np.floor(own_other * (n_labels - 1)).astype(np.int64)
    wrong += wrong >= gold
    return np.where(own_luck < recall[gold], gold, wrong)


def _probabilities(rng: np.random.Generator, gold: npt.NDArray[np.int64], preference: Floats) -> tuple[Floats, Floats]:
    """Return probabilities ``[n, n_labels]``, and their mean over the gold labels that occur, of endless rows."""
    n_labels = len(preference)
    means = _KNOWN * np.eye(n_labels) + (1 - _KNOWN) * preference
    drawn = np.maximum(rng.standard_gamma(_SURENESS * means[gold]), 1e-12)
    return drawn / drawn.sum(axis=1, keepdims=True), means[np.unique(gold)].mean(axis=0)


def _truth(gold: npt.NDArray[np.int64], shares: Floats, recall: Floats, mean: Floats) -> Floats:
    """Return what `METRICS` are of endless rows, over the labels that occur among the rows.

    Args:
        gold: labels of the rows.
        shares: of the labels, of endless rows.
        recall: of each label.
        mean: probability of each label.
    """
    n_labels = len(recall)
    right = shares * recall
    accuracy = right.sum()
    wrong = (1 - accuracy) - (shares - right)
    occurs = np.bincount(gold, minlength=n_labels) > 0
    f1 = 2 * right[occurs] / (shares + right + wrong / (n_labels - 1))[occurs]
    rsd = recall[occurs].std() / accuracy
    return np.array([accuracy, f1.mean(), rsd, 0.5 * np.abs(mean - 1 / n_labels).sum(), rsd**2])


def _softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max())
    shares: Floats = weights / weights.sum()
    return shares


def _rows(
    place: dict[str, object],
    purpose: str,
    labels: npt.NDArray[np.str_],
    gold: npt.NDArray[np.int64],
    predicted: npt.NDArray[np.int64],
    probabilities: Floats | None,
) -> pa.Table:
    n_rows = len(gold)
    columns = {name: pa.repeat(pa.scalar(value), n_rows) for name, value in place.items()}
    columns["purpose"] = pa.repeat(pa.scalar(purpose), n_rows)
    columns["row"] = pa.array(np.arange(n_rows))
    named = pa.array(labels)
    columns["gold"] = named.take(pa.array(gold))
    columns["prediction"] = named.take(pa.array(predicted))
    if probabilities is None:
        columns["labels"] = pa.nulls(n_rows, pa.list_(pa.string()))
        columns["probabilities"] = pa.nulls(n_rows, pa.list_(pa.float64()))
    else:
        ends = pa.array(np.arange(n_rows + 1, dtype=np.int32) * len(labels))
        every = pa.array(np.tile(labels, n_rows), pa.string())
        columns["labels"] = pa.ListArray.from_arrays(ends, every)
        columns["probabilities"] = pa.ListArray.from_arrays(ends, pa.array(probabilities.ravel()))
    return pa.table(columns)


def draws(rng: np.random.Generator, tasks: list[str], suites: list[str], n_tasks: int) -> pa.Table:
    """Return ``bootstrap_draws`` of suites of so many tasks."""
    n_runs = len(tasks) // n_tasks
    n_draws = N_DRAWS + 1 if n_tasks > 1 else 1
    drawn = rng.multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), size=(n_runs, n_draws)).astype(np.int32)
    drawn[:, 0] = 1
    run, draw, task = np.indices(drawn.shape).reshape(3, -1)
    place = pa.array(run * n_tasks + task)
    columns = {
        "suite": pa.array(suites).take(place),
        "draw": pa.array(draw.astype(np.int32)),
        "task": pa.array(tasks).take(place),
        "n_drawn": pa.array(drawn.ravel()),
    }
    return pa.table(columns, schema=BOOTSTRAP_DRAWS.schema)


NO_ADAPTERS = {"adapted_contexts": pa.table({name: pa.array([], pa.string()) for name in ("context_id", "adaptation")})}
NO_PROMPTS = {"prompts": PROMPTS.empty().select(["purpose", "n_demos", "format", "context_id"]), **NO_ADAPTERS}
_NO_VARIANTS = {
    "calibration_variants": pa.table({"purpose": pa.array([], pa.string()), "method": pa.array([], pa.string())})
}
"""What says how many inputs a method takes: nothing here, as answers are simulated."""


def judge(simulated: Simulated, effect: Effect) -> pa.Table:
    """Return what the marts say of simulated runs, beside the truth: rows of `OUTCOMES`."""
    tables = {**simulated.tables, **NO_PROMPTS, **_NO_VARIANTS, "truths": simulated.truths}
    wanted = ("label_bias_verdicts", "label_bias_by_model", "label_bias_changes", "label_bias_remedies")
    found = outcomes("label_bias", tables, wanted, QUERIES | {"verdicts": VERDICTS[effect]})
    return pa.concat_tables([table.cast(OUTCOMES) for table in found.values()])
