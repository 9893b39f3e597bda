"""The stages that train the readers of a QA-bias run, in order: each needs what those before it made.

values and features → standard readers → their answers on validation → segments → bias models and resampled readers →
logits → the others. Where segments are published they come first, and all readers without a guide are trained together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.kind import Deferred, Plan, Stage, Written
from biaseval.pipelines.qa import trained_models as naming
from biaseval.pipelines.qa.biased_segments import Segments
from biaseval.pipelines.qa.guide_logits import GuideWorker
from biaseval.pipelines.qa.stages import ReaderRecord, TrainedAnswersWorker, measuring_stage
from biaseval.spec import GUIDED, ExecutionSpec, QaBaseSpec, QaBiasSpec, QaTrainSpec
from biaseval.store import Run, part_name
from biaseval.tables import EVALUATIONS, QA_PREDICTIONS, TRAINED_MODELS, TRAINING
from biaseval.training.recipe import reader_recipe
from biaseval.training.rows import MODEL_CONFIG
from biaseval.units import Unit, files_of

if TYPE_CHECKING:
    from biaseval.execute.resources import Allocation

_UNGUIDED = ("standard", "resample", naming.BIAS_MODEL)


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
                Unit(
                    part["part"],
                    part["n_questions"],
                    tuple(naming.files("qa_training_attributes", [part["part"]])),
                    part,
                )
                for part in parts
            ]
            yield measuring_stage(
                self.spec, units, self.train.biases, verb="measured for training", table="qa_training_examples"
            )
        yield self._features()
        read = [guide for guide in self._guides if guide.source == "reader"]
        if fitted := [guide for guide in self._guides if guide.source != "reader"]:
            yield self._guiding(fitted)
        guided = [method for method in self.train.methods if method in GUIDED]
        others: list[str] = [*_UNGUIDED]
        if self.train.biases and self._is_published:
            yield self._segments()
        elif self.train.biases:
            yield self._trained(["standard"])
            yield self._validated()
            yield self._segments()
            others.remove("standard")
        if self._readers_by(others):
            yield self._trained(others)
        if read:
            yield self._guiding(read)
        if guided:
            yield self._trained(guided)

    def answers(self) -> Iterator[Stage]:
        """Yield the stages by which readers answer the run's questions."""
        left_out, sizes = self.left_out, {part["part"]: part["n_questions"] for part in self.plan["parts"]}
        for is_there in (True, False):
            if units := [
                Unit(own, sizes[part], tuple(naming.files("qa_predictions", [own])), self._reading(reader, part))
                for reader in naming.measured(self._readers)
                if (reader.name not in left_out) == is_there
                for part, own in self._files.answers[reader.name].items()
            ]:
                # Readers that are not there have empty predictions, so that no part is missing.
                verb = "left unanswered by readers that were given up"
                empty = Written(verb, "questions", units, lambda run: lambda unit: QA_PREDICTIONS.empty())
                yield self._answered(units, "qa_examples") if is_there else empty

    @property
    def left_out(self) -> dict[str, str]:
        """The missing readers and the reason: they, or readers that they need, were given up."""
        why = given_up_readers(self.run)
        judged = {(judge.base, judge.data) for judge in self._judges()}
        for reader in self._readers:
            if reader.name in why:
                continue
            needed = [name for name in reader.guides.values() if name in why]
            if needed:
                why[reader.name] = f"{needed[0]} was given up"
            elif reader.bias is not None and (reader.base, reader.data) not in judged:
                why[reader.name] = f"no standard reader of {reader.base} on {reader.data} is there to judge segments"
        return why

    @property
    def _is_published(self) -> bool:
        """Whether thresholds and biased segments are known before anything is trained."""
        return self.train.thresholds == "mikula2024"

    @cached_property
    def _files(self) -> naming.StudyFiles:
        return naming.StudyFiles(self.train, self.plan, naming.answers_of(self.spec, self.plan))

    def _readers_by(self, methods: Sequence[str]) -> list[naming.Reader]:
        return [reader for reader in self._readers if reader.method in methods]

    @cached_property
    def _readers(self) -> list[naming.Reader]:
        return naming.readers_of(self.train)

    @cached_property
    def _guides(self) -> list[naming.Guide]:
        return naming.guides_of(self.train)

    def _features(self) -> Stage:
        from biaseval.execute.parts import Parts

        found = self._files
        units = [
            Unit(own, found.sizes[part], tuple(naming.files("qa_features", [own])), {"base": base.name, "part": part})
            for base in self.train.bases
            for data in self.train.data
            for part, own in found.features(base.name, data).items()
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

    def _trained(self, methods: Sequence[str]) -> Stage:
        from biaseval.execute.training import Training
        from biaseval.training.trained_readers import HowReadersTrain

        bases, readers = {base.name: base for base in self.train.bases}, self._readers_by(methods)
        recipes = {
            reader.number: reader_recipe(self.train, bases[reader.base], reader.method, reader.seed)
            for reader in readers
        }
        rows = {row["model"]: row for row in trained_rows(self.run)}
        skipped = self.left_out.keys() - rows.keys()
        is_judged = bool(self.train.biases) and not self._is_published
        judges = self._judges() if is_judged else []
        made = {own.name: self._files.made_with(own, is_judge=own in judges) for own in readers}
        there = files_of(self.run, [name for names in made.values() for name in names])
        units = [
            self._training_unit(own, rows.get(own.name, {}), needs_weights=not there.issuperset(made[own.name]))
            for own in readers
            if own.name not in skipped
        ]
        return Training(
            name="training", verb="trained with guides" if set(methods) <= set(GUIDED) else "trained",
            noun="readers", units=units, execution=self.spec.execution, recipe=next(iter(recipes.values())),
            recipes=recipes, work=Deferred("biaseval.training.trained_readers:reader_work"),
            arguments={
                "how": HowReadersTrain(self.train, self.spec.windows, self.spec.variant, tuple(self._asked_sets())),
            },
        )  # fmt: skip

    def _training_unit(self, reader: naming.Reader, row: Mapping[str, Any], *, needs_weights: bool) -> Unit:
        """Return the unit of a reader: its row, and its weights while something is to be made with them."""
        features = self._files.features(reader.base, reader.data)
        weights = [f"{row['path']}/{MODEL_CONFIG}"] if needs_weights and row.get("path") else []
        return Unit(
            number=reader.number,
            size=1,
            files=(*weights, *naming.files(TRAINED_MODELS.name, [reader.number])),
            work={
                "model": reader.name,
                "row": reader.row,
                "folder": reader.folder,
                "checkpoints": f"checkpoints/{reader.number:05d}",
                "features": list(features.values()),
                "values": list(features),
                "guides": {role: list(self._files.logits[name].values()) for role, name in reader.guides.items()},
                "tokens": self._cost(reader),
            },
            beside=tuple(f"{table.name}/{part_name(reader.number)}" for table in (TRAINING, EVALUATIONS)),
        )

    def _cost(self, reader: naming.Reader) -> int:
        """Return how many tokens a reader reads at most while it is trained, about."""
        own = self.plan["training"]
        per_window = own["tokens"][reader.base][reader.data] / max(1, own["n_windows"][reader.base][reader.data])
        rows: int = own["steps"][reader.number] * self.train.batch_size * self.train.accumulation
        return int(rows * per_window)

    def _asked_sets(self) -> Iterator[Any]:
        """Yield the sets that readers are asked on the way: those for validation, then the others that are measured."""
        from biaseval.training.trained_readers import AskedSet

        for dataset in self.train.validation:
            yield AskedSet(
                dataset, "qa_training_examples", tuple(self._files.questions("validation", dataset)), decides=True
            )
        for dataset in self.plan["datasets"]:
            if dataset not in self.train.validation:
                parts = tuple(part["part"] for part in self.plan["parts"] if part["dataset"] == dataset)
                yield AskedSet(dataset, "qa_examples", parts, decides=False)

    def _judges(self) -> list[naming.Reader]:
        """Return the standard reader of each base and data set that decides which segments are biased.

        It is that of the first seed, or the first whose reader was not given up; where thresholds are published nothing
        has to be decided, and any will do.
        """
        judges: dict[tuple[str, str], naming.Reader] = {}
        given_up = given_up_readers(self.run)
        for reader in self._readers_by(["standard"]):
            if self._is_published or reader.name not in given_up:
                judges.setdefault((reader.base, reader.data), reader)
        return list(judges.values())

    def _validated(self) -> Stage:
        own = self._files
        units = [
            Unit(
                number,
                own.sizes[part],
                tuple(naming.files("qa_validation_predictions", [number])),
                self._reading(judge, part),
            )
            for judge in self._judges()
            for part, number in own.judging[judge.name].items()
        ]
        return self._answered(units, "qa_training_examples")

    def _segments(self) -> Stage:
        own = self._files
        units = [
            Unit(
                number=own.segments(judge.base, judge.data), size=1,
                files=tuple(naming.files("qa_segments", [own.segments(judge.base, judge.data)])),
                work={
                    "base": judge.base, "data": judge.data, "parts": own.questions("train", judge.data),
                    "validation": own.questions("validation"), "judge": judge.name,
                    "judging": list(own.judging[judge.name].values()), "judged": list(own.judging[judge.name]),
                },
            )
            for judge in self._judges()
        ]  # fmt: skip
        return Written("split into segments", "training sets", units, Segments(self.spec, self.train).rows_of)

    def _reading(self, reader: naming.Reader, part: int) -> dict[str, Any]:
        """Return what a worker is told that has a reader answer a part of questions."""
        return {"part": part, "model": reader.name, "folder": reader.folder, "is_trusted": self._trusts(reader)}

    def _trusts(self, of: naming.Reader | naming.Guide) -> bool:
        [base] = [base for base in self.train.bases if base.name == of.base]
        return base.trust_remote_code

    def _guiding(self, guides: Sequence[naming.Guide]) -> Stage:

        folders, left_out, found = {reader.name: reader.folder for reader in self._readers}, self.left_out, self._files
        units = []
        for guide in guides:
            features = found.features(guide.base, guide.data)
            for part, own in found.logits[guide.name].items() if guide.name not in left_out else ():
                work = {
                    "guide": guide.name, "source": guide.source, "base": guide.base, "data": guide.data,
                    "bias": guide.bias, "folder": folders.get(guide.name), "is_trusted": self._trusts(guide),
                    "features": features[part], "examples": part,
                    "weight": self.plan["training"]["tfidf_weights"].get(guide.data),
                }  # fmt: skip
                units.append(Unit(own, found.sizes[part], tuple(naming.files("qa_guide_logits", [own])), work))
        what = "bias models and teachers" if guides[0].source == "reader" else "what knows the bias"
        return self._read("reading", what, units, GuideWorker, arguments={"spec": self.spec, "train": self.train})

    def _answered(self, units: Sequence[Unit], table: str) -> Stage:
        who = f"{'trained' if table == 'qa_examples' else 'standard'} readers"
        arguments = {"windows": self.spec.windows, "table": table}
        return self._read("answering", who, units, TrainedAnswersWorker, arguments=arguments, recorder=ReaderRecord)

    def _read(self, doing: str, who: str, units: Sequence[Unit], worker: Any, **settings: Any) -> Stage:
        from biaseval.execute.parts import Parts

        verb = {"reading": "read", "answering": "answered"}[doing]
        return Parts(
            name=f"{doing} by {who}", verb=f"{verb} by {who}", noun="questions", units=units,
            execution=self.spec.execution, worker=worker, **settings,
        )  # fmt: skip


def given_up_readers(run: Run) -> dict[str, str]:
    """Return the readers whose training ended without a model, and why."""
    return {row["model"]: row["problem"] for row in trained_rows(run) if row["problem"] is not None}


def trained_rows(run: Run) -> list[dict[str, Any]]:
    """Return the rows of ``trained_models``, of readers that are there or were given up."""
    parts = [run.read_part(TRAINED_MODELS.name, part) for part in sorted(run.parts(TRAINED_MODELS.name))]
    return [row for part in parts for row in part.to_pylist()]


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
