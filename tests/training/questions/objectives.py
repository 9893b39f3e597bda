"""Questions and their windows, what is trained on them, and how."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from biaseval.models import ModelSource, load_reader_tokenizer
from biaseval.spec import InstructTrainingSpec
from biaseval.training import questions as losses
from biaseval.training.features import question_features
from biaseval.training.recipe import Recipe
from tests.test_qa_pipeline import question

MAX_TOKENS, STRIDE, N_QUESTIONS, WIDTH = 40, 12, 9, 16

INPUTS = ("input_ids", "attention_mask", "token_type_ids")

METHODS: dict[str, Any] = {
    "standard": losses.Standard,
    "learned_mixin": lambda: losses.LearnedMixin.new(WIDTH, 3, bias_scale=0.3, entropy_penalty=0.4),
    "learned_mixin, head": lambda: losses.LearnedMixin.new(
        WIDTH, 3, bias_scale=0.3, entropy_penalty=0.4, variant="head"
    ),
    "confidence_regularization": lambda: losses.ConfidenceRegularization(0.3),
    "product_of_experts": lambda: losses.ProductOfExperts(0.5),
}


def questions(numbers: range) -> pa.Table:
    rows = [
        {
            **{name: own[name] for name in ("question", "context")}, "example_id": own["id"],
            "answers": own["answers"]["text"], "answer_starts": own["answers"]["answer_start"],
        }
        for own in (question(number, "squad") for number in numbers)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


def features_of(bert: Path, numbers: range) -> pa.Table:
    tokenizer = load_reader_tokenizer(ModelSource(str(bert)))
    return question_features(tokenizer, questions(numbers), max_tokens=MAX_TOKENS, stride=STRIDE)


def guides(windows: pa.Table) -> dict[str, list[losses.Guide]]:
    draw = np.random.default_rng(5)
    return {
        name: [
            (draw.normal(size=len(own)).astype(np.float32), draw.normal(size=len(own)).astype(np.float32))
            for own in windows["token_ids"]
        ]
        for name in ("bias", "teacher")
    }


def objective(windows: pa.Table, method: losses.Method, **options: Any) -> losses.Questions:
    return losses.Questions(windows, INPUTS, 0, method, guides(windows), **options)


def recipe(bert: Path, **training: Any) -> Recipe:
    settings = {"learning_rate": 2e-3, "epochs": 2, "batch_size": 4, "accumulation": 2, "warmup": 0.0}
    settings |= {"precision": "float32", "gradient_checkpointing": False}
    section = InstructTrainingSpec(**{**settings, **training})
    return Recipe(model=ModelSource(str(bert)), task="extractive", training=section, adapter=None, seed=7)


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
