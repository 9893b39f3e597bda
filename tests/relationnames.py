"""The names of what a run's results hold."""

from biaseval.analysis import sql_files as relations
from biaseval.tables import tables_of


def names_of(kind: str, *layers: str) -> list[str]:
    """Return the names of the relations that runs of a kind have."""
    return [relation.name for relation in relations.relations(*layers, tables=tables_of(kind))]


def views_of(kind: str) -> list[str]:
    """Return the names of all that ``results.duckdb`` holds of a kind of run."""
    return [*tables_of(kind), *names_of(kind, "intermediate", "marts")]
