"""The run whose marts several tests read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import duckdb
import pytest

from biaseval.analysis import open_runs
from biaseval.runs import analyse_run
from tests.majorityplans import MajorityPlan


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = MajorityPlan(calibration=("cc", "looc")).write(tmp_path_factory.mktemp("runs") / "boolq")
    analyse_run(run)
    return run


@pytest.fixture(scope="session")
def opened(built: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield one connection to ``built``, which many queries share."""
    with closing(open_runs([built])) as connection:
        yield connection
