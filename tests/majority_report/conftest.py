"""The runs whose pages are read."""

import pytest

from biaseval.runs import write_report
from tests.majority_report.runs import make_run
from tests.majorityplans import LARGE


@pytest.fixture(scope="session")
def adapted_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run whose model is like a larger one with adapters, of another size than those of ``runs``."""
    run = make_run(
        tmp_path_factory.mktemp("runs") / "adapted", 30_000_000_000, calibration=("looc",),
        predict=("likelihood", "generate"), adapted=LARGE,
    )  # fmt: skip
    write_report(run)
    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return two models on two data sets, the larger named first, and always True on BoolQ's 100/0."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "boolq-large", 13_000_000_000, LARGE, calibration=("looc",)),
        make_run(folder / "boolq-small", 7_000_000_000, calibration=("looc",)),
        make_run(folder / "stance-small", 7_000_000_000, data="stance"),
        make_run(folder / "stance-large", 13_000_000_000, LARGE, data="stance"),
    ]
