"""The readers that a QA-bias run trains: names, which needs which (P3), and the files of each."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product
from typing import Any, Literal

from biaseval.pipelines.kind import Plan
from biaseval.spec import ADDRESSING, GUIDED, QaBiasSpec, QaTrainSpec
from biaseval.store import part_name

BIAS_MODEL = "bias_model"
"""The method of readers that are trained on a biased segment alone, and are not measured."""

_MOST_CHARACTERS = 100
"""The maximum length of a reader's name in a folder name; its number makes the folder unique."""

READERS = "models"
"""The folder of a run with its trained readers."""


@dataclass(frozen=True)
class Reader:
    """A reader that is trained."""

    number: int
    """Its place in the study, 0-based: standard ones, bias models, the others."""
    name: str
    base: str
    data: str
    method: str
    """Of the spec's ``train.methods``, or `BIAS_MODEL`."""
    bias: str | None
    seed: int
    standard: str | None
    """The name of the standard reader of the same base, data and seed: its teacher and reference. None for standard
    readers and bias models."""
    guide: str | None
    """The name of the source of its bias logits: a bias model or its substitute; None without one."""

    @property
    def folder(self) -> str:
        """Of the run, for the model; a name that any file system takes, unlike its own."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-")
        return f"{READERS}/{self.number:05d}-{name[:_MOST_CHARACTERS]}"

    @property
    def guides(self) -> dict[str, str]:
        """The names of the sources of its training logits: of its ``bias``, and its ``teacher``."""
        teacher = self.standard if self.method == "confidence_regularization" else None
        return {role: name for role, name in (("bias", self.guide), ("teacher", teacher)) if name is not None}

    @property
    def is_measured(self) -> bool:
        """Whether it is a model of the study, not one that helps to train others."""
        return self.method != BIAS_MODEL

    @property
    def row(self) -> dict[str, Any]:
        """What ``trained_models`` says of it."""
        names = ("number", "base", "data", "method", "bias", "seed", "standard")
        return {"model": self.name, **{name: getattr(self, name) for name in names}}


def readers_of(train: QaTrainSpec) -> list[Reader]:
    """Return the readers of a study, each after the readers that it needs."""
    return [Reader(number, **kind) for number, kind in enumerate(_kinds(train))]


@dataclass(frozen=True)
class Guide:
    """A source of logits that readers are trained with."""

    name: str
    source: Literal["reader", "tfidf", "predictions"]
    base: str
    """Whose tokens they are of."""
    data: str
    bias: str | None
    """What a file says differently for each."""


def guides_of(train: QaTrainSpec) -> list[Guide]:
    """Return the sources of logits in order: a bias model for each method that needs one, and teachers.

    There is one bias model per base, data set and bias, for all seeds.
    """
    found: dict[str, Guide] = {}
    for reader in readers_of(train):
        if reader.guide is not None:
            found[reader.guide] = Guide(reader.guide, _source(train), reader.base, reader.data, reader.bias)
    for reader in readers_of(train):
        if "teacher" in reader.guides:
            teacher = reader.guides["teacher"]
            found[teacher] = Guide(teacher, "reader", reader.base, reader.data, None)
    return list(found.values())


def _source(train: QaTrainSpec) -> Literal["reader", "tfidf", "predictions"]:
    if train.bias_model.tfidf:
        return "tfidf"
    return "reader" if train.bias_model.is_trained else "predictions"


def _kinds(train: QaTrainSpec) -> Iterator[dict[str, Any]]:
    pairs = [(base.name, data) for base in train.bases for data in train.data]

    def named(base: str, data: str, method: str, bias: str | None, seed: int | None) -> str:
        name = base if len(train.data) == 1 else f"{base}@{data}"
        if method != "standard":
            name += f"+{method}" if bias is None or len(train.biases) == 1 else f"+{method}({bias})"
        return name if seed is None or len(train.seeds) == 1 else f"{name}#{seed}"

    def reader(base: str, data: str, method: str, bias: str | None, seed: int, **needed: str | None) -> dict[str, Any]:
        name = named(base, data, method, bias, None if method == BIAS_MODEL else seed)
        own = {"name": name, "base": base, "data": data, "method": method, "bias": bias, "seed": seed}
        return {**own, "standard": None, "guide": None, **needed}

    def guide(base: str, data: str, bias: str) -> str:
        source = _source(train)
        if source == "reader":
            return named(base, data, BIAS_MODEL, bias, None)
        return named(base, data, source, None if source == "tfidf" else bias, None)

    for base, data in pairs:
        for seed in train.seeds:
            yield reader(base, data, "standard", None, seed)
    for base, data in pairs if train.has_bias_models else ():
        for bias in train.biases:
            yield reader(base, data, BIAS_MODEL, bias, train.seeds[0])
    for base, data in pairs:
        for method in (method for method in ADDRESSING if method in train.methods):
            for bias, seed in product(train.biases, train.seeds):
                needed = {
                    "standard": named(base, data, "standard", None, seed),
                    "guide": guide(base, data, bias) if method in GUIDED else None,
                }
                yield reader(base, data, method, bias, seed, **needed)


def measured(readers: Sequence[Reader]) -> list[Reader]:
    """Return the readers that answer the run's questions."""
    return [reader for reader in readers if reader.is_measured]


@dataclass(frozen=True)
class StudyFiles:
    """The parts of a planned study."""

    train: QaTrainSpec
    plan: Plan
    answers: Mapping[str, dict[int, int]]
    """As `answers_of` gives them."""

    @property
    def sizes(self) -> dict[int, int]:
        """Questions of each part of ``qa_training_examples``."""
        return {part["part"]: part["n_questions"] for part in self.plan["training_parts"]}

    def questions(self, role: str, dataset: str | None = None) -> list[int]:
        """Return the parts of ``qa_training_examples`` for a role (``train``, ``validation``) or one set."""
        parts = self.plan["training_parts"]
        return [part["part"] for part in parts if part["role"] == role and dataset in (None, part["dataset"])]

    def features(self, base: str, data: str) -> dict[int, int]:
        """Return the parts of ``qa_features`` of a base's training data, by those of the questions."""
        own = numbered({own.name: self.questions("train") for own in self.train.bases})[base]
        return {part: own[part] for part in self.questions("train", data)}

    @cached_property
    def judging(self) -> dict[str, dict[int, int]]:
        """By standard reader its parts of ``qa_validation_predictions``, by those of the questions."""
        parts = self.questions("validation", next(iter(self.train.validation)))
        return numbered({own.name: parts for own in readers_of(self.train) if own.method == "standard"})

    def segments(self, base: str, data: str) -> int:
        """Return the part of ``qa_segments`` of a base and a training set."""
        return [(own.name, name) for own in self.train.bases for name in self.train.data].index((base, data))

    @cached_property
    def logits(self) -> dict[str, dict[int, int]]:
        """By guide its parts of ``qa_guide_logits``, by those of the questions."""
        return numbered({guide.name: self.questions("train", guide.data) for guide in guides_of(self.train)})

    def made_with(self, reader: Reader, *, is_judge: bool) -> list[str]:
        """Return all files that a reader's weights are needed for: answers, and logits if it guides others.

        A judge's answers on validation are among them: it decides which segments are biased.
        """
        made = files("qa_predictions", self.answers[reader.name].values()) if reader.is_measured else []
        if is_judge:
            made += files("qa_validation_predictions", self.judging[reader.name].values())
        if reader.name in self.logits:
            made += files("qa_guide_logits", self.logits[reader.name].values())
        return made


def answers_of(spec: QaBiasSpec, plan: Plan) -> dict[str, dict[int, int]]:
    """Return by measured model its parts of ``qa_predictions``, by those of the questions; trained ones come last."""
    parts = [part["part"] for part in plan["parts"]]
    models = [*spec.models, *(measured(readers_of(spec.train)) if spec.train is not None else ())]
    return numbered({own.name: parts for own in models})


def numbered(parts: Mapping[str, Sequence[int]]) -> dict[str, dict[int, int]]:
    """Return by name the parts of a table that come of its parts of questions, counted on from name to name."""
    numbers = count()
    return {name: {part: next(numbers) for part in own} for name, own in parts.items()}


def files(table: str, parts: Iterable[int]) -> list[str]:
    """Return the names of parts of a table, inside the run."""
    return [f"{table}/{part_name(part)}" for part in parts]
