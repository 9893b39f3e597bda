"""What debiasing changes of a reader's bias: by hand, against loops in numpy, and where nothing is compared."""

from typing import Any

import numpy as np
import pytest

from tests.qa_debiasing import study as made
from tests.qaplans import VALUES, Rows

CAREFUL = "from qa_debiasing where model = 'careful'"


def points(
    found: Rows, sizes: tuple[int, int], standard_sizes: tuple[int, int], sample: int, *, how: bool
) -> made.Floats:
    """Return the change of the significance in each sample of articles."""
    sides = ((1, "", sizes), (-1, "standard_", standard_sizes))
    return np.array(
        [
            sum(
                sign * made.expected(row[f"{side}lower"], n[0], row[f"{side}higher"], n[1], sample, replacement=how)
                for sign, side, n in sides
            )
            for row in found
        ]
    )


@pytest.mark.parametrize(("n_right", "is_nearly_broken"), [(4, False), (3, True)])
def test_a_reader_is_nearly_broken_below_two_thirds_of_the_standard_readers_worse_segment(
    n_right: int, is_nearly_broken: bool
) -> None:
    study = made.two_readers()
    study.predictions = []
    study.answers([1] * 8 + [0] * 2 + [1] * 6 + [0] * 4 + [1], model="base")
    study.answers([1] * n_right + [0] * (10 - n_right) + [1] * 5 + [0] * 6, model="careful")
    [[found]] = study.asked(CAREFUL)
    assert (found["worse_high"], found["standard_worse_high"]) == pytest.approx((10 * n_right, 60))
    assert found["is_nearly_broken"] is is_nearly_broken


@pytest.mark.parametrize("replacement", [False, True])
def test_every_change_equals_that_of_a_loop(replacement: bool) -> None:
    study, columns = made.large_study(bootstrap={"replacement": replacement})
    with study.opened() as relations:
        found = {(row["model"], row["heuristic"]): row for row in relations.rows("from qa_debiasing")}
        draws = relations.rows("from qa_change_draws order by draw")
        outcomes = {row["model"]: row for row in relations.rows("from qa_out_of_distribution")}
        assert relations.problems("qa_changes_have_their_draws") == []
    assert len(found) == 9
    sides = set()
    ends = ("", "_low", "_high")
    for (model, heuristic), row in found.items():
        if model == "base":
            continue
        taken = columns[heuristic] >= 0
        is_lower = columns[heuristic][taken] <= made.PLACES[heuristic][0]
        right, standard_right = columns[model][taken], columns["base"][taken]
        gaps = [made.segment_influence(one, is_lower)[0] for one in (right, standard_right)]
        change, influence = made.segment_influence(right - standard_right, is_lower)
        side = 100 * (-1 if gaps[1] < 0 else 1)
        sides.add(side)
        half_width = 100 * made.quantile(12) * made.cluster_error(influence, columns["article"][taken])
        assert [row["gap"], row["standard_gap"]] == pytest.approx([side * gap for gap in gaps])
        assert [row[f"gap_change{end}"] for end in ends] == pytest.approx(
            [side * change, side * change - half_width, side * change + half_width], rel=1e-4
        )
        sizes = (int(is_lower.sum()), int((~is_lower).sum()))
        own = [one for one in draws if (one["model"], one["heuristic"]) == (model, heuristic)]
        changes = points(own, sizes, sizes, 100, how=replacement)
        assert len(changes) == row["n_draws"] == 40
        bounds = [row["significance_change_low"], row["significance_change_high"]]
        assert bounds == pytest.approx(np.quantile(changes, [0.025, 0.975]), abs=1e-9)
        assert row["is_addressed"] == (heuristic == {"mixin": "ans_len", "again": "cos_sim"}[model])
        assert (row["n_rows"], row["n_articles"]) == (np.count_nonzero(taken), 12)
        assert [row["exact_match"], row["standard_exact_match"]] == pytest.approx(
            [100 * columns[reader].mean() for reader in (model, "base")]
        )
    assert sides == {-100, 100}  # a gap is signed by the standard reader's
    shown = found["mixin", "ans_len"]
    assert shown["significance_change_high"] < 0  # the study has something to find
    assert shown["gap_change_high"] < 0
    for model in ("mixin", "again"):
        for metric, suffix in (("exact_match", ""), ("f1", " f1")):
            moved = columns[f"{model}{suffix}"] - columns[f"base{suffix}"]
            half_width = made.quantile(12) * made.cluster_error((moved - moved.mean()) / 500, columns["article"])
            wanted = [moved.mean(), moved.mean() - half_width, moved.mean() + half_width]
            assert [outcomes[model][f"{metric}_change{end}"] for end in ends] == pytest.approx(wanted, rel=1e-4)


def test_the_order_of_rows_changes_no_value() -> None:
    study, _ = made.large_study()
    queries = [f"from {name}" for name in (*made.MARTS, "qa_training_costs")]
    first = study.asked(*queries)
    for part in (study.examples, study.attributes, study.predictions, study.trained):
        part.reverse()
    assert study.asked(*queries) == first
    assert len(first[0]) == 9


UNKNOWN = (
    "bias_significance", "standard_significance", "significance_change", "significance_change_low",
    "significance_change_high", "worse_high", "standard_worse_high", "worse_high_change", "gap", "standard_gap",
    "gap_change", "gap_change_low", "gap_change_high", "is_nearly_broken",
)  # fmt: skip
NOTHING = dict.fromkeys(UNKNOWN)


def whole(study: made.Study, *queries: str) -> list[Rows]:
    """Return the rows of each query over a study whose draws are all there."""
    with study.opened() as relations:
        found = [relations.rows(sql) for sql in queries]
        assert relations.problems("qa_changes_have_their_draws") == []
    return found


def is_in(wanted: dict[str, Any], row: dict[str, Any]) -> bool:
    return {name: row[name] for name in wanted} == wanted


def test_groups_that_are_too_small_have_no_bias_and_no_change() -> None:
    [[found]] = whole(made.two_readers(bootstrap={"trials": 20, "sample": 11}), CAREFUL)
    sizes = {"status": "groups too small", "n_rows": 20, "n_articles": 4, "n_draws": 0}
    assert is_in({**NOTHING, **sizes, "exact_match": pytest.approx(100 * 13 / 21)}, found)


def test_no_significant_threshold_is_no_change_without_an_interval() -> None:
    """Of two thresholds none is significant for either reader: both significances are 0."""
    study = made.Study({"ans_len": [1, 2]})
    study.questions({"ans_len": VALUES})
    study.titles(made.ARTICLES)
    study.reader("base")
    study.reader("careful", "resample", "ans_len")
    for model in ("base", "careful"):
        study.answers([1, 0] * 10, model=model)
    [[found]] = whole(study, CAREFUL)
    unknown = dict.fromkeys(("threshold", "significance_change_low", "gap", "gap_change"))
    assert is_in({"status": "not significant", "significance_change": 0, **unknown}, found)


def test_a_reader_whose_standard_one_was_given_up_is_measured_and_compared_with_nothing() -> None:
    study = made.two_readers()
    study.trained[0] |= {"path": None, "best_step": None, "problem": "its loss is not finite"}
    study.predictions = [row for row in study.predictions if row["model"] == "careful"]
    names = ("qa_debiasing", "qa_out_of_distribution", "qa_out_of_distribution_by_method", "qa_debiasing_by_method")
    [found], [outcome], [mean], no_mean = whole(study, *(f"from {name}" for name in names))
    assert no_mean == []
    assert is_in({"f1_change": None, "exact_match_change": None, "n_biases": 0}, mean)
    own = {"bias_significance": pytest.approx(10), "worse_high": pytest.approx(60)}
    assert is_in({**NOTHING, **own, "model": "careful", "n_rows": 20, "n_articles": 4}, found)
    assert is_in({"f1_change": None, "standard_f1": None, "n_rows": 21, "n_articles": 5}, outcome)
