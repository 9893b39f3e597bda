"""Sections about training: adapters and optimizer steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from biaseval.spec.data_pool import N_DEMONSTRATIONS
from biaseval.spec.shared_sections import ModelSpec, Section, Seed, below, named_twice, refuse


class AdapterSpec(Section):
    """A LoRA adapter; the defaults are those of P1's code (section 8), which are QLoRA's."""

    r: Annotated[int, Field(gt=0)] = 64
    alpha: Annotated[float, Field(gt=0)] = 16
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Above 0, the dropped units and so the adapter depend on the number of workers."""
    targets: Literal["all_linear"] | Annotated[list[str], Field(min_length=1)] = "all_linear"
    """Every linear layer, including the output layer, or the last parts of layer names, such as ``q_proj``."""

    @field_validator("targets")
    @classmethod
    def _targets_are_named_once(cls, value: Literal["all_linear"] | list[str]) -> Literal["all_linear"] | list[str]:
        if isinstance(value, list):
            refuse(named_twice("targets", value, "a layer"))
        return value


class TrainingSpec(Section):
    """Optimizer steps, and the processes that make them."""

    SECTION: ClassVar[str]
    """The name of the section in a spec."""
    RESOURCES: ClassVar[tuple[str, ...]]
    PATHS: ClassVar[tuple[str, ...]]

    learning_rate: Annotated[float, Field(gt=0)]
    epochs: Annotated[int, Field(gt=0)]
    batch_size: Annotated[int, Field(gt=0)] = 1
    """Rows in one forward pass of one worker."""
    accumulation: Annotated[int, Field(gt=0)] = 8
    """Forward passes in one optimizer step, over all workers together."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    beta2: Annotated[float, Field(gt=0, lt=1)] = 0.999
    """Adam's beta2; beta1 is 0.9 and epsilon 1e-8."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the steps over which the learning rate rises."""
    precision: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    gradient_checkpointing: bool = True
    workers: Annotated[int, Field(gt=0)] = 1
    """Processes that train one model together, each on one GPU if there are GPUs."""
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    """DeepSpeed's ZeRO stage; null trains without DeepSpeed.

    From stage 1 on, ZeRO updates float32 copies of the trained weights. Without ZeRO an adapter in bfloat16 is updated
    in bfloat16, as in P1's code, so the two adapters differ.
    """
    deepspeed_config: str | None = None
    """A DeepSpeed JSON file with further settings, such as offloading."""

    @model_validator(mode="after")
    def _workers_share_a_step(self) -> Self:
        problems = []
        if self.accumulation % self.workers:
            problems.append(
                f"{self.workers} workers cannot share accumulation {self.accumulation} evenly; choose a number of "
                "workers that divides it"
            )
        if self.deepspeed_config is not None and self.zero is None:
            problems.append("deepspeed_config is set and zero is null, which trains without DeepSpeed; name a stage")
        refuse(problems)
        return self


class LoraSpec(AdapterSpec, TrainingSpec):
    """The training of one LoRA adapter for each context; defaults are those of P1's code (protocol section 8)."""

    SECTION = "lora"

    RESOURCES = below("lora", "workers", "zero", "deepspeed_config", "gradient_checkpointing")
    """Keys that change the cost of training, not its result; `other_adapters` gives the exceptions."""

    preset: Literal["reif2024"] = "reif2024"
    """The source of the defaults of all other keys."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    """P1's code; P1's text says 0.002."""
    epochs: Annotated[int, Field(gt=0)] = 5
    weight_decay: Annotated[float, Field(ge=0)] = 0.03
    max_grad_norm: Annotated[float, Field(gt=0)] = 0.3
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of steps over which the learning rate rises; it then falls linearly, to 0 after the last step."""
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    """Longer training rows (prompt, label and EOS) are refused."""
    seed: Seed = 42
    """The seed of each adapter's training."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """``bfloat16``: linear layers, embeddings and adapter in bfloat16, norms in float32, bfloat16 autocast."""
    n_examples: Annotated[int, Field(gt=0, le=N_DEMONSTRATIONS)] = 16


class LabelLoraSpec(LoraSpec):
    """The adapters of a label-bias run, for all of its demonstration sets or for some."""

    n_demos: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    """The numbers of ``prompt.n_demos`` with adapters; null: all."""
    demo_sets: Annotated[int, Field(gt=0)] | None = None
    """The number of demonstration sets with adapters, the first ones; null: all."""

    def is_trained(self, n_demos: int, demo_set: int) -> bool:
        """Return whether a demonstration set has an adapter."""
        return n_demos in (self.n_demos or [n_demos]) and demo_set < (self.demo_sets or demo_set + 1)


def untrainable(model: ModelSpec) -> list[str]:
    """Return the reasons why adapters cannot be trained on a model."""
    problems = []
    if model.quantization is not None:
        problems.append("adapters are not trained on a quantized model; set model.quantization to null")
    if model.adapter is not None:
        problems.append("adapters are not trained on top of model.adapter; set one of the two to null")
    return problems


def other_adapters(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences in resources of the section ``lora`` that would make other adapters.

    In bfloat16, ``zero`` matters when it changes between none and a stage with float32 copies. ``workers`` matters with
    dropout. ``before`` is the spec of a run and ``after`` another one, both as dotted keys to values.
    """
    zero = [flat.get("lora.zero") or 0 for flat in (before, after)]
    if before.get("lora.precision") == "bfloat16" and min(zero) == 0 < max(zero):
        yield _another_model("lora.zero", before, after, "in bfloat16, ZeRO from stage 1 on updates float32 copies")
    yield from other_dropout(("lora.workers",), before, after)


def other_dropout(keys: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences in these resources that would change the model because of dropout; arguments as above."""
    if before.get("lora.dropout"):
        for key in keys:
            if before.get(key) != after.get(key):
                yield _another_model(key, before, after, "with dropout it changes the dropped units")


def _another_model(key: str, before: Mapping[str, Any], after: Mapping[str, Any], why: str) -> str:
    """Return the line about a resource whose change would train another model."""
    found, asked = before.get(key), after.get(key)
    return f"{key}: the run has {found!r}, the spec {asked!r}, which would train another model: {why}"
