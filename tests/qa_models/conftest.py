"""What the readers' tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.qa_models.families import FAMILIES, random_reader


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Tiny models are the slower the more threads share them."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """Return the directory of a random BERT with a question answering head, and its tokenizer."""
    config, tokenizer = FAMILIES["bert"]
    random_reader(config()).save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"
