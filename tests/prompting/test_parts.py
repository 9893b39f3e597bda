import pytest

from biaseval.prompting.parts import even_bounds, how_many_parts, part_bounds


def test_rows_that_share_a_context_stay_together_where_they_fit() -> None:
    assert list(part_bounds(10, 4, [10])) == [(0, 4), (4, 8), (8, 10)]
    assert list(part_bounds(0, 4, [])) == []
    # 3 + 1 fit; 3 more do not; 9 are cut from their first row on, and their rest waits for the 2.
    assert list(part_bounds(18, 4, [3, 1, 3, 9, 2])) == [(0, 4), (4, 7), (7, 11), (11, 15), (15, 18)]


@pytest.mark.parametrize(
    ("tokens", "blocks", "n_parts", "expected"),
    [
        # 12 tokens in 3 parts of 4: the blocks end at 3, 7 and 12, and each is one token away at most.
        ([1] * 12, [3, 4, 5], 3, [(0, 3), (3, 7), (7, 12)]),
        # In 2 parts of 6: 7 is one away, which is less than a quarter of 6.
        ([1] * 12, [3, 4, 5], 2, [(0, 7), (7, 12)]),
        # No block ends near the middle: it is cut where the tokens say, not the rows.
        ([5, 1, 1, 1, 1, 1], [6], 2, [(0, 1), (1, 6)]),
        # The first block may be the nearest one.
        ([4, 4], [1, 1], 2, [(0, 1), (1, 2)]),
        # More parts than rows: a row is the least that a part holds.
        ([7, 7], [2], 5, [(0, 1), (1, 2)]),
    ],
)
def test_parts_have_about_as_many_tokens_and_end_with_a_block_where_one_is_near(
    tokens: list[int], blocks: list[int], n_parts: int, expected: list[tuple[int, int]]
) -> None:
    assert list(even_bounds(tokens, blocks, n_parts)) == expected


@pytest.mark.parametrize(
    ("tokens", "tokens_unshared", "n_groups", "expected"),
    [
        (1_100_000, 5_000_000, 256, 4),  # a task of the published suite: parts of 300,000 tokens
        (1_100_000, 5_000_000, 1, 8),  # alone it still has eight, for progress and what a kill loses
        (300_000, 600_000, 2, 4),
        (40_000, 80_000, 1, 3),  # but none of fewer than 16,000 tokens
        (900, 1_800, 1, 1),
        (300_000, 160_000_000, 256, 10),  # many labels: what preparing a part holds is bounded, too
    ],
)
def test_a_run_has_parts_enough_and_no_more(tokens: int, tokens_unshared: int, n_groups: int, expected: int) -> None:
    assert how_many_parts(tokens, tokens_unshared, n_groups) == expected
