"""What the readers' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reading.families import FAMILIES, random_reader


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """Return the directory of a random BERT with a question answering head, and its tokenizer."""
    config, tokenizer = FAMILIES["bert"]
    random_reader(config()).save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"
