"""Simulated majority-bias runs whose truth is known: tables that begin where the model's answers are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.analysis.causal_draws import row_draws, setting_permutations
from biaseval.analysis.sign_flips import sign_flips
from biaseval.majority_bias.proportions import BINARY_11, largest_remainder, setting_name
from biaseval.tables import RUN_SETTINGS, SETTINGS
from tests.validation.cells import Cell
from tests.validation.majority_bias_queries import queries
from tests.validation.outcomes import OUTCOMES, outcomes

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

Effect = Literal["none", "follows", "remedied", "constant"]
"""Proportions do not matter and cc changes nothing; predictions follow proportions, with cc as without; cc halves that
and adds accuracy; and one answer nearly always."""

LABELS = ("no", "yes")
METHODS = ("none", "cc")
INSTRUCTIONS = (False, True)
N_DEMOS = 20

GRIDS = {11: BINARY_11, 5: tuple((quarters / 4, 1 - quarters / 4) for quarters in range(5))}
_SHARE_YES = 0.6
"""Of gold labels."""
_KNOWLEDGE = 0.7
"""In probits: how far the mean of a row's score is from 0, towards its gold label."""
_OF_ROW = 0.8
"""The part of a score's variance that is the row's own, in all prompts; the rest is of each prompt."""
_DEMO_EFFECT = 0.12
"""Standard deviation in probits of what one draw of demonstrations moves."""
_DEMO_SHARED = 0.8
"""The part of its variance that is the same with all methods and instructions."""
_FOLLOWING = 1.4
"""Probits from all demonstrations of one label to all of the other, where predictions follow them."""
_RECENCY = 0.1
"""Probits that the last demonstration moves to either side, where predictions follow."""
_GAIN = 0.2
"""Probits of knowledge that cc adds in remedied runs."""
_CONSTANT = 2.2
"""Probits that a constant model leans to one label, whose knowledge is _KNOWLEDGE / 10."""


@dataclass(frozen=True)
class Behaviour:
    """How a model answers with one method, in probits."""

    knowledge: float
    following: float
    recency: float
    leaning: float

    def scores(self, gold: npt.ArrayLike, share_yes: npt.ArrayLike, last_is_yes: npt.ArrayLike) -> Floats:
        """Return the mean of the scores of prompts: ``yes`` is predicted above 0, and their variance is 1."""
        gold, share, last = (np.asarray(given, dtype=np.float64) for given in (gold, share_yes, last_is_yes))
        return (
            self.knowledge * (2 * gold - 1)
            + self.following * (share - 0.5)
            + self.recency * (2 * last - 1)
            + self.leaning
        )


def behaviours(effect: Effect) -> dict[str, Behaviour]:
    """Return how a model answers with each method."""
    plain = Behaviour(_KNOWLEDGE, 0, 0, 0)
    if effect == "constant":
        plain = Behaviour(_KNOWLEDGE / 10, 0, 0, _CONSTANT)
    elif effect != "none":
        plain = Behaviour(_KNOWLEDGE, _FOLLOWING, _RECENCY, 0)
    helped = replace(plain, knowledge=_KNOWLEDGE + _GAIN, following=_FOLLOWING / 2, recency=_RECENCY / 2)
    return {"none": plain, "cc": helped if effect == "remedied" else plain}


@dataclass(frozen=True)
class Simulated:
    """One run, and what is true of it."""

    tables: dict[str, pa.Table]
    """By relation: ``majority_predictions`` and what is read beside it."""
    truths: pa.Table
    """By (setting, seed, instruction, method): the weighted F1 of endless rows behind these demonstrations, and
    ``expected_f1``, behind any draw of them."""


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of majority bias.

    Args:
        n_small: runs of small cells, which have one seed and at most 300 rows.
        n_large: runs of the others.
    """
    every = [*((11, seeds, rows) for seeds in (1, 5) for rows in (100, 300, 1000)), (5, 5, 100), (5, 8, 300)]
    sizes: dict[Effect, list[tuple[int, int, int]]] = {
        "none": every,
        "follows": [(11, 5, 100), (11, 5, 300), (5, 5, 100), (5, 8, 300)],
        "remedied": every,
        "constant": [(11, 1, 100), (11, 5, 100), (5, 8, 300)],
    }
    return [
        _cell(effect, *size, n_small if size[1] == 1 and size[2] <= 300 else n_large)
        for effect, own in sizes.items()
        for size in own
    ]


def _cell(effect: Effect, n_settings: int, n_seeds: int, n_rows: int, n_runs: int) -> Cell:
    sizes = {"n_settings": n_settings, "n_seeds": n_seeds, "n_rows": n_rows}
    return Cell("majority_bias", effect, sizes, n_runs, _N_PER_PART, partial(_judged, effect, sizes))


_N_PER_PART = 10
N_DRAWS = 500
"""Resamples of the rows, half as many as in real runs: percentiles of them cover 0.1 points less."""


def _judged(effect: Effect, sizes: Mapping[str, int], n_runs: int, seed: list[int]) -> pa.Table:
    return pa.concat_tables(
        [judge(simulate(effect, seed=[*seed, run], **sizes), effect, f"r{run:04d}") for run in range(n_runs)]
    )


def simulate(effect: Effect, *, n_settings: int, n_seeds: int, n_rows: int, seed: list[int]) -> Simulated:
    """Return a run of two labels.

    Args:
        effect: what is true of it.
        n_settings: 11, or 5.
        n_seeds: of demonstrations.
        n_rows: test rows.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    grid = GRIDS[n_settings]
    counts = [largest_remainder(shares, N_DEMOS) for shares in grid]
    share_yes = np.array([own[1] / N_DEMOS for own in counts])
    gold, of_row = drawn_rows(rng, n_rows)
    models = behaviours(effect)
    predictions, truths = [], []
    # The same demonstrations stand in prompts with and without instruction, which changes nothing.
    last_is_yes = rng.random((n_settings, n_seeds)) < share_yes[:, None]
    of_all = rng.normal(0, _DEMO_EFFECT * np.sqrt(_DEMO_SHARED), size=(n_settings, n_seeds))
    for instruction in INSTRUCTIONS:
        for method in METHODS:
            behaviour = models[method]
            of_demos = of_all + rng.normal(0, _DEMO_EFFECT * np.sqrt(1 - _DEMO_SHARED), size=of_all.shape)
            for setting in range(n_settings):
                expected = expected_f1(behaviour, share_yes[setting])
                for demo_seed in range(n_seeds):
                    mean_scores = behaviour.scores([0, 1], share_yes[setting], last_is_yes[setting, demo_seed])
                    mean_scores = mean_scores + of_demos[setting, demo_seed]
                    place: dict[str, object] = {
                        "instruction": instruction,
                        "setting": setting_name(grid[setting]),
                        "number": setting,
                        "seed": demo_seed,
                        "method": method,
                    }
                    n_yes = counts[setting][1]
                    majority = None if 2 * n_yes == N_DEMOS else LABELS[int(2 * n_yes > N_DEMOS)]
                    facts = {"majority_label": majority, "last_label": LABELS[int(last_is_yes[setting, demo_seed])]}
                    answers = drawn_answers(rng, mean_scores, gold, of_row)
                    predictions.append(prediction_rows({**FIXED, **place, **facts}, gold, answers))
                    truths.append({**place, "weighted_f1": true_f1(mean_scores), "expected_f1": expected})
    drawn = int(rng.integers(2**31))
    run_settings = {"model": "simulated", "seed": 0, "predict": ["likelihood"], "calibration": ["cc"]}
    tables = {
        "majority_predictions": pa.concat_tables(predictions),
        "settings": setting_rows(n_settings),
        "row_draws": row_draws(n_rows, drawn).slice(0, 1 + N_DRAWS),
        "sign_flips": sign_flips(max(n_rows, n_seeds), drawn),
        "setting_permutations": setting_permutations(n_settings, range(n_seeds), drawn),
        "run_settings": RUN_SETTINGS.rows([run_settings]),
    }
    return Simulated(tables, pa.Table.from_pylist(truths))


def setting_rows(n_settings: int) -> pa.Table:
    """Return the table ``settings`` of so many proportions of two labels."""
    return SETTINGS.rows(
        [
            {
                "setting": setting_name(shares),
                "number": number,
                "labels": list(LABELS),
                "shares": list(shares),
                "counts": list(counts),
                "counts_asked": list(counts),
            }
            for number, shares in enumerate(GRIDS[n_settings])
            for counts in [largest_remainder(shares, N_DEMOS)]
        ]
    )


def drawn_rows(rng: np.random.Generator, n_rows: int) -> tuple[Integers, Floats]:
    """Return the gold labels of test rows, by number, and the part of their scores that is the same in all prompts."""
    gold = (rng.random(n_rows) < _SHARE_YES).astype(np.int64)
    return gold, rng.normal(0, np.sqrt(_OF_ROW), size=n_rows)


def drawn_answers(rng: np.random.Generator, mean_scores: Floats, gold: Integers, of_row: Floats) -> Integers:
    """Return the answers to one prompt for each row, by number.

    Args:
        rng: of the part of scores that is each prompt's own.
        mean_scores: of rows whose gold label is ``no``, and ``yes``.
        gold: of the rows.
        of_row: the part of their scores that is the same in all prompts.
    """
    own = rng.normal(0, np.sqrt(1 - _OF_ROW), size=len(gold))
    return (mean_scores[gold] + of_row + own > 0).astype(np.int64)


def true_accuracy(mean_scores: Floats) -> float:
    """Return the accuracy over endless rows.

    Args:
        mean_scores: of rows whose gold label is ``no``, and ``yes``.
    """
    says_yes = normal_cdf(mean_scores)
    return float((1 - _SHARE_YES) * (1 - says_yes[0]) + _SHARE_YES * says_yes[1])


def true_f1(mean_scores: Floats) -> float:
    """Return the weighted F1 of endless rows.

    Args:
        mean_scores: of rows whose gold label is ``no``, and ``yes``.
    """
    says_yes = normal_cdf(mean_scores)
    shares = np.array([1 - _SHARE_YES, _SHARE_YES])
    hits = shares * np.array([1 - says_yes[0], says_yes[1]])
    n_yes = float(shares @ says_yes)
    return float((shares * 2 * hits / (shares + np.array([1 - n_yes, n_yes]))).sum())


def expected_f1(behaviour: Behaviour, share_yes: float) -> float:
    """Return the weighted F1 of endless rows behind any draw of demonstrations, of which so many are ``yes``."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    found = 0.0
    for last_is_yes, share in ((0, 1 - share_yes), (1, share_yes)):
        scores = behaviour.scores([0, 1], share_yes, last_is_yes)
        f1s = [true_f1(scores + _DEMO_EFFECT * node) for node in nodes]
        found += share * float(weights @ f1s / weights.sum())
    return found


def normal_cdf(values: Floats) -> Floats:
    """Return the standard normal distribution function."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values.ravel()]).reshape(values.shape)


FIXED: dict[str, object] = {"task": "simulated", "n_demos": N_DEMOS, "predict": "likelihood"}
"""Columns that are the same in all rows."""


def prediction_rows(place: Mapping[str, object], gold: Integers, answers: Integers) -> pa.Table:
    """Return rows of ``majority_predictions``.

    Args:
        place: the columns that are the same in all of them.
        gold: labels, by number.
        answers: the predictions, by number.
    """
    n_rows = len(gold)
    named = pa.array(LABELS)
    columns = {
        name: pa.nulls(n_rows, pa.string()) if value is None else pa.repeat(pa.scalar(value), n_rows)
        for name, value in place.items()
    }
    columns["row"] = pa.array(np.arange(n_rows))
    columns["gold"] = named.take(pa.array(gold))
    columns["prediction"] = named.take(pa.array(answers))
    return pa.table(columns)


def judge(simulated: Simulated, effect: Effect, run: str) -> pa.Table:
    """Return what the marts say of a simulated run, beside the truth: rows of `OUTCOMES`.

    Args:
        simulated: the run.
        effect: what is true of it.
        run: its name.
    """
    tables = {**simulated.tables, "truths": simulated.truths, "named": pa.table({"run": [run]})}
    wanted = ("majority_by_model", "majority_calibration_gain", "majority_instruction_gap", "majority_verdicts")
    found = outcomes("majority_bias", tables, wanted, queries(effect))
    return pa.concat_tables([table.select(OUTCOMES.names).cast(OUTCOMES) for table in found.values()])
