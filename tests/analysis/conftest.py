"""The run whose marts several tests read."""

import pytest

from tests.labelplans import two_tasks
from tests.measuring import measure


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = two_tasks().write(tmp_path_factory.mktemp("runs") / "built", n_parts=4)
    measure(run, has_database=True)
    return run
