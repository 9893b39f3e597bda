"""Runs that several tests compare."""

from collections.abc import Iterator

import pytest

from biaseval.analysis.comparing import Compared, compare_runs
from tests.compare.runs import HITS, label_plan, make
from tests.relation import Together


@pytest.fixture(scope="session")
def labels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make(label_plan({task: hits[side] for task, hits in HITS.items()}), folder / name)
        for side, name in enumerate(("first", "other"))
    ]


@pytest.fixture(scope="session")
def compared(labels: list[str]) -> Compared:
    return compare_runs(labels)


@pytest.fixture(scope="package")
def pair(labels: list[str]) -> Iterator[Together]:
    """Return what compares the two runs, over tables that statements can change."""
    names = ("shared", "comparison", "compare_cautions", "disagreements")
    found = Together(labels, *(f"label_bias_{name}" for name in names))
    yield found
    found.connection.close()
