"""The run whose marts several tests read."""

import pytest

from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.relation import Relations


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run that was analysed: all of its files are there."""
    run = MajorityPlan(calibration=("cc", "looc")).write(tmp_path_factory.mktemp("runs") / "boolq")
    measure(run, has_database=True)
    return run


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    """Return the relations of a run with the same rows."""
    return MajorityPlan(calibration=("cc", "looc")).relations(tmp_path_factory.mktemp("runs") / "boolq")
