from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from biaseval.label_bias.prompts import (
    PromptFitter,
    build_prompt,
    definition_text,
    demonstration_text,
    test_text,
    with_full_stop,
)
from biaseval.prompting.lengths import TokenCounter
from tests.taskfiles import WORDS

test_text.__test__ = False  # type: ignore[attr-defined]  # a function of the package, not a test


def test_the_example_of_the_protocol() -> None:
    prompt = build_prompt("Say yes or no", [("The tea was cold", "no")], "Lovely!")
    assert prompt == "Say yes or no.\n\nInput: The tea was cold.\n Output: no.\n\nInput: Lovely!\n\nOutput:"
    # A full stop follows all but ASCII punctuation, and labels are stripped in demonstrations.
    texts = {"a": "a.", "a!": "a!", "a)": "a)", "a”": "a”.", "a…": "a….", "": "", " ": " ."}
    assert {text: with_full_stop(text) for text in texts} == texts
    assert test_text("") == "Input: .\n\nOutput:"
    assert demonstration_text(" x ", "  Yes  ") == "Input: x.\n Output: Yes.\n\n"


@pytest.fixture(scope="module")
def trained() -> TokenCounter:
    """Return a byte-level BPE with BOS put first, trained on a few words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"])
    tokenizer.train_from_iterator([build_prompt("Match the words", [(" ".join(WORDS), "yes")] * 3, "x y z")], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return TokenCounter(PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"))


def _naive(counter: TokenCounter, definition: str, demos: list[str], test: str, limit: int) -> tuple[int, str]:
    """Apply the published rule word for word, tokenising every text that it names."""
    kept: list[str] = []
    for demo in demos:
        if counter.count(definition + " ".join([*kept, demo]) + test) > limit:
            break
        kept.append(demo)
    prompt = definition + "".join(kept) + test
    return len(kept), prompt if counter.count(prompt) <= limit else counter.cut(prompt, limit)


def _assert_fits_as_published(counter: TokenCounter, texts: list[tuple[str, str]], text: str, limit: int) -> None:
    definition = definition_text("Match the words")
    demos, test = [demonstration_text(*pair) for pair in texts], test_text(text)
    fitter = PromptFitter(counter, limit)
    for item in (test, test_text(text + " river stone"), test):
        fitted = fitter.fit(definition, demos, item)
        whole = definition + "".join(demos[: fitted.n_demos_used]) + item
        built = (fitted.n_demos_used, whole if fitted.text is None else fitted.text)
        assert built == _naive(counter, definition, demos, item, limit)


_REAL = ("golden/tiny-llama", "data/models/stories260K")
_TEXTS = st.lists(st.sampled_from([*WORDS, "é", "1.", "\n", "„x“", "  "]), max_size=12).map(" ".join)
_DEMOS = st.lists(st.tuples(_TEXTS, st.sampled_from(["yes", "no", "not sure"])), max_size=6)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(demos=_DEMOS, text=_TEXTS, limit=st.integers(min_value=5, max_value=300))
def test_the_length_limit_is_as_published(
    trained: TokenCounter, shared: Path, demos: list[tuple[str, str]], text: str, limit: int
) -> None:
    for counter in (trained, *(TokenCounter(_tokenizer(shared / folder)) for folder in _REAL)):
        _assert_fits_as_published(counter, demos, text, limit)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(demos=_DEMOS, text=_TEXTS, n_kept=st.integers(0, 6), away=st.integers(-10, 10))
def test_so_it_does_where_the_limit_is_a_few_tokens_away(
    trained: TokenCounter, shared: Path, demos: list[tuple[str, str]], text: str, n_kept: int, away: int
) -> None:
    prompt = build_prompt("Match the words", demos[:n_kept], text)
    for counter in (trained, *(TokenCounter(_tokenizer(shared / folder)) for folder in _REAL)):
        _assert_fits_as_published(counter, demos, text, max(1, counter.count(prompt) + away))


@cache
def _tokenizer(path: Path) -> object:
    return AutoTokenizer.from_pretrained(path)
