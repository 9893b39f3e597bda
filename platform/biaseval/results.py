"""The Python interface to finished runs: the rows of any query as DuckDB relation, Arrow table or data frame."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biaseval.analysis import open_runs, run_names
from biaseval.analysis.paths import without_partitions
from biaseval.analysis.queries import ALLOWED, confine, only_read
from biaseval.errors import InputError, how_to_install
from biaseval.store import Run

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Results:
    """One or several finished runs; with several, every table and mart has a first column ``run``.

    The argument ``asked`` is the name of a table or mart, or one DuckDB query over them.
    """

    def __init__(
        self, run_dirs: Sequence[str | Path], files: Sequence[str | Path] = (), *, unsafe: bool = False
    ) -> None:
        """Open runs; Raises: as `biaseval.open`."""
        self.runs = run_names(run_dirs)
        """The names of the runs, as in the column ``run``."""
        self._connection, self._is_unsafe = open_runs(run_dirs), unsafe
        if not unsafe:
            confine(self._connection, [Run.open(str(run_dir)) for run_dir in run_dirs], files)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation of the query; printing it shows its first rows, and its methods refine it.

        Raises:
            InputError: the query is wrong, and the message suggests similar names; or it writes, or reads another file.
        """
        import duckdb

        sql = without_partitions(query)
        try:
            return self._connection.sql(sql if self._is_unsafe else only_read(self._connection, sql))
        except duckdb.PermissionException as error:
            raise InputError(f"query: {error}; {ALLOWED}") from error
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
