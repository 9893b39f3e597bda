"""Measures the extractive reader against the published code's settings: same model, questions and machine, one run.

Published (protocol section 7's code): windows in the questions' order, batches of 8, all padded to 384 tokens, every
pair of the 20 best start and end tokens looked at in a loop.
"""

import gzip
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForQuestionAnswering, BertConfig, PreTrainedModel, PreTrainedTokenizerFast

from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.parsing import json_value
from biaseval.qa_models import ExtractiveReader, WindowSettings
from tests.bench.flops import matrix_flops_per_s

MAX_TOKENS, STRIDE, BATCH_SIZE, N_BEST, MAX_ANSWER_TOKENS = 384, 128, 8, 20, 30
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_N_REPEATS = 3


@dataclass(frozen=True)
class EncoderShape:
    """What a BERT's configuration needs."""

    hidden: int
    layers: int
    heads: int
    vocabulary: int


SHAPES = {
    "tiny": EncoderShape(hidden=64, layers=2, heads=4, vocabulary=2048),
    "12m": EncoderShape(hidden=256, layers=4, heads=4, vocabulary=30522),
    "base": EncoderShape(hidden=768, layers=12, heads=12, vocabulary=30522),
}


def read_squad(path: Path, n: int) -> pa.Table:
    """Return ``n`` questions, evenly spaced, of a file of JSON lines (``id``, ``question``, ``context``; or gzipped).

    Raises:
        InputError: no such file, or fewer questions.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; give questions as JSON lines, or none to generate them")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [json_value(line) for line in lines]
    if len(rows) < n:
        raise InputError(f"{path}: {len(rows)} questions; ask for at most so many, not {n}")
    chosen = [rows[place] for place in np.linspace(0, len(rows) - 1, n).astype(int)]
    return _table([(row["id"], row["question"], row["context"]) for row in chosen])


def generated_questions(n: int) -> pa.Table:
    """Return questions and contexts of made-up words, with about the lengths of SQuAD's: 10 and 40 to 400 words."""
    draw = random.Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(5000)]

    def text(length: int) -> str:
        return " ".join(draw.choices(words, k=length))

    contexts = [text(min(40 + int(draw.expovariate(1 / 85)), 400)) for _ in range(n // 5 + 1)]
    return _table([(f"g{row}", text(10) + "?", contexts[row // 5]) for row in range(n)])


def _table(rows: Sequence[tuple[str, str, str]]) -> pa.Table:
    return pa.table(dict(zip(("example_id", "question", "context"), map(list, zip(*rows, strict=True)), strict=True)))


def train_tokenizer(questions: pa.Table, vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a lower-casing WordPiece as BERT's, trained on these texts."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    texts = questions["context"].to_pylist() + questions["question"].to_pylist()
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=_SPECIAL, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast: Any = PreTrainedTokenizerFast
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return cast(PreTrainedTokenizerFast, fast(tokenizer_object=tokenizer, **names, model_input_names=inputs))


def random_encoder(shape: EncoderShape, dtype: str, device: str) -> PreTrainedModel:
    """Return a BERT of random weights with a question answering head."""
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        initializer_range=shape.hidden**-0.5,  # keeps the variance of what goes through it
    )
    torch.manual_seed(0)
    auto: Any = AutoModelForQuestionAnswering
    model = auto.from_config(config, dtype=getattr(torch, dtype)).to(device).eval()
    return cast(PreTrainedModel, model)


@dataclass(frozen=True)
class Timed:
    """One way of answering all questions."""

    method: str
    seconds: float
    """From texts to answers."""
    questions_per_s: float
    n_tokens: int
    """Tokens of all windows."""
    padding: float
    """Padding as a share of all tokens that the model ran."""
    padded_tokens_per_s: float
    """Tokens that the model ran, padding counted."""


def benchmark(questions: pa.Table, shape_name: str, dtype: str, device: str) -> dict[str, Any]:
    """Answer the questions in both ways and return the report, which is JSON.

    Args:
        questions: ``example_id``, ``question``, ``context``.
        shape_name: one of ``SHAPES``.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu`` or ``cuda``.

    Raises:
        BiasevalError: in float32, answers differ.
    """
    shape = SHAPES[shape_name]
    tokenizer = train_tokenizer(questions, shape.vocabulary)
    model = random_encoder(shape, dtype, device)
    rate = matrix_flops_per_s(dtype, device)
    ours, answers, facts = _ours(model, tokenizer, questions)
    published, predictions, with_padding = _published(model, tokenizer, questions)
    read = answers["prediction"].to_pylist()
    n_different = sum(own != other for own, other in zip(read, predictions, strict=True))
    if n_different and dtype == "float32":
        raise BiasevalError(f"{n_different} of {len(read)} answers differ between the two ways; report this")
    environment = describe_environment()
    is_cuda = device == "cuda"
    return {
        "shape": {"name": shape_name, "parameters": sum(own.numel() for own in model.parameters()), **asdict(shape)},
        "device": torch.cuda.get_device_name() if is_cuda else f"{environment['hardware']['cpu']} (CPU)",
        "threads": torch.get_num_threads(),
        "dtype": dtype,
        "matrix_flops_per_s": rate,
        "linear_flops_per_s": 24 * shape.hidden**2 * shape.layers * ours.n_tokens / ours.seconds,
        "n_questions": len(read),
        "n_different_answers": n_different,
        "n_different_where_padding_competes": sum(a != b for a, b in zip(read, with_padding, strict=True)),
        "ratio": published.seconds / ours.seconds,
        "reader": facts,
        "environment": environment,
        "records": [asdict(ours), asdict(published)],
    }


def _ours(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: pa.Table
) -> tuple[Timed, pa.Table, dict[str, Any]]:
    """Read all questions; the median of several runs."""
    reader = ExtractiveReader(model, tokenizer, WindowSettings(MAX_TOKENS, STRIDE, N_BEST))
    reader.read(questions.slice(0, 16))  # warms up, and tests itself once
    runs = []
    for _ in range(_N_REPEATS):
        before = reader.facts()
        start = time.perf_counter()
        answers = reader.read(questions)
        seconds = time.perf_counter() - start
        after = reader.facts()
        n_tokens, n_padded = (after[name] - before[name] for name in ("n_tokens", "n_padded_tokens"))
        runs.append((_timed("biaseval", seconds, len(questions), n_tokens, n_padded), answers))
    timed, answers = sorted(runs, key=lambda run: run[0].seconds)[_N_REPEATS // 2]
    return timed, answers, reader.facts()


def _timed(method: str, seconds: float, n_questions: int, n_tokens: int, n_padded: int) -> Timed:
    return Timed(method, seconds, n_questions / seconds, n_tokens, 1 - n_tokens / n_padded, n_padded / seconds)


def _published(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: pa.Table
) -> tuple[Timed, list[str], list[str]]:
    """Answer as the published code does; also return the answers that it gives where padding competes with tokens."""
    _published_logits(model, tokenizer, questions.slice(0, BATCH_SIZE))  # warms up
    start = time.perf_counter()
    encoded, logits = _published_logits(model, tokenizer, questions)
    predictions = _published_search(questions, encoded, logits, is_padding_left_out=True)
    seconds = time.perf_counter() - start
    with_padding = _published_search(questions, encoded, logits, is_padding_left_out=False)
    n_tokens = int(np.sum(encoded["attention_mask"]))
    n_padded = len(logits) * MAX_TOKENS
    return _timed("published settings", seconds, len(questions), n_tokens, n_padded), predictions, with_padding


Logits = list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]


@torch.inference_mode()
def _published_logits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: pa.Table
) -> tuple[Any, Logits]:
    encoded = tokenizer(
        [question.lstrip() for question in questions["question"].to_pylist()],
        questions["context"].to_pylist(),
        truncation="only_second",
        max_length=MAX_TOKENS,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
    )
    for row, offsets in enumerate(encoded["offset_mapping"]):
        owner = encoded.sequence_ids(row)
        encoded["offset_mapping"][row] = [own if owner[place] == 1 else None for place, own in enumerate(offsets)]
    names = ("input_ids", "attention_mask", "token_type_ids")
    logits: Logits = []
    any_model: Any = model
    for first in range(0, len(encoded["input_ids"]), BATCH_SIZE):
        batch = {name: torch.tensor(encoded[name][first : first + BATCH_SIZE]).to(model.device) for name in names}
        outputs = any_model(**batch)
        both = (own.float().cpu().numpy() for own in (outputs.start_logits, outputs.end_logits))
        logits += zip(*both, strict=True)
    return encoded, logits


def _published_search(questions: pa.Table, encoded: Any, logits: Logits, *, is_padding_left_out: bool) -> list[str]:
    contexts = questions["context"].to_pylist()
    best: list[tuple[float, str] | None] = [None] * len(contexts)
    for row, question in enumerate(encoded["overflow_to_sample_mapping"]):
        offsets = encoded["offset_mapping"][row]
        n = sum(encoded["attention_mask"][row]) if is_padding_left_out else MAX_TOKENS
        start_logits, end_logits = (own[:n] for own in logits[row])
        starts = np.argsort(-start_logits, kind="stable")[:N_BEST].tolist()
        ends = np.argsort(-end_logits, kind="stable")[:N_BEST].tolist()
        for start in starts:
            for end in ends:
                if offsets[start] is None or offsets[end] is None:
                    continue
                if end < start or end - start + 1 > MAX_ANSWER_TOKENS:
                    continue
                score = start_logits[start] + end_logits[end]
                so_far = best[question]
                if so_far is None or score > so_far[0]:
                    best[question] = (score, contexts[question][offsets[start][0] : offsets[end][1]])
    return [own[1] if own is not None else "" for own in best]


def markdown(report: Mapping[str, Any]) -> str:
    """Return both ways as a table, with what they were measured on below."""
    lines = [
        "| way | seconds | questions/s | tokens | of what ran, padding | ran, tokens/s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {own['method']} | {own['seconds']:.2f} | {own['questions_per_s']:.1f} | {own['n_tokens']} | "
        f"{own['padding']:.1%} | {own['padded_tokens_per_s']:.0f} |"
        for own in report["records"]
    ]
    versions = report["environment"]["versions"]
    shape, rate = report["shape"], report["matrix_flops_per_s"]
    return "\n".join(
        [
            *lines,
            "",
            f"{report['ratio']:.1f} times the speed, from texts to answers; {report['n_different_answers']} of "
            f"{report['n_questions']} answers differ (of the published way with padding kept out of the best tokens; "
            f"with it among them {report['n_different_where_padding_competes']} would, the weights being random).",
            "",
            f"Questions: {report['questions']}. A BERT of {shape['parameters'] / 1e6:.0f}M random parameters "
            f"({shape['layers']} layers of {shape['hidden']}), {report['dtype']}; {report['device']}, "
            f"{report['threads']} threads; torch {versions['torch']}, transformers {versions['transformers']}. Linear "
            f"layers do {report['linear_flops_per_s'] / 1e9:.0f} GFLOP/s of useful work in biaseval, a plain matrix "
            f"product {rate / 1e9:.0f}.",
        ]
    )
