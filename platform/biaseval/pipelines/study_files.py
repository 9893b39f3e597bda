"""Where a study keeps what: the parts of its tables, by reader, guide and data set, and which were made with which."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from biaseval.pipelines.kind import Plan
from biaseval.pipelines.study import BIAS_MODEL, Guide, Reader, guides_of, measured, readers_of
from biaseval.spec import QaTrainSpec
from biaseval.store import part_name
from biaseval.tables import TRAINED_MODELS


@dataclass(frozen=True)
class StudyFiles:
    """The parts of a planned study."""

    train: QaTrainSpec
    plan: Plan
    n_models: int
    """Measured models that are not trained; their answers come first."""

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
        of_train = self.questions("train")
        number = [own.name for own in self.train.bases].index(base)
        return {part: number * len(of_train) + of_train.index(part) for part in self.questions("train", data)}

    def judging(self, reader: Reader) -> dict[int, int]:
        """Return the parts of ``qa_validation_predictions`` of a standard reader, by those of the questions."""
        parts = self.questions("validation", next(iter(self.train.validation)))
        number = [own for own in readers_of(self.train) if own.method == "standard"].index(reader)
        return {part: number * len(parts) + place for place, part in enumerate(parts)}

    def logits(self, guide: str) -> dict[int, int]:
        """Return the parts of ``qa_guide_logits`` of a guide, by those of the questions."""
        first = 0
        for own in guides_of(self.train):
            parts = self.questions("train", own.data)
            if own.name == guide:
                return {part: first + place for place, part in enumerate(parts)}
            first += len(parts)
        raise KeyError(guide)

    def answers(self, reader: Reader) -> dict[int, int]:
        """Return the parts of ``qa_predictions`` of a measured reader, by those of the questions."""
        n_parts = self.plan["n_parts"]
        first = (self.n_models + measured(readers_of(self.train)).index(reader)) * n_parts
        return {part["part"]: first + part["part"] for part in self.plan["parts"]}

    def segments(self, base: str, data: str) -> int:
        """Return the part of ``qa_segments`` of a base and what it is trained on."""
        return [(own.name, name) for own in self.train.bases for name in self.train.data].index((base, data))

    def made_with(self, what: Reader | Guide, judges: Container[Reader]) -> tuple[str, ...]:
        """Return all files that are made with a reader or a guide, and with these in turn: they are made anew together.

        Args:
            what: a reader, for what its weights make; a guide, for what its logits make.
            judges: readers that decide which segments are biased.
        """
        if isinstance(what, Guide):
            return tuple(self._by_logits(what.name, judges))
        return tuple(self._by_weights(what, judges))

    def made_with_segments(self, base: str, data: str) -> tuple[str, ...]:
        """Return all files that are made with the segments of a training set, and with these in turn."""
        readers = readers_of(self.train)
        own = [reader for reader in readers if (reader.base, reader.data) == (base, data)]
        return tuple(self._made([reader for reader in own if reader.method in ("resample", BIAS_MODEL)], ()))

    def _by_weights(self, reader: Reader, judges: Container[Reader]) -> Iterator[str]:
        if reader.is_measured:
            yield from files("qa_predictions", self.answers(reader).values())
        if reader in judges:
            yield from files("qa_validation_predictions", self.judging(reader).values())
            yield from files("qa_segments", [self.segments(reader.base, reader.data)])
            yield from self.made_with_segments(reader.base, reader.data)
        if reader.name in (guide.name for guide in guides_of(self.train)):
            yield from files("qa_guide_logits", self.logits(reader.name).values())
            yield from self._by_logits(reader.name, judges)

    def _by_logits(self, guide: str, judges: Container[Reader]) -> Iterator[str]:
        yield from self._made([reader for reader in readers_of(self.train) if guide in reader.guides.values()], judges)

    def _made(self, readers: Sequence[Reader], judges: Container[Reader]) -> Iterator[str]:
        for reader in readers:
            yield from files(TRAINED_MODELS.name, [reader.number])
            yield from self._by_weights(reader, judges)


def files(table: str, parts: Iterable[int]) -> list[str]:
    """Return the names of parts of a table, inside the run."""
    return [f"{table}/{part_name(part)}" for part in parts]
