"""Several majority-bias runs in SQL: over the same data, by size, and by their luck with demonstrations."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.analysis.sign_flips import sign_flips
from biaseval.errors import InputError
from tests.compare.runs import OTHER_SEEDS, as_models, make
from tests.handmade import found_by
from tests.labelplans import two_tasks
from tests.majority_report.runs import make_run
from tests.majorityplans import ANSWERS, LARGE, SEEDS, MajorityPlan, Rows
from tests.relation import Together
from tests.validation.outcomes import outcomes


def write(folder: Path, n_parameters: int, answers: Mapping[tuple[str, bool], tuple[str, str]]) -> str:
    plan = MajorityPlan(("likelihood",), answers=answers)
    plan.spec["name"] = f"model-of-{folder.name}"
    plan.n_parameters = n_parameters
    return make(plan, folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("runs") / "small", 1_000, ANSWERS)


def together(*runs: str) -> Iterator[Together]:
    names = ("shared_data", "size_effect", "bias_comparison", "draws")
    found = Together(runs, *(f"majority_{name}" for name in names))
    yield found
    found.connection.close()


@pytest.fixture(scope="module")
def pair(small: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    yield from together(write(tmp_path_factory.mktemp("runs") / "large", 13_000, LARGE), small)


METRICS = ("rb_at_10", "mean_f1", "sd_f1", "tails_f1", "middle_f1")


def test_the_effect_of_size_is_larger_minus_smaller_in_the_rows_and_in_the_draws_of_both(pair: Together) -> None:
    with pair.changed():
        without, row = pair.rows("from majority_size_effect order by instruction")
        draws = pair.rows("from majority_draws where instruction")
    f1s = np.zeros((2, 1001, 3, 2))
    for one in draws:
        place = ("small", "large").index(one["run"]), one["draw"], one["number"], SEEDS.index(one["seed"])
        f1s[place] = one["weighted_f1"]
    means = f1s.mean(axis=3)
    sides = ("small", "large", "model-of-small", "model-of-large", 1_000, 13_000)
    names = ("run", "larger_run", "model", "larger_model", "n_parameters", "larger_n_parameters")
    assert tuple(row[name] for name in names) == sides
    rb = [np.mean(x >= x.max(axis=1, keepdims=True) - 0.1 - 1e-9, axis=1) for x in means]
    for name, found in zip(
        METRICS,
        (
            rb[1] - rb[0],
            (means[1] - means[0]).mean(axis=1),
            means[1].std(axis=1, ddof=1) - means[0].std(axis=1, ddof=1),
            (means[1] - means[0])[:, [0, 2]].mean(axis=1),
            (means[1] - means[0])[:, 1],
        ),
        strict=True,
    ):
        expected = [found[0], *np.quantile(found[1:], [0.025, 0.975])]
        assert [row[f"{name}{end}"] for end in ("", "_low", "_high")] == pytest.approx(expected, abs=1e-9), name
    # Four test rows make no difference clear, but for the one that is none.
    assert [row[f"{name}_sign"] for name in METRICS] == [None] * 4 + [0]
    assert (row["n_shared_rows"], row["has_enough_rows"], row["is_above_constant"]) == (4, False, None)
    assert [without[name] for name in METRICS] == [0] * 5


def test_each_run_stands_in_its_own_best_setting_where_they_differ(pair: Together) -> None:
    asked = "from majority_bias_comparison where run = 'large' and method = 'best' and metric = 'mean_f1'"
    with pair.changed():
        f1 = {(row["run"], row["instruction"]): row["mean_f1"] for row in pair.rows("from majority_by_model")}
        assert pair.rows(asked) == []  # with the instruction both are best
    with pair.changed("update majority_by_model set mean_f1 = 0 where run = 'small' and instruction"):
        [row] = pair.rows(asked)
    assert (row["value"], row["other_value"]) == pytest.approx((f1["large", True], f1["small", False]))
    assert row["estimate"] == pytest.approx(f1["small", False] - f1["large", True])
    # All four differences have one sign: two of 16 patterns are as extreme.
    assert (row["n_demos"], row["instruction"], row["n_units"], row["p"]) == (None, None, 4, 2 / 16)


def effects_of(pair: Together, models: Mapping[str, tuple[str, Mapping[str, Any]]]) -> tuple[Rows, Rows]:
    """Return the effects of size and those of tuning between models."""
    of_pair = ("majority_shared_data", "majority_bias_comparison", "majority_draws_by_model", "majority_by_model")
    names = [f"majority_{of}_effect" for of in ("size", "tuning")]
    given = as_models(pair, models, *of_pair)
    found = outcomes("majority_bias", given, names, {name: f"from {name} order by all" for name in names})
    sizes, tunings = (found[name].to_pylist() for name in names)
    return sizes, tunings


def pairs_of(effects: Rows) -> list[tuple[str, str]]:
    return sorted({(row["run"], row["larger_run"]) for row in effects})


def test_each_model_stands_against_the_next_whose_size_is_another_and_known(pair: Together) -> None:
    sizes = {"small": 1_000, "middle": 7_000, "large": 13_000, "as_small": 1_000, "unknown": None}
    facts: dict[str, Any] = {"family": None, "tuned_from": None}
    models = {name: ("small", {"n_parameters": size, **facts}) for name, size in sizes.items()}
    found, _ = effects_of(pair, {name: models[name] for name in ("large", "small", "middle")})
    assert pairs_of(found) == [("middle", "large"), ("small", "middle")]
    assert effects_of(pair, {name: models[name] for name in ("small", "as_small", "unknown")})[0] == []


def test_effects_of_size_stay_within_a_family_and_state_and_those_of_tuning_are_differences(pair: Together) -> None:
    models = {
        name: (run, {"n_parameters": size, "family": family, "tuned_from": base})
        for name, run, size, family, base in (
            ("small", "small", 7_000, "a", None), ("middle", "large", 10_000, "b", None),
            ("tuned", "large", 12_000, "a", "small"), ("large", "large", 13_000, "a", None),
            ("larger", "small", 20_000, "a", "large"),
        )
    }  # fmt: skip
    sizes, tunings = effects_of(pair, models)
    assert pairs_of(sizes) == [("small", "large"), ("tuned", "larger")]
    with pair.changed():
        rows = pair.rows("from majority_by_model")
    mean_f1 = {(row["run"], row["instruction"]): row["mean_f1"] for row in rows}
    effects = [row for row in tunings if row["metric"] == "mean_f1"]
    assert {(row["run"], row["other_run"]) for row in effects} == {("small", "tuned"), ("large", "larger")}
    for row in effects:
        value, other = (mean_f1[models[row[side]][0], row["instruction"]] for side in ("run", "other_run"))
        assert (row["value"], row["other_value"], row["estimate"]) == pytest.approx((value, other, other - value))


OF_LARGE = "where run = 'large'"
CHANGES: dict[str, Sequence[str]] = {
    "names": (
        f"update run_settings set model = 'elsewhere' {OF_LARGE}", f"update contexts set task = 'rte' {OF_LARGE}",
        f"update prompts set task = 'rte', instance_id = 'renamed-' || row {OF_LARGE}",
    ),
    "one question": (f"update prompts set input_text = 'another' {OF_LARGE} and row = 3",),
    "questions": (f"update prompts set input_text = 'another ' || row {OF_LARGE}",),
    "grid": (f"update settings set setting = replace(setting, '50', '51') {OF_LARGE}",),
    "demonstrations": (f"update contexts set text = 'other demonstrations' {OF_LARGE} and demo_set = 3",),
    "seeds": OTHER_SEEDS,
    "scoring": (f"update run_settings set eos = false {OF_LARGE}",),
    "resamples": (f"update run_settings set seed = 43 {OF_LARGE}",),
}  # fmt: skip
SAME = ("has_same_rows", "has_same_contexts", "has_same_scoring")


@pytest.mark.parametrize(("other", "reason"), [
    ("demonstrations", "has_same_contexts"), ("seeds", "has_same_contexts"), ("scoring", "has_same_scoring"),
    ("resamples", "has_same_rows"),
])  # fmt: skip
def test_other_prompts_scoring_or_resamples_leave_the_differences_without_interval(
    other: str, reason: str, pair: Together
) -> None:
    with pair.changed(*CHANGES[other]):
        shared, found = (pair.rows(f"from majority_{name}") for name in ("shared_data", "size_effect"))
    for row in shared:
        assert {name: row[name] for name in SAME} == {name: name != reason for name in SAME}
    assert len(found) == 2
    for row in found:
        names = [name for name in row if "_sign" not in name and name != "is_above_constant"]
        assert all((row[name] is None) == name.endswith(("_low", "_high")) for name in names)
        assert (row["n_shared_rows"], row["rb_at_10"]) == (4, pytest.approx(1 / 3 if row["instruction"] else 0))


def test_a_run_without_instruction_has_the_contexts_of_one_with_and_without(pair: Together) -> None:
    tables = ("contexts", "majority_contexts", "majority_by_model", "majority_draws_by_model")
    with pair.changed(*(f"delete from {table} {OF_LARGE} and instruction" for table in tables)):
        found = pair.rows("from majority_size_effect")
    assert [(row["instruction"], row["mean_f1_low"]) for row in found] == [(False, 0)]


@pytest.mark.parametrize(
    ("other", "expected"),
    [("names", [(True, 4)] * 2), ("one question", [(False, 3)] * 2), ("questions", []), ("grid", [])],
)
def test_the_same_data_are_the_same_test_rows_and_settings(
    other: str, expected: list[tuple[bool, int]], pair: Together
) -> None:
    """Names do not count."""
    with pair.changed(*CHANGES[other]):
        found = pair.rows("select has_same_rows, n_shared_rows from majority_shared_data")
    assert [tuple(row.values()) for row in found] == expected


def test_comparisons_are_of_several_runs_that_have_what_they_read(small: str, tmp_path: Path) -> None:
    animals = make(two_tasks(), tmp_path / "animals")
    with pytest.raises(InputError, match="majority_size_effect does not exist"):
        query([small], "from majority_size_effect")
    assert query([animals, small], "from majority_size_effect").num_rows == 0


RIGHT = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
ALIKE = {place: (given[0], given[0]) for place, given in ANSWERS.items()}
"""The answers of a setting are the same behind both draws of demonstrations."""


def changes(
    own: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]], metric: str = "mean_f1", shift: int = 0
) -> pa.Table:
    """Return what seeds add to each side, by setting; those of the second side are shifted by so much."""
    sides: dict[tuple[int, int], dict[str, float | None]] = {}
    for name, values, first in (("value", own, 0), ("other_value", other, shift)):
        for number, of_seeds in values.items():
            for seed, value in enumerate(of_seeds):
                sides.setdefault((number, first + seed), {"value": None, "other_value": None})[name] = value
    place = {"family": "f", "test": {"metric": metric}}
    found = [{**place, "number": number, "seed": seed, **both} for (number, seed), both in sides.items()]
    return pa.Table.from_pylist(found)


OWN, OTHER = {0: [0.1, 0.2], 1: [0.3, 0.3]}, {0: [0.2, 0.1], 1: [0.5, 0.3]}
LONGER = {0: [0.2, 0.1, 0.3], 1: [0.5, 0.3, 0.4]}


@pytest.mark.parametrize(("other", "shift", "variances"), [
    (OTHER, 0, (0.04, 0.04)),  # behind the same seeds of differences 0.1 and -0.1, 0.2 and 0
    (OTHER, 2, (0.01, 0.01, 0, 0.04)),  # behind other seeds those of both sides add
    (LONGER, 0, (0.01, 3 * 0.01, 0, 3 * 0.01)),  # seeds that only overlap are no pairs
])  # fmt: skip
def test_the_error_over_draws_is_of_sums_over_seeds_by_hand(
    other: Mapping[int, Sequence[float]], shift: int, variances: tuple[float, ...]
) -> None:
    [row] = found_by("from draw_errors('changes')", changes=changes(OWN, other, shift=shift))
    assert (row["family"], row["test"], row["n_seeds"]) == ("f", {"metric": "mean_f1"}, 2)  # the fewest
    assert row["error_draws"] == pytest.approx(np.sqrt(sum(variances)))
    if other is OTHER:  # a degree of freedom each
        assert row["draws_df"] == pytest.approx(sum(variances) ** 2 / np.sum(np.square(variances)))


@pytest.mark.parametrize("shift", [0, 1])
def test_one_seed_has_its_error_from_six_settings_or_none(shift: int) -> None:
    differences = [0.01, -0.02, 0.03, 0.0, 0.05, -0.01]
    own = {number: [0.1 * number] for number in range(6)}
    other = {number: [own[number][0] + change] for number, change in enumerate(differences)}
    asked = "from draw_errors('changes')"
    [row] = found_by(asked, changes=changes(own, other, shift=shift))
    assert row["error_draws"] == pytest.approx(np.sqrt(6 * np.var(differences, ddof=1)))
    assert (row["draws_df"], row["n_seeds"]) == (5, 1)
    assert found_by(asked, changes=changes(own, other, "sd_f1", shift)) == []
    del own[5], other[5]
    assert found_by(asked, changes=changes(own, other, shift=shift)) == []
    # Nor have several seeds against one.
    assert found_by(asked, changes=changes(OWN, {0: [0.2], 1: [0.5]})) == []


def test_errors_of_rows_and_of_draws_are_counted_together() -> None:
    """A difference of row i, setting k and seed j is a_i + b_kj + c_ikj."""
    n_rows, n_settings, n_seeds = 40, 3, 4
    rng = np.random.default_rng(0)
    units, changed, differences = [], [], {}
    for metric, shift in (("accuracy", 0.2), ("mean_f1", 0.1)):
        x = rng.normal(shift, 0.3, (n_rows, 1, 1)) + rng.normal(0, 0.1, (n_settings, n_seeds))
        x = differences[metric] = x + rng.normal(0, 0.2, x.shape)
        place = {"family": "f", "test": {"metric": metric}}
        units += [{**place, "unit": row, "value": float(x[row].mean())} for row in range(n_rows)]
        means = x.mean(axis=0) / n_settings / n_seeds
        changed += [
            {**place, "number": number, "seed": seed, "value": 0.0, "other_value": float(mean)}
            for (number, seed), mean in np.ndenumerate(means)
        ]
    tests = found_by("from sign_flip_tests('units', 'signs')", units=units, signs=sign_flips(n_rows, 42))
    errors = found_by("from draw_errors('changes')", changes=changed)
    found = found_by("from over_draws('tests', 'errors')", tests=tests, errors=errors)
    p_both = {}
    for row in found:
        x = differences[row["test"]["metric"]]
        of_rows, variances = x.mean(axis=(1, 2)), x.mean(axis=0).var(axis=1, ddof=1) / n_seeds / n_settings**2
        error_draws = np.sqrt(variances.sum())
        error = np.hypot(stats.sem(of_rows), error_draws)
        df = error**4 / (stats.sem(of_rows) ** 4 / (n_rows - 1) + (variances**2 / (n_seeds - 1)).sum())
        p_both[row["p_both"]] = row["p_both_adjusted"]
        assert row["p_both"] == pytest.approx(2 * stats.t.sf(abs(of_rows.mean()) / error, df), rel=0.03)
        reach = (row["simultaneous_high"] - row["estimate"]) * error / stats.sem(of_rows)
        names = ("estimate", "error_draws", "both_low", "both_high", "both_smallest_detectable")
        wanted = [of_rows.mean(), error_draws, of_rows.mean() - reach, of_rows.mean() + reach, 2.8 * error]
        assert [row[name] for name in names] == pytest.approx(wanted)
    [first, second] = sorted(p_both)
    assert [p_both[first], p_both[second]] == pytest.approx([min(1, 2 * first), max(second, min(1, 2 * first))])


def compared(pair: Together, *changes: str, run: str = "small") -> dict[str, dict[str, Any]]:
    """Return the tests of a run with instruction against the other by metric."""
    with pair.changed(*changes):
        rows = pair.rows(f"from majority_bias_comparison where run = '{run}' and instruction")
    return {row["metric"]: row for row in rows}


def of_many_rows(
    folder: Path, own: Mapping[tuple[str, bool], tuple[str, str]], other: Mapping[tuple[str, bool], tuple[str, str]]
) -> Iterator[Together]:
    yield from together(make_run(folder / "small", 1_000, own), make_run(folder / "large", 2_000, other))


@pytest.fixture
def alike_and_right(tmp_path: Path) -> Iterator[Together]:
    yield from of_many_rows(tmp_path, ALIKE, RIGHT)


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    yield from of_many_rows(tmp_path_factory.mktemp("runs"), ANSWERS, LARGE)


def test_a_difference_in_every_draw_of_demonstrations_is_said(alike_and_right: Together) -> None:
    """Over rows it is the same in all draws of a setting, so that their error is 0."""
    found = compared(alike_and_right)
    row = found["mean_f1"]
    assert row["estimate"] == pytest.approx(1 - (23 / 30 + 1 + 9 / 14) / 3)
    assert row["error_draws"] == pytest.approx(0, abs=1e-9)
    assert (row["verdict"], row["p_both_adjusted"] < 0.001) == ("higher", True)
    assert (found["accuracy"]["verdict"], found["sd_f1"]["reason"]) == ("higher", "no spread")
    [effect] = alike_and_right.rows("from majority_size_effect where instruction")
    assert (effect["mean_f1_sign"], effect["tails_f1_sign"], effect["middle_f1_sign"]) == (1, 1, 0)
    # RB@10 rises from 1/3 to 1, of which two seeds say nothing.
    assert (effect["rb_at_10"], effect["rb_at_10_sign"]) == (pytest.approx(2 / 3), None)


def test_runs_behind_other_seeds_have_the_errors_of_both(many_rows: Together) -> None:
    row = compared(many_rows, *OTHER_SEEDS)["mean_f1"]
    # The larger model answers alike behind both; of the smaller one's draws those of 100/0 differ, F1 9/14 and 1.
    variance = np.var([9 / 14, 1], ddof=1) / 2 / 3**2
    assert row["error_draws"] == pytest.approx(np.sqrt(variance))
    assert (row["n_seeds"], row["reason"]) == (2, None)
    # Without demonstrations in common a difference is not the effect of size alone.
    with many_rows.changed(*OTHER_SEEDS):
        effects = many_rows.rows("from majority_size_effect")
    assert {one["mean_f1_sign"] for one in effects} <= {0, None}


def test_the_spread_over_settings_is_not_compared_over_other_numbers_of_seeds(many_rows: Together) -> None:
    """The fewer seeds a setting has, the wider the spread."""
    tables = ("majority_predictions", "majority_draw_values", "majority_seed_boundaries")
    fewer = [f"delete from {table} {OF_LARGE} and seed = 5" for table in tables]
    for name in ("small", "large"):
        row = compared(many_rows, *fewer, run=name)["sd_f1"]
        assert (row["verdict"], row["reason"]) == (None, "other numbers of seeds")
        assert row["estimate"] is not None
