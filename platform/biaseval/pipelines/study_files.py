"""Where a study keeps what: the parts of its tables, by reader, guide and data set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from biaseval.pipelines.kind import Plan
from biaseval.pipelines.study import Reader, guides_of, measured, readers_of
from biaseval.spec import QaTrainSpec
from biaseval.store import part_name


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
        number = [own.name for own in self._readers if own.method == "standard"].index(reader.name)
        return {part: number * len(parts) + place for place, part in enumerate(parts)}

    def logits(self, guide: str) -> dict[int, int]:
        """Return the parts of ``qa_guide_logits`` of a guide, by those of the questions."""
        return self._logits[guide]

    def answers(self, reader: Reader) -> dict[int, int]:
        """Return the parts of ``qa_predictions`` of a measured reader, by those of the questions."""
        first = (self.n_models + self._measured[reader.name]) * self.plan["n_parts"]
        return {part["part"]: first + part["part"] for part in self.plan["parts"]}

    def segments(self, base: str, data: str) -> int:
        """Return the part of ``qa_segments`` of a base and what it is trained on."""
        return [(own.name, name) for own in self.train.bases for name in self.train.data].index((base, data))

    @cached_property
    def _readers(self) -> list[Reader]:
        return readers_of(self.train)

    @cached_property
    def _measured(self) -> dict[str, int]:
        """The place of each measured reader among them."""
        return {reader.name: number for number, reader in enumerate(measured(self._readers))}

    @cached_property
    def _logits(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        first = 0
        for guide in guides_of(self.train):
            parts = self.questions("train", guide.data)
            found[guide.name] = {part: first + place for place, part in enumerate(parts)}
            first += len(parts)
        return found

    def made_with(self, reader: Reader, *, is_judge: bool) -> list[str]:
        """Return all files that a reader's weights are needed for: answers, and logits if it guides others.

        Args:
            reader: the reader.
            is_judge: it decides which segments are biased.
        """
        made = files("qa_predictions", self.answers(reader).values()) if reader.is_measured else []
        if is_judge:
            made += files("qa_validation_predictions", self.judging(reader).values())
        if reader.name in self._logits:
            made += files("qa_guide_logits", self.logits(reader.name).values())
        return made


def files(table: str, parts: Iterable[int]) -> list[str]:
    """Return the names of parts of a table, inside the run."""
    return [f"{table}/{part_name(part)}" for part in parts]
