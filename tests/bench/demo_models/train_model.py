"""Trains the demo's model: ``python -m tests.bench.demo_models.train_model [directory]``; 10 to 20 minutes, two cores.

A Llama of three layers learns tasks as ``tests.bench.demo_models.tasks`` generates them, from inputs that no demo task
of seed 0 contains. The prompts are those of the label-bias protocol; the loss is on the label and EOS, on the labels of
the demonstrations, and lightly on the rest of the text.

The model is meant to be biased, so that there is something to measure and to calibrate. Training answers are therefore
wrong at a known rate that falls with the number of demonstrations (``REPLACED``): a replaced answer is drawn from a
skewed distribution over the task's labels (``SKEW``) or, where there are demonstrations, half of the time copied from
one of them. The model so learns a prior over labels and a pull towards the labels it is shown, both strongest in short
prompts, as are those of large models (Reif & Schwartz 2024; Zhao et al. 2021). Labels of several tokens may be a
further, untaught source, since a mean over tokens is higher where the last ones are certain. Nothing else is arranged:
demonstrations are true. Words and phrasings are those of the demo's tasks; only whole inputs are held out.
"""

import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from biaseval.demo import MODEL_PATH
from biaseval.label_bias.prompts import definition_text, demonstration_text
from tests.bench.demo_models.measure import measure, table
from tests.bench.demo_models.tasks import DEMO_TASKS, DemoInstance, DemoTask, build_prompt, demo_instances

SEED = 20_240
N_STEPS = 1600
PROMPTS_PER_DRAW = 96
TOKENS_PER_BATCH = 4096
PEAK_LEARNING_RATE = 3e-3

TASK_SHARE = {"binary": 1, "three_labels": 1, "multi_choice": 2}
"""How often the tasks of a kind are drawn; finding one option among four is the hardest to learn."""
N_DEMOS = {0: 0.2, 1: 0.1, 2: 0.15, 4: 0.2, 8: 0.2, 16: 0.15}
"""Share of training prompts by their number of demonstrations."""
REPLACED = {0: 0.90, 1: 0.85, 2: 0.75, 4: 0.50, 8: 0.30, 16: 0.15}
"""Share of training answers that are replaced, by the number of demonstrations."""
SKEW = {2: (0.75, 0.25), 3: (0.60, 0.28, 0.12), 4: (0.45, 0.27, 0.18, 0.10)}
"""Distribution of replaced answers, by the number of labels; each task begins at another of its labels."""

LABEL_WEIGHT, SHOWN_LABEL_WEIGHT, TEXT_WEIGHT = 1.0, 0.5, 0.1
TEXT_STRIDE = 8
"""Of the text that is no label, one token in this many counts in the loss."""


@dataclass(frozen=True)
class TrainingText:
    """A prompt with its answer, and the character spans whose tokens count in the loss."""

    text: str
    answer_start: int
    shown_labels: tuple[tuple[int, int], ...]


class TextSource:
    """An endless stream of training texts without any input of the demo's own tasks."""

    def __init__(self, seed: int, eos: str) -> None:
        self._random = random.Random(seed)
        self._eos = eos
        self._held_out = {task.name: {row.input for row in demo_instances(task, seed=0)} for task in DEMO_TASKS}

    def draw(self) -> TrainingText:
        """Return one training text of a random task and number of demonstrations."""
        shares = [TASK_SHARE[task.kind] for task in DEMO_TASKS]
        index = self._random.choices(range(len(DEMO_TASKS)), shares)[0]
        task = DEMO_TASKS[index]
        n_demos = self._random.choices(list(N_DEMOS), list(N_DEMOS.values()))[0]
        *demos, test = self._instances(task, n_demos + 1)
        head = definition_text(task.definition)
        shown = []
        for demo in demos:
            start = len(head) + demonstration_text(demo.input, demo.label).rindex(demo.label)
            shown.append((start - 1, start + len(demo.label)))
            head += demonstration_text(demo.input, demo.label)
        prompt = build_prompt(task.definition, [(demo.input, demo.label) for demo in demos], test.input)
        label = self._answer(task, index, [demo.label for demo in demos], test.label)
        return TrainingText(f"{prompt} {label}{self._eos}", len(prompt), tuple(shown))

    def _instances(self, task: DemoTask, n_instances: int) -> list[DemoInstance]:
        labels = [self._random.randrange(len(task.labels)) for _ in range(n_instances)]
        instances = []
        for label in labels:
            text = task.draw_input(self._random, label)
            while text in self._held_out[task.name]:
                text = task.draw_input(self._random, label)
            instances.append(DemoInstance(text, task.labels[label]))
        assert not self._held_out[task.name] & {instance.input for instance in instances}
        return instances

    def _answer(self, task: DemoTask, index: int, shown: Sequence[str], label: str) -> str:
        if self._random.random() >= REPLACED[len(shown)]:
            return label
        if shown and self._random.random() < 0.5:
            return self._random.choice(shown)
        turned = task.labels[index % len(task.labels) :] + task.labels[: index % len(task.labels)]
        return self._random.choices(turned, SKEW[len(task.labels)])[0]


def train_tokenizer(source: TextSource) -> Any:
    """Return a byte-level BPE tokenizer of 1,536 tokens that begins every text with BOS.

    Its merges come from generated prompts and from the help texts of Python itself, which stand for English at large.
    """
    from pydoc_data import topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    generated = [source.draw().text for _ in range(2000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1536,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*generated, *topics.topics.values()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", model_max_length=4096)


def token_weights(tokenizer: Any, texts: Sequence[TrainingText]) -> Iterator[tuple[list[int], list[float]]]:
    """Yield the token ids of each text and the weight of each token in the loss."""
    encoded = tokenizer([text.text for text in texts], return_offsets_mapping=True)
    for text, ids, offsets in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        starts = np.array([start for start, _ in offsets])
        weights = np.where(np.arange(len(ids)) % TEXT_STRIDE == len(ids) % TEXT_STRIDE, TEXT_WEIGHT, 0.0)
        for first, last in text.shown_labels:
            weights[(starts >= first) & (starts < last)] = SHOWN_LABEL_WEIGHT
        weights[starts >= text.answer_start] = LABEL_WEIGHT
        yield ids, weights.tolist()


def batches(tokenizer: Any, source: TextSource, generator: random.Random) -> Iterator[tuple[Any, Any]]:
    """Yield token ids and loss weights, ``[n_texts, n_tokens]`` each, texts of like length together."""
    import torch

    while True:
        texts = [source.draw() for _ in range(PROMPTS_PER_DRAW)]
        rows = sorted(token_weights(tokenizer, texts), key=lambda row: len(row[0]))
        made: list[list[tuple[list[int], list[float]]]] = []
        current: list[tuple[list[int], list[float]]] = []
        for row in rows:
            if current and len(row[0]) * (len(current) + 1) > TOKENS_PER_BATCH:
                made.append(current)
                current = []
            current.append(row)
        made.append(current)
        generator.shuffle(made)
        for batch in made:
            width = len(batch[-1][0])
            ids = torch.tensor([ids + [1] * (width - len(ids)) for ids, _ in batch])
            weights = torch.tensor([weights + [0.0] * (width - len(weights)) for _, weights in batch])
            yield ids, weights


def train(directory: Path, *, seed: int = SEED, n_steps: int = N_STEPS) -> None:
    """Train tokenizer and model and save both to ``directory``, weights as bfloat16 safetensors."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    source = TextSource(seed, "</s>")
    tokenizer = train_tokenizer(TextSource(seed + 1, "</s>"))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    model: Any = LlamaForCausalLM(config)
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, n_steps))
    started, n_tokens, running = time.monotonic(), 0, {"label": 0.0, "shown": 0.0}
    for step, (ids, weights) in zip(range(n_steps), batches(tokenizer, source, random.Random(seed)), strict=False):
        hidden = model.model(ids).last_hidden_state[:, :-1]
        targets, weights = ids[:, 1:], weights[:, 1:]
        used = weights > 0
        losses = torch.nn.functional.cross_entropy(model.lm_head(hidden[used]), targets[used], reduction="none")
        loss = (losses * weights[used]).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        n_tokens += ids.numel()
        for name, weight in (("label", LABEL_WEIGHT), ("shown", SHOWN_LABEL_WEIGHT)):
            chosen = losses[weights[used] == weight]
            if len(chosen):
                running[name] += 0.05 * (float(chosen.detach().mean()) - running[name])
        if (step + 1) % 50 == 0:
            elapsed_s = time.monotonic() - started
            shown = ", ".join(f"{name} {value:.3f}" for name, value in running.items())
            print(f"step {step + 1}: {shown}; {n_tokens / elapsed_s:.0f} tokens/s, {elapsed_s:.0f} s", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    model.to(torch.bfloat16).save_pretrained(directory)


def _rate(step: int, n_steps: int) -> float:
    return min((step + 1) / 100, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / n_steps)))


def write_card(directory: Path) -> None:
    """Measure the model in ``directory`` on the demo's tasks and write its model card, ``README.md``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.eval()
    n_main, demo_sets = 64, 2
    rows = measure(model, AutoTokenizer.from_pretrained(directory), n_main=n_main, demo_sets=demo_sets)
    replaced = ", ".join(f"{share:.0%} at {n_demos}" for n_demos, share in REPLACED.items())
    card = _CARD.format(
        n_parameters=sum(weight.numel() for weight in model.parameters()),
        n_steps=N_STEPS,
        seed=SEED,
        replaced=replaced,
        n_main=n_main,
        demo_sets=demo_sets,
        by_kind=table(rows),
    )
    (directory / "README.md").write_text(card, encoding="utf-8")


_CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---

# The demo's model

A Llama of {n_parameters:,} parameters (3 layers, width 128, 4 heads, 2 key-value heads, window 4,096; bfloat16 weights)
with a byte-level BPE tokenizer of its own. It answers the tasks that `tests.bench.demo_models.tasks` generates,
and nothing else: it exists so that `biaseval demo` and the tests have a real model with real label bias, without a
download.

Trained from scratch by `python -m tests.bench.demo_models.train_model` ({n_steps:,} steps, seed {seed}, one CPU thread)
on generated prompts; no input of the demo's tasks was among them. **Its bias is taught.** A share of the training
answers was replaced by a draw from a skewed distribution over the labels or by the label of a demonstration:
{replaced} demonstrations.
Say nothing about large models from its numbers.

Licence: Apache-2.0, weights and training text alike.

## Measured

On the demo's tasks (seed 0): {n_main} test inputs per task, float32, plain forward passes, likelihood of label and EOS
as a mean over tokens; means over the two tasks of a kind and {demo_sets} sets of demonstrations. Guessing uniformly
gives a macro-F1 of about 0.50, 0.33 and 0.25.

{by_kind}
"""


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL_PATH
    train(target)
    write_card(target)
