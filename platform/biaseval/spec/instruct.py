"""The spec of instruction tuning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from biaseval.spec.shared_sections import ExecutionSpec, ModelSpec, RunSpec, Section, SpecError, refuse
from biaseval.spec.training import AdapterSpec, TrainingSpec, other_dropout


class ConversationsSpec(Section):
    """The conversations of instruction tuning."""

    path: str
    """JSONL or one JSON array, plain or compressed (``.gz``)."""
    format: Literal["auto", "oasst", "alpaca", "dolly", "messages"] = "auto"
    """OASST1 message trees (nested, or a message a line), ``instruction`` and ``output`` (Alpaca) or ``response``
    (Dolly), or chat ``messages``; ``auto`` tells them apart by the keys of the first row."""
    replies: Literal["best", "all"] = "best"
    """Of OASST1: each tree's best-ranked replies, or every path from the prompt to a last reply."""
    languages: Annotated[list[str], Field(min_length=1)] | None = None
    """Of OASST1, such as ``en``: messages in others are left out."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the trees (or rows) that is kept from training, for ``eval_loss`` at the end of each epoch."""


class InstructTrainingSpec(TrainingSpec):
    """How a model is tuned on conversations."""

    SECTION: ClassVar[str] = "training"

    schedule: Literal["linear", "cosine"] = "linear"
    """How the learning rate falls behind the warm-up, to 0 after the last step."""
    epochs: Annotated[int, Field(gt=0)] = 3
    max_steps: Annotated[int, Field(gt=0)] | None = None
    """At most so many optimizer steps."""
    batch_size: Annotated[int, Field(gt=0)] = 1
    """Rows in one forward pass of one worker; without packing a row is one conversation."""
    accumulation: Annotated[int, Field(gt=0)] = 32
    """Times ``batch_size``: the conversations of an optimizer step, over all workers together."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.03
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """``bfloat16``: computed in bfloat16; what is trained has float32 copies, kept by ZeRO from stage 1 on."""
    checkpoint_steps: Annotated[int, Field(gt=0)] = 100
    """Optimizer steps between checkpoints."""


class InstructSpec(RunSpec):
    """Supervised fine-tuning on conversations (P2 section 4 tunes its models on OASST1 first)."""

    PATHS = ("model.path", "model.adapter", "data.path", "training.deepspeed_config")
    NAMES = ("model.path", "model.adapter")
    RESOURCES = (
        "execution.*",
        "packing",
        "training.workers",
        "training.zero",
        "training.deepspeed_config",
        "training.gradient_checkpointing",
        "training.checkpoint_steps",
    )

    kind: Literal["instruct"]
    model: ModelSpec
    """The base model; ``training.precision`` says in which numbers it is trained."""
    data: ConversationsSpec
    template: Literal["plain", "chat"] = "plain"
    """``plain``: ``User:`` and ``Assistant:`` before the texts, EOS behind each answer; ``chat``: the tokenizer's."""
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    """Longer conversations lose their last turns; those whose first answer does not fit are left out."""
    packing: bool = True
    """Several conversations in a row of ``max_tokens``, none of which sees another; with dropout it changes what is
    dropped."""
    lora: AdapterSpec | None
    """The adapter that is trained; null trains all parameters."""
    training: InstructTrainingSpec
    execution: ExecutionSpec = ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return the file of conversations."""
        return {"data.path": self.data.path}

    def models_used(self) -> dict[tuple[str, ...], ModelSpec]:
        """Return the base model."""
        return {("model",): self.model}

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
        """Yield ``workers`` and ``packing`` where there is dropout."""
        return other_dropout(("training.workers", "packing"), before, after)

    @field_validator("model")
    @classmethod
    def _base_is_bare(cls, model: ModelSpec) -> ModelSpec:
        problems = []
        if model.adapter is not None:
            problems.append("model.adapter: tuning begins with a bare model; set it to null, or merge the adapter")
        if model.quantization is not None:
            problems.append("model.quantization: a quantized model is not trained; set it to null")
        refuse(problems, SpecError)
        return model
