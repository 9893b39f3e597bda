"""What the scorer's tests share."""

import pytest
from transformers import PreTrainedTokenizerBase

from tests.tinymodels import make_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    return make_tokenizer()
