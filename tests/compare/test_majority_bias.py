"""Differences of majority-bias runs, and what such runs do not share."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from biaseval.analysis.compared_kinds import KINDS
from biaseval.analysis.comparing import cautions_of
from biaseval.analysis.sign_flips import sign_flips
from tests.compare.runs import OTHER_SEEDS, Array, flipped, make
from tests.majorityplans import ANSWERS, GOLD, LARGE, MajorityPlan
from tests.relation import Together
from tests.validation.outcomes import outcomes


@pytest.fixture(scope="module")
def majority(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for name, answers in (("small", ANSWERS), ("large", LARGE)):
        plan = MajorityPlan(("likelihood",), answers=answers, n_repeats=3)
        plan.spec |= {"name": name, "model": {"path": f"models/{name}", "dtype": "float32"}}
        plan.n_parameters = {"small": 1_000, "large": 13_000}[name]
        runs.append(make(plan, folder / name))
    return runs


@pytest.fixture(scope="module")
def pair(majority: list[str]) -> Iterator[Together]:
    """Return what compares the two runs, over tables that statements can change."""
    found = Together(majority, *(f"majority_bias_{name}" for name in ("comparison", "shared", "compare_cautions")))
    yield found
    found.connection.close()


def _accuracy(answers: Mapping[tuple[str, bool], tuple[str, str]], instruction: bool) -> Array:
    """Return the share of settings and seeds in which each of the four test rows is right."""
    given = [predictions for (_, one), of_seeds in answers.items() if one is instruction for predictions in of_seeds]
    return np.array([[answer == gold for answer, gold in zip(text, GOLD, strict=True)] for text in given]).mean(axis=0)


def test_majority_runs_are_compared_row_by_row(pair: Together) -> None:
    with pair.changed():
        rows = pair.rows("from majority_bias_comparison where run = 'small'")
        marts = {run["run"]: run for run in pair.rows("from majority_by_model where instruction and method = 'none'")}
    found = {row["metric"]: row for row in rows if row["instruction"] and row["method"] == "none"}
    values = np.tile(_accuracy(LARGE, True) - _accuracy(ANSWERS, True), 3)
    row = found["accuracy"]
    assert row["value"] == pytest.approx(_accuracy(ANSWERS, True).mean())
    assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
    signs = np.array(list(product((1, -1), repeat=12)), dtype=float)
    assert row["p"] == pytest.approx(np.mean(flipped(values, signs) >= flipped(values, signs)[0]))
    assert (row["unit"], row["n_units"]) == ("row", 12)
    for metric in ("mean_f1", "sd_f1"):
        assert found[metric]["estimate"] == pytest.approx(marts["large"][metric] - marts["small"][metric], abs=1e-9)
        assert found[metric]["value"] == pytest.approx(marts["small"][metric], abs=1e-9)
    without = [row for row in rows if not row["instruction"]]
    assert {row["verdict"] for row in without if row["metric"] not in ("sd_f1", "rb_at_10")} == {"unclear"}
    [boundary] = [row for row in without if row["metric"] == "rb_at_10"]
    assert (boundary["unit"], boundary["n_units"], boundary["verdict"]) == ("seed", 2, "too few")
    assert {row["unit"] for row in without if row["metric"] != "rb_at_10"} == {"row"}


OF_LARGE = "where run = 'large'"


@pytest.mark.parametrize(("changes", "lacking", "said"), [
    ((f"update prompts set input_text = 'another ' || row {OF_LARGE}",), None,
        "0 of 12 test rows of the first are in both"),
    ((f"update settings set setting = replace(setting, '50/50', '51/49') {OF_LARGE}",), None,
        "their proportions are others"),
    ((f"update contexts set text = 'other demonstrations' {OF_LARGE} and demo_set = 3",), {"has_same_contexts"},
        "other demonstrations or another instruction"),
    (OTHER_SEEDS, {"has_same_contexts", "has_same_seeds"}, "other seeds of the demonstrations"),
    ((f"insert into majority_by_model select * replace (20 as n_demos) from majority_by_model {OF_LARGE}",),
        {"has_same_n_demos"}, "only one of the two runs has it: 20 demonstrations (large)."),
])  # fmt: skip
def test_what_majority_runs_do_not_share_is_named_or_refused(
    changes: tuple[str, ...], lacking: set[str] | None, said: str, pair: Together
) -> None:
    # RB@10 is compared over the seeds of both.
    metrics = "from majority_bias_comparison where run = 'small' and metric <> 'rb_at_10'"
    estimates = f"select metric, instruction, estimate {metrics} order by all"
    with pair.changed(*changes):
        [shared] = pair.rows("from majority_bias_shared where run = 'small'")
        if lacking is None:
            assert (shared["is_comparable"], said in KINDS["majority_bias"].why_not(shared)) == (False, True)
            return
        assert {name for name, value in shared.items() if value is False} == lacking
        assert said in "\n".join(row["text"] for row in pair.rows(cautions_of("majority_bias", ["small", "large"])))
        found = pair.rows(estimates)
    with pair.changed():
        assert found == pair.rows(estimates)


# RB@10


_PLACE = {"n_demos": 10, "instruction": True, "predict": "likelihood", "method": "none"}


def _boundaries(
    changes: Sequence[float], of_rows: Sequence[float] = (0.3,) * 40, **sides: bool
) -> dict[str, dict[str, Any]]:
    """Return the test of RB@10 in both directions, of two runs whose RB@10 differs by so much with each seed.

    Args:
        changes: by seed.
        of_rows: what resamples of the rows have for the change of the RB@10 of means over seeds; its first is that of
            the rows themselves.
        sides: columns of ``majority_by_model``.
    """

    def table(**columns: Any) -> list[dict[str, Any]]:
        """Return rows of each run for each of a column's values; what is a function is asked with run and value."""
        [(name, values)] = [(name, own) for name, own in columns.items() if isinstance(own, range)]
        return [
            {"run": run, "task": "t", **_PLACE}
            | {key: value(times, one) if callable(value) else value for key, value in columns.items()}
            | {name: one}
            for run, times in (("a", 0), ("b", 1))
            for one in values
        ]

    seeds, rows, of_setting = range(len(changes)), range(8), {"setting": "0/100", "number": 0}
    value = {"metric": "mean_f1", "value": 1.0}
    above = {"is_above_constant": True, "has_enough_rows": True, "is_any_setting_above_constant": True}
    predicted = table(row=rows, gold="yes", prediction="yes", **of_setting)
    tables = {
        "majority_bias_shared": [{"run": a, "other_run": b, "is_comparable": True} for a, b in ("ab", "ba")],
        "majority_predictions": [{**row, "seed": seed} for seed in seeds for row in predicted],
        "majority_row_values": table(row=rows, **value),
        "majority_draw_values": table(seed=seeds, **value, **of_setting),
        "majority_seed_boundaries": table(seed=seeds, rb_at_10=lambda times, seed: 0.25 + times * changes[seed]),
        "majority_draws_by_model": table(
            draw=range(len(of_rows)), rb_at_10=lambda times, draw: 0.5 + times * of_rows[draw]
        ),
        "majority_by_model": table(one=range(1), majority_accuracy=0.5, constant_f1=1 / 3, **{**above, **sides}),
    }
    given = {name: pa.Table.from_pylist(rows) for name, rows in tables.items()}
    given["comparison_sign_flips"] = sign_flips(64, 42)
    asked = {"found": "from majority_bias_comparison where metric = 'rb_at_10'"}
    found = outcomes("majority_bias", given, ["majority_bias_comparison"], asked)["found"].to_pylist()
    return {row["run"]: row for row in found}
