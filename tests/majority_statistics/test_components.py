"""Random answers, verdicts and the effect of proportions."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]
from sklearn.metrics import f1_score

from tests.handmade import ask, made
from tests.majority_statistics.tables import PLACE, Floats
from tests.majorityplans import ANSWERS, DEMOS, SEEDS, TEXT, MajorityPlan, Rows
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


def test_two_rows_have_a_variance(tmp_path: Path) -> None:
    answers: dict[tuple[str, bool], tuple[str, str]] = dict.fromkeys(ANSWERS, ("TT", "TF"))
    run = MajorityPlan(("generate",), answers=answers, golds="TF").relations(tmp_path)
    values = run.rows("from majority_pattern_values where instruction order by number, seed")
    by_set: dict[tuple[int, int], list[float]] = {}
    for row in values:
        by_set.setdefault((row["number"], row["seed"]), []).extend([row["value"]] * row["n_rows"])
    [found] = run.rows("select var_rows from majority_components where instruction")
    assert found["var_rows"] == pytest.approx(np.mean([np.var(own, ddof=1) / 2 for own in by_set.values()]))
    assert found["var_rows"] > 0


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


def _f1_tables(f1s: Floats, n_draws: int = 2000) -> dict[str, Rows]:
    """Return what ``majority_components`` reads, for F1 of [method, setting, seed], with its own permutations."""
    _, n_settings, n_seeds = f1s.shape
    indices = np.ndindex(f1s.shape)
    places = [{**PLACE, "method": f"m{method}", "number": number, "seed": seed} for method, number, seed in indices]
    f1_of = zip(places, f1s.ravel().tolist(), strict=True)
    outputs = [
        {"gold": "a", "prediction": given, "n_rows": 50, "value": value} for given, value in (("a", 1.0), ("b", 0.0))
    ]
    rng, same = np.random.default_rng(0), list(range(n_settings))
    orders = [
        {"draw": draw, "seed": seed, "numbers": rng.permutation(n_settings).tolist() if draw else same}
        for draw, seed in np.ndindex(n_draws, n_seeds)
    ]
    return {
        "majority_by_setting": [{"model": "m", **place, "weighted_f1": f1, "n_rows": 100} for place, f1 in f1_of],
        "majority_pattern_values": [{**place, **output} for place in places for output in outputs],
        "setting_permutations": orders,
    }


def test_the_p_of_proportions_is_the_share_of_orders_with_as_large_a_variance() -> None:
    f1s = np.random.default_rng(1).normal(0.6, 0.05, size=(4, 5, 3)) + np.linspace(0, 0.06, 5)[:, None]
    tables = _f1_tables(f1s, n_draws=500)
    orders = np.array([row["numbers"] for row in tables["setting_permutations"]]).reshape(500, 3, 5)
    found = made("majority_components", **tables)
    assert [row["method"] for row in found] == ["m0", "m1", "m2", "m3"]
    for row, of_method in zip(found, f1s, strict=True):
        variances = np.array(
            [np.mean([of_method[order[seed], seed] for seed in range(3)], axis=0).var() for order in orders]
        )
        assert row["proportions_p"] == pytest.approx(np.mean(variances >= variances[0] - 1e-12))
        assert row["proportions_p_adjusted"] == pytest.approx(min(1, 4 * row["proportions_p"]))
        # 100 rows, half of which have the pseudo-value 1 and half 0.
        assert row["var_rows"] == pytest.approx(0.25 / 99)


@pytest.mark.parametrize("sizes", [(3, 2, 1), (4, 2, 1), (1, 5, 1), (5, 1, 1), (5, 2, 4)])
def test_few_orders_show_no_effect_of_proportions(sizes: tuple[int, int, int]) -> None:
    call = "visible_settings(0.01, ?, ?, ?), visible_settings(0.01, 11, 5, 0), visible_settings(0, 11, 5, 1)"
    assert ask(call, *sizes) == (None, None, 0.0)


@pytest.mark.parametrize(("tail", "df", "error_df"), [(0.05, 4, 16), (0.05, 10, 40), (0.8, 6.3, 8), (0.006, 65, 260)])
def test_quantiles_of_f_are_those_of_scipy(tail: float, df: float, error_df: float) -> None:
    found = ask("f_quantile(?, ?, ?)", float(stats.norm.isf(tail)), df, error_df)
    assert found == pytest.approx(stats.f.isf(tail, df, error_df), rel=0.01)


def test_one_seed_cannot_tell_proportions_from_the_draw() -> None:
    f1s = np.random.default_rng(5).normal(0.6, 0.05, size=(1, 11, 1))
    [row] = made("majority_components", **_f1_tables(f1s, n_draws=100))
    names = ("proportions_p", "proportions_p_adjusted", "sd_f1_corrected", "var_settings", "var_seeds")
    assert [row[name] for name in (*names, "sd_f1_smallest_detectable")] == [None] * 6
    assert row["var_rows"] is not None
