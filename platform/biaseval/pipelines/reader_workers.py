"""Workers and stages of training readers that are no training: windows, and answers that nobody gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from biaseval.execute.tasks import Made, Task
from biaseval.spec import QaBaseSpec
from biaseval.store import Run
from biaseval.tables import QA_PREDICTIONS
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.resources import Allocation


class FeaturesWorker:
    """Cuts questions into windows, by the tokenizer of one base after another."""

    def __init__(
        self, run: Run, allocation: Allocation, *, bases: Mapping[str, QaBaseSpec], max_tokens: int, stride: int
    ) -> None:
        self._run, self._bases = run, bases
        self._settings = {"max_tokens": max_tokens, "stride": stride}
        self._tokenizers: dict[str, Any] = {}

    def make(self, task: Task, prepared: None) -> Made:
        """Return a part of ``qa_features``."""
        from biaseval.models import ModelSource, load_reader_tokenizer
        from biaseval.training.features import question_features

        [file] = task.files
        base = task.work["base"]
        if base not in self._tokenizers:
            self._tokenizers[base] = load_reader_tokenizer(ModelSource.of(self._bases[base]))
        questions = self._run.read_part("qa_training_examples", task.work["part"])
        found = question_features(self._tokenizers[base], questions, **self._settings)
        dataset = questions["dataset"][0].as_py()
        for name, value in (("dataset", dataset), ("base", base)):
            found = found.add_column(0, name, pa.array([value] * found.num_rows, pa.string()))
        return Made({file: found})


@dataclass(frozen=True)
class NoAnswers:
    """The stage that writes empty predictions of readers that are not there, so that no part is missing."""

    units: Sequence[Unit]
    verb: str = "left unanswered by readers that were given up"
    noun: str = "questions"

    def begun(self, run: Run) -> int:
        """Return 0: a part is there or it is not."""
        return 0

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Write the missing parts; nothing runs for it on a cluster."""
        for unit in missing:
            [file] = unit.files
            run.write_table(file, QA_PREDICTIONS.empty())
            yield Done(unit)
