"""What debiasing changes of a reader's bias: by hand and against loops in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.qa_debiasing.studies import ARTICLES, DEBIASED, PLACES, hand_draws, large_study, two_readers
from tests.qa_debiasing.study import (
    RELATIONS,
    cluster_error,
    expected,
    problems,
    quantile,
    rows,
    segment_influence,
    table,
)
from tests.qaplans import RIGHT, VALUES

# Changes of bias, by hand


def test_a_debiased_reader_by_hand() -> None:
    study = two_readers()
    hand_draws(study)
    with study.opened("qa_debiasing") as connection:
        [standard, found] = rows("from qa_debiasing order by model", connection)
    is_lower = np.array(VALUES) == 1
    right, standard_right = np.array(DEBIASED, dtype=float), np.array(RIGHT, dtype=float)
    gap_change, influence = segment_influence(right - standard_right, is_lower)
    half_width = 100 * quantile(4) * cluster_error(influence, np.array(ARTICLES))
    assert gap_change == pytest.approx(-0.2)
    # 10, 20, 30 and 0 points in the four samples that have both segments, 40 of the standard reader in each.
    low, high = np.quantile([-30, -20, -10, -40], [0.025, 0.975])
    error = np.std([-30, -20, -10, -40])
    p, reach = 2 * stats.t.sf(20 / error, 3), stats.t.ppf(1 - 0.025 / 2, 3) * error
    whole = {
        "model": "careful",
        "base": "bert",
        "data": "squad",
        "method": "learned_mixin",
        "bias": "ans_len",
        "seed": 42,
        "dataset": "squad",
        "heuristic": "ans_len",
        "is_addressed": True,
        "threshold": 1.0,
        "status": "measured",
        "bias_significance": pytest.approx(10),
        "standard_significance": pytest.approx(30),
        "significance_change": pytest.approx(-20),
        "significance_change_low": pytest.approx(low),
        "significance_change_high": pytest.approx(high),
        "worse_high": pytest.approx(60),
        "standard_worse_high": pytest.approx(50),
        "worse_high_change": pytest.approx(10),
        "gap": pytest.approx(10),
        "standard_gap": pytest.approx(30),
        "gap_change": pytest.approx(-20),
        "gap_change_low": pytest.approx(-20 - half_width),
        "gap_change_high": pytest.approx(-20 + half_width),
        "exact_match": pytest.approx(100 * 13 / 21),
        "standard_exact_match": pytest.approx(100 * 14 / 21),
        "is_nearly_broken": False,
        "n_rows": 20,
        "n_articles": 4,
        "n_draws": 4,
        "expected_change": pytest.approx(-20),
        "significance_error": pytest.approx(error),
        "p": pytest.approx(p, rel=0.1),
        # Of one change and of two families.
        "p_adjusted": pytest.approx(2 * p, rel=0.1),
        "simultaneous_low": pytest.approx(-20 - reach, rel=0.1),
        "simultaneous_high": pytest.approx(-20 + reach, rel=0.1),
        "verdict": "too few",
        "searched_on": None,
        "reason": None,
    }
    assert found == whole
    assert list(found) == list(whole)
    nothing = dict.fromkeys(name for name in whole if name.endswith(("_change", "_low", "_high")) and name in whole)
    assert standard == {
        **whole,
        **nothing,
        **dict.fromkeys(name for name in whole if name.startswith("standard_")),
        "model": "base",
        "method": "standard",
        "bias": None,
        "is_addressed": False,
        "bias_significance": pytest.approx(30),
        "worse_high": pytest.approx(50),
        "gap": pytest.approx(30),
        "exact_match": pytest.approx(100 * 14 / 21),
        "is_nearly_broken": None,
        "n_draws": 0,
        **dict.fromkeys(list(whole)[list(whole).index("n_draws") + 1 :]),
    }


def test_a_gap_is_signed_by_the_standard_readers() -> None:
    """The standard reader is 30 points better on the higher segment, the other one 10 on the lower one."""
    study = two_readers()
    swapped = [*RIGHT[10:], *RIGHT[:10]]
    study.predictions = []
    study.answers([*swapped, 1], model="base")
    study.answers([*DEBIASED, 0], model="careful")
    with study.opened("qa_debiasing") as connection:
        [standard, found] = rows("from qa_debiasing order by model", connection)
    assert (standard["gap"], found["standard_gap"]) == (pytest.approx(30), pytest.approx(30))
    assert (found["gap"], found["gap_change"]) == (pytest.approx(-10), pytest.approx(-40))
    assert found["significance_change"] == pytest.approx(-20)
    _, influence = segment_influence(np.array(DEBIASED) - np.array(swapped, dtype=float), np.array(VALUES) == 1)
    half_width = 100 * quantile(4) * cluster_error(influence, np.array(ARTICLES))
    assert [found["gap_change_low"], found["gap_change_high"]] == pytest.approx([-40 - half_width, -40 + half_width])


@pytest.mark.parametrize(("n_right", "is_nearly_broken"), [(4, False), (3, True)])
def test_a_reader_is_nearly_broken_below_two_thirds_of_the_standard_readers_worse_segment(
    n_right: int, is_nearly_broken: bool
) -> None:
    study = two_readers()
    study.predictions = []
    study.answers([1] * 8 + [0] * 2 + [1] * 6 + [0] * 4 + [1], model="base")
    study.answers([1] * n_right + [0] * (10 - n_right) + [1] * 5 + [0] * 6, model="careful")
    with study.opened("qa_debiasing") as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
    assert (found["worse_high"], found["standard_worse_high"]) == (pytest.approx(10 * n_right), pytest.approx(60))
    assert found["is_nearly_broken"] is is_nearly_broken


def test_a_reader_with_the_same_answers_has_changed_nothing() -> None:
    study = two_readers()
    study.predictions = []
    for model in ("base", "careful"):
        study.answers([*RIGHT, 1], model=model)
    with study.opened("qa_debiasing", "qa_out_of_distribution") as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        [outcome] = rows("from qa_out_of_distribution where model = 'careful'", connection)
    changes = [value for name, value in found.items() if "_change" in name]
    assert changes == pytest.approx([0] * 8, abs=1e-9)
    assert (found["p"], found["verdict"]) == (1, "too few")
    assert found["n_draws"] == 40
    assert [value for name, value in outcome.items() if "_change" in name] == pytest.approx([0] * 6, abs=1e-9)


# Changes of bias, against loops in numpy


@pytest.mark.parametrize("replacement", [False, True])
def test_every_change_equals_that_of_a_loop(replacement: bool) -> None:
    study, columns = large_study(bootstrap={"replacement": replacement})
    with study.opened() as connection:
        found = {(row["model"], row["heuristic"]): row for row in rows("from qa_debiasing", connection)}
        draws = rows("from qa_change_draws order by draw", connection)
        biases = {(row["model"], row["heuristic"]): row for row in rows("from qa_bias_by_heuristic", connection)}
        assert problems("qa_changes_have_their_draws", connection) == []
    assert len(found) == 9
    for model in ("mixin", "again"):
        for heuristic, (threshold, _) in PLACES.items():
            row, standard = found[model, heuristic], found["base", heuristic]
            taken = columns[heuristic] >= 0
            is_lower = columns[heuristic][taken] <= threshold
            right, standard_right = columns[model][taken], columns["base"][taken]
            gap, _ = segment_influence(right, is_lower)
            standard_gap, _ = segment_influence(standard_right, is_lower)
            change, influence = segment_influence(right - standard_right, is_lower)
            side = -1 if standard_gap < 0 else 1
            half_width = quantile(12) * cluster_error(influence, columns["article"][taken])
            assert [row["gap"], row["standard_gap"], row["gap_change"]] == pytest.approx(
                [100 * side * gap, 100 * side * standard_gap, 100 * side * change]
            )
            assert [row["gap_change_low"], row["gap_change_high"]] == pytest.approx(
                [100 * (side * change - half_width), 100 * (side * change + half_width)], rel=1e-4
            )
            sizes = (int(is_lower.sum()), int((~is_lower).sum()))
            own = [one for one in draws if (one["model"], one["heuristic"]) == (model, heuristic)]
            changes = [
                expected(one["lower"], sizes[0], one["higher"], sizes[1], 100, replacement=replacement)
                - expected(
                    one["standard_lower"], sizes[0], one["standard_higher"], sizes[1], 100, replacement=replacement
                )
                for one in own
            ]
            assert len(changes) == row["n_draws"] == 40
            assert [row["significance_change_low"], row["significance_change_high"]] == pytest.approx(
                np.quantile(changes, [0.025, 0.975]).tolist(), abs=1e-9
            )
            published = [biases[reader, heuristic]["bias_significance"] for reader in (model, "base")]
            assert [row["bias_significance"], row["standard_significance"]] == published
            assert row["significance_change"] == pytest.approx(published[0] - published[1], abs=1e-12)
            worst = [biases[reader, heuristic]["worse_high"] for reader in (model, "base")]
            assert [row["worse_high"], row["standard_worse_high"]] == worst
            assert row["worse_high_change"] == pytest.approx(worst[0] - worst[1])
            assert row["is_addressed"] == (heuristic == {"mixin": "ans_len", "again": "cos_sim"}[model])
            assert (row["n_rows"], row["n_articles"]) == (np.count_nonzero(taken), 12)
            assert (standard["n_rows"], standard["n_articles"]) == (np.count_nonzero(taken), 12)
            assert standard["gap"] == pytest.approx(row["standard_gap"])
            assert row["exact_match"] == pytest.approx(100 * columns[model].mean())
            assert row["standard_exact_match"] == pytest.approx(100 * columns["base"].mean())
    shown = found["mixin", "ans_len"]
    assert shown["significance_change_high"] < 0  # the study has something to find
    assert shown["gap_change_high"] < 0


def test_whole_articles_widen_an_interval_and_pairing_narrows_it() -> None:
    """Every article is easy for one of the readers: questions about it change together."""
    rng = np.random.default_rng(1)
    study, columns = large_study()
    shift = rng.normal(0, 0.4, size=12)[columns["article"]]
    study.predictions = []
    for model, middle in (("base", 0.5), ("mixin", 0.5 + shift), ("again", None)):
        right = columns["base"] if middle is None else (rng.random(500) < middle).astype(float)
        study.answers(np.asarray(right, dtype=float).tolist(), model=model)
        columns[model] = right
    with study.opened("qa_out_of_distribution") as connection:
        found = rows("from qa_out_of_distribution", connection)
    [mixin] = [row for row in found if row["model"] == "mixin"]
    naive = 1.96 * np.std(columns["mixin"] - columns["base"], ddof=1) / np.sqrt(500)
    assert mixin["exact_match_change_high"] - mixin["exact_match_change"] > 1.5 * naive


def test_readers_that_search_their_own_thresholds_are_each_split_at_theirs() -> None:
    """In the published code's variant the gap of either reader is at its own threshold, and so is its change."""
    study, columns = large_study(variant="reference", thresholds={"ans_len": [1, 2, 3, 4]}, bootstrap={"sample": 40})
    right = np.where(columns["ans_len"] <= 3, 1.0, columns["mixin"])
    study.predictions = [row for row in study.predictions if row["model"] != "mixin"]
    study.answers(right.tolist(), model="mixin")
    with study.opened() as connection:
        [standard] = rows("from qa_debiasing where model = 'base'", connection)
        [found] = rows("from qa_debiasing where model = 'mixin'", connection)
        draws = rows("from qa_change_draws where model = 'mixin' order by draw", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert (standard["threshold"], found["threshold"]) == (2, 3)
    [own, of_standard] = (columns["ans_len"] <= threshold for threshold in (3, 2))
    gap, influence = segment_influence(right, own)
    standard_gap, standard_influence = segment_influence(columns["base"], of_standard)
    assert [found["gap"], found["standard_gap"]] == pytest.approx([100 * gap, 100 * standard_gap])
    half_width = 100 * quantile(12) * cluster_error(influence - standard_influence, columns["article"])
    change = 100 * (gap - standard_gap)
    assert [found[f"gap_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(
        [change, change - half_width, change + half_width], rel=1e-4
    )
    changes = [
        expected(one["lower"], own.sum(), one["higher"], (~own).sum(), 40, replacement=False)
        - expected(
            one["standard_lower"], of_standard.sum(), one["standard_higher"], (~of_standard).sum(), 40,
            replacement=False,
        )
        for one in draws
    ]  # fmt: skip
    assert [found["significance_change_low"], found["significance_change_high"]] == pytest.approx(
        np.quantile(changes, [0.025, 0.975]).tolist(), abs=1e-9
    )


def test_the_order_of_rows_changes_no_byte() -> None:
    study, _ = large_study()
    found = []
    for _ in range(2):
        with study.opened() as connection:
            found.append({name: table(f"from {name}", connection) for name in RELATIONS})
        for part in (study.examples, study.attributes, study.predictions, study.trained):
            part.reverse()
    for name in RELATIONS:
        assert found[0][name].equals(found[1][name]), name
    assert found[0]["qa_debiasing"].num_rows == 9
