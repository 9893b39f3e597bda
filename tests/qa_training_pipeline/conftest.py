"""The model that studies begin with."""

from pathlib import Path

import pytest

from tests.test_qa_pipeline import make_bert


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "bert")
