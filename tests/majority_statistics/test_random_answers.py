"""Random answers: pseudo-values, components and errors, by NumPy and scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]
from sklearn.metrics import f1_score

from tests.majority_statistics.tables import Floats
from tests.majorityplans import ANSWERS, DEMOS, SEEDS, MajorityPlan, rows
from tests.measuring import measure

Answered = tuple[str, dict[tuple[Any, ...], list[str]], list[str]]
"""A run, its answers by setting, instruction and seed, and its gold labels."""


@pytest.fixture(scope="module")
def answered(
    tmp_path_factory: pytest.TempPathFactory,
) -> Answered:
    """Return a run of 24 rows with random outputs of free generation, its answers by place and its gold labels."""
    gold = "TTTFTFFTTTFTFTTFTTFFTFTT"
    rng = np.random.default_rng(3)
    answers: dict[tuple[str, bool], tuple[str, str]] = {
        place: tuple("".join(rng.choice(list("TTF-"), size=len(gold))) for _ in SEEDS)  # type: ignore[misc]
        for place in ANSWERS
    }
    plan = MajorityPlan(("generate",), answers=answers, golds=gold)
    run = plan.write(tmp_path_factory.mktemp("runs") / "random")
    measure(run)
    by_id = {row["prompt_id"]: row["prediction"] or "none" for row in plan.generations}
    found = {
        (setting, instruction, seed): [by_id[f"{setting}/{seed}/{instruction}/{row}"] for row in range(len(gold))]
        for setting, instruction in answers
        for seed in SEEDS
    }
    return run, found, [{"T": "True", "F": "False"}[each] for each in gold]


def _weighted(gold: Sequence[str], answers: Sequence[str], weights: Floats) -> float:
    return float(f1_score(gold, answers, average="weighted", zero_division=0, sample_weight=weights))


def _metrics(
    answers: dict[tuple[Any, ...], list[str]], gold: Sequence[str], weights: Floats, *, instruction: bool
) -> dict[str, float]:
    f1s = np.array(
        [[_weighted(gold, answers[setting, instruction, seed], weights) for seed in SEEDS] for setting in DEMOS]
    ).mean(axis=1)
    return {
        "mean_f1": f1s.mean(),
        "sd_f1": f1s.std(ddof=1),
        "tails_f1": f1s[[0, 2]].mean(),
        "middle_f1": f1s[1],
    }


def test_pseudo_values_are_the_metric_and_its_derivative_by_a_rows_weight(
    answered: Answered,
) -> None:
    run, answers, gold = answered
    stored = {
        (row["instruction"], row["metric"], row["row"]): row["value"] for row in rows(run, "from majority_row_values")
    }
    n_rows = len(gold)
    assert len(stored) == 2 * 4 * n_rows
    step = 1e-5
    for instruction in (False, True):
        here = _metrics(answers, gold, np.ones(n_rows), instruction=instruction)
        for metric, value in here.items():
            mean = np.mean([stored[instruction, metric, row] for row in range(n_rows)])
            assert mean == pytest.approx(value, abs=1e-12)
        for row in range(0, n_rows, 3):
            up, down = np.ones(n_rows), np.ones(n_rows)
            up[row], down[row] = 1 + step, 1 - step
            above, below = (_metrics(answers, gold, weights, instruction=instruction) for weights in (up, down))
            for metric, value in here.items():
                expected = value + n_rows * (above[metric] - below[metric]) / (2 * step)
                assert stored[instruction, metric, row] == pytest.approx(expected, abs=1e-6), (metric, row)


def test_the_instructions_gap_is_tested_on_the_rows_pseudo_values(
    answered: Answered,
) -> None:
    run, _, gold = answered
    stored = rows(run, "from majority_row_values where metric = 'tails_f1' order by row")
    values = {
        instruction: np.array([row["value"] for row in stored if row["instruction"] is instruction])
        for instruction in (False, True)
    }
    differences = values[True] - values[False]
    [row] = rows(run, "from majority_verdicts where metric = 'tails_f1'")
    [gap] = rows(run, "from majority_instruction_gap where region = 'tails'")
    assert (row["instruction"], row["against_instruction"], row["unit"], row["n_units"]) == (
        True,
        False,
        "row",
        len(gold),
    )
    assert row["estimate"] == pytest.approx(gap["gap"], abs=1e-12)
    assert row["standard_error"] == pytest.approx(stats.sem(differences))
    low, high = stats.t.interval(0.95, len(gold) - 1, row["estimate"], row["standard_error"])
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-5)
    exact = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=20_000, random_state=0
    )
    assert row["p"] == pytest.approx(exact.pvalue, abs=0.03)


def test_components_are_those_of_an_analysis_of_variance(
    answered: Answered,
) -> None:
    run, answers, gold = answered
    n_rows = len(gold)
    for row in rows(run, "from majority_components"):
        f1s = np.array(
            [
                [_weighted(gold, answers[setting, row["instruction"], seed], np.ones(n_rows)) for seed in SEEDS]
                for setting in DEMOS
            ]
        )
        between = len(SEEDS) * f1s.mean(axis=1).var(ddof=1)
        within = f1s.var(axis=1, ddof=1).mean()
        assert row["var_seeds"] == pytest.approx(within)
        assert row["var_settings"] == pytest.approx(max(0, (between - within) / len(SEEDS)))
        assert row["sd_f1_corrected"] == pytest.approx(np.sqrt(row["var_settings"]))
        # Half a bootstrap variance of single settings, which is rough for 24 rows.
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=400).astype(float)
        place = ("0/100", row["instruction"], SEEDS[0])
        resampled = np.var([_weighted(gold, answers[place], weights) for weights in drawn])
        assert 0.4 * resampled < row["var_rows"] < 2.5 * resampled
        assert (row["n_settings"], row["n_seeds"], row["n_rows"]) == (3, 2, 6 * n_rows)


def test_errors_over_draws_are_those_of_means_over_seeds_within_settings(answered: Answered) -> None:
    run, answers, gold = answered
    [row] = rows(run, "from majority_draw_errors where metric = 'tails_f1'")
    f1s = {place: _weighted(gold, given, np.ones(len(gold))) for place, given in answers.items()}
    differences = np.array(
        [[f1s[setting, True, seed] - f1s[setting, False, seed] for seed in SEEDS] for setting in ("0/100", "100/0")]
    )
    variances = differences.var(axis=1, ddof=1) / len(SEEDS) / 2**2
    assert row["error_draws"] == pytest.approx(np.sqrt(variances.sum()))
    assert row["draws_df"] == pytest.approx(variances.sum() ** 2 / np.sum(variances**2))
    assert row["n_seeds"] == len(SEEDS)
    [verdict] = rows(run, "from majority_verdicts where metric = 'tails_f1'")
    error = np.hypot(verdict["standard_error"], row["error_draws"])
    parts = verdict["standard_error"] ** 4 / (len(gold) - 1) + row["error_draws"] ** 4 / row["draws_df"]
    expected = 2 * stats.t.sf(abs(verdict["estimate"]) / error, error**4 / parts)
    assert verdict["p_both"] == pytest.approx(expected, rel=0.03)
    widening = error / verdict["standard_error"]
    reach = verdict["simultaneous_high"] - verdict["estimate"]
    assert verdict["both_high"] - verdict["estimate"] == pytest.approx(reach * widening)
