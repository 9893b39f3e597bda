"""A connection with the macros alone."""

from collections.abc import Iterator
from contextlib import closing

import duckdb
import pytest

from biaseval.analysis.sql_files import connect


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect([])) as opened:
        yield opened
