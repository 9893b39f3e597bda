"""What a worker trains for a reader of a QA-bias run: its windows, its method, and how it is watched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import BiasevalError
from biaseval.qa_bias.splits.resampling import resampled
from biaseval.qa_bias.splits.significance import biased_questions
from biaseval.qa_models import WindowSettings, reader_inputs
from biaseval.spec import QaTrainSpec, WindowsSpec
from biaseval.store import Run
from biaseval.tables import QA_SEGMENTS
from biaseval.training import questions
from biaseval.training.evaluation import Evaluated, Watch
from biaseval.training.preparation import Base
from biaseval.training.rows import CUTOFFS
from biaseval.training.work import Work

_OVERFLOW = (
    "confidence_regularization.variant head takes exponentials of its guides' logits, which overflow above 88: variant "
    "utama does not"
)


@dataclass(frozen=True)
class AskedSet:
    """A set of questions that readers are asked on the way."""

    dataset: str
    table: str
    """Of its questions: ``qa_examples`` or ``qa_training_examples``."""
    parts: tuple[int, ...]
    """Of that table."""
    decides: bool
    """It is one for validation."""


@dataclass(frozen=True)
class HowReadersTrain:
    """What all readers of a run have in common."""

    train: QaTrainSpec
    windows: WindowsSpec
    variant: str
    sets: tuple[AskedSet, ...]

    @property
    def padded_to(self) -> int | None:
        """Positions of every window, where padding takes part."""
        return None if self.train.mask_padding else self.windows.max_tokens


def reader_work(run: Run, unit: Mapping[str, Any], base: Base, *, how: HowReadersTrain) -> Work:
    """Return the training of a reader, of a run with features, segments, and the logits of bias models and teachers.

    Args:
        run: the run directory.
        unit: ``row``, its row of ``trained_models``; ``folder`` and ``checkpoints`` of the run; ``features``, its
            parts of ``qa_features``; ``values``, the parts of ``qa_training_attributes`` of its questions; ``guides``,
            by their names the parts of ``qa_guide_logits``.
        base: the base model.
        how: the settings that all readers share.

    Raises:
        InputError: a segment has no question.
        BiasevalError: logits do not belong to the windows.
    """
    row = unit["row"]
    features = pa.concat_tables([run.read_part("qa_features", part) for part in unit["features"]])
    if row["method"] in ("resample", "bias_model"):
        features = features.take(pa.array(_chosen(run, unit, features, how)))
    inputs, pad_id = reader_inputs(base.model, base.tokenizer), base.tokenizer.pad_token_id or 0
    guides = {name: _guide(run, parts, features) for name, parts in unit["guides"].items()}
    method = _method(base, row, how.train)
    overflows = isinstance(method, questions.ConfidenceRegularization) and method.variant == "head"
    objective = questions.Questions(features, inputs, pad_id, method, guides, how.padded_to)
    watch = _watch_segments if row["method"] == "bias_model" else _watch
    return Work(
        objective, {"model": row["model"]}, part=row["number"], checkpoints=unit["checkpoints"],
        watch=watch(run, unit, base, inputs, how), folder=unit["folder"], row=row,
        hint=_OVERFLOW if overflows else None,
    )  # fmt: skip


class GuideLogits(Sequence[questions.Guide]):
    """Start and end logits of windows, which stay in Arrow until somebody asks for those of one."""

    def __init__(self, table: pa.Table) -> None:
        sides = [table[name].combine_chunks() for name in ("start_logits", "end_logits")]
        self._sides = [side.chunk(0) if isinstance(side, pa.ChunkedArray) else side for side in sides]

    def __len__(self) -> int:
        return len(self._sides[0])

    def __getitem__(self, row: Any) -> Any:
        start, end = (side[row].values.to_numpy() for side in self._sides)
        return start, end


def _method(base: Base, row: Mapping[str, Any], train: QaTrainSpec) -> questions.Method:
    if row["method"] == "learned_mixin":
        own = train.learned_mixin
        return questions.LearnedMixin.new(
            base.model.config.hidden_size,
            row["seed"],
            bias_scale=own.bias_scale,
            entropy_penalty=own.entropy_penalty,
            variant=own.variant,
        )
    if row["method"] == "confidence_regularization":
        regularization = train.confidence_regularization
        return questions.ConfidenceRegularization(regularization.bias_scale, regularization.variant or "utama")
    if row["method"] == "product_of_experts":
        return questions.ProductOfExperts(train.product_of_experts.bias_scale)
    return questions.Standard()


def _guide(run: Run, parts: Sequence[int], features: pa.Table) -> GuideLogits:
    """Return logits, which must be of exactly these windows."""
    table = pa.concat_tables([run.read_part("qa_guide_logits", part) for part in parts])
    keys = ("example_id", "window")
    if any(not table[key].combine_chunks().equals(features[key].combine_chunks()) for key in keys):
        raise BiasevalError(
            f"{run.uri}: the logits of {table['guide'][0].as_py()} are of other windows than those of qa_features; "
            "delete qa_guide_logits and run the same command again"
        )
    return GuideLogits(table)


def segment_of(run: Run, base: str, data: str, bias: str) -> Mapping[str, Any]:
    """Return the row of ``qa_segments``."""
    key = {"base": base, "data": data, "bias": bias}
    [row] = [row for row in run.read_table(QA_SEGMENTS.name).to_pylist() if key.items() <= row.items()]
    return dict(row)


def bias_values(run: Run, parts: Sequence[int], bias: str) -> pa.Table:
    """Return the values of a bias of questions, in their order: ``example_id``, ``value``, ``is_measured``."""
    tables = [run.read_part("qa_training_attributes", part) for part in parts]
    return pa.concat_tables([table.filter(pc.equal(table["heuristic"], bias)) for table in tables])


def _chosen(run: Run, unit: Mapping[str, Any], features: pa.Table, how: HowReadersTrain) -> list[int]:
    """Return the windows that a reader is trained on, some several times: resampled, or of biased questions alone."""
    row = unit["row"]
    segment = segment_of(run, row["base"], row["data"], row["bias"])
    table = bias_values(run, unit["values"], row["bias"])
    if row["method"] == "resample":
        keeps = how.variant == "reference"  # undefined values are lower there
        values = [
            value if is_measured or keeps else None
            for value, is_measured in zip(table["value"].to_pylist(), table["is_measured"].to_pylist(), strict=True)
        ]
        chosen = resampled(values, segment["threshold"], row["seed"]).tolist()
    else:
        chosen = np.flatnonzero(_is_biased(table, segment, how)).tolist()
    windows: dict[str, list[int]] = {}
    for number, name in enumerate(features["example_id"].to_pylist()):
        windows.setdefault(name, []).append(number)
    names = table["example_id"].to_pylist()
    return [window for question in chosen for window in windows.get(names[question], ())]


def _is_biased(values: pa.Table, segment: Mapping[str, Any], how: HowReadersTrain) -> Any:
    return biased_questions(
        values["value"].to_numpy(),
        values["is_measured"].to_numpy(),
        segment["threshold"],
        segment["biased_segment"],
        variant="reference" if how.variant == "reference" else "paper",
    )


def _watch(run: Run, unit: Mapping[str, Any], base: Base, inputs: Sequence[str], how: HowReadersTrain) -> Watch:
    sets = [
        _evaluated(asked.dataset, _questions(run, asked), base, inputs, how)
        for asked in how.sets
        if asked.decides or how.train.evaluate_others
    ]
    return Watch(
        sets,
        how.train.evaluation_steps,
        how.train.best,
        frozenset(asked.dataset for asked in how.sets if asked.decides),
        how.train.patience if how.train.steps_of(unit["row"]["method"]) is None else None,
        cutoffs=_cutoffs(run, unit["row"]["model"]),
    )


def _cutoffs(run: Run, reader: str) -> dict[int, float]:
    """Return what a search asks of a reader, by steps; nothing where the run is no trial."""
    known = run.read_json(CUTOFFS) if run.has(CUTOFFS) else {}
    return {int(n_steps): f1 for n_steps, f1 in known.get(reader, {}).items()}


def _watch_segments(
    run: Run, unit: Mapping[str, Any], base: Base, inputs: Sequence[str], how: HowReadersTrain
) -> Watch:
    """Return how a bias model is watched: the largest difference of F1 between biased and other questions is kept."""
    row, sets = unit["row"], []
    segment = segment_of(run, row["base"], row["data"], row["bias"])
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for asked in how.sets:
        if not asked.decides:
            continue
        questions = _questions(run, asked)
        is_biased = _is_biased(bias_values(run, asked.parts, row["bias"]), segment, how)
        for is_in, word in ((True, "biased"), (False, "other")):
            own = questions.filter(pa.array(is_biased == is_in))
            if own.num_rows:
                name = f"{asked.dataset} ({word})"
                names[is_in].add(name)
                sets.append(_evaluated(name, own, base, inputs, how))
    every = how.train.evaluation_steps
    return Watch(sets, every, "f1", frozenset(names[True]), None, frozenset(names[False]))


def _questions(run: Run, asked: AskedSet) -> pa.Table:
    return pa.concat_tables([run.read_part(asked.table, part) for part in asked.parts])


def _evaluated(dataset: str, questions: pa.Table, base: Base, inputs: Sequence[str], how: HowReadersTrain) -> Evaluated:
    settings = WindowSettings(**how.windows.model_dump())
    return Evaluated.of(dataset, questions.slice(0, how.train.evaluation_questions), base, inputs, settings)
