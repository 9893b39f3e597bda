"""The reader's answers are those of one forward pass per window and a search of one pair after the other."""

import logging
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from transformers import AutoModel, ConvBertConfig, FNetConfig, PreTrainedModel, PreTrainedTokenizerFast

from biaseval.errors import BiasevalError, InputError
from biaseval.models import Loading, ModelSource, encoder_window
from biaseval.qa_models import ExtractiveReader, WindowSettings, extractive
from biaseval.qa_models.spans import Answer, window_answers
from tests.alike import assert_alike
from tests.qa_models.families import CONTEXTS, FAMILIES, SMALL, by_the_rule, questions, random_reader, wordpiece

EXACT = 1e-5
WINDOWS = WindowSettings(max_tokens=96, stride=16)


def assert_by_the_rule(
    answers: pa.Table, asked: pa.Table, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    assert answers["example_id"].to_pylist() == asked["example_id"].to_pylist()
    for question, answer in zip(asked.to_pylist(), answers.to_pylist(), strict=True):
        expected = by_the_rule(model, tokenizer, question["question"], question["context"], **asdict(WINDOWS))
        found, texts = [own["text"] for own in answer["n_best"]], [text for text, _ in expected]
        scores = [score for _, score in expected]
        assert [own["score"] for own in answer["n_best"]] == pytest.approx(scores, abs=2 * EXACT)
        # Those that hardly differ may change places.
        places = [place for place, (more, less) in enumerate(pairwise(scores), 1) if more - less > 2 * EXACT]
        for first, end in pairwise([0, *places, len(texts)]):
            assert sorted(found[first:end]) == sorted(texts[first:end])
        assert answer["prediction"] == (found[0] if found else "")
        assert answer["score"] == (pytest.approx(scores[0], abs=2 * EXACT) if expected else None)


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_are_those_of_the_protocol(name: str) -> None:
    config, make = FAMILIES[name]
    model, tokenizer, asked = random_reader(config()), make(), questions()
    reader = ExtractiveReader(model, tokenizer, WINDOWS, token_budget=2000)
    answers = reader.read(asked)
    assert_by_the_rule(answers, asked, model, tokenizer)
    assert reader.facts()["is_padded"]
    assert reader.facts()["self_test_difference"] < EXACT
    in_small_batches = ExtractiveReader(model, tokenizer, WINDOWS, token_budget=100).read(asked)
    assert in_small_batches["prediction"].equals(answers["prediction"])
    assert in_small_batches["score"].to_pylist() == pytest.approx(answers["score"].to_pylist(), abs=2 * EXACT)


def bert_reader(settings: WindowSettings = WINDOWS, token_budget: int | None = None) -> ExtractiveReader:
    return ExtractiveReader(random_reader(FAMILIES["bert"][0]()), wordpiece(), settings, token_budget=token_budget)


def test_batches_on_several_threads_give_the_same_answers() -> None:
    asked = questions()
    expected = bert_reader(token_budget=100).read(asked)
    torch.set_num_threads(3)
    try:
        reader = bert_reader(token_budget=100)
        assert reader.facts()["n_workers"] == 3
        assert_alike(reader.read(asked), expected)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def test_the_same_question_is_read_once() -> None:
    asked = questions()
    reader = bert_reader()
    reader.read(asked)
    once = reader.facts()["n_tokens"]
    again = asked.set_column(0, "example_id", [[f"x{row}" for row in range(len(asked))]])
    twice = bert_reader()
    answers = twice.read(pa.concat_tables([asked, again]))
    assert twice.facts()["n_tokens"] == once
    n = len(asked)
    assert answers.drop_columns("example_id").slice(0, n).equals(answers.drop_columns("example_id").slice(n))


@pytest.mark.parametrize(
    "config", [FNetConfig(**SMALL, max_position_embeddings=512), ConvBertConfig(**SMALL, embedding_size=32)]
)
def test_models_that_padding_disturbs_read_windows_of_one_length_together(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokenizer, asked = random_reader(config), wordpiece(), questions()
    if config.model_type == "fnet":
        tokenizer.model_input_names = ["input_ids", "token_type_ids"]
    reader = ExtractiveReader(model, tokenizer, WINDOWS)
    with caplog.at_level(logging.WARNING):
        answers = reader.read(asked)
    assert f"{config.model_type}: padding changes logits" in caplog.text
    assert not reader.facts()["is_padded"]
    assert reader.facts()["n_padded_tokens"] == reader.facts()["n_tokens"]
    assert_by_the_rule(answers, asked, model, tokenizer)


def refuse_larger_than(n_tokens: int) -> Any:
    def refuse(module: torch.nn.Module, args: tuple[()], kwargs: dict[str, torch.Tensor]) -> None:
        if kwargs["input_ids"].numel() > n_tokens:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")

    return refuse


def test_memory_running_out_halves_the_budget_and_goes_on() -> None:
    asked = questions()
    expected = bert_reader().read(asked)
    reader = bert_reader(token_budget=1024)
    reader.model.register_forward_pre_hook(refuse_larger_than(150), with_kwargs=True)
    answers = reader.read(asked)
    assert answers["prediction"].equals(expected["prediction"])
    assert reader.facts()["token_budget"] == 128


def test_memory_that_never_suffices_is_said() -> None:
    reader = bert_reader()
    reader.model.register_forward_pre_hook(refuse_larger_than(60), with_kwargs=True)
    asked = pa.table({"example_id": ["short", "long"], "question": ["Why?"] * 2, "context": ["Yes", CONTEXTS[3]]})
    with pytest.raises(BiasevalError, match=r"memory runs out .* question 'long' \(96 tokens\)"):
        reader.read(asked)


def test_logits_that_are_no_numbers_are_an_error_with_the_question() -> None:
    reader = bert_reader()
    rare = reader.tokenizer("東", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        reader.model.get_input_embeddings().weight[rare] = float("nan")
    asked = pa.table({"example_id": ["fine", "bad"], "question": ["Why?", "東?"], "context": ["Yes", "Yes"]})
    with pytest.raises(BiasevalError, match="question 'bad': the model gives logits that are not finite"):
        reader.read(asked)


def test_tables_that_are_no_questions_are_refused() -> None:
    for columns, what in (
        ({"example_id": ["a"], "question": ["b"]}, "no column 'context'"),
        ({"example_id": [1], "question": ["b"], "context": ["c"]}, "'example_id' is int64"),
        ({"example_id": ["a"], "question": [None], "context": ["c"]}, "'question' is null"),
        ({"example_id": ["a", "b"], "question": ["b", None], "context": ["c", "c"]}, "'question' has 1 nulls"),
        ({"example_id": ["a", "a"], "question": ["b", "b"], "context": ["c", "c"]}, r"1 values .* twice \('a'\)"),
    ):
        with pytest.raises(InputError, match=what):
            bert_reader().read(pa.table(columns))


def test_a_question_too_long_is_refused_before_the_model_runs() -> None:
    reader = bert_reader()
    reader.model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    asked = pa.table(
        {"example_id": ["fine", "long"], "question": ["Why?", "why " * 90], "context": [CONTEXTS[0], CONTEXTS[3]]}
    )
    with pytest.raises(InputError, match=r"1 question is too long .*'long'"):
        reader.read(asked)


@pytest.mark.parametrize(
    ("name", "window"),
    [("bert", 512), ("roberta", 510), ("mpnet", 512), ("bart", 1024), ("gpt2", 1024), ("xlnet", None)],
)
def test_windows_longer_than_the_model_takes_are_refused(name: str, window: int | None) -> None:
    config, make = FAMILIES[name]
    model = random_reader(config())
    assert encoder_window(model) == window
    if window is not None:
        asked = pa.table({"example_id": ["a"], "question": ["Why?"], "context": ["Rivers run. " * 400]})
        ExtractiveReader(model, make(), WindowSettings(max_tokens=window)).read(asked)  # the last position is there
        with pytest.raises(InputError, match=f"max_tokens: {window + 1}; .* takes {window}"):
            ExtractiveReader(model, make(), WindowSettings(max_tokens=window + 1))


def test_a_tokenizer_of_another_model_is_refused() -> None:
    config, _ = FAMILIES["bert"]
    reader = ExtractiveReader(random_reader(type(config())(**{**SMALL, "vocab_size": 20})), wordpiece(), WINDOWS)
    with pytest.raises(InputError, match=r"outside the model's vocabulary of 20"):
        reader.read(questions())
    one_type = type(config())(**SMALL, type_vocab_size=1)
    with pytest.raises(InputError, match="token type 1, the model knows 1"):
        ExtractiveReader(random_reader(one_type), wordpiece(), WINDOWS)


def test_an_untrained_head_is_refused_unless_allowed(bert: Path, tmp_path: Path) -> None:
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path / "body")
    wordpiece().save_pretrained(tmp_path / "body")
    with pytest.raises(
        InputError, match=r"no question answering head: qa_outputs.bias, qa_outputs.weight .* untrained"
    ):
        ExtractiveReader.load(ModelSource(str(tmp_path / "body")))
    answers = []
    for seed in (2, 1):
        torch.manual_seed(seed)
        source = ModelSource(str(tmp_path / "body"))
        reader = ExtractiveReader.load(source, settings=WINDOWS, allow_untrained_head=True)
        answers.append(reader.read(questions()))
    state = torch.random.get_rng_state()
    assert_alike(*answers)  # the same on every worker
    torch.manual_seed(1)
    assert torch.equal(state, torch.random.get_rng_state())  # and nobody else's draws change


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_answers_on_a_gpu_are_those_of_the_cpu(bert: Path) -> None:
    asked = questions()
    expected = ExtractiveReader.load(ModelSource(str(bert)), settings=WINDOWS).read(asked)
    found = ExtractiveReader.load(ModelSource(str(bert)), Loading(device="cuda"), WINDOWS).read(asked)
    assert found["prediction"].equals(expected["prediction"])


def test_spans_are_ranked_while_the_model_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    config, make = FAMILIES["bert"]
    reader = ExtractiveReader(random_reader(config()), make(), WINDOWS, token_budget=100)
    reader._batches.n_workers = 1
    expected = reader.read(questions())
    n_read, n_batches = 0, len(_counted(reader, questions()))
    read = reader._logits

    def counting(*arguments: Any) -> Any:
        nonlocal n_read
        n_read += 1
        return read(*arguments)

    def waiting(*arguments: Any) -> list[Answer]:
        before, deadline = n_read, time.monotonic() + 60
        while n_read == before < n_batches:
            assert time.monotonic() < deadline, "nothing is read while spans are ranked"
            time.sleep(0.001)
        return window_answers(*arguments)

    monkeypatch.setattr(reader, "_logits", counting)
    monkeypatch.setattr(extractive, "window_answers", waiting)
    assert_alike(reader.read(questions()), expected)


def _counted(reader: ExtractiveReader, asked: pa.Table) -> list[Any]:
    """Return what a reader ran, batch by batch."""
    ran: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        read = reader._logits
        patch.setattr(reader, "_logits", lambda windows, rows: ran.append(rows) or read(windows, rows))
        reader.read(asked)
    return ran
