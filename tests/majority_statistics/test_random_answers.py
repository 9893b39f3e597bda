"""Random answers: pseudo-values, components and errors, by NumPy and scikit-learn."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]
from sklearn.metrics import f1_score

from tests.majority_statistics.tables import Floats
from tests.majorityplans import ANSWERS, DEMOS, SEEDS, TEXT, MajorityPlan
from tests.relation import Relations

GOLD = "TTTFTFFTTTFTFTTFTTFFTFTT"
N_ROWS = len(GOLD)


class Answered(NamedTuple):
    """A run of 24 rows with random outputs of free generation, and its answers by setting, instruction and seed."""

    run: Relations
    answers: dict[tuple[str, bool, int], list[str]]

    def f1s(self, weights: Floats, *, instruction: bool) -> Floats:
        """Return weighted F1 by setting and seed, of rows with weights."""
        gold = [TEXT[each] for each in GOLD]
        how: dict[str, Any] = {"average": "weighted", "zero_division": 0, "sample_weight": weights}
        answers = ((self.answers[setting, instruction, seed] for seed in SEEDS) for setting in DEMOS)
        return np.array([[f1_score(gold, given, **how) for given in of_seeds] for of_seeds in answers])

    def metrics(self, weights: Floats, *, instruction: bool) -> dict[str, float]:
        f1s = self.f1s(weights, instruction=instruction).mean(axis=1)
        tails, middle = f1s[[0, 2]].mean(), f1s[1]
        return {"mean_f1": f1s.mean(), "sd_f1": f1s.std(ddof=1), "tails_f1": tails, "middle_f1": middle}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    rng = np.random.default_rng(3)
    answers: dict[tuple[str, bool], tuple[str, str]] = {
        place: tuple("".join(rng.choice(list("TTF-"), size=N_ROWS)) for _ in SEEDS)  # type: ignore[misc]
        for place in ANSWERS
    }
    plan = MajorityPlan(("generate",), answers=answers, golds=GOLD)
    by_id = {row["prompt_id"]: row["prediction"] or "none" for row in plan.generations}
    found = {
        (setting, instruction, seed): [by_id[f"{setting}/{seed}/{instruction}/{row}"] for row in range(N_ROWS)]
        for setting, instruction in answers
        for seed in SEEDS
    }
    return Answered(plan.relations(tmp_path_factory.mktemp("runs")), found)


def test_pseudo_values_are_the_metric_and_its_derivative_by_a_rows_weight(answered: Answered) -> None:
    found = answered.run.rows("from majority_row_values")
    stored = {(row["instruction"], row["metric"], row["row"]): row["value"] for row in found}
    assert len(stored) == 2 * 4 * N_ROWS
    step = 1e-5
    for instruction in (False, True):
        here = answered.metrics(np.ones(N_ROWS), instruction=instruction)
        for metric, value in here.items():
            mean = np.mean([stored[instruction, metric, row] for row in range(N_ROWS)])
            assert mean == pytest.approx(value, abs=1e-12)
        for row in range(0, N_ROWS, 4):
            up, down = np.ones(N_ROWS), np.ones(N_ROWS)
            up[row], down[row] = 1 + step, 1 - step
            above, below = (answered.metrics(weights, instruction=instruction) for weights in (up, down))
            for metric, value in here.items():
                expected = value + N_ROWS * (above[metric] - below[metric]) / (2 * step)
                assert stored[instruction, metric, row] == pytest.approx(expected, abs=1e-6), (metric, row)


def test_the_instructions_gap_is_tested_on_the_rows_pseudo_values(answered: Answered) -> None:
    stored = answered.run.rows("from majority_row_values where metric = 'tails_f1' order by row")
    values = [np.array([row["value"] for row in stored if row["instruction"] is one]) for one in (False, True)]
    differences = values[1] - values[0]
    [row] = answered.run.rows("from majority_verdicts where metric = 'tails_f1'")
    [gap] = answered.run.rows("from majority_instruction_gap where region = 'tails'")
    assert [row[name] for name in ("instruction", "against_instruction", "unit", "n_units")] == [True, False, "row", 24]
    assert row["estimate"] == pytest.approx(gap["gap"], abs=1e-12)
    assert row["standard_error"] == pytest.approx(stats.sem(differences))
    bounds = stats.t.interval(0.95, N_ROWS - 1, row["estimate"], row["standard_error"])
    assert (row["low"], row["high"]) == pytest.approx(bounds, abs=1e-5)
    how: dict[str, Any] = {"permutation_type": "samples", "n_resamples": 20_000, "random_state": 0}
    exact = stats.permutation_test((differences,), np.mean, **how)
    assert row["p"] == pytest.approx(exact.pvalue, abs=0.03)


def test_components_are_those_of_an_analysis_of_variance(answered: Answered) -> None:
    drawn = np.random.default_rng(0).multinomial(N_ROWS, np.full(N_ROWS, 1 / N_ROWS), size=100).astype(float)
    for row in answered.run.rows("from majority_components"):
        instruction = row["instruction"]
        f1s = answered.f1s(np.ones(N_ROWS), instruction=instruction)
        between, within = len(SEEDS) * f1s.mean(axis=1).var(ddof=1), f1s.var(axis=1, ddof=1).mean()
        assert row["var_seeds"] == pytest.approx(within)
        assert row["var_settings"] == pytest.approx(max(0, (between - within) / len(SEEDS)))
        assert row["sd_f1_corrected"] == pytest.approx(np.sqrt(row["var_settings"]))
        # Half a bootstrap variance of single settings, which is rough for 24 rows.
        resampled = np.var([answered.f1s(weights, instruction=instruction)[0, 0] for weights in drawn])
        assert 0.4 * resampled < row["var_rows"] < 2.5 * resampled
        assert (row["n_settings"], row["n_seeds"], row["n_rows"]) == (3, 2, 6 * N_ROWS)


def test_errors_over_draws_are_those_of_means_over_seeds_within_settings(answered: Answered) -> None:
    [row] = answered.run.rows("from majority_draw_errors where metric = 'tails_f1'")
    f1s = [answered.f1s(np.ones(N_ROWS), instruction=instruction) for instruction in (False, True)]
    variances = (f1s[1] - f1s[0])[[0, 2]].var(axis=1, ddof=1) / len(SEEDS) / 2**2
    assert row["error_draws"] == pytest.approx(np.sqrt(variances.sum()))
    assert row["draws_df"] == pytest.approx(variances.sum() ** 2 / np.sum(variances**2))
    assert row["n_seeds"] == len(SEEDS)
    [verdict] = answered.run.rows("from majority_verdicts where metric = 'tails_f1'")
    error = np.hypot(verdict["standard_error"], row["error_draws"])
    parts = verdict["standard_error"] ** 4 / (N_ROWS - 1) + row["error_draws"] ** 4 / row["draws_df"]
    expected = 2 * stats.t.sf(abs(verdict["estimate"]) / error, error**4 / parts)
    assert verdict["p_both"] == pytest.approx(expected, rel=0.03)
    reach = (verdict["simultaneous_high"] - verdict["estimate"]) * error / verdict["standard_error"]
    assert verdict["both_high"] - verdict["estimate"] == pytest.approx(reach)
