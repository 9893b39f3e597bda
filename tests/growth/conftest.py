"""A finished run to grow."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from biaseval.runs import run_spec
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.growth.runs import SpecOf, own_spec
from tests.label_bias.test_own_data import reviews, write_csv


@pytest.fixture(scope="package")
def csv_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    write_csv(folder / "reviews.csv", reviews(30))
    write_csv(folder / "test.csv", reviews(20, "other"))
    return folder


@pytest.fixture(scope="package")
def spec(csv_folder: Path, tiny_llama: Path) -> SpecOf:
    """Return what makes a spec on the data, of these numbers of demonstrations and, if not others, cc."""

    def spec_of(*n_demos: int, prompt: Mapping[str, Any] | None = None, **changes: Any) -> LabelBiasSpec:
        given = {"calibration": ["cc"], **changes}
        return own_spec(csv_folder, tiny_llama, prompt={"n_demos": list(n_demos), **(prompt or {})}, **given)

    return spec_of


@pytest.fixture(scope="package")
def finished(spec: SpecOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of one number of demonstrations."""
    from tests.inprocess import in_this_process

    folder = tmp_path_factory.mktemp("runs") / "run"
    with in_this_process():
        run_spec(spec(0, 2), str(folder))
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    """Return a copy of the finished run, of the test's own."""
    return Run.open(str(shutil.copytree(finished, tmp_path / "run")))
