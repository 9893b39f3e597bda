"""The spec of instruction tuning."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from biaseval.spec.shared_sections import ExecutionSpec, ModelSpec, RunSpec, Section, SpecError, below, refuse
from biaseval.spec.training import AdapterSpec, TrainingSpec, other_dropout


class ConversationsSpec(Section):
    """The conversations of instruction tuning."""

    path: str
    """A JSONL file or a JSON array, plain or compressed (``.gz``)."""
    format: Literal["auto", "oasst", "alpaca", "dolly", "messages"] = "auto"
    """The layout of the conversations; ``auto`` chooses it by the keys of the first row.

    OASST1 message trees are nested or have one message per line. Alpaca has ``instruction`` and ``output``, Dolly
    ``instruction`` and ``response``, and chats have ``messages``.
    """
    replies: Literal["best", "all"] = "best"
    """OASST1 only: each tree's best-ranked replies, or every path from the prompt to a last reply."""
    languages: Annotated[list[str], Field(min_length=1)] | None = None
    """OASST1 only, such as ``en``: messages in other languages are dropped."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of trees (or rows) that training does not use; they give ``eval_loss`` at the end of each epoch."""


class InstructTrainingSpec(TrainingSpec):
    """The training of a model on conversations."""

    SECTION = "training"

    schedule: Literal["linear", "cosine"] = "linear"
    """The decay of the learning rate after the warm-up, to 0 after the last step."""
    epochs: Annotated[int, Field(gt=0)] = 3
    max_steps: Annotated[int, Field(gt=0)] | None = None
    """The largest number of optimizer steps."""
    batch_size: Annotated[int, Field(gt=0)] = 1
    """Rows in one forward pass of one worker; without packing, a row is one conversation."""
    accumulation: Annotated[int, Field(gt=0)] = 32
    """Forward passes per optimizer step; times ``batch_size`` it gives the conversations of a step over all workers."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.03
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """``bfloat16`` runs forward and backward passes in bfloat16; trained weights keep float32 values (ZeRO: copies)."""
    checkpoint_steps: Annotated[int, Field(gt=0)] = 100
    """Optimizer steps between checkpoints."""


class InstructSpec(RunSpec):
    """Supervised fine-tuning on conversations (P2 section 4 tunes its models on OASST1 first)."""

    PATHS = ("model.path", "model.adapter", "data.path", "training.deepspeed_config")
    NAMES = ("model.path", "model.adapter")
    RESOURCES = (
        *("execution.*", "packing"),
        *below("training", "workers", "zero", "deepspeed_config", "gradient_checkpointing", "checkpoint_steps"),
    )

    kind: Literal["instruct"]
    model: ModelSpec
    """The base model; ``training.precision`` sets the precision of its training."""
    data: ConversationsSpec
    template: Literal["plain", "chat"] = "plain"
    """``plain`` puts ``User:`` and ``Assistant:`` before the texts and EOS after each answer; ``chat`` uses the
    tokenizer's."""
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    """Longer conversations lose their last turns; a conversation is dropped if its first answer does not fit."""
    packing: bool = True
    """Put several conversations into a row of ``max_tokens``, without attention between them.

    With dropout, packing changes which units are dropped.
    """
    lora: AdapterSpec | None
    """The adapter to train; null trains all parameters."""
    training: InstructTrainingSpec
    execution: ExecutionSpec = ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return the file of conversations."""
        return {"data.path": self.data.path}

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
        """Yield ``workers`` and ``packing`` where they differ and dropout is on."""
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
