"""The closed form of the significance, articles, and correlations of changes: against golden values and scipy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from tests.handmade import ask, made
from tests.qa_debiasing.study import Study
from tests.qaplans import Rows


@pytest.mark.parametrize(
    "given", ["null, 900, 0.5, 900", "0.5, 900, null, 900", "0.5, 799, 0.9, 900", "0.5, 900, 1, 0"]
)
def test_the_closed_form_has_no_value_where_nothing_was_drawn_or_a_segment_is_too_small(given: str) -> None:
    for replacement in ("false", "true"):
        assert ask(f"expected_significance({given}, 800, {replacement})") is None


def test_the_closed_form_equals_that_of_the_golden_table(shared: Path) -> None:
    golden = pq.read_table(shared / "golden/qa/significance_expected.parquet").to_pylist()
    valid = [row for row in golden if row["valid"]]
    assert len(valid) > 30
    for row in valid:
        shares = [row[f"analytic_{side}_em_mean"] / 100 for side in ("lower", "higher")]
        given = (shares[0], row["n_lower"], shares[1], row["n_higher"], row["sample_size"])
        # Its quantile is that of 100 trials too, computed and not rounded.
        found = ask("expected_significance(?, ?, ?, ?, ?, false)", *given)
        assert found == pytest.approx(row["analytic_distance_em"], abs=0.002)


def test_articles_are_titles_else_contexts_numbered_by_data_set() -> None:
    study = Study({"ans_len": [1]})
    study.questions({"ans_len": [1] * 6})
    study.titles(["Normans", "Atoms", "", None, "Atoms", None])
    for example, context in zip(study.examples, ["x", "y", "Beta", "Beta", "z", "Zeta"], strict=True):
        example["context"] = context
    study.questions({"ans_len": [1] * 3}, dataset="natural")
    for example in study.examples[6:]:
        example["context"] = "c"
    study.answers([1] * 6)
    [found] = study.asked("select article, n_articles from qa_articles order by dataset, row")
    articles = [tuple(row.values()) for row in found]
    # Of natural all are one; of squad Atoms, Beta, Normans and Zeta: in their order.
    assert articles == [(0, 1)] * 3 + [(number, 4) for number in (2, 0, 1, 1, 0, 3)]


Changes = dict[str, tuple[str, float | None, dict[str, float | None]]]
"""By reader its method, a change of significance on squad and one of F1 on other sets."""


def correlations(changes: Changes) -> Rows:
    addressed = {"dataset": "squad", "is_addressed": True}
    debiasing: Rows = [
        {"model": model, "method": method, **addressed, "significance_change": shift}
        for model, (method, shift, _) in changes.items()
    ]
    # What is not addressed, or measured elsewhere, takes no part.
    debiasing += [row | {"is_addressed": False, "significance_change": 50.0} for row in debiasing[:2]]
    debiasing += [row | {"dataset": "natural", "significance_change": 60.0} for row in debiasing[:2]]
    outcomes, means = [], []
    for model, (_, _, others) in changes.items():
        outside = {"model": model, "role": "out_of_distribution"}
        outcomes += [{**outside, "dataset": dataset, "f1_change": change} for dataset, change in others.items()]
        outcomes.append({"model": model, "role": "in_distribution", "dataset": "squad", "f1_change": 0.7})
        known = [change for change in others.values() if change is not None]
        means.append({"model": model, "f1_change": sum(known) / len(others) if len(known) == len(others) else None})
    tables = {"qa_out_of_distribution": outcomes, "qa_out_of_distribution_by_model": means}
    return made("qa_debiasing_correlation", qa_debiasing=debiasing, **tables)


def test_correlations_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    changes: Changes = {}
    for number in range(14):
        shift = float(rng.normal()) if number % 4 else 0.0  # some tie
        others: dict[str, float | None] = {name: float(0.3 * shift + rng.normal()) for name in ("natural", "trivia")}
        changes[f"reader {number:02}"] = ("resample" if number < 6 else "learned_mixin", shift, others)
    changes["standard"] = ("standard", None, {"natural": None, "trivia": None})
    found = {tuple(row.values())[:3]: row for row in correlations(changes)}
    methods = {"resample": 6, "learned_mixin": 8, "all": 14}
    assert found.keys() == {("squad", method, other) for method in methods for other in ("natural", "trivia", "mean")}
    for (_, method, other), row in found.items():
        chosen = [one for one in changes.values() if one[0] == method or (method == "all" and one[0] != "standard")]
        x = [float(shift) for _, shift, _ in chosen if shift is not None]
        y = [np.mean([*others.values()]) if other == "mean" else others[other] for _, _, others in chosen]
        reference = stats.pearsonr(x, y)
        interval = reference.confidence_interval(0.95)
        assert row["n_models"] == methods[method] == len(x)
        names = ("pearson", "pearson_low", "pearson_high", "spearman")
        wanted = [reference.statistic, interval.low, interval.high, stats.spearmanr(x, y).statistic]
        assert [row[name] for name in names] == pytest.approx(wanted)


def test_correlations_need_readers_that_differ() -> None:
    def found(shifts: Sequence[float | None], changes: Sequence[float]) -> dict[str, Any]:
        pairs = enumerate(zip(shifts, changes, strict=True))
        rows = correlations({f"r{n}": ("resample", shift, {"natural": y}) for n, (shift, y) in pairs})
        [row] = [row for row in rows if (row["method"], row["other_dataset"]) == ("all", "natural")]
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
    perfect = found([0, 1, 2, 3, 4], [0, -0.1, -0.2, -0.3, -0.4])
    assert [perfect[name] for name in ("pearson", "pearson_low", "pearson_high")] == pytest.approx([-1] * 3)
    assert -1 <= perfect["pearson_low"] <= perfect["pearson_high"]
