"""What the marts say of simulated runs, beside what is true of them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from biaseval.analysis.sql_files import Relation, connect, create, relations, rows
from biaseval.tables import tables_of

OUTCOMES = pa.schema(
    [
        ("run", pa.string()),
        ("quantity", pa.string()),  # what is counted, or what an interval is of
        ("metric", pa.string()),
        ("place", pa.string()),  # of an interval: what all runs of a cell have in common; of a verdict: its page
        ("n", pa.int64()),  # counted
        ("n_hit", pa.int64()),  # of them what the quantity says
        ("estimate", pa.float64()),  # of an interval whose truth is the mean over all runs
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
"""What one simulated run came to: counts, or an interval."""


def outcomes(
    kind: str, tables: Mapping[str, pa.Table], wanted: Collection[str], queries: Mapping[str, str]
) -> dict[str, pa.Table]:
    """Return what queries find in the marts of runs that are given by tables in place of some of their relations.

    Args:
        kind: of the runs.
        tables: by name: of the run, or relations that are made of what is not simulated.
        wanted: the marts that the queries read.
        queries: by name.
    """
    with closing(connect([])) as connection:
        connection.execute("set threads = 1").fetchall()  # several processes simulate at once
        for name, content in tables.items():
            connection.from_arrow(content).create(name)
        for relation in made_of(kind, tables.keys(), wanted):
            create("table", relation.name, relation.sql, connection)
        return {name: rows(query, connection) for name, query in queries.items()}


def made_of(kind: str, given: Collection[str], wanted: Collection[str]) -> Sequence[Relation]:
    """Return the relations to make, in their order, so that those that are wanted are there."""
    every = relations("intermediate", "marts", "comparisons", tables=tables_of(kind))
    names = set(wanted)
    for relation in reversed(every):
        if relation.name in names and relation.name not in given:
            names |= relation.reads
    return [relation for relation in every if relation.name in names and relation.name not in given]
