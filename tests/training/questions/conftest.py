"""The reader that is trained, and its windows."""

from pathlib import Path

import pyarrow as pa
import pytest

from biaseval.training import preparation
from tests.test_qa_pipeline import make_bert
from tests.training.questions.objectives import N_QUESTIONS, features_of


@pytest.fixture(autouse=True)
def _cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut steps into passes wherever that saves a token: these windows are too short to be cut otherwise."""
    monkeypatch.setattr(preparation, "_PASS_TOKENS", 0)


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a BERT without dropout, as results of several shares are compared."""
    folder = make_bert(tmp_path_factory.mktemp("models") / "bert")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('_dropout_prob": 0.1', '_dropout_prob": 0.0'))
    return folder


@pytest.fixture(scope="session")
def windows(bert: Path) -> pa.Table:
    found = features_of(bert, range(N_QUESTIONS))
    assert len({len(own) for own in found["token_ids"]}) > 2
    assert 3 < sum(found["has_answer"].to_pylist()) < found.num_rows
    return found
