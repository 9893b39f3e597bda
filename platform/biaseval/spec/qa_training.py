"""The section ``train`` of a QA-bias spec: readers to train, with or without methods against shortcuts (P3)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from biaseval.qa_bias.planted import SHORTCUTS
from biaseval.spec.shared_sections import Name, Section, Seed, SpecError, below, named_twice, refuse
from biaseval.spec.training import TrainingSpec

Method = Literal["standard", "resample", "learned_mixin", "confidence_regularization", "product_of_experts"]

ADDRESSING: tuple[Method, ...] = ("resample", "learned_mixin", "confidence_regularization", "product_of_experts")
"""Methods that address a bias; each trains one reader per bias."""

GUIDED: tuple[Method, ...] = ("learned_mixin", "confidence_regularization", "product_of_experts")
"""The methods among them that need a bias model."""

Share = Annotated[float, Field(ge=0, le=1)]
Steps = Annotated[int, Field(gt=0)]


class PlantedSpec(Section):
    """Generated questions in which a shortcut leads to the answer; see `biaseval.qa_bias.planted`."""

    shortcut: str
    strength: Share
    """The share of the questions in which the shortcut leads to the answer; the other questions do not have it."""
    questions: Annotated[int, Field(gt=0)]

    @field_validator("shortcut")
    @classmethod
    def _shortcut_is_known(cls, value: str) -> str:
        if value not in SHORTCUTS:
            raise ValueError(f"{value!r} cannot be planted; use {' or '.join(SHORTCUTS)}")
        return value


class GeneratedSpec(Section):
    """A generated data set, instead of a file."""

    planted: PlantedSpec


class TableSpec(Section):
    """A table of questions with custom column names."""

    file: str
    fields: Annotated[
        dict[Literal["id", "title", "question", "context", "answers", "answer_start"], str], Field(min_length=1)
    ]
    """Field of a question to the name of its column."""


QuestionFile = str | TableSpec
"""A file of questions."""


def _source_of(value: object) -> str:
    """Return the likely kind of a section, so that error messages refer to that kind alone."""
    is_table = isinstance(value, TableSpec) or (isinstance(value, dict) and not {"file", "fields"}.isdisjoint(value))
    return "table" if is_table else "generated"


DataSource = (
    str
    | Annotated[
        Annotated[TableSpec, Tag("table")] | Annotated[GeneratedSpec, Tag("generated")], Discriminator(_source_of)
    ]
)
"""A file of questions, or a section that describes generated questions."""


def file_of(source: QuestionFile | GeneratedSpec | None) -> str | None:
    """Return the path of a file of questions; None for generated or missing questions."""
    return source.file if isinstance(source, TableSpec) else source if isinstance(source, str) else None


class QaBaseSpec(Section):
    """The encoder that training starts from."""

    name: Name
    path: str
    """A directory, local or ``s3://``, or a Hugging Face name where there is a network; with or without a QA head."""
    revision: str | None = None
    trust_remote_code: bool = False
    init: Literal["pretrained", "random"] = "pretrained"
    """``random`` reads the configuration alone and draws all weights."""

    @property
    def adapter(self) -> None:
        """Return None: a base has no adapter."""
        return


class LearnedMixinSpec(Section):
    """LearnedMixin+H (Clark et al. 2019), protocol section 9."""

    variant: Literal["paper", "head", "clark"] | None = None
    """``paper`` as run for P3, ``head`` as in the last version of P3's code, ``clark`` as Clark et al. define it.

    Null means ``paper``, or ``head`` if the spec's ``variant`` is ``reference``.
    """
    bias_scale: Share = 0.2
    """The factor of the bias model's logits: u of protocol section 9.4; 1 is the original method."""
    entropy_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.4
    max_steps: Steps = 100_000


class ConfidenceRegularizationSpec(Section):
    """Confidence regularisation (Utama et al. 2020), protocol section 9."""

    variant: Literal["utama", "head"] | None = None
    """``utama`` as defined, ``head`` as in P3's code; null: ``utama``, or ``head`` if the spec's ``variant`` is
    ``reference``."""
    bias_scale: Share = 0.1
    """The factor of the bias model's probability of the label; 1 is the original method."""
    max_steps: Steps = 30_000


class ProductOfExpertsSpec(Section):
    """A product of experts (Clark et al. 2019's bias product; not in P3)."""

    bias_scale: Share = 1.0
    """The factor of the bias model's log-probabilities."""
    max_steps: Steps = 100_000


class BiasModelSpec(Section):
    """The model whose answers follow a bias: trained on the biased segment, fitted, or from a file."""

    init: Literal["random", "pretrained"] | None = None
    """The initial weights of a trained bias model: ``random`` for the base's configuration (P3), or the base's (its
    code).

    Null means ``random``, or ``pretrained`` if the spec's ``variant`` is ``reference``.
    """
    learning_rate: Annotated[float, Field(gt=0)] = 4e-5
    max_steps: Steps = 88_000
    tfidf: bool = False
    """Use a fitted model instead of a trained one (after Clark et al. 2019), for every bias.

    It rates a sentence by a fitted weight times the cosine of sentence and question.
    """
    predictions: str | None = None
    """A Parquet file with the bias model's predictions, instead of a trained one.

    Columns: ``example_id``, ``window`` (default 0), ``start_logits`` and ``end_logits`` (lists with one number for each
    token of the window), and ``bias`` if the predictions depend on it.
    """

    @model_validator(mode="after")
    def _is_one_thing(self) -> BiasModelSpec:
        if self.tfidf and self.predictions is not None:
            raise ValueError("has both tfidf and predictions; keep one")
        return self

    @property
    def is_trained(self) -> bool:
        """Whether the bias model is a reader that the run trains."""
        return not self.tfidf and self.predictions is None


OF_VARIANT = (
    ("learned_mixin", "variant", "paper", "head"),
    ("confidence_regularization", "variant", "utama", "head"),
    ("bias_model", "init", "random", "pretrained"),
)
"""Section and key to the value that null stands for in the spec's variants ``paper`` and ``reference``."""


class QaTrainSpec(TrainingSpec):
    """The training of readers; defaults are those of P3 (protocol sections 7 to 9)."""

    SECTION = "train"

    RESOURCES = below("train", "zero", "deepspeed_config", "gradient_checkpointing", "checkpoint_steps")
    """Keys that change the cost of training, not its result; ``workers`` is missing because encoders have dropout."""

    PATHS = (
        *below("train", "bases.*.path", "bias_model.predictions", "deepspeed_config"),
        *below("train", "data.*", "data.*.file", "validation.*", "validation.*.file"),
    )

    preset: Literal["mikula2024"] = "mikula2024"
    """The source of the defaults of all other keys."""
    bases: Annotated[list[QaBaseSpec], Field(min_length=1)]
    data: Annotated[dict[Name, DataSource], Field(min_length=1)]
    """Training sets; the run trains each base on each set."""
    validation: Annotated[dict[Name, DataSource], Field(min_length=1)]
    """Sets that choose the kept checkpoint and the end of training; the first set also decides which segment is
    biased."""
    methods: Annotated[list[Method], Field(min_length=1)] = ["standard"]
    biases: list[str] = Field(default=[], validate_default=True)
    """Heuristics that the methods address; each method trains one model per heuristic."""
    thresholds: Literal["mikula2024", "search"] | dict[str, Annotated[float, Field(allow_inf_nan=False)]] = "mikula2024"
    """Thresholds that split questions: published, searched on the validation set, or given (missing ones are searched).

    Published thresholds include the biased side. Otherwise the standard model does better on the biased side.
    """
    seeds: Annotated[list[Seed], Field(min_length=1)] = [42]
    """Seeds of drawn weights, order and dropout; the run trains one reader of each sort per seed."""
    best: Literal["loss", "f1", "exact_match"] = "loss"
    """The criterion for the kept weights: the smallest mean loss, or the largest mean F1 or exact match, on validation
    sets."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    epochs: Annotated[int, Field(gt=0)] = 3
    """The largest number of epochs of standard and resample."""
    max_steps: Steps | None = None
    """The largest number of steps of standard and resample; null: all epochs. Other methods have their own keys."""
    batch_size: Annotated[int, Field(gt=0)] = 16
    accumulation: Annotated[int, Field(gt=0)] = 1

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """The precision of forward and backward passes; float16 scales losses and skips steps whose gradients overflow."""
    gradient_checkpointing: bool = False
    checkpoint_steps: Steps = 1000
    """Optimizer steps between checkpoints; a killed training continues from the last one."""
    evaluation_steps: Steps = 200
    """Optimizer steps between evaluations."""
    patience: Steps | None = 10
    """Evaluations without improvement after which standard and resample end; null: never.

    The other methods and bias models make all their steps. The other methods optimize another loss than the evaluated
    one.
    """
    evaluation_questions: Steps | None = None
    """The largest number of questions per set in evaluations during training, the first ones of the set; null: all."""
    evaluate_others: bool = True
    """Also evaluate the measured sets during training; their results decide nothing."""
    learned_mixin: LearnedMixinSpec = LearnedMixinSpec()
    confidence_regularization: ConfidenceRegularizationSpec = ConfidenceRegularizationSpec()
    product_of_experts: ProductOfExpertsSpec = ProductOfExpertsSpec()
    bias_model: BiasModelSpec = BiasModelSpec()
    mask_padding: bool = True
    """Exclude padding from losses; false pads windows to ``windows.max_tokens`` and includes it, as in P3's code."""
    group_by_length: bool = False
    """Put windows of similar length into the same step: faster, but in another order than the published one."""

    @property
    def addressing(self) -> list[Method]:
        """The methods that address a bias."""
        return [method for method in self.methods if method in ADDRESSING]

    @property
    def has_bias_models(self) -> bool:
        """Whether the run trains bias models."""
        return self.bias_model.is_trained and any(method in GUIDED for method in self.methods)

    def steps_of(self, method: str) -> int | None:
        """Return the largest number of steps of a method, or None for standard and resample, which go by epochs."""
        own: Any = getattr(self, method, None)  # the section of the method's name
        return None if own is None else own.max_steps

    def resolved(self, variant: str) -> QaTrainSpec:
        """Return the section with the values that the spec's ``variant`` decides."""
        changes = {}
        for section, key, paper, reference in OF_VARIANT:
            own = getattr(self, section)
            value = getattr(own, key) or (reference if variant == "reference" else paper)
            changes[section] = own.model_copy(update={key: value})
        return self.model_copy(update=changes)

    @field_validator("bases", "seeds")
    @classmethod
    def _each_is_named_once(cls, values: list[Any], info: ValidationInfo) -> list[Any]:
        refuse(named_twice(str(info.field_name), [getattr(own, "name", own) for own in values]), SpecError)
        return values

    @field_validator("biases")
    @classmethod
    def _biases_go_with_methods(cls, biases: list[str], info: ValidationInfo) -> list[str]:
        problems = named_twice("train.biases", biases)
        if "methods" in info.data:
            methods = info.data["methods"]
            problems += named_twice("train.methods", methods)
            addressing = [method for method in methods if method in ADDRESSING]
            if "standard" not in methods:
                problems.append("train.methods: standard is missing, which the others are compared with; add it")
            if biases and not addressing:
                problems.append(
                    f"train.biases: no method addresses one; add {' or '.join(ADDRESSING)} to train.methods"
                )
            if addressing and not biases:
                problems.append(f"train.biases: is empty; name the heuristics that {', '.join(addressing)} address")
        refuse(problems, SpecError)
        return biases

    @field_validator("bias_model")
    @classmethod
    def _a_file_has_one_tokenizer(cls, bias_model: BiasModelSpec, info: ValidationInfo) -> BiasModelSpec:
        if bias_model.predictions is not None and "bases" in info.data and "data" in info.data:
            n_bases, n_sets = len(info.data["bases"]), len(info.data["data"])
            if n_bases * n_sets > 1:
                raise SpecError(
                    f"train.bias_model.predictions: is for the tokens of one base on one set, and there are {n_bases} "
                    f"bases and {n_sets} sets; make a spec for each"
                )
        return bias_model

    @field_validator("thresholds")
    @classmethod
    def _thresholds_have_their_biases(cls, thresholds: Any, info: ValidationInfo) -> Any:
        known = info.data.get("biases", thresholds)
        if isinstance(thresholds, dict) and (foreign := [name for name in thresholds if name not in known]):
            raise SpecError(f"train.thresholds: {', '.join(foreign)} not among train.biases; add or remove it")
        return thresholds
