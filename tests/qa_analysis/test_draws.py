"""The same numbers, whatever else is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis import query
from tests.measuring import measure
from tests.qaplans import QaPlan, rows, two_segments


def _random(models: Sequence[str], heuristics: Sequence[str] = ("ans_len", "cos_sim"), **spec: Any) -> QaPlan:
    """Return a plan with random attributes and metrics, the same for a model or heuristic in every plan."""
    n_rows = 400
    plan = QaPlan(models, heuristics=list(heuristics), bootstrap={"trials": 30, "sample": 40}, **spec)
    all_values = {
        "ans_len": np.random.default_rng(0).integers(1, 5, size=n_rows).tolist(),
        "cos_sim": np.random.default_rng(1).random(n_rows).tolist(),
        "word_dist": [value or None for value in np.random.default_rng(2).integers(0, 9, size=n_rows).tolist()],
    }
    plan.questions({heuristic: all_values[heuristic] for heuristic in heuristics})
    for model in models:
        rng = np.random.default_rng(len(model))
        f1 = rng.random(n_rows)
        plan.answers((f1 > rng.random(n_rows)).astype(float).tolist(), f1.tolist(), model=model)
    return plan


def test_the_same_predictions_in_other_parts_and_orders_give_the_same_bytes(tmp_path: Path) -> None:
    first = _random(["bert", "roberta"]).write(tmp_path / "first")
    plan = _random(["bert", "roberta"])
    for table in (plan.examples, plan.attributes, plan.predictions):
        table.reverse()
    second = plan.write(tmp_path / "second", n_parts=3)
    for run in (first, second, second):
        measure(run)
    names = sorted(
        path.relative_to(first)
        for folder in ("marts", "qa_bias_draws", "qa_draws", "qa_search_nulls")
        for path in Path(first, folder).iterdir()
    )
    assert [str(name) for name in names] == [
        "marts/qa_answer_changes.parquet",
        "marts/qa_bias_by_heuristic.parquet",
        "marts/qa_bias_candidates.parquet",
        "marts/qa_bias_models.parquet",
        "marts/qa_bias_tests.parquet",
        "marts/qa_by_dataset.parquet",
        "marts/qa_by_model.parquet",
        "marts/qa_curves.parquet",
        "marts/qa_debiasing.parquet",
        "marts/qa_debiasing_by_method.parquet",
        "marts/qa_debiasing_correlation.parquet",
        "marts/qa_model_comparisons.parquet",
        "marts/qa_out_of_distribution.parquet",
        "marts/qa_out_of_distribution_by_method.parquet",
        "marts/qa_out_of_distribution_by_model.parquet",
        "marts/qa_over_datasets.parquet",
        "marts/qa_training_curves.parquet",
        *(
            f"{table}/part-0000{part}.parquet"
            for table in ("qa_bias_draws", "qa_draws", "qa_search_nulls")
            for part in range(2)
        ),
    ]
    for name in names:
        assert Path(first, name).read_bytes() == Path(second, name).read_bytes(), name


def test_models_and_heuristics_that_are_added_change_no_draw_of_the_others(tmp_path: Path) -> None:
    alone = _random(["bert"], ["cos_sim"]).write(tmp_path / "alone")
    more = _random(["roberta", "bert"], ["word_dist", "cos_sim"]).write(tmp_path / "more")
    for run in (alone, more):
        measure(run)
    for table in ("qa_draws", "qa_bias_candidates", "qa_curves", "qa_by_dataset"):
        where = "" if table == "qa_by_dataset" else "and heuristic = 'cos_sim'"
        sql = f"from {table} where model = 'bert' {where} order by all"
        assert query([alone], sql).equals(query([more], sql)), table
        assert query([alone], sql).num_rows


def test_replacement_widens_the_intervals_of_small_segments(tmp_path: Path) -> None:
    found = {}
    for replacement in (False, True):
        plan = two_segments(bootstrap={"trials": 2000, "sample": 9, "replacement": replacement})
        run = plan.write(tmp_path / str(replacement))
        measure(run)
        [found[replacement]] = rows(run, "from qa_bias_candidates where threshold = 1")
    # Nine of the ten questions, eight of them right: 7 or 8 of 9. Nine draws of ten: binomial.
    assert [found[False][name] for name in ("lower_low", "lower_high")] == pytest.approx([700 / 9, 800 / 9])
    assert found[True]["lower_low"] <= 500 / 9 + 1e-9
    assert found[True]["lower_high"] == pytest.approx(100)
    for row in found.values():
        assert row["lower_mean"] == pytest.approx(80, abs=1.5)
