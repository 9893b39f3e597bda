"""Several texts in a row: which go together, and which models allow it.

A step and its loss are the same either way. A row is attended in blocks: no text sees another, and each has the
positions that it would have alone.
"""

from collections.abc import Sequence

from transformers import PreTrainedModel

from biaseval.models import attention_window
from biaseval.scoring.packed import rotary_limit, why_no_packs

TESTED_FAMILIES = {"falcon", "llama", "mistral", "opt", "qwen2", "qwen3"}
TESTED_FAMILIES |= {"gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "phi", "phi3"}
"""Training compares nothing by itself: it packs the families that the tests of packed rows cover, and their kin."""


def why_not_packed(model: PreTrainedModel, max_tokens: int) -> str | None:
    """Return why conversations of up to ``max_tokens`` cannot share rows of this model; None if they can.

    The model may be without storage (torch's meta device).
    """
    if model.config.model_type not in TESTED_FAMILIES or why_no_packs(model) is not None:
        return f"{model.config.model_type} is not known to be right on packed rows"
    window = attention_window(model.config)
    if window is not None and max_tokens > window:
        return f"max_tokens {max_tokens} is beyond the sliding window {window}"
    limit = rotary_limit(model)
    if limit is not None and max_tokens > limit:
        return f"max_tokens {max_tokens} is beyond {limit}, where positions depend on the longest text of a batch"
    return None


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return rows of indices whose lengths, none above ``capacity``, fit it: first fit, the longest first."""
    rows: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        place = next((number for number, left in enumerate(free) if left >= lengths[index]), len(rows))
        if place == len(rows):
            rows.append([])
            free.append(capacity)
        rows[place].append(index)
        free[place] -= lengths[index]
    return rows
