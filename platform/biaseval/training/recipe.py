"""How something is trained: a spec's section, and what the section alone does not say."""

from dataclasses import dataclass
from typing import Literal

from biaseval.models import ModelSource
from biaseval.spec import AdapterSpec, InstructSpec, LoraSpec, ModelSpec, QaBaseSpec, QaTrainSpec, TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of training adapters or a model; the objective has the data."""

    model: ModelSource
    """The base model."""
    task: Literal["causal", "extractive"] = "causal"
    """What the model gives: logits of the next token, or of an answer's start and end."""
    is_new: bool = False
    """Begin with random weights of the base's configuration, for ``extractive``, instead of with the base's own."""
    training: TrainingSpec
    adapter: AdapterSpec | None
    """The adapter that is trained; None trains all parameters."""
    seed: int
    """Of the first weights of an adapter, a head or a new model, of the order of rows, and of what dropout drops."""
    adapter_in_float32: bool = True
    """Or an adapter has the numbers of the layers that it changes, as in P1's code."""
    schedule: Literal["linear", "cosine"] = "linear"
    """How the learning rate falls after the warm-up."""
    max_steps: int | None = None
    """At most so many optimizer steps."""
    goes_by_steps: bool = False
    """It makes ``max_steps`` optimizer steps, in as many epochs as that takes."""
    groups_lengths: bool = False
    """Rows of like length make a step together."""
    checkpoint_steps: int | None = None
    """Optimizer steps between checkpoints; None for no checkpoints, if training a unit again is quick."""

    @property
    def weights_dtype(self) -> str:
        """The numbers that the base model is loaded in.

        All parameters are trained in float32, with forward and backward passes in 16 bits where ``precision`` says so:
        16 bits alone would lose small updates. From stage 1 on, ZeRO keeps and updates float32 copies, and the model
        itself can be in 16 bits. So it can below an adapter.
        """
        is_in_precision = self.adapter is not None or (self.training.zero or 0) > 0
        return self.training.precision if is_in_precision else "float32"

    @property
    def saved_dtype(self) -> str:
        """The dtype of a saved model: a reader's own, so that the run measures the evaluated weights."""
        return self.weights_dtype if self.task == "extractive" else self.training.precision


def adapters_recipe(model: ModelSpec, lora: LoraSpec) -> Recipe:
    """Return how few-shot adapters are trained."""
    return Recipe(model=ModelSource.of(model), training=lora, adapter=lora, seed=lora.seed, adapter_in_float32=False)


def tuning_recipe(spec: InstructSpec) -> Recipe:
    """Return how a model is tuned on conversations."""
    return Recipe(
        model=ModelSource.of(spec.model),
        training=spec.training,
        adapter=spec.lora,
        seed=spec.seed,
        schedule=spec.training.schedule,
        max_steps=spec.training.max_steps,
        checkpoint_steps=spec.training.checkpoint_steps,
    )


def reader_recipe(train: QaTrainSpec, base: QaBaseSpec, method: str, seed: int) -> Recipe:
    """Return the settings of training an extractive reader by one of ``train.methods``, or as ``bias_model``."""
    is_bias_model = method == "bias_model"
    own_steps = train.steps_of(method)
    return Recipe(
        model=ModelSource.of(base), task="extractive",
        is_new=base.init == "random" or (is_bias_model and train.bias_model.init == "random"),
        training=train.model_copy(update={"learning_rate": train.bias_model.learning_rate}) if is_bias_model else train,
        adapter=None, seed=seed, max_steps=train.max_steps if own_steps is None else own_steps,
        goes_by_steps=own_steps is not None, groups_lengths=train.group_by_length,
        checkpoint_steps=train.checkpoint_steps,
    )  # fmt: skip
