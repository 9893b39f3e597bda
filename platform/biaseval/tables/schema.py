"""What a table is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

STRINGS = pa.list_(pa.string())


@dataclass(frozen=True)
class TableSchema:
    """What one row of a table is, and which runs have it."""

    name: str
    """Of its folder in a run directory, and of its view in SQL."""
    grain: str
    key: tuple[str, ...]
    schema: pa.Schema
    kinds: frozenset[str]
    """The kinds of run that have it; in SQL it is empty where such a run has no part of it."""
    part_of: str | None = None
    """The table each of whose parts has a part here."""
    for_each: tuple[str, ...] = ()
    """The lists in spec or plan for each of whose items it has them again: part p of n, then n + p, 2 n + p …"""
    if_asked: frozenset[str] = frozenset()
    """Of a table that is part of another, the kinds whose specs say whether a run has it at all."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Columns that runs of older versions lack, and what SQL has in their place."""
    optional: frozenset[str] = frozenset()
    """Columns of ``later`` that a part has only where its rows name them."""
    null_keys: frozenset[str] = frozenset()
    """Columns of the key that may be null."""
    also_unique: tuple[tuple[str, ...], ...] = ()
    """Other columns that no two rows have the same of."""

    def empty(self) -> pa.Table:
        """Return the table without a row."""
        return pa.Table.from_batches([], self.schema)  # where schema.empty_table() would import pandas

    def rows(self, rows: list[dict[str, object]]) -> pa.Table:
        """Return ``rows`` as a table of exactly this schema, but for optional columns that none of them names."""
        lacking = [name for name in self.optional if rows and not any(name in row for row in rows)]
        return pa.Table.from_pylist(rows, schema=self.schema).drop_columns(lacking)
