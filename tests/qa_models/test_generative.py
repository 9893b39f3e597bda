"""Answers that a model writes are those of ``model.generate``, one prompt at a time."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
import transformers as hf

from biaseval.errors import BiasevalError, InputError
from biaseval.models import ModelSource, load_model, load_tokenizer
from biaseval.qa_models import GenerativeReader
from biaseval.qa_models.sequences import SequenceWriter
from tests.qa_models.families import CONTEXTS, bpe, questions, t5_tokenizer

T5 = hf.T5Config(
    vocab_size=400, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0, eos_token_id=4,
    pad_token_id=0, initializer_factor=5.0,
)  # fmt: skip
BART = hf.BartConfig(
    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=400, init_std=0.3, pad_token_id=1, eos_token_id=2,
    decoder_start_token_id=2, forced_eos_token_id=2, max_position_embeddings=256,
)  # fmt: skip
FAMILIES = {"t5": (T5, t5_tokenizer), "bart": (BART, bpe)}


def random_writer(config: hf.PretrainedConfig) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    return hf.AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32).eval()


def reader_of(model: hf.PreTrainedModel, tokenizer: hf.PreTrainedTokenizerFast, budget: int = 400) -> GenerativeReader:
    return GenerativeReader(SequenceWriter(model, tokenizer, max_tokens=20, token_budget=budget))


def short_questions() -> pa.Table:
    """Return questions whose prompts fit 256 tokens of bytes."""
    asked = questions()
    is_short = [len(context) < 120 for context in asked["context"].to_pylist()]
    return asked.filter(pa.array(is_short))


@torch.inference_mode()
def by_generate(model: Any, tokenizer: hf.PreTrainedTokenizerFast, asked: pa.Table) -> list[str]:
    """Answer as the published code does: one example at a time, at most 20 tokens."""
    found = []
    for row in asked.to_pylist():
        inputs = tokenizer(f"{row['context']} {row['question']} Answer:", return_tensors="pt")
        written = model.generate(**inputs, max_length=20, do_sample=False, num_beams=1)
        assert written.shape[1] <= 20
        found.append(tokenizer.decode(written[0], skip_special_tokens=True))
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_are_those_of_one_prompt_at_a_time(name: str) -> None:
    config, make = FAMILIES[name]
    model, tokenizer, asked = random_writer(config), make(), short_questions()
    expected = by_generate(model, tokenizer, asked)
    assert len(set(expected)) > len(expected) / 4
    for budget in (60, 4000):
        answers = reader_of(model, tokenizer, budget).read(asked)
        assert answers["prediction"].to_pylist() == expected
    assert answers["example_id"].equals(asked["example_id"])
    assert answers["score"].null_count == len(asked)
    assert answers["n_best"].to_pylist() == [[]] * len(asked)


def test_the_models_own_samples_beams_and_lengths_do_not_count_and_stay() -> None:
    model, tokenizer, asked = random_writer(T5), t5_tokenizer(), short_questions()
    expected = by_generate(model, tokenizer, asked)
    own = hf.GenerationConfig(
        num_beams=3, do_sample=True, temperature=2.0, max_new_tokens=4, decoder_start_token_id=0, eos_token_id=4,
        pad_token_id=0,
    )  # fmt: skip
    model.generation_config = own
    assert reader_of(model, tokenizer).read(asked)["prediction"].to_pylist() == expected
    assert model.generation_config is own
    assert own.num_beams == 3


def test_relative_positions_set_no_limit_and_others_refuse_what_they_cannot_take() -> None:
    asked = pa.table({"example_id": ["short", "long"], "question": ["Why?"] * 2, "context": ["Yes", CONTEXTS[3] * 4]})
    assert reader_of(random_writer(T5), t5_tokenizer()).read(asked).num_rows == 2
    with pytest.raises(InputError, match=r"1 prompts are longer than the 256 tokens .*\('long'; the longest has \d+\)"):
        reader_of(random_writer(BART), bpe()).read(asked)


def test_logits_that_are_no_numbers_are_an_error_with_the_question() -> None:
    model, tokenizer = random_writer(T5), t5_tokenizer()
    rare = tokenizer("東", add_special_tokens=False)["input_ids"][-1]
    with torch.no_grad():
        model.get_encoder().get_input_embeddings().weight[rare] = float("nan")
    asked = pa.table({"example_id": ["bad"], "question": ["東"], "context": ["東"]})
    with pytest.raises(BiasevalError, match="question 'bad': the model gives logits that are not numbers"):
        reader_of(model, tokenizer).read(asked)


def test_fields_in_texts_are_left_alone_and_a_prompt_without_fields_is_refused() -> None:
    reader = GenerativeReader(
        SequenceWriter(random_writer(T5), t5_tokenizer(), max_tokens=20), prompt="Q: {question} C: {context}"
    )
    assert reader._prompt("{context}?", "{question}") == "Q: {context}? C: {question}"
    with pytest.raises(InputError, match="once each"):
        GenerativeReader(reader.writer, prompt="{context}")


def test_a_loaded_sequence_model_answers_as_it_was_saved(tmp_path: Path) -> None:
    model, tokenizer = random_writer(T5), t5_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    reader = GenerativeReader.load(ModelSource(str(tmp_path)))
    assert reader.read(short_questions()).equals(reader_of(model, tokenizer).read(short_questions()))


def test_causal_models_write_up_to_the_first_line_break(tiny_llama: Path) -> None:
    asked = short_questions()
    model, tokenizer = load_model(ModelSource(str(tiny_llama))), load_tokenizer(ModelSource(str(tiny_llama)))
    reader = GenerativeReader.load(ModelSource(str(tiny_llama)))
    expected = []
    for row in asked.to_pylist():
        inputs = tokenizer(f"{row['context']} {row['question']} Answer:", return_tensors="pt")["input_ids"]
        mask = torch.ones_like(inputs)
        written: Any = model.generate(  # type: ignore[operator]
            input_ids=inputs, attention_mask=mask, max_new_tokens=20, do_sample=False, pad_token_id=0
        )
        text = tokenizer.decode(written[0, inputs.shape[1] :], skip_special_tokens=True)
        expected.append(text.replace("\r", "\n").split("\n")[0].strip())
    answers = reader.read(asked)
    assert answers["prediction"].to_pylist() == expected
    assert any(expected)
    assert answers["score"].null_count == len(asked)
