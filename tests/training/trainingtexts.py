"""Small rows to train on, training them in this process, and a plain loop that it is compared with."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from biaseval.models import adapter_files
from biaseval.spec import LoraSpec, ModelSpec
from biaseval.training.batches import EncodedRow
from biaseval.training.loop import StepRecord, training_steps
from biaseval.training.objectives import LabelledPrompts, Share
from biaseval.training.preparation import Base, prepared
from biaseval.training.recipe import adapters_recipe
from biaseval.training.schedule import step_rows
from biaseval.training.templates import EncodedConversation

CPU = torch.device("cpu")

SMALL = LoraSpec(r=4, precision="float32", learning_rate=2e-3, gradient_checkpointing=False)
"""Rank and rate for tiny models; everything else as published."""


def random_rows(n_rows: int = 16, vocabulary: int = 250, seed: int = 0) -> list[EncodedRow]:
    """Return rows of 20 to 30 tokens, 2 to 5 of them targets."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(20, 30, size=n_rows)
    return [
        EncodedRow(generator.integers(2, vocabulary, size=length), length - generator.integers(2, 6))
        for length in lengths
    ]


def random_conversations(n: int = 16, vocabulary: int = 250, seed: int = 0) -> list[EncodedConversation]:
    """Return conversations of 8 to 30 tokens, about half of them answers, the last among them."""
    generator = np.random.default_rng(seed)
    found = []
    for length in generator.integers(8, 30, size=n):
        is_answer = generator.random(length) < 0.5
        is_answer[:2], is_answer[-1] = False, True
        found.append(EncodedConversation(generator.integers(2, vocabulary, size=length), is_answer))
    return found


@dataclass(frozen=True)
class TrainedAdapter:
    """What came of one adapter."""

    steps: list[StepRecord]
    files: dict[str, bytes] | None
    """None if loss or gradient was not finite at the last step."""


def base_of(model: PreTrainedModel, batch_size: int = 1) -> Base:
    """Return a model in memory as the one worker of a group holds it, without its tokenizer."""
    tokenizer: Any = None
    return Base(model, tokenizer, CPU, Share(batch_size))


def train_adapter(model: PreTrainedModel, rows: list[EncodedRow], lora: LoraSpec) -> TrainedAdapter:
    """Train a fresh few-shot adapter on the model and take it off again."""
    recipe, objective = adapters_recipe(ModelSpec(path="in memory"), lora), LabelledPrompts(rows)
    base = base_of(model, lora.batch_size)
    with prepared(base, recipe, objective) as ready:
        steps = list(training_steps(ready.optimization, objective, recipe, base.share))
        with ready.optimization.gathered():
            files = adapter_files(ready.adapter)
    return TrainedAdapter(steps, files if steps[-1].is_finite else None)


def plain_training(model_path: Path, rows: list[EncodedRow], lora: LoraSpec) -> dict[str, torch.Tensor]:
    """Train an adapter with nothing but PyTorch, transformers' own loss and PEFT; return its weights."""
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    torch.manual_seed(lora.seed)
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
    adapted = get_peft_model(model, LoraConfig(r=lora.r, lora_alpha=16, target_modules=sorted(names), bias="none"))
    parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lora.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.03)
    n_steps = 5 * math.ceil(len(rows) / 8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (n_steps - step) / n_steps)
    adapted.train()
    for _, chosen in step_rows(len(rows), lora, lora.seed):
        for number in chosen:
            ids = torch.from_numpy(rows[number].token_ids)[None]
            labels = ids.clone()
            labels[:, : rows[number].n_context] = -100
            (adapted(input_ids=ids, labels=labels).loss / len(chosen)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.3)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {
        name.replace(".default", ""): value.detach() for name, value in adapted.named_parameters() if "lora" in name
    }
