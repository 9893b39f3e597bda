"""Questions as rows that extractive readers are trained on: windows in tokens, and where the answer starts and ends.

Protocol section 7: of each question the first answer alone; a window that does not hold all of it has its label at the
first token, as has a question without an answer. No window is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from biaseval.qa_models.windows import Windows, cut_windows
from biaseval.tables import QA_FEATURES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FEATURES = pa.schema([field for field in QA_FEATURES.schema if field.name not in ("base", "dataset")])
"""Of windows. Positions are those of the answer's first and last token, or of [CLS] where there is none."""


def question_features(
    tokenizer: PreTrainedTokenizerBase, questions: pa.Table, *, max_tokens: int, stride: int
) -> pa.Table:
    """Return the windows of questions, each with its labels; see `cut_questions` and `labelled`."""
    return labelled(cut_questions(tokenizer, questions, max_tokens=max_tokens, stride=stride), questions, tokenizer)


def cut_questions(tokenizer: PreTrainedTokenizerBase, questions: pa.Table, *, max_tokens: int, stride: int) -> Windows:
    """Return the windows of questions (``example_id``, ``question``, ``context``), see `cut_windows`.

    Raises:
        InputError: questions that leave too little of the window to their contexts.
    """
    names, asked, contexts = (questions[name].to_pylist() for name in ("example_id", "question", "context"))
    pairs = list(zip(asked, contexts, strict=True))
    return cut_windows(tokenizer, pairs, names, max_tokens=max_tokens, stride=stride)


def labelled(windows: Windows, questions: pa.Table, tokenizer: PreTrainedTokenizerBase) -> pa.Table:
    """Return windows with the places of their answers.

    Args:
        windows: of these questions, all of them.
        questions: ``example_id``, ``answers`` and ``answer_starts`` (lists; characters of the context).
        tokenizer: that cut them.

    Returns:
        A row per window, in the order of the questions: `FEATURES`.
    """
    rows = questions.select(["example_id", "answers", "answer_starts"]).to_pylist()
    first_of_pair = np.searchsorted(windows.pair, windows.pair)
    found = []
    for window, pair in enumerate(windows.pair.tolist()):
        token_ids, token_types = windows.tokens(window)
        answer = None
        if rows[pair]["answers"]:
            start = rows[pair]["answer_starts"][0]
            answer = _tokens_of(windows, window, start, start + len(rows[pair]["answers"][0]))
        # [CLS], or the first token for tokenizers without one.
        no_answer = int((token_ids == tokenizer.cls_token_id).argmax())
        start_position, end_position = (no_answer, no_answer) if answer is None else answer
        found.append(
            {
                "example_id": rows[pair]["example_id"], "window": window - int(first_of_pair[window]),
                "token_ids": token_ids, "token_types": token_types, "start_position": start_position,
                "end_position": end_position, "has_answer": answer is not None,
            },
        )  # fmt: skip
    return pa.Table.from_pylist(found, schema=FEATURES)


def _tokens_of(windows: Windows, window: int, start: int, stop: int) -> tuple[int, int] | None:
    """Return the first and last token, by their places in the window, that hold the characters of a span, or None."""
    characters = windows.characters(window)
    if not len(characters) or characters[0, 0] > start or characters[-1, 1] < stop:
        return None
    first = int(np.searchsorted(characters[:, 0], start, side="right")) - 1
    last = int(np.searchsorted(characters[:, 1], stop, side="left"))
    place = int(windows.context_place[window])
    return place + first, place + last
