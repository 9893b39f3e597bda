"""Failed parts of a run, and what its metrics leave out for them (``analysis.missing_parts: leave_out``)."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pyarrow import ArrowException

from biaseval.store import Run, part_name
from biaseval.tables import FAILED_PARTS, PROMPTS, QA_EXAMPLES, SETTINGS, TABLES
from biaseval.units import Unit


def failed_rows(run: Run) -> dict[str, dict[str, Any]]:
    """Return the rows of ``failed_parts`` by the missing file; none of a damaged table, which has no digest."""
    if not run.has(f"{FAILED_PARTS.name}/{part_name(0)}"):
        return {}
    try:
        rows = FAILED_PARTS.rows(run.read_part(FAILED_PARTS.name, 0).to_pylist()).to_pylist()
        return {f"{row['table_name']}/{part_name(row['part'])}": row for row in rows}
    except (ArrowException, OSError, ValueError, LookupError, TypeError):
        return {}


def left_out_files(run: Run) -> set[str]:
    """Return the missing files without which the metrics of a run are computed."""
    return {name for name, row in failed_rows(run).items() if row["is_left_out"]}


def left_out(run: Run) -> Mapping[str, set[str]]:
    """Return what the metrics of a run leave out: ``task``, ``demo_set`` or ``part`` of questions, to its values."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in failed_rows(run).values():
        for column, _, value in (one.partition(" ") for one in row["rows_of"] or () if row["is_left_out"]):
            found[column].add(value)
    return found


def rows_of(run: Run, table: str, unit: Unit) -> list[str] | None:
    """Return the tasks, sets of demonstrations or questions that metrics leave out without a part; None: they need it.

    Label bias leaves out the tasks of the part, majority bias its sets of demonstrations, QA bias its questions. So all
    settings and models keep the same rows.
    """
    whole, part = TABLES[table].part_of, unit.work.get("prompts_part", unit.work.get("part"))
    if whole == QA_EXAMPLES.name:
        return [f"part {part}"]
    if whole != PROMPTS.name:
        return None
    column = "demo_set" if run.parts(SETTINGS.name) else "task"
    found = run.read_part(PROMPTS.name, part)[column].unique().to_pylist()
    return None if None in found else [f"{column} {value}" for value in sorted(found)]


def is_anything_left(run: Run) -> bool:
    """Return whether a run has tasks, sets of demonstrations or questions beside those that are left out."""
    every = (
        {"part": run.parts(QA_EXAMPLES.name)} if run.parts(QA_EXAMPLES.name) else run.read_table("contexts").to_pydict()
    )
    return all({*map(str, every[column])} - {"None"} - values for column, values in left_out(run).items())
