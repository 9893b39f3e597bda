"""Small training rows, and a plain loop that training is compared with."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from biaseval.spec import LoraSpec
from biaseval.training.batches import EncodedRow
from biaseval.training.schedule import step_rows

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
