"""Parts: prompts that are scored together. What they hold is fixed when they are planned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.tables import PROMPTS

_MOST_TOKENS = 300_000
"""Of a part, about: the published suite (256 tasks in 13 settings) then has a thousand of them."""
_FEWEST_PARTS = 8
"""Of a run that has the tokens for as many, so that little is lost with a part."""
_FEWEST_TOKENS = 16_000
_MOST_UNSHARED = 16_000_000
"""Token ids of one text per (prompt, label): 64 MB where a part is prepared."""


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


@dataclass(frozen=True)
class Cutting:
    """How the prompts of a task, or of a setting of label proportions, are cut into parts.

    ``auto`` counts tokens: a part is what is lost with an actor and what progress is said by, and each costs a file of
    every table and a task of Ray. Prompts of a block share their context, so parts end between blocks where they can.
    """

    part_rows: int | Literal["auto"]
    """``execution.part_rows``: rows of a part, at most."""
    n_groups: int
    """Tasks or settings of the run, each of which is cut for itself."""
    n_labels: int
    """Of each prompt."""
    label_tokens: int
    """Of all labels of a prompt, each with its EOS."""
    context_tokens: Mapping[str, int]
    """Tokens of each context, by its id."""

    def parts(
        self, prompts: Sequence[dict[str, Any]], blocks: Sequence[int], adapter: str | None = None
    ) -> Iterator[PlannedPart]:
        """Yield the parts of prompts in their order.

        Args:
            prompts: rows of ``PROMPTS`` with ``n_tokens``.
            blocks: how many prompts in a row share a context, but for its length; they add up to all prompts.
            adapter: of all these prompts.
        """
        for start, stop in self._bounds(prompts, blocks):
            yield planned_part(
                list(prompts[start:stop]),
                self.context_tokens,
                n_labels=self.n_labels,
                label_tokens=self.label_tokens,
                adapter=adapter,
            )

    def _bounds(self, prompts: Sequence[dict[str, Any]], blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
        if self.part_rows != "auto":
            return part_bounds(len(prompts), self.part_rows, blocks)
        seen: set[str] = set()
        tokens = []
        for row in prompts:
            shared = 0 if row["context_id"] not in seen else self.context_tokens[row["context_id"]]
            tokens.append(row["n_tokens"] - shared + self.label_tokens)
            seen.add(row["context_id"])
        unshared = sum(self.n_labels * row["n_tokens"] + self.label_tokens for row in prompts)
        return even_bounds(tokens, blocks, how_many_parts(sum(tokens), unshared, self.n_groups))


def how_many_parts(tokens: int, tokens_unshared: int, n_groups: int) -> int:
    """Return in how many parts prompts come where ``execution.part_rows`` is ``auto``.

    Args:
        tokens: to compute for them.
        tokens_unshared: of one full text per (prompt, label), which is what preparing them holds in memory.
        n_groups: tasks or settings of the run, of which these are one.
    """
    largest = max(_FEWEST_TOKENS, min(_MOST_TOKENS, tokens * n_groups // _FEWEST_PARTS))
    return max(1, math.ceil(tokens / largest), math.ceil(tokens_unshared / _MOST_UNSHARED))


def even_bounds(tokens: Sequence[int], blocks: Sequence[int], n_parts: int) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of about as many tokens each.

    A part ends with the block that ends nearest to where it should, if that is a quarter of a part away at most.

    Args:
        tokens: of each row, of which there is one at least; each at least 1.
        blocks: sizes of blocks of rows in order, that add up to all rows.
        n_parts: how many to make; fewer where there are fewer rows.
    """
    done = np.cumsum(tokens)
    block_ends = np.cumsum(blocks)
    size, start = done[-1] / n_parts, 0
    for end in size * np.arange(1, n_parts + 1):
        away = np.abs(done[block_ends - 1] - end)
        nearest = int(away.argmin())
        stop = int(block_ends[nearest] if away[nearest] <= size / 4 else 1 + np.searchsorted(done, end))
        if stop > start:
            yield start, stop
            start = stop


def part_bounds(n_rows: int, part_rows: int, blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most ``part_rows``, keeping a block of rows together where it fits.

    Args:
        n_rows: how many there are.
        part_rows: at least 1.
        blocks: sizes of blocks of rows in order, that add up to ``n_rows``.
    """
    start = end = 0
    for size in blocks:
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
