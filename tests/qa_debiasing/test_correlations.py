"""Correlations of changes, against scipy and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.qa_debiasing.studies import DEBIASED, two_readers
from tests.qa_debiasing.study import made, rows
from tests.qaplans import RIGHT, VALUES, Rows


def correlations(changes: dict[str, tuple[str, float | None, dict[str, float | None]]], **more: Any) -> Rows:
    """Return the mart, of readers each with a method, a change of significance on squad and one of F1 on other sets."""
    debiasing = [
        {"model": model, "method": method, "dataset": "squad", "is_addressed": True, "significance_change": shift}
        for model, (method, shift, _) in changes.items()
    ]
    # What is not addressed, or measured elsewhere, takes no part.
    debiasing += [row | {"is_addressed": False, "significance_change": 50.0} for row in debiasing[:2]]
    debiasing += [row | {"dataset": "natural", "significance_change": 60.0} for row in debiasing[:2]]
    outcomes = [
        {"model": model, "dataset": dataset, "role": "out_of_distribution", "f1_change": change}
        for model, (_, _, others) in changes.items()
        for dataset, change in others.items()
    ]
    outcomes += [{"model": model, "dataset": "squad", "role": "in_distribution", "f1_change": 0.7} for model in changes]
    means = [
        {
            "model": model,
            "f1_change": None if None in others.values() else sum(filter(None, others.values())) / len(others),
        }
        for model, (_, _, others) in changes.items()
    ]
    return made(
        "qa_debiasing_correlation",
        qa_debiasing=debiasing,
        qa_out_of_distribution=outcomes,
        qa_out_of_distribution_by_model=means,
    )


def test_correlations_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    changes: dict[str, tuple[str, float | None, dict[str, float | None]]] = {}
    for number in range(14):
        method = "resample" if number < 6 else "learned_mixin"
        shift = float(rng.normal()) if number % 4 else 0.0  # some tie
        others: dict[str, float | None] = {name: float(0.3 * shift + rng.normal()) for name in ("natural", "trivia")}
        changes[f"reader {number:02}"] = (method, shift, others)
    changes["standard"] = ("standard", None, {"natural": None, "trivia": None})
    found = {tuple(row.values())[:3]: row for row in correlations(changes)}
    methods = {"resample": 6, "learned_mixin": 8, "all": 14}
    assert found.keys() == {("squad", method, other) for method in methods for other in ("natural", "trivia", "mean")}
    assert list(found["squad", "all", "mean"]) == [
        "dataset", "method", "other_dataset", "n_models", "pearson", "pearson_low", "pearson_high", "spearman",
    ]  # fmt: skip
    for (_, method, other), row in found.items():
        chosen = [one for one in changes.values() if one[0] == method or (method == "all" and one[0] != "standard")]
        x = [float(shift) for _, shift, _ in chosen if shift is not None]
        y = [np.mean([*others.values()]) if other == "mean" else others[other] for _, _, others in chosen]
        reference = stats.pearsonr(x, y)
        interval = reference.confidence_interval(0.95)
        assert row["n_models"] == methods[method] == len(x)
        assert row["pearson"] == pytest.approx(reference.statistic)
        assert [row["pearson_low"], row["pearson_high"]] == pytest.approx([interval.low, interval.high])
        assert row["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)


def test_fishers_interval_by_hand() -> None:
    """Of 1 2 3 4 and 1 3 2 4 the correlation is 0.8: atanh 1.0986, and 1.96 to either side with 4 readers."""
    changes = {
        f"reader {x}": ("resample", float(x), {"natural": y}) for x, y in ((1, 0.1), (2, 0.3), (3, 0.2), (4, 0.4))
    }
    found = correlations({**changes})
    assert {(row["method"], row["other_dataset"]) for row in found} == {
        (method, other) for method in ("resample", "all") for other in ("natural", "mean")
    }
    for row in found:
        assert (row["pearson"], row["spearman"]) == (pytest.approx(0.8), pytest.approx(0.8))
        assert [row["pearson_low"], row["pearson_high"]] == pytest.approx([-0.6969, 0.9956], abs=1e-4)


def test_a_perfect_correlation_has_an_interval_without_width() -> None:
    changes = {f"reader {x}": ("resample", float(x), {"natural": -0.1 * x}) for x in range(5)}
    for row in correlations({**changes}):
        assert [row["pearson"], row["pearson_low"], row["pearson_high"]] == pytest.approx([-1] * 3)
        assert -1 <= row["pearson_low"] <= row["pearson_high"]


def test_correlations_need_readers_that_differ() -> None:
    def found(shifts: Sequence[float | None], changes: Sequence[float]) -> dict[str, Any]:
        pairs = enumerate(zip(shifts, changes, strict=True))
        [row] = [
            row
            for row in correlations({f"r{n}": ("resample", shift, {"natural": y}) for n, (shift, y) in pairs})
            if (row["method"], row["other_dataset"]) == ("all", "natural")
        ]
        return row

    nothing = dict.fromkeys(("pearson", "pearson_low", "pearson_high", "spearman"))
    place = {"dataset": "squad", "method": "all", "other_dataset": "natural"}
    assert found([1, 2], [0.1, 0.3]) == {**place, "n_models": 2, **nothing}
    three = found([1, 2, 4], [0.1, 0.3, 0.2])
    assert (three["n_models"], three["pearson_low"], three["pearson_high"]) == (3, None, None)
    assert three["pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [0.1, 0.3, 0.2])[0, 1])
    assert found([3] * 5, [0.1, 0.2, 0.3, 0.4, 0.5]) == {**place, "n_models": 5, **nothing}
    assert found([1, 2, 3, 4, 5], [0.2] * 5) == {**place, "n_models": 5, **nothing}
    # Readers whose groups are too small on the set take no part.
    assert found([1, 2, 4, None, None], [0.1, 0.3, 0.2, 9, 9]) == three
    assert found([None] * 4, [1, 2, 3, 4]) == {**place, "n_models": 0, **nothing}


def test_correlations_come_of_the_marts_of_a_study() -> None:
    study = two_readers(datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}})
    study.questions({"ans_len": VALUES}, dataset="natural")
    rng = np.random.default_rng(0)
    study.answers(RIGHT, model="base", dataset="natural")
    study.answers(DEBIASED, model="careful", dataset="natural")
    for number in range(4):
        model = f"again {number}"
        study.reader(model, "resample", "ans_len")
        study.answers((rng.random(21) < 0.6).astype(float).tolist(), model=model)
        study.answers((rng.random(20) < 0.2 * number + 0.1).astype(float).tolist(), model=model, dataset="natural")
    with study.opened(
        "qa_debiasing", "qa_out_of_distribution", "qa_out_of_distribution_by_model", "qa_debiasing_correlation"
    ) as connection:
        found = rows("from qa_debiasing_correlation where other_dataset = 'natural'", connection)
        shifts = {
            row["model"]: row["significance_change"]
            for row in rows("from qa_debiasing where dataset = 'squad' and is_addressed", connection)
        }
        changes = {
            row["model"]: row["f1_change"]
            for row in rows("from qa_out_of_distribution where dataset = 'natural'", connection)
        }
    assert [(row["method"], row["n_models"]) for row in found] == [("all", 5), ("learned_mixin", 1), ("resample", 4)]
    for row, models in ((found[0], shifts.keys()), (found[2], [name for name in shifts if name != "careful"])):
        wanted = np.corrcoef([shifts[model] for model in models], [changes[model] for model in models])[0, 1]
        assert row["pearson"] == pytest.approx(wanted)
