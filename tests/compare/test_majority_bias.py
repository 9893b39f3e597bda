"""Differences of majority-bias runs, and what such runs do not share."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import compare_runs
from biaseval.analysis.sign_flips import sign_flips
from biaseval.errors import InputError
from tests.compare.runs import Array, cautions, compared_rows, flipped, make, pair_of
from tests.majorityplans import ANSWERS, GOLD, LARGE, MajorityPlan
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


def _accuracy(answers: Mapping[tuple[str, bool], tuple[str, str]], instruction: bool) -> Array:
    """Return the share of settings and seeds in which each of the four test rows is right."""
    given = [predictions for (_, one), of_seeds in answers.items() if one is instruction for predictions in of_seeds]
    return np.array([[answer == gold for answer, gold in zip(text, GOLD, strict=True)] for text in given]).mean(axis=0)


def test_majority_runs_are_compared_row_by_row(majority: list[str]) -> None:
    rows = compared_rows(majority, "majority_bias", "run = 'small' and instruction and method = 'none'")
    found = {row["metric"]: row for row in rows}
    values = np.tile(_accuracy(LARGE, True) - _accuracy(ANSWERS, True), 3)
    row = found["accuracy"]
    assert row["value"] == pytest.approx(_accuracy(ANSWERS, True).mean())
    assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
    signs = np.array(list(product((1, -1), repeat=12)), dtype=float)
    assert row["p"] == pytest.approx(np.mean(flipped(values, signs) >= flipped(values, signs)[0]))
    assert (row["unit"], row["n_units"]) == ("row", 12)
    marts = {
        run["run"]: run
        for run in query(majority, "from majority_by_model where instruction and method = 'none'").to_pylist()
    }
    for metric in ("mean_f1", "sd_f1"):
        assert found[metric]["estimate"] == pytest.approx(marts["large"][metric] - marts["small"][metric], abs=1e-9)
        assert found[metric]["value"] == pytest.approx(marts["small"][metric], abs=1e-9)
    without = compared_rows(majority, "majority_bias", "run = 'small' and not instruction")
    assert {row["verdict"] for row in without if row["metric"] not in ("sd_f1", "rb_at_10")} == {"unclear"}
    [boundary] = [row for row in without if row["metric"] == "rb_at_10"]
    assert (boundary["unit"], boundary["n_units"], boundary["verdict"]) == ("seed", 2, "too few")
    assert {row["unit"] for row in without if row["metric"] != "rb_at_10"} == {"row"}


def _other_questions(plan: MajorityPlan) -> None:
    for row in plan.prompts:
        row["input_text"] = f"another {row['row']}"


def _other_grid(plan: MajorityPlan) -> None:
    for row in (*plan.settings, *plan.contexts):
        row["setting"] = row["setting"].replace("50/50", "51/49")


def _other_demonstrations(plan: MajorityPlan) -> None:
    plan.contexts[0]["text"] = "other demonstrations"


def _other_seeds(plan: MajorityPlan) -> None:
    for row in (*plan.contexts, *plan.prompts):
        row["demo_set"] += 1


@pytest.mark.parametrize(("change", "lacking", "said"), [
    (_other_questions, None, "0 of 12 test rows of the first are in both"),
    (_other_grid, None, "their proportions are others"),
    (_other_demonstrations, {"has_same_contexts"}, "other demonstrations or another instruction"),
    (_other_seeds, {"has_same_contexts", "has_same_seeds"}, "other seeds of the demonstrations"),
])  # fmt: skip
def test_what_majority_runs_do_not_share_is_named_or_refused(
    change: Callable[[MajorityPlan], None], lacking: set[str] | None, said: str, majority: list[str], tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood",), n_repeats=3)
    change(plan)
    runs = [majority[0], make(plan, tmp_path / "changed")]
    if lacking is None:
        with pytest.raises(InputError, match=said):
            compare_runs(runs)
        return
    compared = compare_runs(runs)
    assert {name for name, value in pair_of(compared, "small", "changed").items() if value is False} == lacking
    assert said in cautions(compared)
    assert {row["estimate"] for row in compared.tests} == {0}


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
    tables = {
        "majority_bias_shared": [
            {"run": run, "other_run": other, "is_comparable": True} for run, other in ("ab", "ba")
        ],
        "majority_predictions": [
            {**row, "seed": seed}
            for seed in seeds
            for row in table(row=rows, gold="yes", prediction="yes", **of_setting)
        ],
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
