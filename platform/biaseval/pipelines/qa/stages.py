"""The stages of a QA-bias run: measuring its questions by heuristics, and answering them by each model.

Each worker takes a part of the questions and writes a part of another table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.environment import amend_environment, read_environment
from biaseval.execute.machine import take_share
from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.kind import Stage, Written
from biaseval.qa_bias import predictions as predicted
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.qa_bias.heuristics.built_in import Variant, resources_of
from biaseval.qa_bias.heuristics.similarity import Tfidf
from biaseval.spec import ExecutionSpec, QaBiasSpec, QaModelSpec, QaTextSpec, WindowsSpec
from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.resources import Allocation
    from biaseval.qa_models import ExtractiveReader

_MOST_MEASURING_ACTORS = 8
_SECONDS_OF_A_QUESTION = 0.02
"""By all heuristics; by those that need no spaCy pipeline, less."""

_COUNTERS = ("n_tokens", "n_padded_tokens", "search_s")
"""Facts of a reader that grow with each part."""


def measuring_stage(
    spec: QaBiasSpec,
    units: Sequence[Unit],
    heuristics: Sequence[str],
    *,
    verb: str = "measured by heuristics",
    table: str = "qa_examples",
) -> Stage:
    """Return the stage that computes heuristics of each part of a table of questions, on CPUs."""
    from biaseval.execute.machine import n_cores
    from biaseval.execute.parts import Parts

    # Each actor holds a pipeline of its own: more of them would not fit many machines' memory.
    asked = spec.execution.actors
    n_actors = min(n_cores(), _MOST_MEASURING_ACTORS) if asked == "auto" else asked
    return Parts(
        name="measuring",
        verb=verb,
        noun="questions",
        units=units,
        execution=ExecutionSpec(actors=n_actors, gpus_per_actor=0),
        seconds=(lambda unit: _SECONDS_OF_A_QUESTION * unit.size) if asked == "auto" else None,
        worker=AttributesWorker,
        arguments={"heuristics": heuristics, "variant": spec.variant, "text": spec.text, "table": table},
    )


def answering_stage(spec: QaBiasSpec, model: QaModelSpec, units: Sequence[Unit]) -> Stage:
    """Return the stage by which a model, or people, answer each part of the questions."""
    verb = f"answered by {model.name}"
    if model.predictions is not None:
        return Written(verb, "questions", units, partial(_given_rows, model, model.predictions))
    if model.annotators:
        return Written(verb, "questions", units, partial(_peoples_rows, model.name))
    from biaseval.execute.parts import Parts

    return Parts(
        name=f"answering by {model.name}", verb=verb, noun="questions", units=units, execution=spec.execution,
        worker=AnswersWorker, arguments={"model": model, "windows": spec.windows},
        recorder=partial(ReaderRecord, model=model.name),
    )  # fmt: skip


class AttributesWorker:
    """Computes heuristics."""

    def __init__(
        self,
        run: Run,
        allocation: Allocation,
        *,
        heuristics: Sequence[str],
        variant: Variant,
        text: QaTextSpec,
        table: str,
    ) -> None:
        from biaseval.qa_bias.heuristics.spacy_pipeline import load_annotator
        from biaseval.qa_bias.heuristics.text import load_text
        from biaseval.qa_bias.heuristics.user_heuristics import look_in

        look_in(text.modules)
        needed = resources_of(heuristics)
        self._run, self._table = run, table
        self._measure = partial(
            attributes,
            heuristics=heuristics,
            variant=variant,
            text=load_text(text.nltk_data) if "text" in needed else None,
            annotator=load_annotator(text.spacy, heuristics) if "annotator" in needed else None,
            tfidf=Tfidf.from_table(run.read_table("qa_tfidf")) if "tfidf" in needed else None,
        )

    def make(self, task: Task, prepared: None) -> Made:
        """Return a part of ``qa_attributes``, or of ``qa_training_attributes``, which say a question's role."""
        [file] = task.files
        examples = self._run.read_part(self._table, task.work["part"])
        found = self._measure(examples)
        if self._table == "qa_training_examples" and found.num_rows:
            found = found.add_column(0, "role", pa.array([examples["role"][0].as_py()] * found.num_rows, pa.string()))
        return Made({file: found})


class AnswersWorker:
    """Holds a model that answers."""

    def __init__(self, run: Run, allocation: Allocation, *, model: QaModelSpec, windows: WindowsSpec) -> None:
        from biaseval.models import Loading, ModelSource
        from biaseval.qa_models import ExtractiveReader, GenerativeReader, WindowSettings

        take_share(allocation.n_threads, allocation.num_gpus)
        self._run = run
        self._name = model.name
        source, loading = ModelSource.of(model), Loading(model.dtype, allocation.device)
        self._reader: ExtractiveReader | GenerativeReader
        if model.answers == "generative":
            self._reader = GenerativeReader.load(source, loading, prompt=model.prompt)
        else:
            settings, is_new = WindowSettings(**windows.model_dump()), model.allow_untrained_head
            self._reader = ExtractiveReader.load(source, loading, settings, allow_untrained_head=is_new)

    def make(self, task: Task, prepared: None) -> Made:
        """Return a part of ``qa_predictions``, with the reader's facts."""
        [file] = task.files
        examples = self._run.read_part("qa_examples", task.work["part"])
        rows = predicted.prediction_rows(self._name, examples, self._reader.read(examples))
        return Made({file: rows}, self._reader.facts())


class TrainedAnswersWorker:
    """Holds readers that the run trained, one at a time."""

    def __init__(self, run: Run, allocation: Allocation, *, windows: WindowsSpec, table: str) -> None:
        take_share(allocation.n_threads, allocation.num_gpus)
        self._run, self._allocation, self._windows, self._table = run, allocation, windows, table
        self._readers: dict[str, ExtractiveReader] = {}

    def make(self, task: Task, prepared: None) -> Made:
        """Return a part of predictions, with the reader's facts."""
        [file] = task.files
        folder = task.work["folder"]
        if folder not in self._readers:
            self._readers.clear()  # two of them need not fit a device
            self._readers[folder] = self._loaded(folder, is_trusted=task.work["is_trusted"])
        reader, examples = self._readers[folder], self._run.read_part(self._table, task.work["part"])
        return Made(
            {file: predicted.prediction_rows(task.work["model"], examples, reader.read(examples))}, reader.facts()
        )

    def _loaded(self, folder: str, *, is_trusted: bool) -> ExtractiveReader:
        from biaseval.models import Loading, ModelSource
        from biaseval.qa_models import ExtractiveReader, WindowSettings

        loading, windows = Loading("float32", self._allocation.device), WindowSettings(**self._windows.model_dump())
        with self._run.local_folder(folder) as path:
            return ExtractiveReader.load(ModelSource(path, trust_remote_code=is_trusted), loading, windows)


def _given_rows(model: QaModelSpec, files: Mapping[str, str], run: Run) -> Callable[[Unit], pa.Table]:
    """Return the function that reads the predictions for a part from files by data set; without a file, no rows."""

    @cache
    def texts(dataset: str) -> dict[str, str]:
        if dataset not in files:
            return {}
        examples = run.read_table("qa_examples")
        ids = examples.filter(pc.equal(examples["dataset"], dataset))["example_id"].to_pylist()
        return predicted.read_predictions(files[dataset], ids, on_missing=model.on_missing)[0]

    def rows(unit: Unit) -> pa.Table:
        examples, found = run.read_part("qa_examples", unit.work["part"]), texts(unit.work["dataset"])
        is_answered = pa.array([name in found for name in examples["example_id"].to_pylist()], pa.bool_())
        answered = examples.filter(is_answered)
        names = answered["example_id"].to_pylist()
        return predicted.prediction_rows(
            model.name, answered, predicted.written_answers(names, [found[name] for name in names])
        )

    return rows


def _peoples_rows(name: str, run: Run) -> Callable[[Unit], pa.Table]:
    """Return what scores one annotator's answer, the second, against the others'; see ``models.annotators``.

    Questions with one answer have no row, nor have those of sets whose answers are no annotators'.
    """
    examples = run.read_table("qa_examples").select(["dataset", "answers"])
    annotated = {
        dataset
        for dataset in pc.unique(examples["dataset"]).to_pylist()
        if predicted.are_of_annotators(examples.filter(pc.equal(examples["dataset"], dataset))["answers"].to_pylist())
    }

    def rows(unit: Unit) -> pa.Table:
        part = run.read_part("qa_examples", unit.work["part"])
        return predicted.annotator_rows(name, part if unit.work["dataset"] in annotated else part.slice(0, 0))

    return rows


class ReaderRecord:
    """Notes in ``environment.json`` how a model is run."""

    def __init__(self, run: Run, model: str | None = None) -> None:
        self._run, self._model = run, model

    def add(self, done: Done) -> None:
        """Note the facts of the reader: the stage's model, or that of the part."""
        facts = {name: fact for name, fact in done.facts.items() if name not in _COUNTERS}
        readers = read_environment(self._run).get("readers", {})
        amend_environment(self._run, readers={**readers, self._model or done.unit.work["model"]: facts})

    def close(self) -> None:
        """Nothing is left to note."""
