"""A small study on real questions: SQuAD's, a tiny encoder that begins at random, and three other data sets.

It shows the plumbing on real text. What a tiny encoder learns from ten thousand questions is no finding.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast

METHODS = ("resample", "learned_mixin", "confidence_regularization", "product_of_experts")
BIASES = ("word_dist", "ans_len")


def training_lines(shared: Path, n_questions: int) -> list[str]:
    """Return the first questions of SQuAD's training set that are there, as JSON lines; they are sorted by article."""
    folder = shared / "data" / "qa"
    with gzip.open(folder / "squad_train.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    lines += (folder / "squad_train_extra.jsonl").read_text(encoding="utf-8").splitlines()
    step = max(1, len(lines) // n_questions)
    return lines[::step][:n_questions]


def write_base(folder: Path, texts: list[str], *, width: int, n_layers: int, vocabulary: int) -> None:
    """Write a BERT of random weights and a tokenizer of these texts' word pieces."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    fast: Any = PreTrainedTokenizerFast
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    made = fast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **names,
    )
    made.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(made),
        hidden_size=width,
        num_hidden_layers=n_layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        max_position_embeddings=512,
        architectures=["BertForQuestionAnswering"],
    )
    torch.manual_seed(0)
    model: Any = BertForQuestionAnswering(config)
    model.save_pretrained(folder)


def write_study(
    folder: Path, shared: Path, *, n_questions: int, max_steps: int, width: int = 128, **changes: Any
) -> Path:
    """Write the spec of a study, its training questions and its base, and return the spec's path.

    The base as it was written is measured beside those that are trained from random weights like its own.

    Args:
        folder: for all of them.
        shared: the folder of real data.
        n_questions: to train on, at most 10,099.
        max_steps: of each reader.
        width: of the encoder.
        **changes: of the spec's section ``train``; ``datasets`` of the spec.
    """
    lines = training_lines(shared, n_questions)
    (folder / "train.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    write_base(
        folder / "base",
        [text for line in lines for text in (json.loads(line)["context"], json.loads(line)["question"])],
        width=width,
        n_layers=2,
        vocabulary=6000,
    )
    data = shared / "data" / "qa"
    own = {"max_steps": max_steps}
    content = {
        "kind": "qa_bias",
        "name": "small-study",
        "models": [{"name": "people", "annotators": True}, {"name": "untrained", "path": "base"}],
        "text": {"nltk_data": str(shared / "data" / "nltk_data")},
        "datasets": changes.pop("datasets", {})
        or {
            "train": "train.jsonl",
            "in_distribution": {"squad": str(data / "squad_dev.jsonl.gz")},
            "out_of_distribution": {
                "adversarialqa": str(data / "adversarialqa_dev.jsonl"),
                "naturalquestions": str(data / "naturalquestions_dev.jsonl"),
            },
        },
        "windows": {"max_tokens": 192, "stride": 64},
        "thresholds": "mikula2024",
        "train": {
            "bases": [{"name": "tiny", "path": "base", "init": "random"}],
            "data": {"squad": "train.jsonl"},
            "validation": {"squad": str(data / "squad_dev.jsonl.gz")},
            "methods": ["standard", *METHODS],
            "biases": list(BIASES),
            "learning_rate": 1e-3,
            "warmup": 0.1,
            "epochs": 50,
            **own,
            **{method: dict(own) for method in METHODS[1:]},
            "bias_model": {"learning_rate": 1e-3, **own},
            "evaluation_steps": max(1, max_steps // 5),
            "evaluation_questions": 500,
            "checkpoint_steps": max(1, max_steps // 4),
            **changes,
        },
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
