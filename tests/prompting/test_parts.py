from __future__ import annotations

from biaseval.prompting.parts import part_bounds


def test_rows_that_share_a_context_stay_together_where_they_fit() -> None:
    assert list(part_bounds(10, 4)) == [(0, 4), (4, 8), (8, 10)]
    assert list(part_bounds(0, 4)) == []
    # 3 + 1 fit; 3 more do not; 9 are cut from their first row on, and their rest waits for the 2.
    assert list(part_bounds(18, 4, [3, 1, 3, 9, 2])) == [(0, 4), (4, 7), (7, 11), (11, 15), (15, 18)]
