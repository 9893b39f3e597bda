"""A finished run is compared with an undisturbed run of the same spec, and with the list of written files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from biaseval.digests import inspected
from biaseval.pipelines.directory import read_plan, read_spec
from biaseval.runs.kinds import kind_of
from biaseval.spec import SearchSpec
from biaseval.store import ASIDE, LOGS, Run, sha256_of
from biaseval.units import lost_files

TIMES = {"seconds", "scoring_seconds"}
"""Columns that differ between two undisturbed runs."""

_EXISTENCE = (
    "environment.json", "digests.json", "report.html", "results.duckdb", "made.json", "cutoffs.json", "summary.json"
)  # fmt: skip
"""Files that hold times, addresses or paths: that they are there is all that is compared."""


def names(run: Run) -> list[str]:
    """Return the names of all files of a run and of the runs in it."""
    infos = run.fs.get_file_info(pafs.FileSelector(run.root, recursive=True))
    return sorted(own.path.removeprefix(f"{run.root}/") for own in infos if own.type == pafs.FileType.File)


def contents(run: Run) -> dict[str, str]:
    """Return each file of a run, nested runs included, by its name, with a digest of its content but for times."""
    found = {}
    for own in names(run):
        last = own.rpartition("/")[2]
        if last == ".lock" or f"/{own}".rpartition("/")[0].endswith(f"/{LOGS}"):
            continue
        if last in _EXISTENCE:
            found[own] = ""
        elif own.endswith(".parquet"):
            found[own] = content_digest(run, own)
        else:
            found[own] = sha256_of(run.read_bytes(own))
    return found


def content_digest(run: Run, name: str) -> str:
    """Return a digest of the rows of a Parquet file but for times."""
    rows = pq.read_table(pa.BufferReader(run.read_bytes(name)), use_threads=False)
    rows = rows.drop_columns([name for name in rows.column_names if name in TIMES]).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema.remove_metadata()) as stream:
        stream.write_table(rows.replace_schema_metadata(None))
    return f"{rows.num_rows} rows {sha256_of(bytes(sink.getvalue()))}"


def units_of(run: Run) -> dict[str, list[str]]:
    """Return the units of a finished run and of the runs in it: each by a name, with its files.

    The plan is one unit. Its tables come before ``plan.json``.
    """
    spec = read_spec(run)
    plan = read_plan(run)
    planned = [f"{table}/part-{part:05d}.parquet" for table, n in plan["tables"].items() for part in range(n)]
    found = {"plan": [*planned, "plan.json"]}
    for number, stage in enumerate(kind_of(spec).stages(run, spec, plan)):
        for unit in stage.units:
            found[f"{number}.{unit.number}"] = [name for name in unit.files if not name.startswith("shared/")]
    if isinstance(spec, SearchSpec):
        for folder in [own.rpartition("/")[0] for own in names(run) if own.endswith("/spec.yaml")]:
            for name, files in units_of(Run.open(f"{run.uri}/{folder}")).items():
                found[f"{folder} {name}"] = [f"{folder}/{file}" for file in files]
    return {name: files for name, files in found.items() if files}


def twice(written: Sequence[str], units: Mapping[str, Sequence[str]], there: Iterable[str] = ()) -> list[str]:
    """Return the units of which a file was written again when all of its files had been.

    ``written`` names the files in the order of their writes; those of ``there`` existed before.
    """
    own = {file: name for name, files in units.items() for file in files}
    seen, found = set(there), []
    for file in written:
        if file in own and seen.issuperset(units[own[file]]):
            found.append(own[file])
        seen.add(file)
    return sorted(set(found))


def lost(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return in words which files of the undisturbed run a run lacks, or has with another content."""
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} differs" for name in wanted if found.get(name, wanted[name]) != wanted[name]]
    return problems


def examine(run_uri: str, folder: Path, undisturbed: Path | None, begins_with: Sequence[str] = ()) -> int:
    """Write the findings on a run to ``found.json`` in the folder: its contents, units, losses and second makings.

    The folder has the list of written files. ``undisturbed`` is the folder of such findings to compare with; without
    one nothing is. ``begins_with`` names the files that were there before the first command.
    """
    run = Run.open(run_uri)
    content = contents(run)
    own: dict[str, Any] = {"contents": content}
    if undisturbed is None:
        own["units"] = units_of(run)
    else:
        wanted = json.loads((undisturbed / "found.json").read_text())
        path = folder / "written"
        lines = path.read_text().splitlines() if path.exists() else []
        written = [line.removeprefix(f"{run.root}/") for line in lines]
        own["aside"] = [name for name in content if name.startswith(f"{ASIDE}/") or f"/{ASIDE}/" in name]
        own["left"] = [name for name in content if name not in {*own["aside"], *wanted["contents"]}]
        own["lost"] = [*lost(content, wanted["contents"]), *(f"{name} is damaged" for name in _damaged(run))]
        own["twice"] = twice(written, wanted["units"], begins_with)
    (folder / "found.json").write_text(json.dumps(own))
    return 0


def _damaged(run: Run) -> set[str]:
    return lost_files(inspected(run, with_trained=True))
