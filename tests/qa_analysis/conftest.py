"""The run whose marts several tests read."""

from __future__ import annotations

import pytest

from biaseval.runs import analyse_run
from tests.qaplans import two_segments


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = two_segments().write(tmp_path_factory.mktemp("runs") / "squad")
    analyse_run(run)
    return run
