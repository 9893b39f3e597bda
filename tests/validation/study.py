"""How far simulated runs are, and what came of them."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa

from biaseval.store import Run
from tests.validation.cells import Cell


def simulate_missing(
    out: Run, cells: Sequence[Cell], seed: int, say: Callable[[str], None], *, processes: int = 1
) -> None:
    """Simulate and judge what is missing of the cells; kill it at any moment and repeat it.

    Args:
        out: where outcomes go, a folder for each cell.
        cells: of any kinds.
        seed: of all; each part has a generator of its own, so that the number of processes changes nothing.
        say: is told of each cell that is done.
        processes: that simulate at once; 1 is this one alone.
    """
    there = {cell.name: out.parts(cell.name) for cell in cells}
    missing = [(cell, part) for cell in cells for part in cell.parts if part not in there[cell.name]]
    left = {cell.name: sum(own.name == cell.name for own, _ in missing) for cell in cells}
    if processes == 1:
        for cell, part in missing:
            _make(out, cell, part, seed)
            _tell(left, cell, say)
    elif missing:
        # Forked after DuckDB has started threads, a process may wait for a lock for ever.
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
            begun = {pool.submit(_make, out, cell, part, seed): cell for cell, part in missing}
            try:
                for done in as_completed(begun):
                    done.result()
                    _tell(left, begun[done], say)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _make(out: Run, cell: Cell, part: int, seed: int) -> None:
    out.write_part(cell.name, part, cell.judged(cell.n_per_part, [seed, *cell.name.encode(), part]))


def _tell(left: dict[str, int], cell: Cell, say: Callable[[str], None]) -> None:
    left[cell.name] -= 1
    if not left[cell.name]:
        say(f"{cell.name}: {len(cell.parts) * cell.n_per_part} runs")


def summary(out: Run, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return rates over the runs of each cell that is there, with their Monte Carlo standard errors.

    Of a quantity with intervals the rate is how often they hold the mean over all runs of the cell; of bands, how often
    all of a run do; a wrong page is a run with any wrong verdict, where ``place`` says which of several pages.
    """
    rows: list[dict[str, Any]] = []
    with closing(duckdb.connect()) as connection:
        for cell in cells:
            there = sorted(part for part in out.parts(cell.name) if part in cell.parts)
            if not there:
                continue
            parts = pa.concat_tables(
                [
                    table.append_column("part", pa.array([part] * table.num_rows, pa.int32()))
                    for part, table in ((part, out.read_part(cell.name, part)) for part in there)
                ]
            )
            connection.from_arrow(parts).create("outcomes")
            found = connection.sql(_SUMMARY).to_arrow_table().to_pylist()
            connection.execute("drop table outcomes").fetchall()
            rows += [{**cell.place, **row} for row in found]
    return rows


_SUMMARY = """
with

numbered as (
    select * exclude (run), concat(part, ' ', run) as run from outcomes
),

truths as (
    select quantity, metric, place, avg(estimate) as truth
    from numbered
    where estimate is not null
    group by all
),

held as (
    select
        numbered.run, numbered.quantity, numbered.metric, count(low) as n,
        count(*) filter (truth between low and high) as n_hit
    from numbered
    inner join truths using (quantity, metric, place)
    group by all
),

counted as (
    select run, quantity, metric, n, n_hit from numbered where n is not null
    union all
    select run, quantity, metric, n, n_hit from held where quantity not like 'simultaneous bands%'
    union all
    select run, quantity, 'all' as metric, 1 as n, (sum(n) = sum(n_hit))::int as n_hit
    from held
    where quantity like 'simultaneous bands%'
    group by run, quantity
    union all
    select
        run, 'wrong page' as quantity, if(place = '', 'all', place) as metric, 1 as n, (sum(n_hit) > 0)::int as n_hit
    from numbered
    where quantity = 'wrong verdict'
    group by run, place
)

select
    quantity,
    metric,
    sum(n_hit) / sum(n) as rate,
    sqrt(sum((n_hit - n * rate) ** 2)) / sum(n) as error,
    count(*) as n_runs
from (
    select *, sum(n_hit) over (partition by quantity, metric) / sum(n) over (partition by quantity, metric) as rate
    from counted
    where n > 0
)
group by quantity, metric
order by all
"""
