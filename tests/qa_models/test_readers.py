"""Which reader a model is, and that it gets what it was asked for."""

from pathlib import Path

import pytest
from transformers import AutoModel

from biaseval.errors import InputError
from biaseval.models import Loading, ModelSource
from biaseval.qa_models import ExtractiveReader, GenerativeReader, WindowSettings, load_reader
from tests.qa_models.families import wordpiece


def test_an_encoder_reads_spans_with_the_settings_asked_for(bert: Path) -> None:
    settings = WindowSettings(max_tokens=64, stride=8, n_best=3, max_answer_tokens=5)
    source = ModelSource(str(bert))
    reader = load_reader(source, Loading(dtype="bfloat16"), answers="extractive", windows=settings)
    assert isinstance(reader, ExtractiveReader)
    assert reader.settings == settings
    assert reader.facts()["dtype"] == "bfloat16"


def test_a_causal_model_writes_behind_the_prompt_asked_for(tiny_llama: Path) -> None:
    prompt = "Q: {question} C: {context} A:"
    reader = load_reader(ModelSource(str(tiny_llama)), answers="generative", prompt=prompt)
    assert isinstance(reader, GenerativeReader)
    assert reader.prompt == prompt


def test_a_body_without_a_head_is_read_only_where_that_is_allowed(bert: Path, tmp_path: Path) -> None:
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path / "body")
    wordpiece().save_pretrained(tmp_path / "body")
    source = ModelSource(str(tmp_path / "body"))
    with pytest.raises(InputError, match="no question answering head"):
        load_reader(source, answers="extractive")
    assert isinstance(load_reader(source, answers="extractive", allow_untrained_head=True), ExtractiveReader)
