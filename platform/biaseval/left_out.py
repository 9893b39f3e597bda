"""Failed parts of a run, and what its metrics leave out for them (``analysis.missing_parts: leave_out``)."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biaseval.environment import raw_spec
from biaseval.store import Run, part_name
from biaseval.tables import FAILED_PARTS, PROMPTS, QA_EXAMPLES, SETTINGS, TABLES
from biaseval.units import Unit


def failed_rows(run: Run) -> dict[str, dict[str, Any]]:
    """Return the rows of ``failed_parts`` by the missing file; none of a damaged table, which has no digest.

    Raises:
        TransientError: the disk or store does not answer.
    """
    name = f"{FAILED_PARTS.name}/{part_name(0)}"
    if not run.has(name):
        return {}
    data = run.read_bytes(name)
    try:
        rows = FAILED_PARTS.rows(pq.read_table(pa.BufferReader(data)).to_pylist()).to_pylist()
        return {f"{row['table_name']}/{part_name(row['part'])}": row for row in rows}
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError):
        return {}


def asks_to_leave_out(run: Run) -> bool:
    """Return whether the spec of a run has its metrics leave out what failed."""
    return (raw_spec(run).get("analysis") or {}).get("missing_parts") == "leave_out"


def left_out_files(run: Run) -> set[str]:
    """Return the missing files without which the metrics of a run are computed."""
    without = {name for name, row in failed_rows(run).items() if row["is_left_out"]}
    return without if without and asks_to_leave_out(run) else set()


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
        return None if raw_spec(run).get("train") else [f"part {part}"]  # trainings evaluate their readers on all
    if whole != PROMPTS.name:
        return None
    column = "demo_set" if run.parts(SETTINGS.name) else "task"
    found = run.read_part(PROMPTS.name, part)[column].unique().to_pylist()
    return None if None in found else [f"{column} {value}" for value in sorted(found)]


def is_anything_left(run: Run) -> bool:
    """Return whether a run has tasks, sets of demonstrations or in-distribution questions that are not left out."""
    without = left_out(run)
    if "part" in without:
        kept = sorted(part for part in run.parts(QA_EXAMPLES.name) if str(part) not in without["part"])
        return any("in_distribution" in run.read_part(QA_EXAMPLES.name, part)["role"].to_pylist() for part in kept)
    contexts = run.read_table("contexts")
    return all({*map(str, contexts[column].unique().to_pylist())} - {"None"} - without[column] for column in without)
