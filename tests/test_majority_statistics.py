"""What numbers of majority-label bias may be said to show, against known truths and independent oracles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]
from sklearn.metrics import f1_score

from biaseval.analysis import relations
from biaseval.analysis.sign_flips import sign_flips
from biaseval.pipelines import write_report
from biaseval.report.majority import render_majority_page
from biaseval.report.majority_findings import read_majority_findings
from biaseval.store import Run
from tests.majority_report.runs import make_run
from tests.majorityplans import ANSWERS, DEMOS, SEEDS, MajorityPlan, Rows, rows
from tests.measuring import measure
from tests.pages import Page

Floats = npt.NDArray[np.float64]

Answered = tuple[str, dict[tuple[Any, ...], list[str]], list[str]]
"""A run, its answers by setting, instruction and seed, and its gold labels."""

PLACE = {"task": "boolq", "n_demos": 10, "instruction": True, "predict": "likelihood"}


def computed(layer: str, name: str, **tables: pa.Table) -> Rows:
    """Return the rows of a file of ``analytics`` over tables written for it."""
    with closing(relations.connect([])) as connection:
        for table, content in tables.items():
            connection.from_arrow(content).create(table)
        found: Rows = (
            connection.sql((relations.ANALYTICS / layer / f"{name}.sql").read_text()).to_arrow_table().to_pylist()
        )
    return found


# Random answers: pseudo-values and components, by NumPy and scikit-learn


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


# Do proportions matter at all?


def _f1_tables(f1s: Floats, n_draws: int = 2000) -> dict[str, pa.Table]:
    """Return what ``majority_components`` reads, for F1 of [method, setting, seed], with its own permutations."""
    n_methods, n_settings, n_seeds = f1s.shape
    places = [
        {**PLACE, "method": f"m{method}", "number": number, "seed": seed}
        for method in range(n_methods)
        for number in range(n_settings)
        for seed in range(n_seeds)
    ]
    by_setting = [
        {"model": "m", **place, "weighted_f1": float(f1), "n_rows": 100}
        for place, f1 in zip(places, f1s.ravel(), strict=True)
    ]
    patterns = [
        {**place, "gold": "a", "prediction": given, "n_rows": 50, "value": value}
        for place in places
        for given, value in (("a", 1.0), ("b", 0.0))
    ]
    rng = np.random.default_rng(0)
    orders = [
        {"draw": draw, "seed": seed, "numbers": list(range(n_settings)) if draw == 0 else rng.permutation(n_settings)}
        for draw in range(n_draws)
        for seed in range(n_seeds)
    ]
    return {
        "majority_by_setting": pa.Table.from_pylist(by_setting),
        "majority_pattern_values": pa.Table.from_pylist(patterns),
        "setting_permutations": pa.Table.from_pylist(orders),
    }


def test_the_p_of_proportions_is_the_share_of_orders_with_as_large_a_variance() -> None:
    f1s = np.random.default_rng(1).normal(0.6, 0.05, size=(4, 5, 3)) + np.linspace(0, 0.06, 5)[:, None]
    tables = _f1_tables(f1s, n_draws=500)
    orders = np.array(tables["setting_permutations"]["numbers"].to_pylist()).reshape(500, 3, 5)
    found = computed("marts", "majority_components", **tables)
    assert [row["method"] for row in found] == ["m0", "m1", "m2", "m3"]
    for row, of_method in zip(found, f1s, strict=True):
        variances = np.array(
            [np.mean([of_method[order[seed], seed] for seed in range(3)], axis=0).var() for order in orders]
        )
        assert row["proportions_p"] == pytest.approx(np.mean(variances >= variances[0] - 1e-12))
        assert row["proportions_p_adjusted"] == pytest.approx(min(1, 4 * row["proportions_p"]))
        # 100 rows, half of which have the pseudo-value 1 and half 0.
        assert row["var_rows"] == pytest.approx(0.25 / 99)


def test_where_settings_do_not_matter_the_p_of_proportions_is_uniform() -> None:
    n_runs = 400
    f1s = np.random.default_rng(2).normal(0.6, 0.08, size=(n_runs, 11, 5))
    found = computed("marts", "majority_components", **_f1_tables(f1s, n_draws=300))
    p = np.array([row["proportions_p"] for row in found])
    assert len(p) == n_runs
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert np.mean(p <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_runs)
    # sd over settings is that of means of five draws, and the corrected one near 0.
    corrected = np.array([row["sd_f1_corrected"] for row in found])
    assert np.mean(corrected**2) < 0.25 * 0.08**2 / 5 * 2
    assert f1s.mean(axis=2).std(axis=1, ddof=1).mean() == pytest.approx(0.08 / np.sqrt(5), rel=0.1)


def test_planted_differences_of_settings_are_found_with_their_standard_deviation() -> None:
    planted = np.linspace(-0.15, 0.15, 11)
    f1s = np.random.default_rng(4).normal(0.6, 0.05, size=(100, 11, 5)) + planted[:, None]
    found = computed("marts", "majority_components", **_f1_tables(f1s, n_draws=300))
    assert max(row["proportions_p"] for row in found) < 0.05
    assert np.mean([row["var_settings"] for row in found]) == pytest.approx(planted.var(ddof=1), rel=0.05)
    assert np.mean([row["var_seeds"] for row in found]) == pytest.approx(0.05**2, rel=0.05)


def test_one_seed_cannot_tell_proportions_from_the_draw() -> None:
    f1s = np.random.default_rng(5).normal(0.6, 0.05, size=(1, 11, 1))
    [row] = computed("marts", "majority_components", **_f1_tables(f1s, n_draws=100))
    for name in ("proportions_p", "proportions_p_adjusted", "sd_f1_corrected", "var_settings", "var_seeds"):
        assert row[name] is None, name
    assert row["var_rows"] is not None


def test_settings_are_exchanged_within_each_seed_in_stored_orders(tmp_path: Path) -> None:
    run = MajorityPlan(("likelihood",)).write(tmp_path)
    measure(run)
    found = rows(run, "from setting_permutations order by draw, seed")
    assert len(found) == 2000 * 2
    assert [row["numbers"] for row in found[:2]] == [[0, 1, 2]] * 2
    assert {tuple(sorted(row["numbers"])) for row in found} == {(0, 1, 2)}
    assert {row["seed"] for row in found} == set(SEEDS)
    orders = {seed: [tuple(row["numbers"]) for row in found if row["seed"] == seed] for seed in SEEDS}
    counts = {order: orders[3].count(order) for order in set(orders[3])}
    assert len(counts) == 6
    assert max(counts.values()) < 1.2 * 2000 / 6
    assert orders[3] != orders[5]
    # A sign for each of the four test rows.
    assert {len(row["signs"]) for row in rows(run, "from sign_flips")} == {4}


# What predictions follow


def _followed(
    effect: float, recency: float, noise: float, n_runs: int, n_seeds: int = 5, n_rows: int = 400, of_rows: float = 0.0
) -> dict[str, pa.Table]:
    """Return predictions of two labels and their shares over eleven settings; the last demonstration is drawn by these.

    Args:
        effect: the slope of a label's share of the predictions on its share of the demonstrations.
        recency: what the last demonstration adds.
        noise: standard deviation of a setting and seed.
        n_runs: as many methods.
        n_seeds: of demonstrations.
        n_rows: test rows.
        of_rows: standard deviation over rows of their own slope, the same with all seeds.
    """
    rng = np.random.default_rng(6)
    shares, predictions = [], []
    for method in range(n_runs):
        slopes = effect + of_rows * rng.standard_normal(n_rows)
        # A row says what it does wherever chances are the same, so that shares of the predictions are near their mean.
        levels = rng.permuted((np.arange(n_rows) + 0.5) / n_rows)
        for seed in range(n_seeds):
            for number, shown in enumerate(np.linspace(0, 1, 11)):
                is_last = bool(rng.random() < shown)
                center = 0.5 + recency * (is_last - 0.5) + rng.normal(0, noise)
                says_a = levels < center + slopes * (shown - 0.5)
                place = {**PLACE, "method": f"m{method}", "setting": f"{number}", "number": number, "seed": seed}
                for label, own, last, given in (
                    ("a", shown, is_last, says_a.mean()),
                    ("b", 1 - shown, not is_last, 1 - says_a.mean()),
                ):
                    shares.append(
                        {**place, "label": label, "share_shown": own, "is_last": last, "share_predicted": float(given)}
                    )
                of_place = {name: pa.array([value] * n_rows) for name, value in place.items()}
                told = pa.array(np.where(says_a, "a", "b"))
                predictions.append(pa.table({**of_place, "row": np.arange(n_rows), "prediction": told}))
    return {
        "majority_label_shares": pa.Table.from_pylist(shares),
        "majority_predictions": pa.concat_tables(predictions),
    }


FOLLOWING = ("majority_effect", "recency", "recency_at_equal_shares")


def test_planted_majority_and_recency_effects_are_recovered() -> None:
    [row] = computed("intermediate", "majority_following", **_followed(0.4, 0.2, 0.0, 1))
    assert row["recency_at_equal_shares"] == pytest.approx(0.2, abs=0.005)
    assert row["recency_at_equal_shares_low"] == pytest.approx(0.2, abs=0.05)
    # The last label goes with the proportions, so either slope alone has some of the other.
    assert row["majority_effect"] > 0.4
    assert row["recency"] > 0.2
    [row] = computed("intermediate", "majority_following", **_followed(0.4, 0.0, 0.0, 1))
    assert row["majority_effect"] == pytest.approx(0.4, abs=0.005)
    assert row["recency_at_equal_shares"] == pytest.approx(0, abs=0.005)


def _least_squares(y: Floats, x: Floats, z: Floats) -> tuple[float, float, float]:
    """Return the slope of y on x, the difference of y by z, and the slope on z with both."""
    both = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x, z]), y, rcond=None)[0]
    return float(stats.linregress(x, y).slope), float(y[z == 1].mean() - y[z == 0].mean()), float(both[2])


def test_majority_and_recency_effects_are_least_squares_of_each_seed_with_the_errors_of_seeds_and_rows() -> None:
    n_rows = 30
    tables = _followed(0.3, 0.1, 0.05, 1, n_seeds=4, n_rows=n_rows, of_rows=0.5)
    [row] = computed("intermediate", "majority_following", **tables)
    of_seeds, of_rows = [], np.zeros((n_rows, 3))
    answers = tables["majority_predictions"].to_pylist()
    for seed in range(4):
        own = [
            each
            for each in tables["majority_label_shares"].to_pylist()
            if each["seed"] == seed and each["label"] == "a"
        ]
        y, x, z = (
            np.array([float(each[name]) for each in own]) for name in ("share_predicted", "share_shown", "is_last")
        )
        of_seeds.append(_least_squares(y, x, z))
        says_a = np.array([each["prediction"] == "a" for each in answers if each["seed"] == seed]).reshape(11, n_rows)
        of_rows += [np.array(_least_squares(given.astype(float), x, z)) / 4 for given in says_a.T]
    for name, by_seed, by_row in zip(FOLLOWING, np.array(of_seeds).T, of_rows.T, strict=True):
        assert row[name] == pytest.approx(by_seed.mean())
        assert row[name] == pytest.approx(by_row.mean())
        errors = stats.sem(by_seed), stats.sem(by_row)
        error = np.hypot(*errors)
        df = error**4 / (errors[0] ** 4 / 3 + errors[1] ** 4 / (n_rows - 1))
        # Below 10 the quantile is that of the whole degrees of freedom.
        low, high = stats.t.interval(0.95, np.floor(df) if df < 10 else df, by_seed.mean(), error)
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx((low, high), abs=2e-5), name


def test_three_labels_and_outputs_that_are_no_label_have_the_mean_effect_of_the_labels_on_each_row() -> None:
    rng = np.random.default_rng(8)
    labels, n_rows, n_seeds, n_settings = ("a", "b", "c"), 12, 3, 6
    shown = rng.dirichlet([1, 1, 1], size=n_settings)
    told = rng.choice(["a", "b", "c", None], size=(n_seeds, n_settings, n_rows), p=[0.4, 0.3, 0.2, 0.1])
    last = rng.choice(labels, size=(n_seeds, n_settings))
    last[:, 0], last[:, 1] = "a", "b"
    last[0][last[0] == "c"] = "a"  # so that c is never last with the first seed, and left out of recency there
    shares, predictions = [], []
    slopes = np.full((n_seeds, 3, n_rows), np.nan)
    contrasts = slopes.copy()
    for seed in range(n_seeds):
        for number in range(n_settings):
            place = {**PLACE, "method": "none", "setting": f"{number}", "number": number, "seed": seed}
            given = told[seed, number]
            predictions += [{**place, "row": row, "prediction": each} for row, each in enumerate(given)]
            shares += [
                {
                    **place,
                    "label": label,
                    "share_shown": float(shown[number, place_of_label]),
                    "is_last": bool(last[seed, number] == label),
                    "share_predicted": float(np.mean(given == label)),
                }
                for place_of_label, label in enumerate(labels)
            ]
        for place_of_label, label in enumerate(labels):
            is_last = last[seed] == label
            for row in range(n_rows):
                says = (told[seed, :, row] == label).astype(float)
                slopes[seed, place_of_label, row] = stats.linregress(shown[:, place_of_label], says).slope
                if 0 < is_last.sum() < n_settings:
                    contrasts[seed, place_of_label, row] = says[is_last].mean() - says[~is_last].mean()
    assert np.isnan(contrasts).any()
    [found] = computed(
        "intermediate",
        "majority_following",
        majority_label_shares=pa.Table.from_pylist(shares),
        majority_predictions=pa.Table.from_pylist(predictions),
    )
    for name, values in (("majority_effect", slopes), ("recency", contrasts)):
        of_seed_and_row = np.nanmean(values, axis=1)
        by_seed, by_row = of_seed_and_row.mean(axis=1), of_seed_and_row.mean(axis=0)
        errors = stats.sem(by_seed), stats.sem(by_row)
        error = np.hypot(*errors)
        df = error**4 / (errors[0] ** 4 / (n_seeds - 1) + errors[1] ** 4 / (n_rows - 1))
        quantile = stats.t.ppf(0.975, np.floor(df) if df < 10 else df)
        assert found[name] == pytest.approx(by_row.mean())
        assert found[f"{name}_high"] - found[name] == pytest.approx(quantile * error, abs=1e-4), name


def test_intervals_of_what_is_followed_hold_the_planted_effects_in_95_percent() -> None:
    n_runs = 300
    # In the middle, so that no chance is below 0 or above 1.
    found = computed("intermediate", "majority_following", **_followed(0.3, 0.15, 0.05, n_runs, n_rows=40, of_rows=0.2))
    bound = 3 * np.sqrt(0.95 * 0.05 / n_runs)
    for name, truth in (("majority_effect", None), ("recency_at_equal_shares", 0.15)):
        # Alone, the slope on proportions has what the last demonstration adds too: its truth is the mean.
        true = np.mean([row[name] for row in found]) if truth is None else truth
        covered = np.mean([row[f"{name}_low"] <= true <= row[f"{name}_high"] for row in found])
        assert 0.95 - bound <= covered <= 0.95 + 0.035 + bound, name


def test_one_seed_or_one_row_has_effects_without_interval() -> None:
    for sizes in ({"n_seeds": 1}, {"n_seeds": 3, "n_rows": 1}):
        [row] = computed("intermediate", "majority_following", **_followed(0.4, 0.2, 0.0, 1, **sizes))
        assert row["majority_effect"] is not None
        assert [row[name] for name in row if name.endswith(("_low", "_high"))] == [None] * 6


def test_recency_of_a_setting_is_over_the_seeds_that_differ_in_the_last_label(tmp_path: Path) -> None:
    """In 50/50 the last demonstration is False with seed 3 and True with seed 5; True has 2/4 and 3/4."""
    run = MajorityPlan(("likelihood",)).write(tmp_path)
    measure(run)
    found = {row["setting"]: row["recency"] for row in rows(run, "from majority_over_seeds where not instruction")}
    assert found == {"0/100": None, "50/50": pytest.approx(3 / 4 - 2 / 4), "100/0": None}


# Verdicts


def _verdicts(
    changes: Sequence[float],
    rows_interval: tuple[float, float] = (0.05, 0.5),
    model: dict[str, bool] | None = None,
    n_seeds: int = 8,
) -> dict[str, dict[str, Any]]:
    """Return the verdicts on looc against none by metric, where RB@10 changes by so much of ten settings in each seed.

    Args:
        changes: by seed, in tenths.
        rows_interval: of the difference over resamples of the rows.
        model: columns of ``majority_by_model`` of looc that differ from those of none.
        n_seeds: that tell what draws of demonstrations change of the mean.
    """
    by_setting, row_values, draws = [], [], []
    for method in ("none", "looc"):
        for seed, change in enumerate(changes):
            n_inside = 5 + (round(10 * change) if method == "looc" else 0)
            by_setting += [
                {"model": "m", **PLACE, "method": method, "setting": f"{number}", "number": number, "seed": seed}
                | {"weighted_f1": 0.9 if number < n_inside else 0.5}
                for number in range(10)
            ]
        row_values += [
            {**PLACE, "method": method, "metric": "mean_f1", "row": row, "value": 0.5 + (row % 2) + change * (row % 3)}
            for change in [0.01 * (method == "looc")]
            for row in range(50)
        ]
        estimate = float(np.mean(changes))
        of_draws = [estimate, *np.linspace(*rows_interval, 201)]
        draws += [
            {"model": "m", **PLACE, "method": method, "draw": draw, "rb_at_10": 0.3 + value * (method == "looc")}
            for draw, value in enumerate(of_draws)
        ]
    pair = {**PLACE, "against_instruction": True, "method": "looc", "against_method": "none"}
    plain = {"model": "m", **PLACE, "method": "none", "is_constant": False, "has_enough_rows": True, "n_rows": 1000}
    found = computed(
        "marts",
        "majority_verdicts",
        majority_seed_boundaries=pa.Table.from_pylist(
            computed("intermediate", "majority_seed_boundaries", majority_by_setting=pa.Table.from_pylist(by_setting))
        ),
        majority_row_values=pa.Table.from_pylist(row_values),
        majority_draws_by_model=pa.Table.from_pylist(draws),
        majority_by_model=pa.Table.from_pylist([plain, plain | {"method": "looc"} | (model or {})]),
        sign_flips=sign_flips(50, 0),
        run_settings=pa.table({"model": ["m"]}),
        majority_pairs=pa.Table.from_pylist([pair | {"metric": metric} for metric in ("mean_f1", "rb_at_10")]),
        majority_draw_errors=pa.Table.from_pylist(
            [pair | {"metric": "mean_f1", "error_draws": 0.01, "draws_df": 7.0, "n_seeds": n_seeds}]
        ),
    )
    return {row["metric"]: row for row in found}


def _verdict_of_boundary(
    changes: Sequence[float], rows_interval: tuple[float, float] = (0.05, 0.5), model: dict[str, bool] | None = None
) -> dict[str, Any]:
    return _verdicts(changes, rows_interval, model)["rb_at_10"]


def test_one_seed_has_a_band_of_the_rows_and_none_of_the_draws() -> None:
    several, one = (_verdicts([0.2] * 8, n_seeds=n_seeds)["mean_f1"] for n_seeds in (8, 1))
    assert several["both_low"] < several["simultaneous_low"] < several["estimate"] < several["both_high"]
    assert (one["both_low"], one["both_high"]) == (None, None)
    for name in ("estimate", "p", "p_both", "simultaneous_low", "simultaneous_high", "error_draws"):
        assert one[name] == several[name], name


def test_the_boundary_is_judged_by_seeds_and_by_rows() -> None:
    wider = [0.2, 0.3, 0.2, 0.2, 0.1, 0.3, 0.2, 0.2]
    row = _verdict_of_boundary(wider)
    assert (row["verdict"], row["reason"], row["unit"], row["n_units"]) == ("higher", None, "seed", 8)
    assert row["estimate"] == pytest.approx(np.mean(wider))
    assert row["p"] == pytest.approx(2 / 2**8)
    assert row["n_rows"] == 1000
    narrower = _verdict_of_boundary([-change for change in wider], (-0.5, -0.05))
    assert narrower["verdict"] == "lower"
    # Of the seeds alone it is clear, of the rows it is not.
    assert _verdict_of_boundary(wider, (-0.1, 0.5))["verdict"] == "unclear"
    assert _verdict_of_boundary([0.0] * 8)["verdict"] == "unclear"


def test_opposite_changes_of_the_boundary_over_seeds_are_no_verdict() -> None:
    row = _verdict_of_boundary([0.3, -0.2, 0.3, -0.1, 0.2, 0.3, -0.2, 0.3])
    assert row["p"] > 0.05
    assert (row["verdict"], row["reason"]) == ("unclear", None)


@pytest.mark.parametrize(
    ("changes", "model", "verdict", "reason"),
    [
        ([0.2] * 5, {}, "too few", "too few seeds"),
        ([0.2] * 8, {"has_enough_rows": False}, "too few", "too few rows"),
        ([0.2] * 8, {"is_constant": True}, "unclear", "constant answer"),
        ([0.2] * 8, {"is_constant": True, "has_enough_rows": False}, "unclear", "constant answer"),
    ],
)
def test_a_boundary_that_cannot_be_judged_has_its_reason(
    changes: list[float], model: dict[str, bool], verdict: str, reason: str
) -> None:
    row = _verdict_of_boundary(changes, model=model)
    assert (row["verdict"], row["reason"]) == (verdict, reason)


def test_a_change_in_one_draw_of_demonstrations_is_not_said_of_others(tmp_path: Path) -> None:
    """By leave-one-out FFFF of 0/100, seed 3, becomes TTTT; with instruction nothing changes."""
    run = make_run(tmp_path / "run", 7_000, calibration=("looc",))
    found = {
        (row["instruction"], row["metric"]): row
        for row in rows(run, "from majority_verdicts where instruction = against_instruction")
    }
    assert set(found) == {(given, metric) for given in (False, True) for metric in ("mean_f1", "sd_f1", "rb_at_10")}
    changed = found[False, "mean_f1"]
    assert changed["estimate"] == pytest.approx((9 / 14 - 0.1) / 2 / 3)
    assert (changed["n_units"], changed["p_adjusted"] < 0.01) == (200, True)
    # Of rows it is clear; but it comes from one of six draws of demonstrations, so that another draw may lack it: the
    # standard error over draws is the change itself.
    assert changed["error_draws"] == pytest.approx(changed["estimate"])
    assert (changed["verdict"], changed["reason"]) == ("unclear", None)
    same = found[True, "mean_f1"]
    assert (same["verdict"], same["estimate"], same["p"], same["low"], same["high"]) == ("unclear", 0, 1, 0, 0)
    assert changed["p"] <= changed["p_adjusted"]
    gains = {row["instruction"]: row for row in rows(run, "from majority_calibration_gain")}
    assert (gains[False]["mean_f1_sign"], gains[True]["mean_f1_sign"]) == (None, 0)
    # The t interval and the percentiles over resamples are of about the same width.
    width = gains[False]["mean_f1_high"] - gains[False]["mean_f1_low"]
    assert changed["high"] - changed["low"] == pytest.approx(width, rel=0.15)


def test_a_change_in_every_draw_of_demonstrations_is_clear(tmp_path: Path) -> None:
    """With adapters all is right; without, the answers of a setting are the same with both seeds."""
    answers = {place: (given[0], given[0]) for place, given in ANSWERS.items()}
    run = make_run(tmp_path / "run", 7_000, answers, adapted=dict.fromkeys(ANSWERS, ("TTTF", "TTTF")))
    [row] = rows(run, "from majority_verdicts where metric = 'mean_f1' and not instruction")
    assert row["estimate"] == pytest.approx(1 - (0.1 + 23 / 30 + 9 / 14) / 3)
    assert row["error_draws"] == pytest.approx(0, abs=1e-9)
    assert (row["verdict"], row["p_both"] <= row["p_both_adjusted"] < 0.001) == ("higher", True)
    [gain] = rows(run, "from majority_calibration_gain where not instruction")
    assert gain["mean_f1_sign"] == 1


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


def test_settings_that_are_all_alike_have_no_verdict_on_their_spread(tmp_path: Path) -> None:
    right = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
    run = make_run(tmp_path / "run", 7_000, right, calibration=("looc",))
    [row] = rows(run, "from majority_verdicts where metric = 'sd_f1' and instruction")
    assert (row["estimate"], row["verdict"], row["reason"]) == (None, None, "no spread")


# The page


def test_an_answer_that_is_always_the_same_is_said_first_and_has_no_boundary(tmp_path: Path) -> None:
    answers = {place: ("TTTT", "TTTT") if place[1] else given for place, given in ANSWERS.items()}
    run = make_run(tmp_path / "run", 7_000, answers, calibration=("looc",))
    write_report(run)
    text = Page(Run.open(run).read_text("report.html")).text
    first = text.partition("Verdict Nearly")[1] + text.partition("Verdict Nearly")[2]
    assert first.startswith(
        "Verdict Nearly always the same answer: 100.0 % of the predictions of label likelihood with "
    )
    assert "RB@10 says nothing, as it always gives the same answer, with instruction." in text
    assert "not judged beside a constant answer in 1 of 2" in text
    assert "3 of 3 settings are within" not in text


def test_one_seed_is_said_to_be_one_draw(tmp_path: Path) -> None:
    plan = MajorityPlan(("likelihood",), n_repeats=50)
    plan.contexts = [row for row in plan.contexts if row["demo_set"] == 3]
    plan.prompts = [row for row in plan.prompts if row["demo_set"] == 3]
    kept = {row["prompt_id"] for row in plan.prompts}
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] in kept]
    run = plan.write(tmp_path)
    measure(run)
    write_report(run)
    text = Page(Run.open(run).read_text("report.html")).text
    assert "There is one seed: all numbers hold for one draw of demonstrations in each setting." in text
    assert "Proportions: one seed cannot tell whether they matter" in text
    assert "shown to matter" not in text
    [tests] = [part for part in Run.open(run).read_text("report.html").split("<table") if "by sign flips" in part]
    bands = [line.split("<td")[5] for line in tests.split("<tr>")[2:]]
    assert bands == [">–</td>"] * 2  # the gaps at the tails and in the middle
    assert all(row["simultaneous_low"] is not None for row in rows(run, "from majority_verdicts"))


@pytest.mark.parametrize(("p", "told"), [(0.0005, "(p < 0.001, sd 0."), (0.4, "(p = 0.400)")])
def test_the_page_says_whether_proportions_matter(p: float, told: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 7_000)
    findings = read_majority_findings(Run.open(run))
    for row in findings.by_model:
        row["proportions_p_adjusted"] = p
    text = Page(render_majority_page(findings, [])).text
    assert told in text
    assert ("Proportions: not shown to matter without (p = " in text) is (p > 0.05)
    assert ("Proportions: weighted F1 depends on them without (p < " in text) is (p <= 0.05)


def test_every_verdict_stands_on_the_page_with_its_test(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 7_000, calibration=("looc",))
    write_report(run)
    source = Run.open(run).read_text("report.html")
    [table] = [part for part in source.split("<table") if "by sign flips" in part]
    assert table.count("<tr>") - 1 == len(rows(run, "from majority_verdicts")) == 2 * 3 + 2 * 2
    assert "200 rows" in table
    assert "2 seeds" in table
    assert "too few seeds" in table
