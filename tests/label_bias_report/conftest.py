"""The run whose page is read."""

import pytest

from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "many", n_tasks=12, n_equivalent=4)
    write_report(run.uri)
    return run
