"""The span search equals a search of one pair after the other."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biaseval.qa_models.spans import best_spans, merged, window_answers
from biaseval.qa_models.windows import WindowSettings
from tests.qa_models.families import by_brute_force

WINDOWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=4)


def vectorised(windows: list[Any], context: str, n_best: int, max_answer_tokens: int) -> list[tuple[str, float]]:
    """Search windows of one context, padded, as one batch."""
    width = max(len(offsets) for _, _, offsets in windows) + 2
    logits = torch.full((2, len(windows), width), 99.0)  # padding must not win
    places, n_context, characters = [], [], []
    for row, (start_logits, end_logits, offsets) in enumerate(windows):
        logits[0, row, : len(offsets)] = torch.from_numpy(start_logits)
        logits[1, row, : len(offsets)] = torch.from_numpy(end_logits)
        own = [offset for offset in offsets if offset is not None]
        places.append(next((place for place, offset in enumerate(offsets) if offset is not None), 0))
        n_context.append(len(own))
        characters.append(np.array(own, dtype=np.int64).reshape(-1, 2))
    spans = best_spans(
        logits[0], logits[1], WindowSettings(n_best=n_best, max_answer_tokens=max_answer_tokens),
        n_tokens=torch.tensor([len(offsets) for _, _, offsets in windows]), context_place=torch.tensor(places),
        n_context=torch.tensor(n_context),
    )  # fmt: skip
    found = [window_answers(spans, row, context, characters[row], n_best) for row in range(len(windows))]
    return [(answer.text, answer.score) for answer in merged(found, n_best)]


@settings(max_examples=150, deadline=None)
@given(
    shapes=WINDOWS,
    seed=st.integers(0, 2**32 - 1),
    n_values=st.sampled_from([2, 4, 1000]),
    n_best=st.integers(1, 20),
    max_answer_tokens=st.integers(1, 30),
)
def test_the_search_equals_brute_force_on_any_logits(
    shapes: list[tuple[int, int, int]], seed: int, n_values: int, n_best: int, max_answer_tokens: int
) -> None:
    draw = np.random.default_rng(seed)  # few different values: ties
    context = "".join(draw.choice(list("ab "), 40))
    windows = []
    for n_before, n_context, n_after in shapes:
        n = max(n_before + n_context + n_after, 1)
        logits = draw.integers(0, n_values, (2, n)).astype(np.float32) / 7
        first = int(draw.integers(0, 10))
        offsets: list[Any] = [None] * n
        for place in range(n_context):
            offsets[n_before + place] = (first + place * 2, first + place * 2 + 2)
        windows.append((logits[0], logits[1], offsets))
    expected = by_brute_force(windows, context, n_best, max_answer_tokens)
    assert vectorised(windows, context, n_best, max_answer_tokens) == expected


def one_window(start: list[float], end: list[float], n_before: int = 1) -> list[Any]:
    n = len(start) - n_before - 1
    offsets: list[Any] = [None] * n_before + [(place, place + 1) for place in range(n)] + [None]
    return [(np.array(start, dtype=np.float32), np.array(end, dtype=np.float32), offsets)]


Logits = list[float]


def best(start: Logits, end: Logits, context: str, n_best: int = 20, longest: int = 30, n_before: int = 1) -> list[Any]:
    return vectorised(one_window(start, end, n_before), context, n_best, longest)


def test_spans_by_hand() -> None:
    # The first token is never an answer.
    assert best([9, 1, 0, 0, 0], [9, 0, 2, 0, 0], "abc")[0] == ("ab", 3.0)
    # Question and special tokens take places among the best.
    assert best([9, 8, 0, -1], [9, 8, 1, -1], "x", n_best=2, n_before=2) == []
    assert best([9, 8, 0, -1], [9, 8, 1, -1], "x", n_best=3, n_before=2) == [("x", 1.0)]
    # A span has at most the given tokens.
    assert best([0, 5, 0, 0, 0], [0, 0, 0, 5, 0], "abc", longest=3)[0] == ("abc", 10.0)
    assert best([0, 5, 0, 0, 0], [0, 0, 0, 5, 0], "abc", longest=2)[0][0] == "a"
    # Of equal scores the higher start logit comes first, then the earlier token, then the first window.
    assert best([0, 1, 2, 0], [0, 2, 1, 0], "ab")[:2] == [("b", 3.0), ("a", 3.0)]
    assert best([0, 1, 1, 0], [0, 1, 1, 0], "ab")[0] == ("a", 2.0)
    same = (np.zeros(3, dtype=np.float32), np.zeros(3, dtype=np.float32))
    windows = [(*same, [None, (2, 3), None]), (*same, [None, (0, 1), None])]
    assert vectorised(windows, "abc", 20, 30) == [("c", 0.0), ("a", 0.0)]
