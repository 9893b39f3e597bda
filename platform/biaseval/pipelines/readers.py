"""The stages that train the readers of a QA-bias run, in order: each needs what those before it made.

values and features → standard readers → their answers on validation → segments → bias models → logits → the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from biaseval.errors import BiasevalError
from biaseval.pipelines.guides import GuideWorker
from biaseval.pipelines.kind import Plan, Stage
from biaseval.pipelines.questions import ReaderRecord, TrainedAnswersWorker, measuring_stage
from biaseval.pipelines.segments import Segments
from biaseval.pipelines.study import BIAS_MODEL, READERS, Guide, Reader, guides_of, measured, readers_of
from biaseval.spec import ExecutionSpec, QaBaseSpec, QaBiasSpec, QaTrainSpec
from biaseval.store import Run, part_name
from biaseval.tables import QA_PREDICTIONS, TRAINED_MODELS
from biaseval.training.recipe import reader_recipe
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.parts import Task
    from biaseval.execute.resources import Allocation
    from biaseval.training.preparation import Base
    from biaseval.training.work import Work


@dataclass(frozen=True)
class TrainingStages:
    """The stages of a run that trains readers, each made when those before it are done."""

    run: Run
    spec: QaBiasSpec
    train: QaTrainSpec
    plan: Plan

    def __iter__(self) -> Iterator[Stage]:
        """Yield the stages that train."""
        parts = self.plan["training_parts"]
        if self.train.biases:
            units = [
                Unit(part["part"], part["n_questions"], (_file("qa_training_attributes", part["part"]),), part)
                for part in parts
            ]
            yield measuring_stage(self.spec, units, self.train.biases, table="qa_training_examples")
        yield self._features()
        yield self._trained([reader for reader in self._readers if reader.method == "standard"])
        if self.train.biases:
            if self.train.thresholds != "mikula2024":
                yield self._validated()
            yield Segments(self.spec, self.train, self._segment_units())
        if self.train.has_bias_models:
            yield self._trained([reader for reader in self._readers if reader.method == BIAS_MODEL])
        if self._guides:
            yield self._guiding()
        if self.train.addressing:
            yield self._trained([reader for reader in self._readers if reader.method in self.train.addressing])

    def answers(self, first: int) -> Iterator[Stage]:
        """Yield the stages by which readers answer the run's questions.

        Args:
            first: part of ``qa_predictions`` that they begin with.
        """
        left_out = self.left_out
        for is_there in (True, False):
            units = [
                Unit(
                    number=number * self.plan["n_parts"] + part["part"],
                    size=part["n_questions"],
                    files=(_file("qa_predictions", first + number * self.plan["n_parts"] + part["part"]),),
                    work={"part": part["part"], "model": reader.name, "folder": reader.folder},
                )
                for number, reader in enumerate(measured(self._readers))
                if (reader.name not in left_out) == is_there
                for part in self.plan["parts"]
            ]
            if units:
                yield self._answered(units, "qa_examples") if is_there else NoAnswers(units)

    @property
    def left_out(self) -> dict[str, str]:
        """The readers that are not there, and why: they were given up, or what they need was."""
        given_up = given_up_readers(self.run)
        why = dict(given_up)
        for reader in self._readers:
            needed = [name for name in (reader.standard, reader.guide) if name in why]
            if needed and reader.name not in why:
                why[reader.name] = f"{needed[0]} was given up"
        return why

    @property
    def _readers(self) -> list[Reader]:
        return readers_of(self.train)

    @property
    def _guides(self) -> list[Guide]:
        return guides_of(self.train)

    def _parts(self, role: str, dataset: str | None = None) -> list[int]:
        """Return the parts of ``qa_training_examples`` of a role, or of one of its sets."""
        parts = self.plan["training_parts"]
        return [part["part"] for part in parts if part["role"] == role and dataset in (None, part["dataset"])]

    def _feature_parts(self, base: str, data: str) -> dict[int, int]:
        """Return the parts of ``qa_features`` of a base's training data, by those of the questions."""
        of_train = self._parts("train")
        number = [own.name for own in self.train.bases].index(base)
        return {part: number * len(of_train) + of_train.index(part) for part in self._parts("train", data)}

    def _features(self) -> Stage:
        from biaseval.execute.parts import Parts

        sizes = {part["part"]: part["n_questions"] for part in self.plan["training_parts"]}
        units = [
            Unit(feature, sizes[part], (_file("qa_features", feature),), {"base": base.name, "part": part})
            for base in self.train.bases
            for data in self.train.data
            for part, feature in self._feature_parts(base.name, data).items()
        ]
        return Parts(
            name="cutting windows",
            verb="cut into windows",
            noun="questions",
            units=units,
            execution=ExecutionSpec(actors=self.spec.execution.actors, gpus_per_actor=0),
            worker=FeaturesWorker,
            arguments={
                "bases": {base.name: base for base in self.train.bases},
                "max_tokens": self.spec.windows.max_tokens,
                "stride": self.spec.windows.stride,
            },
        )

    def _trained(self, readers: Sequence[Reader]) -> Stage:
        from biaseval.execute.training import Training
        from biaseval.training.trained_readers import HowReadersTrain

        bases = {base.name: base for base in self.train.bases}
        recipes = {
            reader.number: reader_recipe(self.train, bases[reader.base], reader.method, reader.seed)
            for reader in readers
        }
        left_out = self.left_out.keys() - given_up_readers(self.run).keys()
        units = [self._training_unit(reader) for reader in readers if reader.name not in left_out]
        return Training(
            name="training",
            verb="trained",
            noun="readers",
            units=units,
            execution=self.spec.execution,
            recipe=next(iter(recipes.values())),
            recipes=recipes,
            work=train_reader,
            arguments={
                "how": HowReadersTrain(self.train, self.spec.windows, self.spec.variant, tuple(self._asked_sets()))
            },
        )

    def _training_unit(self, reader: Reader) -> Unit:
        features = self._feature_parts(reader.base, reader.data)
        names = {"bias": reader.guide}
        if reader.method == "confidence_regularization":
            names["teacher"] = reader.standard
        return Unit(
            number=reader.number,
            size=1,
            files=(_file(TRAINED_MODELS.name, reader.number),),
            work={
                "model": reader.name,
                "row": reader.row,
                "folder": reader.folder,
                "checkpoints": f"checkpoints/{reader.number:05d}",
                "features": list(features.values()),
                "values": list(features),
                "guides": {
                    name: list(self._guide_parts(guide).values()) for name, guide in names.items() if guide is not None
                },
                "tokens": self._cost(reader),
            },
        )

    def _cost(self, reader: Reader) -> int:
        """Return how many tokens a reader reads at most while it is trained, about."""
        own = self.plan["training"]
        per_window = own["tokens"][reader.base][reader.data] / max(1, own["n_windows"][reader.base][reader.data])
        rows: int = own["steps"][reader.number] * self.train.batch_size * self.train.accumulation
        return int(rows * per_window)

    def _asked_sets(self) -> Iterator[Any]:
        """Yield the sets that readers are asked on the way: those for validation, then the others that are measured."""
        from biaseval.training.trained_readers import AskedSet

        for dataset in self.train.validation:
            yield AskedSet(dataset, "qa_training_examples", tuple(self._parts("validation", dataset)), decides=True)
        for dataset in self.plan["datasets"]:
            if dataset not in self.train.validation:
                parts = tuple(part["part"] for part in self.plan["parts"] if part["dataset"] == dataset)
                yield AskedSet(dataset, "qa_examples", parts, decides=False)

    def _judges(self) -> list[Reader]:
        """Return the standard reader of each base and data set that decides which segments are biased."""
        return [
            reader for reader in self._readers if reader.method == "standard" and reader.seed == self.train.seeds[0]
        ]

    def _judging_parts(self) -> dict[str, dict[int, int]]:
        """Return the parts of ``qa_validation_predictions`` of each judge, by those of the questions."""
        parts = self._parts("validation", next(iter(self.train.validation)))
        return {
            judge.name: {part: number * len(parts) + place for place, part in enumerate(parts)}
            for number, judge in enumerate(self._judges())
        }

    def _validated(self) -> Stage:
        sizes = {part["part"]: part["n_questions"] for part in self.plan["training_parts"]}
        units = [
            Unit(
                number=own,
                size=sizes[part],
                files=(_file("qa_validation_predictions", own),),
                work={"part": part, "model": judge.name, "folder": judge.folder},
            )
            for judge in self._judges()
            if judge.name not in self.left_out
            for part, own in self._judging_parts()[judge.name].items()
        ]
        return self._answered(units, "qa_training_examples")

    def _segment_units(self) -> list[Unit]:
        judging, parts = self._judging_parts(), self._parts("validation")
        return [
            Unit(
                number=number,
                size=1,
                files=(_file("qa_segments", number),),
                work={
                    "base": judge.base,
                    "data": judge.data,
                    "parts": self._parts("train", judge.data),
                    "validation": parts,
                    "judge": judge.name,
                    "judging": list(judging[judge.name].values()),
                    "judged": list(judging[judge.name]),
                },
            )
            for number, judge in enumerate(self._judges())
            if judge.name not in self.left_out
        ]

    def _guide_parts(self, name: str) -> dict[int, int]:
        """Return the parts of ``qa_guide_logits`` of a guide, by those of the questions."""
        first = 0
        for guide in self._guides:
            parts = self._parts("train", guide.data)
            if guide.name == name:
                return {part: first + place for place, part in enumerate(parts)}
            first += len(parts)
        raise KeyError(name)

    def _guiding(self) -> Stage:
        from biaseval.execute.parts import Parts

        folders = {reader.name: reader.folder for reader in self._readers}
        sizes = {part["part"]: part["n_questions"] for part in self.plan["training_parts"]}
        units = []
        for guide in self._guides:
            features = self._feature_parts(guide.base, guide.data)
            for part, own in self._guide_parts(guide.name).items():
                work = {
                    "guide": guide.name,
                    "source": guide.source,
                    "base": guide.base,
                    "data": guide.data,
                    "bias": guide.bias,
                    "folder": folders.get(guide.name),
                    "features": features[part],
                    "examples": part,
                    "weight": self.plan["training"]["tfidf_weights"].get(guide.data),
                }
                if guide.name not in self.left_out:
                    units.append(Unit(own, sizes[part], (_file("qa_guide_logits", own),), work))
        return Parts(
            name="reading by bias models and teachers",
            verb="read by bias models and teachers",
            noun="questions",
            units=units,
            execution=self.spec.execution,
            worker=GuideWorker,
            arguments={"spec": self.spec, "train": self.train},
        )

    def _answered(self, units: Sequence[Unit], table: str) -> Stage:
        from biaseval.execute.parts import Parts

        return Parts(
            name="answering by trained readers",
            verb="answered by trained readers",
            noun="questions",
            units=units,
            execution=self.spec.execution,
            worker=TrainedAnswersWorker,
            arguments={"windows": self.spec.windows, "table": table},
            recorder=ReaderRecord,
        )


@dataclass(frozen=True)
class ReadersSummary:
    """What a sitting of training did, and what the run's readers are."""

    uri: str
    n_readers: int
    """Complete, of the whole run, bias models among them."""
    n_planned: int
    n_trained: int
    """In this sitting."""
    n_steps: int
    """Of the complete ones."""
    seconds: float
    """Sum over the readers of this sitting, without starting workers."""
    overhead_share: float | None
    """Part of these seconds outside optimizer steps and evaluations, in [0, 1]; None if nothing was trained."""
    left_out: Mapping[str, str]
    """Readers that are not there, and why."""
    run: Run
    folder: str = READERS

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Names and values, for a person."""
        lines = [
            ("readers", f"{self.n_readers:,} of {self.n_planned:,} ({self.n_trained:,} trained now)"),
            ("steps", f"{self.n_steps:,}"),
        ]
        if self.overhead_share is not None:
            lines += [
                ("seconds", f"{self.seconds:,.1f}"),
                ("outside steps, evaluations", f"{self.overhead_share:.1%} of them"),
            ]
        return lines

    def refuse_given_up(self) -> None:
        """Make sure that no reader was given up; Raises: as `refuse_left_out`."""
        refuse_left_out(self.run, self.left_out)


def readers_summary(stages: TrainingStages, made: Sequence[Done]) -> ReadersSummary:
    """Return what a sitting of training did."""
    rows = _trained_rows(stages.run)
    trained = [done for done in made if "step_seconds" in done.facts]
    seconds = sum(done.facts["seconds"] for done in trained)
    inside = sum(done.facts["step_seconds"] + done.facts["evaluation_seconds"] for done in trained)
    return ReadersSummary(
        uri=stages.run.uri,
        n_readers=sum(row["problem"] is None for row in rows),
        n_planned=len(readers_of(stages.train)),
        n_trained=sum(done.facts["problem"] is None for done in trained),
        n_steps=sum(row["steps"] for row in rows if row["problem"] is None),
        seconds=seconds,
        overhead_share=1 - inside / seconds if trained else None,
        left_out=stages.left_out,
        run=stages.run,
    )


def refuse_left_out(run: Run, left_out: Mapping[str, str]) -> None:
    """Make sure that all readers are there, once all else is made.

    Raises:
        BiasevalError: some were given up; the message says why.
    """
    if left_out:
        lines = "".join(f"\n  - {name}: {why}" for name, why in left_out.items())
        raise BiasevalError(
            f"{run.uri}: {len(left_out)} readers were given up, the others are there; lower train.learning_rate or "
            f"choose another train.precision, in another --run-dir:{lines}"
        )


def given_up_readers(run: Run) -> dict[str, str]:
    """Return the readers whose training ended without a model, and why."""
    return {row["model"]: row["problem"] for row in _trained_rows(run) if row["problem"] is not None}


def _trained_rows(run: Run) -> list[dict[str, Any]]:
    parts = [run.read_part(TRAINED_MODELS.name, part) for part in sorted(run.parts(TRAINED_MODELS.name))]
    return [row for part in parts for row in part.to_pylist()]


def train_reader(run: Run, unit: Mapping[str, Any], base: Base, **arguments: Any) -> Work:
    """Return what a worker trains for a reader; imports torch there, and not where a run is only looked at."""
    from biaseval.training.trained_readers import reader_work

    return reader_work(run, unit, base, **arguments)


class FeaturesWorker:
    """Cuts questions into windows, by the tokenizer of one base after another."""

    def __init__(
        self, run: Run, allocation: Allocation, *, bases: Mapping[str, QaBaseSpec], max_tokens: int, stride: int
    ) -> None:
        self._run, self._bases = run, bases
        self._settings = {"max_tokens": max_tokens, "stride": stride}
        self._tokenizers: dict[str, Any] = {}

    def make(self, task: Task, prepared: None) -> Mapping[str, Any]:
        """Write a part of ``qa_features``."""
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
        self._run.write_table(file, found)
        return {}


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


def _file(table: str, part: int) -> str:
    return f"{table}/{part_name(part)}"
