"""A small study on real questions: SQuAD's, a tiny encoder that begins at random, and three other data sets.

It shows the plumbing on real text. What a tiny encoder learns from ten thousand questions is no finding.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast


def training_lines(shared: Path, n_questions: int) -> list[str]:
    """Return the first questions of SQuAD's training set that are there, as JSON lines; they are sorted by article."""
    folder = shared / "data" / "qa"
    with gzip.open(folder / "squad_train.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    lines += (folder / "squad_train_extra.jsonl").read_text(encoding="utf-8").splitlines()
    step = max(1, len(lines) // n_questions)
    return lines[::step][:n_questions]


def write_base(folder: Path, texts: list[str], *, width: int) -> None:
    """Write a BERT of two layers of random weights and a tokenizer of these texts' word pieces."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=6000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    fast: Any = PreTrainedTokenizerFast
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    named: dict[str, Any] = dict(zip(names, special, strict=True))
    named["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    made = fast(tokenizer_object=tokenizer, model_max_length=512, **named)
    made.save_pretrained(folder)
    sizes = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": width // 32}
    sizes |= {"intermediate_size": 4 * width, "max_position_embeddings": 512}
    torch.manual_seed(0)
    model: Any = BertForQuestionAnswering(BertConfig(vocab_size=len(made), **sizes))
    model.save_pretrained(folder)


STUDY = """
kind: qa_bias
name: small-study
models: [{name: people, annotators: true}, {name: untrained, path: base}]
datasets: {train: train.jsonl, in_distribution: {squad: dev.jsonl}, out_of_distribution: {naturalquestions: nq.jsonl}}
windows: {max_tokens: 192, stride: 64}
thresholds: mikula2024
bootstrap: {sample: 20}
train:
  bases: [{name: tiny, path: base, init: random}]
  data: {squad: train.jsonl}
  validation: {squad: dev.jsonl}
  methods: [standard, resample, learned_mixin]
  biases: [word_dist, ans_len]
  learning_rate: 1.0e-3
  warmup: 0.1
  epochs: 50
  max_steps: 4
  learned_mixin: {max_steps: 4}
  bias_model: {learning_rate: 1.0e-3, max_steps: 4}
  evaluation_steps: 1
  evaluation_questions: 40
  checkpoint_steps: 1
"""


def write_study(folder: Path, shared: Path, *, n_questions: int, width: int = 32, **train: Any) -> Path:
    """Write the spec of a study, its training questions and its base, and return the spec's path.

    The base as it was written is measured beside those that are trained from random weights like its own.

    Args:
        folder: for all of them.
        shared: the folder of real data.
        n_questions: to train on, at most 10,099.
        width: of the encoder.
        **train: keys of the section ``train`` in place of those of ``STUDY``.
    """
    lines = training_lines(shared, n_questions)
    (folder / "train.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = [json.loads(line) for line in lines]
    write_base(folder / "base", [row[key] for row in rows for key in ("context", "question")], width=width)
    path = folder / "spec.yaml"
    content = yaml.safe_load(STUDY)
    content["train"] |= train
    content["text"] = {"nltk_data": str(shared / "data" / "nltk_data")}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
