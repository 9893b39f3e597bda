"""The Python interface to finished runs: the rows of any query as DuckDB relation, Arrow table or data frame."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biaseval.analysis import open_runs, run_names
from biaseval.analysis.paths import without_partitions
from biaseval.errors import InputError, how_to_install

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Results:
    """One or several finished runs; with several, every table and mart has a first column ``run``.

    The argument ``asked`` is the name of a table or mart, or one DuckDB query over them.
    """

    def __init__(self, run_dirs: Sequence[str | Path]) -> None:
        """Open runs; Raises: as `biaseval.open`."""
        self.runs = run_names(run_dirs)
        """The names of the runs, as in the column ``run``."""
        self._connection = open_runs(run_dirs)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation of the query; printing it shows its first rows, and its methods refine it.

        Raises:
            InputError: the query is wrong; the message suggests similar names.
        """
        import duckdb

        try:
            return self._connection.sql(without_partitions(query))
        except duckdb.Error as error:
            raise InputError(f"query: {error}") from error

    def arrow(self, asked: str) -> pa.Table:
        """Return the rows as an Arrow table; Raises: as `sql`."""
        return self._relation(asked).to_arrow_table()

    def df(self, asked: str) -> Any:
        """Return the rows as a pandas ``DataFrame``; Raises: as `sql`, InputError where pandas is not installed."""
        _refuse_without("pandas")
        return self._relation(asked).df()

    def polars(self, asked: str) -> Any:
        """Return the rows as a Polars ``DataFrame``; Raises: as `sql`, InputError where Polars is not installed."""
        _refuse_without("polars")
        return self._relation(asked).pl()

    def _relation(self, asked: str) -> duckdb.DuckDBPyRelation:
        return self.sql(f"from {asked}" if asked.isidentifier() else asked)

    def __repr__(self) -> str:
        return f"<biaseval results of {', '.join(self.runs)}>"


def _refuse_without(package: str) -> None:
    if find_spec(package) is None:
        raise InputError(f"{package} is not installed; {how_to_install('notebook')}")
