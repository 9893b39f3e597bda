"""Training questions are repeated until both segments are equally large."""

from collections import Counter

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.resampling import resampled

VALUES = [1.0, 9.0, 2.0, None, 3.0, 8.0, 2.5, 2.75, None, 0.0]


def test_every_question_stands_there_once_and_the_smaller_segment_makes_up_for_the_rest() -> None:
    found = resampled(VALUES, 3.0, seed=5)
    assert (found.n_lower, found.n_higher, found.n_undefined, found.n_drawn) == (6, 2, 2, 4)
    assert found.rows[:10].tolist() == list(range(10))
    assert len(found.rows) == 14
    assert set(found.rows[10:].tolist()) <= {1, 5}
    counts = Counter(found.rows.tolist())
    assert sum(counts[row] for row in (0, 2, 4, 6, 7, 9)) == counts[1] + counts[5] == 6
    assert [counts[row] for row in (3, 8)] == [1, 1]


def test_the_seed_decides_what_is_drawn() -> None:
    values = [0.0] * 300 + [1.0] * 100
    one, same, other = (resampled(values, 0.5, seed=seed).rows for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    # 200 draws of 100: with replacement some are drawn several times, and the larger segment never is.
    drawn = Counter(one[400:].tolist())
    assert min(drawn) >= 300
    assert max(drawn.values()) > 2


def test_equal_segments_stay_as_they_are() -> None:
    assert resampled([1.0, 2.0], 1.0, seed=1).rows.tolist() == [0, 1]


@pytest.mark.parametrize(("threshold", "side"), [(-1.0, "at or below -1"), (9.0, "above 9")])
def test_a_segment_without_questions_is_refused(threshold: float, side: str) -> None:
    with pytest.raises(InputError, match=f"resample: none of 10 training questions has a value {side}; choose another"):
        resampled(VALUES, threshold, seed=1)
