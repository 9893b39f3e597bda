"""Parts: prompts that are scored together. What they hold is fixed when they are planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.tables import PROMPTS

_ROWS_PER_PART = 512
_FEWEST_ROWS = 32
_SCORES_PER_PART = 2048


@dataclass(frozen=True)
class PlannedPart:
    """Prompts that are scored together; the composition is fixed here, so that a resumed run packs identically."""

    prompts: pa.Table
    tokens: int
    """Tokens to compute with shared prefixes: each context once, then inputs and labels (approximate)."""
    tokens_unshared: int
    """Tokens of one full text per (prompt, label) (approximate)."""
    adapter: str | None = None
    """The adapter of all its prompts, by its folder; None in a run without adapters."""

    def of(self, prompts: list[dict[str, Any]], context_tokens: Mapping[str, int]) -> PlannedPart:
        """Return a part of some of its prompts."""
        n_rows, n_labels = self.prompts.num_rows, len(prompts[0]["labels"])
        in_labels = self.tokens_unshared - n_labels * pc.sum(self.prompts["n_tokens"]).as_py()
        return planned_part(prompts, context_tokens, n_labels=n_labels, label_tokens=in_labels // n_rows)


def planned_part(
    prompts: list[dict[str, Any]],
    context_tokens: Mapping[str, int],
    *,
    n_labels: int,
    label_tokens: int,
    adapter: str | None = None,
) -> PlannedPart:
    """Return the part of these prompts, which have the same number of labels.

    Args:
        prompts: rows of ``PROMPTS`` with ``n_tokens``.
        context_tokens: tokens of each context, by its id.
        n_labels: of each prompt.
        label_tokens: of all labels of a prompt, each with its EOS.
        adapter: of all its prompts.
    """
    contexts = [row["context_id"] for row in prompts]
    tokens = sum(row["n_tokens"] for row in prompts)
    labels = len(prompts) * label_tokens
    repeated = sum(context_tokens[name] for name in contexts) - sum(context_tokens[name] for name in set(contexts))
    return PlannedPart(PROMPTS.rows(prompts), tokens - repeated + labels, n_labels * tokens + labels, adapter)


def rows_per_part(asked: int | Literal["auto"], n_labels: int) -> int:
    """Return how many prompts of ``n_labels`` labels a part holds at most, by ``execution.part_rows``."""
    if asked != "auto":
        return asked
    return max(_FEWEST_ROWS, min(_ROWS_PER_PART, _SCORES_PER_PART // n_labels))


def part_bounds(n_rows: int, part_rows: int, blocks: Sequence[int] | None = None) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most ``part_rows``, keeping a block of rows together where it fits.

    Rows of a block share their context: an actor that gets its parts in a row computes the context once.

    Args:
        n_rows: how many there are.
        part_rows: at least 1.
        blocks: sizes of blocks of rows in order, that add up to ``n_rows``; None for one block.
    """
    start = end = 0
    for size in blocks if blocks is not None else [n_rows]:
        if end > start and end - start + size > part_rows:
            yield start, end
            start = end
        end += size
        while end - start > part_rows:
            yield start, start + part_rows
            start += part_rows
    if end > start:
        yield start, end


def n_prompts(parts: Iterable[PlannedPart]) -> int:
    """Return how many inputs are scored."""
    return sum(part.prompts.num_rows for part in parts)


def n_scores(parts: Iterable[PlannedPart]) -> int:
    """Return how many (prompt, label) pairs are scored."""
    return sum(pc.sum(pc.list_value_length(part.prompts["labels"])).as_py() for part in parts)
