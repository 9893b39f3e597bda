"""Parts: prompts that are scored together. The plan fixes their content."""

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
"""The approximate largest number of tokens of a part; the published suite (256 tasks in 13 settings) has 1,000
parts."""
_FEWEST_PARTS = 8
"""The fewest parts of a run with enough tokens for them, so that the loss of a part costs little."""
_FEWEST_TOKENS = 16_000
_MOST_UNSHARED = 16_000_000
"""The most token ids of a part with one text per (prompt, label): 64 MB in the preparation of the part."""


@dataclass(frozen=True)
class PlannedPart:
    """Prompts that are scored together; the fixed content lets a resumed run build identical batches."""

    prompts: pa.Table
    tokens: int
    """Tokens to compute with shared prefixes: each context once, then inputs and labels (approximate)."""
    tokens_unshared: int
    """Tokens of one full text per (prompt, label) (approximate)."""
    adapter: str | None = None
    """The adapter of all its prompts, by its folder; None in a run without adapters."""

    def of(self, prompts: list[dict[str, Any]], context_tokens: Mapping[str, int]) -> PlannedPart:
        """Return the part that holds these prompts."""
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
    """Return the part of these rows of ``PROMPTS`` with ``n_tokens``; arguments as the fields of `Cutting`."""
    contexts = [row["context_id"] for row in prompts]
    tokens = sum(row["n_tokens"] for row in prompts)
    labels = len(prompts) * label_tokens
    repeated = sum(context_tokens[name] for name in contexts) - sum(context_tokens[name] for name in set(contexts))
    return PlannedPart(PROMPTS.rows(prompts), tokens - repeated + labels, n_labels * tokens + labels, adapter)


@dataclass(frozen=True)
class Cutting:
    """The division of a task's or setting's prompts into parts.

    ``auto`` counts tokens. The loss of an actor costs a part, progress counts parts, and each part costs a file of
    every table and a Ray task. Prompts of a block share their context, so parts end between blocks where possible.
    """

    part_rows: int | Literal["auto"]
    """``execution.part_rows``: the largest number of rows of a part."""
    n_groups: int
    """Tasks or settings of the run; each is divided separately."""
    n_labels: int
    """Labels of each prompt."""
    label_tokens: int
    """Tokens of all labels of a prompt, each with its EOS."""
    context_tokens: Mapping[str, int]
    """Tokens of each context, by its id."""

    def parts(
        self, prompts: Sequence[dict[str, Any]], blocks: Sequence[int], adapter: str | None = None
    ) -> Iterator[PlannedPart]:
        """Yield the parts of prompts, rows of ``PROMPTS`` with ``n_tokens``, in their order.

        ``blocks`` are numbers of consecutive prompts that share a context except for its length; they add up to all
        prompts.
        """
        counts = {"n_labels": self.n_labels, "label_tokens": self.label_tokens}
        for start, stop in self._bounds(prompts, blocks):
            yield planned_part(list(prompts[start:stop]), self.context_tokens, **counts, adapter=adapter)

    def _bounds(self, prompts: Sequence[dict[str, Any]], blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
        if self.part_rows != "auto":
            return part_bounds(self.part_rows, blocks)
        seen: set[str] = set()
        tokens = []
        for row in prompts:
            shared = 0 if row["context_id"] not in seen else self.context_tokens[row["context_id"]]
            tokens.append(row["n_tokens"] - shared + self.label_tokens)
            seen.add(row["context_id"])
        unshared = sum(self.n_labels * row["n_tokens"] + self.label_tokens for row in prompts)
        return even_bounds(tokens, blocks, how_many_parts(sum(tokens), unshared, self.n_groups))


def how_many_parts(tokens: int, tokens_unshared: int, n_groups: int) -> int:
    """Return the number of parts where ``execution.part_rows`` is ``auto``, for prompts of one of ``n_groups``.

    ``tokens`` are to be computed; ``tokens_unshared``, those of one full text per (prompt, label), are what the
    preparation of a part holds in memory.
    """
    largest = max(_FEWEST_TOKENS, min(_MOST_TOKENS, tokens * n_groups // _FEWEST_PARTS))
    return max(1, math.ceil(tokens / largest), math.ceil(tokens_unshared / _MOST_UNSHARED))


def even_bounds(tokens: Sequence[int], blocks: Sequence[int], n_parts: int) -> Iterator[tuple[int, int]]:
    """Divide rows into ``n_parts`` with about the same number of tokens; fewer if there are fewer rows.

    A part ends at the end of the nearest block if that is at most a quarter of a part away. There is at least one row,
    each of at least one token, and the sizes of consecutive blocks add up to all rows.
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


def part_bounds(part_rows: int, blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Divide rows into parts of at most ``part_rows``, at least 1, and keep a block of rows together if it fits."""
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
    """Return the number of scored inputs."""
    return sum(part.prompts.num_rows for part in parts)


def n_scores(parts: Iterable[PlannedPart]) -> int:
    """Return the number of scored (prompt, label) pairs."""
    return sum(pc.sum(pc.list_value_length(part.prompts["labels"])).as_py() for part in parts)
