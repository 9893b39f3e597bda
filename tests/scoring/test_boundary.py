"""A label has one score behind a prompt, whatever other labels stand beside it, and none loses a part of its text."""

from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.scoring import LabelScorer, encode, outputs
from biaseval.scoring.boundary import n_context as context_tokens
from biaseval.scoring.outputs import part_outputs, read_part
from biaseval.tables import CONTEXTS, PROMPTS
from biaseval.training.batches import encode_rows
from tests.scoring.families import EXACT, llama_like, random_model
from tests.scoring.test_encoding import CUT, NOT_CUT, encoded_alone, split_by, trained

TEXTS = ["Input: The soup was good. Output: not good very good no yes sir no sir 7 12 "] * 30


def special(unknown: str) -> list[str]:
    return ["<s>", "</s>", unknown]


def finished(tokenizer: Tokenizer, trainer: trainers.Trainer, unknown: str | None = None) -> PreTrainedTokenizerFast:
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token=unknown)


def gpt2() -> PreTrainedTokenizerFast:
    return trained(pre_tokenizers.ByteLevel(add_prefix_space=False), texts=TEXTS)


def sentencepiece(prepend_scheme: str, *, split: bool) -> PreTrainedTokenizerFast:
    """Return one in the manner of Llama 2: bytes for what it does not know, ``▁`` for spaces."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=prepend_scheme)])
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[*special("<unk>"), *bytes_], show_progress=False)
    made = finished(tokenizer, trainer, "<unk>")
    made.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=split)
    return made


def legacy_llama() -> PreTrainedTokenizerFast:
    """Return one as converted from SentencePiece: a space before every text, and no words."""
    made = sentencepiece("always", split=True)
    made.backend_tokenizer.pre_tokenizer = None
    made.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


def word_piece() -> PreTrainedTokenizerFast:
    """Return one that keeps no white space at all."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special("[UNK]"), show_progress=False)
    return finished(tokenizer, trainer, "[UNK]")


def unigram() -> PreTrainedTokenizerFast:
    """Return one in the manner of XGLM: white space is made one space, and unknown characters one token together."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special("<unk>"), unk_token="<unk>", show_progress=False
    )
    return finished(tokenizer, trainer, "<unk>")


def bytes_alone() -> PreTrainedTokenizerFast:
    """Return one whose tokens are bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=258, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    return finished(tokenizer, trainer)


def tabs_join() -> PreTrainedTokenizerFast:
    """Return one in the manner of Llama 3 that knows a word with a tab before it."""
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return trained(split_by(pattern), texts=[*TEXTS, "Output:\tno\tno\nOutput:\n"] * 2)


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "gpt2": gpt2, **{f"of the pieces: {name}": make for name, make in (CUT | NOT_CUT).items()},
    "sentencepiece, always a space first": lambda: sentencepiece("always", split=False),
    "sentencepiece, a space first": lambda: sentencepiece("first", split=True),
    "sentencepiece, no space first": lambda: sentencepiece("never", split=True), "legacy llama": legacy_llama,
    "word piece": word_piece, "unigram": unigram, "bytes": bytes_alone, "tabs join": tabs_join,
}  # fmt: skip


@lru_cache
def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    return TOKENIZERS[name]()


@lru_cache
def model_of(n_tokens: int) -> PreTrainedModel:
    return random_model(LlamaConfig(**llama_like(vocab_size=n_tokens)))


ENDS = ["", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\t ", "\u00a0", "\u00a0 ", "\u3000", "\r\n", "\x1c"]
BODIES = ["Input: The soup was good.\nOutput:", "Output:", "a", "good…", "你好", "x ▁", "", "</s>", "yes"]
LABELS = ["not good", "very good", "no", "yes sir", " no", "\nno", "  no", "\tyes", "7", "12 7", "…", "你好 no", "é",
          "\u00a0no", "no.", "no ", "''s", "▁no", "🙂"]  # fmt: skip


def prompt_of(text: str, labels: list[str]) -> pa.Table:
    return pa.table({"prompt_id": ["p"], "text": [text], "labels": [labels]})


def scorable(tokenizer: PreTrainedTokenizerBase, text: str, labels: list[str]) -> list[str]:
    """Leave out what is refused: labels without a token, or with the tokens of another."""
    kept: list[str] = []
    for label in labels:
        try:
            encode(tokenizer, prompt_of(text, [*kept, label]))
        except InputError:
            continue
        kept.append(label)
    return kept


@torch.inference_mode()
def plain_logprobs(model: PreTrainedModel, ids: list[int]) -> list[float]:
    """Return the log-probability of every token but the first, by one forward pass over the text."""
    logprobs = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return [logprobs[place - 1, ids[place]].item() for place in range(1, len(ids))]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=st.sampled_from(BODIES),
    end=st.sampled_from(ENDS),
    labels=st.lists(st.sampled_from(LABELS), min_size=2, max_size=4, unique=True),
)
@example(body="Input: The soup was good.\nOutput:", end=" ", labels=["not good", "very good"])
@example(body="Input: The soup was good.\nOutput:", end=" ", labels=["not good", "no"])
@example(body="Output:", end="", labels=["\nno", "no"])
def test_a_label_has_one_score_and_all_of_its_text(name: str, body: str, end: str, labels: list[str]) -> None:
    tokenizer, text = tokenizer_of(name), body + end
    labels = scorable(tokenizer, text, labels)
    assume(labels)
    model = model_of(len(tokenizer))
    scorer = LabelScorer(model, tokenizer, path="full_text")  # what differs is the boundary, not the path
    together = scorer.score(prompt_of(text, labels)).to_pylist()
    for row in together:
        label = row["label"]
        [alone] = scorer.score(prompt_of(text, [label])).to_pylist()
        assert row["n_label_tokens"] == alone["n_label_tokens"]
        assert np.abs(np.subtract(row["token_logprobs"], alone["token_logprobs"])).max() < EXACT
        gap = "" if end[-1:] in (" ", "\n", "\t") or label[:1] in (" ", "\n", "\t") else " "
        ids = tokenizer(text + gap + label + "</s>")["input_ids"]
        n_context = len(ids) - row["n_label_tokens"] - 1
        assert np.abs(np.subtract(row["token_logprobs"], plain_logprobs(model, ids)[n_context - 1 :])).max() < EXACT
        # The context is the beginning of the prompt: nothing of the label is in it.
        assert (
            any(tokenizer(text[:n])["input_ids"] == ids[:n_context] for n in range(len(text) + 1))
            or ids[:n_context] == tokenizer(text)["input_ids"][:n_context]
        )


def parts(name: str, text: str, label: str) -> tuple[list[str], list[str]]:
    """Return the tokens of a context and of its label."""
    tokenizer = tokenizer_of(name)
    row = encoded_alone(tokenizer, text, label)
    tokens = tokenizer.convert_ids_to_tokens(row["token_ids"])
    return tokens[: row["n_context_tokens"]], tokens[row["n_context_tokens"] : -1]


@pytest.mark.parametrize(("name", "end", "label", "before", "own"), [
    ("gpt2", " ", "not good", ":", ["Ġnot", "Ġgood"]), ("gpt2", " ", "no", ":", ["Ġno"]),
    ("gpt2", "  ", "not good", "Ġ", ["Ġnot", "Ġgood"]), ("gpt2", "\n", "no", "Ċ", ["no"]),
    ("gpt2", "\n ", "no", "Ċ", ["Ġno"]), ("gpt2", "\t", "no", "ĉ", ["no"]), ("gpt2", "\u00a0", "no", "ł", ["Ġno"]),
    ("gpt2", " ", "7", ":", ["Ġ7"]),
    # Labels that do not happen to join with the space are scored behind the same context.
    ("gpt2", " ", "3", ":", ["Ġ", "3"]), ("gpt2", " ", "\nno", ":", ["Ġ", "Ċ", "no"]),
    ("legacy llama", " ", "not good", ":", ["▁not", "▁good"]),
    ("legacy llama", " ", "…", ":", ["▁", "<0xE2>", "<0x80>", "<0xA6>"]),
    ("legacy llama", "\n", "no", "<0x0A>", ["no"]),
    ("sentencepiece, a space first", " ", "not good", ":", ["▁not", "▁good"]),
    ("sentencepiece, no space first", " ", "not good", ":", ["▁not", "▁good"]),
    ("word piece", " ", "not good", ":", ["not", "good"]), ("unigram", "  ", "no good", ":", ["▁no", "▁good"]),
    ("bytes", " ", "no", "Ġ", ["n", "o"]), ("bytes", "  ", "no", "Ġ", ["n", "o"]),
    ("tabs join", "\n", "no", ":Ċ", ["no"]),
])  # fmt: skip
def test_white_space_at_the_end_is_the_labels_where_words_join_with_it(
    name: str, end: str, label: str, before: str, own: list[str]
) -> None:
    context, found = parts(name, f"Input: The soup was good. Output:{end}", label)
    assert found == own
    assert context[-1].endswith(before)


def test_a_label_that_joins_with_the_prompt_itself_changes_no_other() -> None:
    tokenizer = trained(None, texts=["ab. c"] * 50)
    assert len(tokenizer("ab. c</s>")["input_ids"]) == 3  # <s>, "ab. c", </s>: no token is the label's alone
    together = encode(tokenizer, prompt_of("ab.", ["c", "d"])).to_pylist()
    assert [row["n_context_tokens"] for row in together] == [1, len(tokenizer("ab.")["input_ids"])]
    for row in together:
        assert row | {"prompt_id": "alone"} == encoded_alone(tokenizer, "ab.", row["label"])
        assert row["token_ids"] == tokenizer(f"ab. {row['label']}</s>")["input_ids"]


@pytest.mark.parametrize(
    ("whole", "expected"), [([1, 2, 3, 9], 3), ([1, 2, 3, 4, 9], 4), ([1, 7, 9], 1), ([7, 2, 3], 0), ([1, 2], 2)]
)
def test_a_label_stands_behind_the_tokens_that_the_prompt_keeps(whole: list[int], expected: int) -> None:
    """Behind the longest of the prompts that the text begins with, else behind the last token that they share."""
    assert context_tokens([np.array([1, 2, 3]), np.array([1, 2, 3, 4])], np.array(whole)) == expected


def test_training_has_the_boundary_of_scoring() -> None:
    tokenizer = tokenizer_of("gpt2")
    for end in (" ", "", "\n", "  "):
        text = f"Input: The soup was good. Output:{end}"
        scored = encode(tokenizer, prompt_of(text, ["not good", "very good", "no"])).to_pylist()
        rows = pa.table({"prompt": [text] * len(scored), "label": [row["label"] for row in scored]})
        trained_on = encode_rows(tokenizer, rows)
        assert [row.n_context for row in trained_on] == [row["n_context_tokens"] for row in scored]
        assert [row.token_ids.tolist() for row in trained_on] == [row["token_ids"] for row in scored]


def test_a_decoder_that_may_only_write_labels_begins_where_the_prompt_ends() -> None:
    """A label that joins with the end of the prompt is none that can be written behind it."""
    tokenizer = trained(None, texts=["ab. c"] * 50)
    context = CONTEXTS.rows([{"context_id": "k", "text": ""}])
    row = {"prompt_id": "p", "context_id": "k", "purpose": "majority", "labels": ["c", "d"], "input_text": "ab."}
    prompts = PROMPTS.rows([row])
    scorer = LabelScorer(model_of(len(tokenizer)), tokenizer)
    read = read_part(tokenizer, prompts, context, ["constrained"], ["generations"])
    [(_, generations)] = part_outputs(scorer, read, ["constrained"], ["generations"])
    assert generations["prediction"].to_pylist() == ["d"]
    for asked in (["generate"], ["constrained"], ["generate", "constrained"]):
        read = read_part(tokenizer, prompts, context, asked, ["label_scores", "generations"])
        found = dict(part_outputs(scorer, read, ["likelihood", *asked], ["label_scores", "generations"]))
        assert found["label_scores"]["label"].to_pylist() == ["c", "d"]
        assert found["generations"]["mode"].to_pylist() == asked


def test_a_label_of_fewer_tokens_wins_where_its_first_is_likelier_and_what_joins_the_prompt_is_certain() -> None:
    for n_tokens, targets, logprobs, chosen in (
        ([12, 13], [[5, 2], [6, 7, 2]], [[-0.5, -3.0], [-1.0, 0.0, 0.0]], "c"),
        ([12, 12], [[4, 5, 2], [6, 2]], [[-0.5, -3.0, 0.0], [-1.0, 0.0]], "d"),  # c begins a token before d
    ):
        scores = pa.table({"prompt_id": ["p", "p"], "label": ["c", "d"], "token_logprobs": logprobs})
        prepared: Any = SimpleNamespace(rows=pa.table({"n_tokens": n_tokens}), target_tokens=lambda own=targets: own)
        [found] = outputs._constrained(prepared, scores, pa.table({"prompt_id": ["p"]}))
        assert found["prediction"] == chosen
