"""Tiny random readers of several families with real tokenizers, and what the published code makes of a question."""

import copy
import random
from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTEXTS = [
    "The old harbour of Brno was closed in 1950. Nobody knew why; the mayor, Jiří Novák, never said so.",
    "“Zürich” — naïve café owners said — costs 3.5€ more than 東京 🙂, in the 1950s as in 2016.",
    "a a a b a a a b a a a b",
    "Rivers run to the sea. " * 12 + "The longest is the Amazon, said Nobody. " + "Rivers are long. " * 9,
    "Yes",
]
QUESTIONS = [
    "  Who closed the harbour?", "What does 東京 cost in the café of Jiří?", "Why?", "a b?",
    "In which year, if any at all, did the old mayor of the harbour of Brno say why it was closed to all the rivers?",
]  # fmt: skip
WITH_TYPES = ["input_ids", "token_type_ids", "attention_mask"]
_TEXTS = [text for text in CONTEXTS + QUESTIONS for _ in range(3)]


def _fast(tokenizer: Tokenizer, **special: Any) -> hf.PreTrainedTokenizerFast:
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _trained_once(make: Callable[[], hf.PreTrainedTokenizerFast]) -> Callable[[], hf.PreTrainedTokenizerFast]:
    """Return copies of one tokenizer: training breaks ties in another way each time."""
    trained = cache(make)
    return wraps(make)(lambda: copy.deepcopy(trained()))


def _pieces(tokenizer: Tokenizer, n_pieces: int) -> dict[str, int]:
    """Return characters, beginning a word and within it, and the most frequent words; a trainer would break ties in
    another way in each process.
    """
    texts = [tokenizer.normalizer.normalize_str(text) for text in _TEXTS]
    words = Counter(word for text in texts for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    characters = sorted({character for word in words for character in word})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{one}" for one in characters)]
    frequent = sorted((word for word in words if len(word) > 1), key=lambda word: (-words[word], word))
    return {piece: number for number, piece in enumerate([*pieces, *frequent][:n_pieces])}


@_trained_once
def wordpiece() -> hf.PreTrainedTokenizerFast:
    """Return a lower-casing WordPiece as BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.model = models.WordPiece(_pieces(tokenizer, 160), unk_token="[UNK]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokens = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _fast(tokenizer, **tokens, model_input_names=WITH_TYPES)


@_trained_once
def bpe() -> hf.PreTrainedTokenizerFast:
    """Return a byte-level BPE as RoBERTa's: two separators, offsets without the space in front."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(_TEXTS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    return _fast(tokenizer, **tokens, model_input_names=["input_ids", "attention_mask"])


def _unigram(pair: str, **settings: Any) -> hf.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "</s>"]
    tokenizer.train_from_iterator(
        _TEXTS, trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    ids = [(token, tokenizer.token_to_id(token)) for token in special]
    single = "$A </s>" if pair.startswith("$A </s>") else "[CLS] $A [SEP]"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    tokens = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _fast(tokenizer, **tokens, eos_token="</s>", **{"model_input_names": WITH_TYPES, **settings})


@_trained_once
def unigram() -> hf.PreTrainedTokenizerFast:
    """Return a unigram model over words that carry the space in front, as ALBERT's and DeBERTa's."""
    return _unigram("[CLS] $A [SEP] $B:1 [SEP]:1")


@_trained_once
def t5_tokenizer() -> hf.PreTrainedTokenizerFast:
    return _unigram("$A </s> $B </s>", model_input_names=["input_ids", "attention_mask"])


@_trained_once
def left_padding() -> hf.PreTrainedTokenizerFast:
    """Return a tokenizer as XLNet's: padding on the left, CLS at the end."""
    return _unigram("$A [SEP] $B:1 [SEP]:1 [CLS]:2", padding_side="left")


SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 400,
    "initializer_range": 0.3,
}  # fmt: skip

FAMILIES: dict[str, tuple[Callable[[], hf.PretrainedConfig], Callable[[], hf.PreTrainedTokenizerFast]]] = {
    "bert": (lambda: hf.BertConfig(**SMALL), wordpiece),
    "electra": (lambda: hf.ElectraConfig(**SMALL, embedding_size=16), wordpiece),
    "distilbert": (
        lambda: hf.DistilBertConfig(
            dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=400, initializer_range=0.3,
        ),
        wordpiece,
    ),
    "roberta": (lambda: hf.RobertaConfig(**SMALL, pad_token_id=1, type_vocab_size=1), bpe),
    "mpnet": (lambda: hf.MPNetConfig(**SMALL, pad_token_id=1, max_position_embeddings=514), bpe),
    "albert": (lambda: hf.AlbertConfig(**SMALL, embedding_size=16, max_position_embeddings=512), unigram),
    "deberta v3": (
        lambda: hf.DebertaV2Config(
            **SMALL, relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"], share_att_key=True,
            norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0,
        ),
        unigram,
    ),
    "xlnet": (
        lambda: hf.XLNetConfig(d_model=32, n_layer=2, n_head=4, d_inner=48, vocab_size=400, initializer_range=0.3),
        left_padding,
    ),
    "bart": (
        lambda: hf.BartConfig(
            d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=400, init_std=0.3, pad_token_id=1,
        ),
        bpe,
    ),
    "t5": (
        lambda: hf.T5Config(
            d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=400, decoder_start_token_id=0,
        ),
        t5_tokenizer,
    ),
    "gpt2": (
        lambda: hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=400, initializer_range=0.3, pad_token_id=1),
        bpe,
    ),
}  # fmt: skip


def random_reader(config: hf.PretrainedConfig, seed: int = 0) -> hf.PreTrainedModel:
    torch.manual_seed(seed)
    return hf.AutoModelForQuestionAnswering.from_config(config, dtype=torch.float32).eval()


def questions() -> pa.Table:
    """Every question about every context, in mixed order; one pair twice."""
    pairs = [(question, context) for question in QUESTIONS for context in CONTEXTS]
    pairs.append((QUESTIONS[0].lstrip(), CONTEXTS[0]))
    random.Random(0).shuffle(pairs)
    return pa.table(
        {
            "example_id": [f"q{row}" for row in range(len(pairs))],
            "question": [question for question, _ in pairs],
            "context": [context for _, context in pairs],
        }
    )


def features(
    tokenizer: hf.PreTrainedTokenizerFast, question: str, context: str, max_tokens: int, stride: int
) -> list[dict[str, Any]]:
    """Cut one question as protocol section 7 says, by the tokenizer itself; offsets are None outside the context."""
    is_right = tokenizer.padding_side == "right"
    pair = ([question.lstrip()], [context]) if is_right else ([context], [question.lstrip()])
    encoded = tokenizer(
        *pair, truncation="only_second" if is_right else "only_first", max_length=max_tokens, stride=stride,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    found = []
    for row, ids in enumerate(encoded["input_ids"]):
        owner = encoded.sequence_ids(row)
        offsets = [
            own if owner[place] == (1 if is_right else 0) else None
            for place, own in enumerate(encoded["offset_mapping"][row])
        ]
        found.append({"ids": ids, "types": encoded.encodings[row].type_ids, "offsets": offsets})
    return found


def by_brute_force(
    windows: list[tuple[np.ndarray, np.ndarray, list[Any]]], context: str, n_best: int, max_answer_tokens: int
) -> list[tuple[str, float]]:
    """Search all windows as protocol section 7 says, one pair at a time; the ``n_best`` best different texts.

    Args:
        windows: start logits, end logits and offsets (None outside the context) of each window.
        context: what the offsets count.
        n_best: start tokens, end tokens, and texts.
        max_answer_tokens: the longest span.
    """
    found = []
    for number, (start_logits, end_logits, offsets) in enumerate(windows):
        starts = sorted(range(len(offsets)), key=lambda place: (-start_logits[place], place))[:n_best]
        ends = sorted(range(len(offsets)), key=lambda place: (-end_logits[place], place))[:n_best]
        for start_rank, start in enumerate(starts):
            for end_rank, end in enumerate(ends):
                if offsets[start] is None or offsets[end] is None:
                    continue
                if end < start or end - start + 1 > max_answer_tokens:
                    continue
                score = np.float32(start_logits[start]) + np.float32(end_logits[end])
                text = context[offsets[start][0] : offsets[end][1]]
                found.append((-float(score), number, start_rank, end_rank, text))
    best: dict[str, float] = {}
    for score, _, _, _, text in sorted(found):
        best.setdefault(text, -score)
    return list(best.items())[:n_best]


@torch.inference_mode()
def by_the_rule(
    model: hf.PreTrainedModel, tokenizer: hf.PreTrainedTokenizerFast, question: str, context: str,
    max_tokens: int, stride: int, n_best: int = 20, max_answer_tokens: int = 30,
) -> list[tuple[str, float]]:  # fmt: skip
    """Answer one question with one forward pass per window, none of the reader's code."""
    windows = []
    for feature in features(tokenizer, question, context, max_tokens, stride):
        inputs = {"input_ids": torch.tensor([feature["ids"]])}
        if "token_type_ids" in tokenizer.model_input_names and model.config.model_type not in {"distilbert"}:
            inputs["token_type_ids"] = torch.tensor([feature["types"]])
        outputs = model(**inputs)
        logits = (outputs.start_logits[0].numpy(), outputs.end_logits[0].numpy())
        windows.append((*logits, feature["offsets"]))
    return by_brute_force(windows, context, n_best, max_answer_tokens)
