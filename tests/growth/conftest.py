"""A finished run to grow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from biaseval.runs import run_spec
from biaseval.store import Run
from tests.growth.runs import own_spec
from tests.label_bias.test_own_data import reviews, write_csv


@pytest.fixture(scope="package")
def csv_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    write_csv(folder / "reviews.csv", reviews(30))
    write_csv(folder / "test.csv", reviews(20, "other"))
    return folder


@pytest.fixture(scope="package")
def finished(csv_folder: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of one number of demonstrations."""
    from tests.inprocess import in_this_process

    folder = tmp_path_factory.mktemp("runs") / "run"
    with in_this_process():
        run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), str(folder))
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    """Return a copy of the finished run, of the test's own."""
    shutil.copytree(finished, tmp_path / "run")
    return Run.open(str(tmp_path / "run"))
