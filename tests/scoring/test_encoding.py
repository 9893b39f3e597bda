"""Token ids are those of the whole text, however it was cut; and what cannot be encoded is refused."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.models import ModelSource, load_tokenizer
from biaseval.scoring import encode
from biaseval.scoring.encoding import _cutting_rules

pytestmark = pytest.mark.slow


def test_prompts_that_cannot_be_scored_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    texts = pa.list_(pa.string())
    one: dict[str, Any] = {"prompt_id": ["a"], "text": ["t"], "labels": [["x"]]}
    for prompts, what in (
        ({"prompt_id": ["a"], "labels": [["x"]]}, "column text missing"),
        ({name: own * 2 for name, own in one.items()}, "'a': missing or repeated"),
        (one | {"prompt_id": [None]}, "None: missing or repeated"),
        (one | {"text": pa.array([None], pa.string())}, "'a': no text"),
        (one | {"labels": pa.array([[]], texts)}, "'a': labels"), (one | {"labels": [["x", ""]]}, "'a': labels"),
        (one | {"labels": pa.array([None], texts)}, "'a': labels"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=what):
            encode(tokenizer, pa.table(prompts))


def test_labels_without_a_token_or_with_the_tokens_of_another_are_refused() -> None:
    ascii_only = normalizers.Sequence([normalizers.Replace(Regex("[^\\x00-\\x7f]"), ""), normalizers.Strip()])
    for normalizer, labels, message in (
        (ascii_only, ["да", "no"], "prompt 'p': label 'да' adds no token to the prompt"),
        (normalizers.Lowercase(), ["Yes", "no", "yes"], "prompt 'p': labels 'Yes' and 'yes' have the same tokens"),
    ):
        tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizer)
        with pytest.raises(InputError, match=message):
            encode(tokenizer, pa.table({"prompt_id": ["p"], "text": ["ab"], "labels": [labels]}))


def test_tokens_of_a_shared_prefix_replace_as_many_of_the_context_and_none_of_the_label(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    text = "<s>Input: the case is new. Output:"
    counts = [None, 0, *range(4, len(text) + 1)]
    prompts = {"prompt_id": [str(row) for row in range(len(counts))], "text": [text] * len(counts)}
    prompts |= {"labels": [["yes", "not sure"]] * len(counts)}
    plain = encode(tokenizer, pa.table(prompts)).to_pylist()
    rows = encode(tokenizer, pa.table(prompts | {"n_prefix_characters": pa.array(counts, pa.int32())})).to_pylist()
    n_longer = n_changed = 0
    for row, whole in zip(rows, plain, strict=True):
        n, ids = counts[int(row["prompt_id"])], whole["token_ids"]
        prefix = tokenizer(text[3:n])["input_ids"][: whole["n_context_tokens"]] if n else []
        n_longer += n is not None and len(tokenizer(text[3:n])["input_ids"]) > whole["n_context_tokens"]
        n_changed += prefix != ids[: len(prefix)]
        assert row == whole | {"token_ids": prefix + ids[len(prefix) :]}
    assert min(n_changed, n_longer) > 0


# ---- tokenising in pieces --------------------------------------------------------------------------------------------


def trained(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None, *, normalizer: normalizers.Normalizer | None = None,
    texts: Sequence[str] = (), bos: bool = True, vocab_size: int = 500,
) -> PreTrainedTokenizerFast:  # fmt: skip
    """Return a BPE tokenizer trained here."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    words = "Input: the case is new. Output: no yes not sure, don't 123 4567 way!\n\n It's  very  odd\t(so) … naïve"
    tokenizer.train_from_iterator(texts or [words] * 30, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def unsplit(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Let the tokens learned word by word be found in whole texts, as in tokenizers converted from SentencePiece."""
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    return tokenizer


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUT = {
    "gpt2": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt2 with a first space": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "gpt2 without bos": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False), bos=False),
    "llama 3": lambda: trained(split_by(LLAMA_3)),
    "falcon": lambda: trained(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ])),
    "llama 2": lambda: trained(pre_tokenizers.Metaspace(split=True)),
    "llama 2, one word": lambda: unsplit(trained(pre_tokenizers.Metaspace(split=True))),
    "qwen 2": lambda: trained(split_by(LLAMA_3.replace("{1,3}", "")), normalizer=normalizers.NFC()),
}  # fmt: skip
NOT_CUT = {
    "words may join": lambda: trained(None),
    "unknown pattern": lambda: trained(split_by(r"\w+ \w+|\s+|[^\s\w]+")),
    "lower case": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.Lowercase()),
}


def awkward_prompts(n: int, seed: int) -> pa.Table:
    """Long texts that begin alike and go on with whatever disturbs a tokenizer."""
    draw = random.Random(seed)
    fragments = ["Input:", " ", "  ", "\n", "\n\n", "\t", ".", "don't", " the case", "123 4567", "naïve", "e\u0301",
                 "你好", "🙂", "…", "<s>", "</s>", "</s", "<", "/s>", "▁", " ▁ ", "\u00a0", "\u3000", "\x1c", "Ġ",
                 "a", " a", "!", " 'll", "'s", " new", "\r\n", "\u200b", "x" * 300, "(so)"]  # fmt: skip
    context = "Say which one it is. " + " ".join(draw.choice(["case", "new", "is,", "123"]) for _ in range(100))
    texts = [context + " " + "".join(draw.choices(fragments, k=draw.randint(0, 60))) for _ in range(n - 3)]
    texts += ["", " ", context]
    labels = ["no", "no way", " No ", "\nYes", "7", "'s", "…", "naïve 你好", "</s>x", "<s>"]
    return pa.table({"prompt_id": [str(row) for row in range(n)], "text": texts, "labels": [labels] * n})


def assert_encoded_by_the_rule(tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> None:
    """Compare with texts that are tokenised one at a time; leaves out labels that cannot be scored.

    Behind a prompt that the text keeps and that does not end in white space, that is protocol section 5.1.
    """
    rows, expected = [], []
    for prompt in prompts.to_pylist():
        own = tokenizer(prompt["text"])["input_ids"]
        kept = []
        for label in prompt["labels"]:
            gap = "" if prompt["text"][-1:] in (" ", "\n", "\t") or label[:1] in (" ", "\n", "\t") else " "
            ids = tokenizer(prompt["text"] + gap + label + tokenizer.eos_token)["input_ids"]
            try:
                n_context = encoded_alone(tokenizer, prompt["text"], label)["n_context_tokens"]
            except InputError:
                continue
            if own == ids[: len(own)] and not prompt["text"][-1:].isspace():
                assert n_context == len(own)
            kept.append((label, ids, n_context))
        if kept:
            rows.append({**prompt, "labels": [label for label, _, _ in kept]})
            expected += kept
    encoded = encode(tokenizer, pa.Table.from_pylist(rows))
    assert encoded["label"].to_pylist() == [label for label, _, _ in expected]
    assert encoded["token_ids"].to_pylist() == [ids for _, ids, _ in expected]
    assert encoded["n_context_tokens"].to_pylist() == [n_context for _, _, n_context in expected]
    assert encoded["n_label_tokens"].to_pylist() == [len(ids) - n_context - 1 for _, ids, n_context in expected]


def encoded_alone(tokenizer: PreTrainedTokenizerBase, text: str, label: str) -> dict[str, Any]:
    """Return the row of a prompt with one label."""
    [row] = encode(tokenizer, pa.table({"prompt_id": ["alone"], "text": [text], "labels": [[label]]})).to_pylist()
    return dict(row)


@pytest.mark.parametrize("make", [*CUT.values(), *NOT_CUT.values()], ids=[*CUT, *NOT_CUT])
def test_token_ids_are_those_of_the_whole_text(
    make: Callable[[], PreTrainedTokenizerFast], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = make()
    for seed in range(2):
        assert_encoded_by_the_rule(tokenizer, awkward_prompts(40, seed))
    assert "whole texts" not in caplog.text  # the safety net was not needed


@pytest.mark.parametrize("model", ["golden/tiny-llama", "data/models/stories260K"])
def test_token_ids_are_those_of_the_whole_text_with_real_tokenizers(
    model: str, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = load_tokenizer(ModelSource(str(shared / model)))
    assert _cutting_rules(tokenizer, len(tokenizer)) is not None
    for seed in range(2):
        assert_encoded_by_the_rule(tokenizer, awkward_prompts(40, seed))
    assert "whole texts" not in caplog.text


def test_shared_text_is_tokenised_once(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    backend = tokenizer.backend_tokenizer

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(backend, name)

        def encode_batch_fast(self, texts: list[str], **options: bool) -> object:
            seen.extend(texts)
            return backend.encode_batch_fast(texts, **options)

    context = "Say which one it is. " + "case new. " * 500
    texts = [f"{context}Input: number {row}.\n\nOutput:" for row in range(50)]
    names = [str(row) for row in range(50)]
    prompts = pa.table({"prompt_id": names, "text": texts, "labels": [["no", "yes"]] * 50})
    encode(tokenizer, prompts.slice(0, 4))  # the rules are asked of the tokenizer itself
    monkeypatch.setattr(type(tokenizer), "backend_tokenizer", property(lambda self: Counting()))
    encode(tokenizer, prompts)
    assert sum(map(len, seen)) < len(context) + 50 * 600
