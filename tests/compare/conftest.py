"""Runs that several tests compare."""

import pytest

from tests.compare.runs import HITS, label_plan, make


@pytest.fixture(scope="session")
def labels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make(label_plan({task: hits[side] for task, hits in HITS.items()}), folder / name)
        for side, name in enumerate(("first", "other"))
    ]
