"""Two simulated majority-bias runs of different models beside each other, whose difference is known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.causal_draws import row_draws
from biaseval.analysis.sign_flips import sign_flips
from biaseval.majority_bias.proportions import largest_remainder, setting_name
from biaseval.tables import RUN_SETTINGS
from tests.validation.cells import Cell
from tests.validation.majority_bias import (
    FIXED,
    GRIDS,
    N_DEMOS,
    N_DRAWS,
    Behaviour,
    Floats,
    drawn_answers,
    drawn_rows,
    prediction_rows,
    setting_rows,
    true_accuracy,
    true_f1,
)
from tests.validation.majority_bias_comparison_queries import BY_SETTING, COMPARED, of_runs
from tests.validation.outcomes import OUTCOMES, outcomes

Effect = Literal["same", "elsewhere", "better"]
"""Two equal models behind the same demonstrations, or behind demonstrations of their own; and a second one that is
right more often, behind the same."""

_MODEL = Behaviour(knowledge=0.7, following=0.8, recency=0.0, leaning=0.0)
_LUCK = 0.096
"""Standard deviation in probits of knowledge of what a draw of demonstrations does to a model: 3 points of accuracy."""
_SHARED = 0.5
"""The part of its variance that is the same with both models behind the same demonstrations."""
_GAIN = 0.12
"""Probits of knowledge that the better model has beyond the other: 4 points of accuracy."""
_FEWEST_SEEDS = 6
_N_PER_PART = 10


@dataclass(frozen=True)
class Simulated:
    """Pairs of runs, and what is true of them."""

    predictions: pa.Table
    """``majority_predictions``, a task for each run: the number of the pair, and ``a`` or ``b``."""
    truths: pa.Table
    """By (task, number, seed): ``accuracy`` and ``weighted_f1`` of endless rows behind these demonstrations;
    ``expected_accuracy`` and ``expected_f1``, behind any."""
    tables: dict[str, pa.Table]
    """``settings``, ``run_settings``, ``row_draws`` and the signs of tests."""


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of comparisons of majority-bias runs.

    Args:
        n_small: pairs of runs of small cells, which have one seed or at most 100 rows.
        n_large: of the others.
    """
    sizes: dict[Effect, list[tuple[int, int, int]]] = {
        "same": [(11, 1, 300), (11, 5, 100), (11, 5, 300), (5, 2, 300), (5, 8, 300)],
        "elsewhere": [(11, 1, 300), (11, 5, 300), (5, 2, 300)],
        "better": [(11, 1, 300), (11, 5, 300), (5, 2, 300)],
    }
    return [
        _cell(effect, *size, n_small if size[1] == 1 or size[2] <= 100 else n_large)
        for effect, own in sizes.items()
        for size in own
    ]


def _cell(effect: Effect, n_settings: int, n_seeds: int, n_rows: int, n_runs: int) -> Cell:
    sizes = {"n_settings": n_settings, "n_seeds": n_seeds, "n_rows": n_rows}
    return Cell("majority_bias_comparison", effect, sizes, n_runs, _N_PER_PART, partial(_judged, effect, sizes))


def _judged(effect: Effect, sizes: Mapping[str, int], n_runs: int, seed: list[int]) -> pa.Table:
    return judge(simulate(effect, n_runs=n_runs, seed=seed, **sizes))


def simulate(effect: Effect, *, n_settings: int, n_seeds: int, n_rows: int, n_runs: int, seed: list[int]) -> Simulated:
    """Return pairs of runs over the same test rows, without instruction and calibration.

    Args:
        effect: what is true of a pair.
        n_settings: 11, or 5.
        n_seeds: of demonstrations, of each run.
        n_rows: test rows.
        n_runs: pairs.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    predictions: list[pa.Table] = []
    truths: list[dict[str, object]] = []
    for number in range(n_runs):
        gold, of_row = drawn_rows(rng, n_rows)
        shared = rng.normal(0, _LUCK * np.sqrt(_SHARED), size=(n_settings, n_seeds))
        for name in "ab":
            own = rng.normal(0, _LUCK * np.sqrt(1 - _SHARED), size=shared.shape)
            if effect == "elsewhere":
                shared = rng.normal(0, _LUCK * np.sqrt(_SHARED), size=shared.shape)
            first_seed = n_seeds if effect == "elsewhere" and name == "b" else 0
            gain = _GAIN if effect == "better" and name == "b" else 0.0
            model = replace(_MODEL, knowledge=_MODEL.knowledge + gain)
            for setting, shares in enumerate(GRIDS[n_settings]):
                share_yes = largest_remainder(shares, N_DEMOS)[1] / N_DEMOS
                expected = expected_values(model, share_yes)
                for demo_seed in range(n_seeds):
                    scores = mean_scores(model, share_yes, float(shared[setting, demo_seed] + own[setting, demo_seed]))
                    place: dict[str, object] = {
                        **FIXED,
                        "task": f"{number:04d}{name}",
                        "instruction": False,
                        "setting": setting_name(shares),
                        "number": setting,
                        "seed": first_seed + demo_seed,
                        "method": "none",
                    }
                    answers = drawn_answers(rng, scores, gold, of_row)
                    predictions.append(prediction_rows(place, gold, answers))
                    true = {"accuracy": true_accuracy(scores), "weighted_f1": true_f1(scores), **expected}
                    truths.append({name: place[name] for name in ("task", "setting", "number", "seed")} | true)
    drawn = int(rng.integers(2**31))
    tables = {
        "settings": setting_rows(n_settings),
        "comparison_sign_flips": sign_flips(n_rows, drawn),
        # Boundaries are judged over six seeds and more.
        "row_draws": row_draws(n_rows, drawn).slice(0, 1 + N_DRAWS if n_seeds >= _FEWEST_SEEDS else 0),
        "run_settings": RUN_SETTINGS.rows([{"model": "simulated", "seed": 0, "predict": ["likelihood"]}]),
    }
    return Simulated(pa.concat_tables(predictions), pa.Table.from_pylist(truths), tables)


def mean_scores(model: Behaviour, share_yes: float, luck: float) -> Floats:
    """Return the mean scores of rows whose gold label is ``no``, and ``yes``.

    Args:
        model: how it answers.
        share_yes: of the demonstrations.
        luck: with a draw of them, in probits of knowledge.
    """
    return replace(model, knowledge=model.knowledge + luck).scores([0, 1], share_yes, 0.5)


def expected_values(model: Behaviour, share_yes: float) -> dict[str, float]:
    """Return accuracy and weighted F1 of endless rows behind any demonstrations with such a share of ``yes``."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    scores = [mean_scores(model, share_yes, _LUCK * node) for node in nodes]
    return {
        name: float(weights @ [true(each) for each in scores] / weights.sum())
        for name, true in (("expected_accuracy", true_accuracy), ("expected_f1", true_f1))
    }


def judge(simulated: Simulated) -> pa.Table:
    """Return what the comparison says of pairs of simulated runs, beside the truth: rows of `OUTCOMES`."""
    predictions = {"majority_predictions": simulated.predictions}
    by_setting = outcomes("majority_bias", predictions, (), {"majority_by_setting": BY_SETTING})
    of_run = {name: table for name, table in simulated.tables.items() if name != "comparison_sign_flips"}
    read = of_runs()
    tables = outcomes("majority_bias", {**predictions, **by_setting, **of_run}, _READ, read)
    tables |= {**simulated.tables, "majority_draws_by_model": _boundaries(simulated), "truths": simulated.truths}
    found = outcomes("majority_bias", tables, ("majority_bias_comparison", "setting_regions"), COMPARED)
    return pa.concat_tables([table.select(OUTCOMES.names).cast(OUTCOMES) for table in found.values()])


_READ = ("majority_row_values", "majority_draw_values", "majority_seed_boundaries")
"""Relations that comparisons read of runs, beside the answers; these may be made of all runs at once."""


def _boundaries(simulated: Simulated) -> pa.Table:
    """Return RB@10 over resamples of the rows, which are those of one pair of runs."""
    given = {name: simulated.tables[name] for name in ("settings", "run_settings", "row_draws")}
    asked = {"boundaries": "select task as run, * exclude (model, task) from majority_draws_by_model"}
    pairs = pc.unique(pc.utf8_slice_codeunits(simulated.predictions["task"], 0, -1)).to_pylist()
    found = []
    for pair in pairs if given["row_draws"].num_rows else pairs[:1]:
        own = simulated.predictions.filter(pc.starts_with(simulated.predictions["task"], pair))
        tables = {**given, "majority_predictions": own}
        found.append(outcomes("majority_bias", tables, ["majority_draws_by_model"], asked)["boundaries"])
    return pa.concat_tables(found)
