"""Figures and tables of finished runs as files of their own, for papers; of several runs also what compares them."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from biaseval.analysis import query, run_names
from biaseval.analysis.compared_kinds import KINDS as COMPARED_KINDS
from biaseval.analysis.comparing import comparing
from biaseval.analysis.summary_marts import headline_of
from biaseval.analysis.table_files import TABLE_FILES
from biaseval.errors import InputError
from biaseval.json_values import in_markdown
from biaseval.pipelines.directory import read_spec
from biaseval.progress import say
from biaseval.report.charts import Chart
from biaseval.report.compare import difference_charts
from biaseval.report.compare_models import MODEL_RELATIONS, model_charts, paper_tables
from biaseval.report.names import METHODS
from biaseval.runs.kinds import kind_of
from biaseval.store import Run


def write_figures(run_uris: Sequence[str], out_uri: str, ending: str, table_endings: Sequence[str]) -> list[str]:
    """Write the figures of runs, and the marts that say most, as files; the same runs give the same bytes.

    ``captions.md`` says in words what each figure shows. A mart without rows has no file.

    Of several runs each has a folder with its figures, beside those that compare the runs, and tables have a column
    ``run``.

    Args:
        run_uris: finished runs of one kind.
        out_uri: the folder to write into; files of the same names are replaced.
        ending: of the figures, one of `charts.FORMATS`.
        table_endings: of the tables, some of `TABLE_FILES`.

    Returns:
        The URIs of the files.

    Raises:
        InputError: a directory holds no run of a kind that has metrics, the runs are of several kinds, or the folder
            cannot be written into.
        BiasevalError: a run is not finished.
    """
    runs = dict(zip(run_names(run_uris), map(Run.open, run_uris), strict=True))
    kinds = {run.uri: read_spec(run).kind for run in runs.values()}
    for run in runs.values():
        headline_of(run)  # refuses a kind without metrics
    if len(set(kinds.values())) > 1:
        found = ", ".join(f"{uri} is of the kind {kind}" for uri, kind in kinds.items())
        raise InputError(f"figures: {found}; name runs of one kind")
    out = Run.open(out_uri)
    try:
        out.create()
    except InputError as error:
        raise InputError(f"--out {out_uri}: is no folder that can be written into; name another") from error
    drawn: dict[str, Chart] = {}
    for name, run in runs.items():
        folder = f"{name}/" if len(runs) > 1 else ""
        page = kind_of(read_spec(run)).page
        figures = [] if page is None else page(run).figures
        drawn |= {f"{folder}{figure.name}.{ending}": figure for figure in figures}
    tables = _tables(runs)
    if len(runs) > 1:
        differences, compared = _compared(run_uris)
        drawn |= {f"{figure.name}.{ending}": figure for figure in differences}
        tables |= compared
    files = {name: figure.file(ending) for name, figure in drawn.items()}
    if drawn:
        files["captions.md"] = "".join(f"`{name}`: {in_markdown(own.text)}\n\n" for name, own in drawn.items()).encode()
    for name, (full, short) in tables.items():
        for kind in table_endings if full.num_rows else ():
            files[f"{name}.{kind}"] = TABLE_FILES[kind](full if kind == "csv" else short)
    for name, content in files.items():
        out.write_bytes(name, content)
    return [f"{out.uri}/{name}" for name in files]


def _tables(runs: Mapping[str, Run]) -> dict[str, tuple[pa.Table, pa.Table]]:
    """Return by name the tables in full, and as people read them."""
    own = headline_of(next(iter(runs.values())))
    marts = {name: f"from {name}" for name in (own.mart, *own.further)} | dict(own.verdicts)
    queries = {name: f"{sql} order by all" for name, sql in marts.items()} | dict(own.tables)
    found = {name: _rows(runs, dict.fromkeys(runs, sql)) for name, sql in queries.items()}
    short = {name: _headline(run) for name, run in runs.items()}
    return {name: (rows, _rows(runs, short) if name == own.mart else rows) for name, rows in found.items()}


def _headline(run: Run) -> str:
    spec = read_spec(run)
    return kind_of(spec).headline(spec).format(methods=list(METHODS))


def _rows(runs: Mapping[str, Run], queries: Mapping[str, str]) -> pa.Table:
    """Return the rows of a query over each run; of several with a first column ``run``."""
    tables = {name: query([run.uri], queries[name]) for name, run in runs.items()}
    if len(runs) == 1:
        return tables[next(iter(runs))]
    named = [rows.add_column(0, "run", pa.array([name] * len(rows), pa.string())) for name, rows in tables.items()]
    return pa.concat_tables(named, promote_options="permissive")


def _compared(run_uris: Sequence[str]) -> tuple[list[Chart], dict[str, tuple[pa.Table, pa.Table]]]:
    """Return what compares runs: differences from the first, and the paper's figures over several models."""
    kind = read_spec(Run.open(run_uris[0])).kind
    if kind not in COMPARED_KINDS:
        return [], {}
    try:
        with comparing(run_uris, MODEL_RELATIONS) as (compared, ask):
            models = model_charts(kind, ask)
            papers = paper_tables(kind, ask)
    except InputError as error:
        say(f"note: the runs are not compared: {error}")
        return [], {}
    rows = pa.Table.from_pylist([row for row in compared.tests if row["run"] == compared.reference])
    tables = {f"{kind}_comparison": rows} | {name: pa.Table.from_pylist(own) for name, own in papers.items()}
    return [*difference_charts(compared), *models], {name: (own, own) for name, own in tables.items()}
