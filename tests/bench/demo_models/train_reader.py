"""Trains the demo's reader: ``python -m tests.bench.demo_models.train_reader [directory]``; 5 to 10 minutes, one core.

A BERT of three layers learns to answer the questions of `biaseval.qa_bias.planted` without a shortcut: which things and
deeds are meant, how words for deeds are used, and how surely. It is what readers with a planted shortcut begin with.

It begins with contexts of two sentences and with words that are always meant. Beside the answer it learns, by a layer
that is dropped in the end, which things and deeds of the context are asked for, and whose they are (`HINTS`). Attention
begins by looking for equal tokens (keys are made like queries), and then for near ones (positions are waves). With
hints about people alone it had learned nothing after 800 steps.
"""

from __future__ import annotations

import math
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biaseval.demo import READER_PATH
from biaseval.qa_bias.data import Question, question_rows
from biaseval.qa_bias.planted import DEEDS, FIRST_NAMES, LAST_NAMES, OPENERS, RELIABILITY, THINGS, planted_questions

if TYPE_CHECKING:
    import torch


SEED = 20_500
N_STEPS = 1500
BATCH_SIZE = 64
PEAK_LEARNING_RATE = 2e-3
N_EASY_STEPS = 500
"""With contexts of two sentences and words of the first column of `DEEDS`."""
N_WARMUP_STEPS = 100

WIDTH, N_LAYERS, N_HEADS, FEED_FORWARD = 96, 3, 4, 192
N_POSITIONS = 128
HINTS = ("thing is asked for", "deed is asked for", "person with the thing", "person with the deed")
HINT_WEIGHT = 6.0
POSITION_SCALE, TYPE_SCALE, LONGEST_WAVE = 0.7, 0.2, 200.0
"""Of embeddings before training; those of words have a standard deviation of 1."""

QUESTIONS_PER_DRAW = 4096
SETS = "pretraining", "held out"
"""Names of the generated questions: a run that calls its sets otherwise has none of them, whatever its seeds."""

_WORDS = ("Who", "was", "the", "of", "that", "were", "by", ".", "?")
_SENTENCE = re.compile(r"\w+ (\w+(?: \w+)?) (\w+) (\w+) that were (\w+) by (\w+(?: \w+)?)\.")
_QUESTION = re.compile(r"Who was the (\w+) of (\w+)\?")
_DEED_OF = {word: deed for deed, words in DEEDS.items() for word in words}


@dataclass(frozen=True)
class Batch:
    """Questions as tokens, with what is learned of them."""

    inputs: dict[str, torch.Tensor]
    """What the model takes, ``[questions, positions]`` each."""
    positions: torch.Tensor
    """``[questions, 2]`` the first and the last token of the answer."""
    hinted: torch.Tensor
    """``[hints, 3]`` a question's row, a position in it, and what is said of it, by its number in `HINTS`."""
    hints: torch.Tensor
    """``[hints]`` 1 where it is so, else 0."""


def make_tokenizer() -> Any:
    """Return a WordPiece tokenizer, with case, whose pieces are the words of generated questions."""
    from transformers import BertTokenizer

    deeds = [word for verb, words in DEEDS.items() for word in (verb, *words)]
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    words = [*special, *_WORDS, *OPENERS, *FIRST_NAMES, *LAST_NAMES, *THINGS, *deeds]
    vocabulary = {word: number for number, word in enumerate(words)}
    wordpiece: Any = BertTokenizer
    return wordpiece(vocab=vocabulary, do_lower_case=False, model_max_length=N_POSITIONS)


def questions(seed: int, *, is_easy: bool) -> Iterator[Question]:
    """Yield generated questions without end, without a shortcut; easy ones have contexts of two sentences."""
    generator = random.Random(seed)
    while True:
        drawn = planted_questions(
            SETS[0], shortcut="ans_pos", strength=0, n_questions=QUESTIONS_PER_DRAW, seed=generator.getrandbits(32)
        )
        for question in drawn.questions:
            if not is_easy:
                yield question
            elif question.question.split()[3] in {words[0] for words in DEEDS.values()}:
                yield _shortened(question, generator)


def _shortened(question: Question, generator: random.Random) -> Question:
    """Return the question with the answer's sentence and one other."""
    [answer] = question.answers
    sentences = [match.group() for match in _SENTENCE.finditer(question.context)]
    [own] = [number for number, sentence in enumerate(sentences) if answer in sentence]
    other = generator.choice([number for number in range(len(sentences)) if number != own])
    context = " ".join(sentences[number] for number in sorted((own, other)))
    return replace(question, context=context, answer_starts=(context.index(answer),))


def batch_of(tokenizer: Any, asked: Sequence[Question]) -> Batch:
    """Return questions as a batch."""
    import torch

    encoded = tokenizer(
        [own.question for own in asked], [own.context for own in asked], padding=True, return_tensors="pt"
    )
    positions, hinted, hints = [], [], []
    for row, own in enumerate(asked):
        start, answer = own.answer_starts[0], own.answers[0]
        positions.append([encoded.char_to_token(row, place, 1) for place in (start, start + len(answer) - 1)])
        meant = _QUESTION.fullmatch(own.question)
        assert meant is not None
        for match in _SENTENCE.finditer(own.context):
            is_thing = match.group(3) == meant.group(2)
            for person, verb in ((1, 2), (5, 4)):
                is_deed = match.group(verb) == _DEED_OF[meant.group(1)]
                for group, hint, is_so in (
                    (3, 0, is_thing),
                    (verb, 1, is_deed),
                    (person, 2, is_thing),
                    (person, 3, is_deed),
                ):
                    hinted.append([row, encoded.char_to_token(row, match.start(group), 1), hint])
                    hints.append(float(is_so))
    return Batch(dict(encoded), torch.tensor(positions), torch.tensor(hinted), torch.tensor(hints))


def new_model(vocabulary: int, seed: int) -> Any:
    """Return the model before training."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=FEED_FORWARD,
        max_position_embeddings=N_POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(seed)
    model: Any = BertForQuestionAnswering(config)
    embeddings, layers = model.bert.embeddings, model.bert.encoder.layer
    frequencies = torch.exp(-torch.arange(0, WIDTH, 2) / WIDTH * math.log(LONGEST_WAVE))
    angles = torch.arange(N_POSITIONS)[:, None] * frequencies
    with torch.no_grad():
        embeddings.word_embeddings.weight.normal_(0, 1)
        embeddings.position_embeddings.weight.copy_(
            torch.cat([angles.sin(), angles.cos()], 1) * POSITION_SCALE * math.sqrt(2)
        )
        embeddings.token_type_embeddings.weight.normal_(0, TYPE_SCALE)
        for number, layer in enumerate(layers):
            for weight in layer.parameters():
                if weight.ndim > 1:
                    weight.normal_(0, 0.5 / math.sqrt(WIDTH))
            if number < N_LAYERS - 1:
                rotation, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH))
                layer.attention.self.query.weight.copy_(rotation)
                layer.attention.self.key.weight.copy_(rotation)
    return model


def train(directory: Path, *, seed: int = SEED, n_steps: int = N_STEPS) -> None:
    """Train the model and save it with its tokenizer to ``directory``, weights as float32 safetensors."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    model = new_model(len(tokenizer), seed)
    hint_layer = torch.nn.Linear(WIDTH, len(HINTS))
    trained = [*model.parameters(), *hint_layer.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, n_steps))
    easy, whole = (questions(seed + number, is_easy=number == 0) for number in range(2))
    started, running = time.monotonic(), 0.0
    for step in range(n_steps):
        source = easy if step < N_EASY_STEPS else whole
        batch = batch_of(tokenizer, [next(source) for _ in range(BATCH_SIZE)])
        states = model.bert(**batch.inputs).last_hidden_state
        logits = model.qa_outputs(states).masked_fill(batch.inputs["attention_mask"][..., None] == 0, -torch.inf)
        loss = F.cross_entropy(logits, batch.positions)
        rows, places, kinds = batch.hinted.unbind(1)
        found = hint_layer(states)[rows, places, kinds]
        hints = F.binary_cross_entropy_with_logits(found, batch.hints)
        optimizer.zero_grad()
        total: Any = loss + HINT_WEIGHT * hints
        total.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        running += (0.05 if step else 1.0) * (float(loss.detach()) - running)
        if (step + 1) % 100 == 0:
            elapsed_s = time.monotonic() - started
            print(f"step {step + 1}: {running:.3f}, hints {float(hints.detach()):.3f}; {elapsed_s:.0f} s", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    model.save_pretrained(directory)


def _rate(step: int, n_steps: int) -> float:
    return min((step + 1) / N_WARMUP_STEPS, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / n_steps)))


def exact_match_of(directory: Path, *, n_questions: int, seed: int) -> list[tuple[float, int]]:
    """Return the reader's exact match on questions without a shortcut, and their number.

    Args:
        directory: of the reader.
        n_questions: that are generated, under a name that no training has.
        seed: of them.

    Returns:
        For all questions, and then for those with words of each column of `DEEDS`.
    """
    from biaseval.models import Loading, ModelSource, load_extractive_model, load_reader_tokenizer
    from biaseval.qa_models import ExtractiveReader, WindowSettings

    source = ModelSource(str(directory))
    model = load_extractive_model(source, Loading("float32", "cpu"))
    settings = WindowSettings(max_tokens=N_POSITIONS, stride=32, n_best=5, max_answer_tokens=4)
    asked = planted_questions(SETS[1], shortcut="ans_pos", strength=0, n_questions=n_questions, seed=seed)
    reader = ExtractiveReader(model, load_reader_tokenizer(source), settings)
    answers = reader.read(question_rows(asked, "in_distribution"))["prediction"].to_pylist()
    columns: list[list[bool]] = [[] for _ in RELIABILITY]
    for question, answer in zip(asked.questions, answers, strict=True):
        word = question.question.split()[3]
        columns[DEEDS[_DEED_OF[word]].index(word)].append(answer in question.answers)
    right = [own for column in columns for own in column]
    return [(sum(own) / max(len(own), 1), len(own)) for own in (right, *columns)]


def write_card(directory: Path) -> None:
    """Measure the reader in ``directory`` on new questions and write its model card, ``README.md``."""
    from transformers import AutoModelForQuestionAnswering

    model: Any = AutoModelForQuestionAnswering.from_pretrained(directory)
    (overall, n_questions), *columns = exact_match_of(directory, n_questions=4000, seed=0)
    rows = [
        f"| {', '.join(words[column] for words in list(DEEDS.values())[:3])}, … | {reliability:.0%} | {match:.1%} |"
        for column, (reliability, (match, _)) in enumerate(zip(RELIABILITY, columns, strict=True))
    ]
    card = _CARD.format(
        n_parameters=sum(weight.numel() for weight in model.parameters()),
        layers=f"{N_LAYERS} layers, width {WIDTH}, {N_HEADS} heads, {N_POSITIONS} positions",
        n_tokens=model.config.vocab_size,
        n_steps=N_STEPS,
        batch_size=BATCH_SIZE,
        seed=SEED,
        n_questions=n_questions,
        overall=overall,
        table="\n".join(rows),
    )
    (directory / "README.md").write_text(card, encoding="utf-8")


_CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: question-answering
---

# The demo's reader

A BERT with a question answering head, of {n_parameters:,} parameters ({layers}; float32 weights),
with a WordPiece tokenizer whose {n_tokens} pieces are whole words. It answers the questions that
`biaseval.qa_bias.planted` generates, and nothing else: it exists so that a run can train readers that take a planted
shortcut, without a download, in seconds.

Trained from scratch by `python -m tests.bench.demo_models.train_reader` ({n_steps:,} steps of {batch_size} questions,
seed {seed}, one CPU thread) on generated questions without a shortcut. Say nothing about large models from its numbers.

Licence: Apache-2.0, weights and training text alike.

## Measured

Exact match on {n_questions:,} new questions without a shortcut: {overall:.1%}. Some words of questions are used
loosely, so that no reader gets all of these right:

| words of questions | mean what they say | exact match |
|---|---|---|
{table}
"""


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else READER_PATH
    train(target)
    write_card(target)
