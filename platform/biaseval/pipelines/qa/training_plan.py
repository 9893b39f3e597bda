"""The inputs of training the readers of a QA-bias run, and its cost; loads no weights."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from biaseval import spec as specs
from biaseval.errors import InputError, Problems
from biaseval.pipelines.cost_lines import cost_lines
from biaseval.pipelines.qa.guide_logits import check_logits_file
from biaseval.pipelines.qa.trained_models import BIAS_MODEL, Reader, guides_of, measured, readers_of
from biaseval.qa_bias.data import QuestionSet, question_rows, read_questions
from biaseval.qa_bias.planted import planted_questions
from biaseval.store import Run
from biaseval.training.deepspeed_config import check_deepspeed
from biaseval.training.estimate import ModelShape, TrainingCost, cost_of, training_flops
from biaseval.training.recipe import reader_recipe

_N_NAMED = 3

_SEEDS = {"train": 1, "validation": 2, "measured": 3}
"""Seeds of generated sets, by their use."""

_CHECKPOINT_BYTES = 24 + 12
"""Of a parameter: a checkpoint beside the next, in float32 with what Adam keeps; the best weights, those before
them, and those that the checkpoint knows."""

_PLANTED = "planted"
"""The name by which they are drawn, whatever theirs is: of one role, strengths differ only in where answers are."""


@dataclass(frozen=True)
class TrainingInputs:
    """What training starts from, validated."""

    sets: Sequence[tuple[str, QuestionSet]]
    """Roles and questions."""
    readers: Sequence[Reader]
    n_windows: Mapping[str, Mapping[str, int]]
    """Of each base in each training set."""
    tokens: Mapping[str, Mapping[str, int]]
    """Of these windows."""
    tfidf_weights: Mapping[str, float]
    """Of each training set, where a bias model is fitted so."""
    steps: Sequence[int]
    """Of each reader, at most; what depends on segments is as many as if all questions were in them."""
    cost: TrainingCost
    """Of optimizer steps."""
    reading_flops: Mapping[str, int]
    """Of passes without a gradient, about: ``evaluations`` on the way, ``guides``, ``answers`` of trained readers."""
    notes: Sequence[str]


def read_source(
    spec: specs.QaBiasSpec, source: specs.DataSource, name: str, role: str, *, max_examples: int | None = None
) -> QuestionSet:
    """Return the questions of a file, at most ``max_examples``, or generated ones.

    The spec's seed and ``datasets.on_bad_example`` count. The role is ``train``, ``validation`` or ``measured``.

    Raises:
        InputError: the file cannot be read, or has bad questions.
    """
    if not isinstance(source, specs.GeneratedSpec):
        fields = source.fields if isinstance(source, specs.TableSpec) else {}
        return read_questions(
            source.file if isinstance(source, specs.TableSpec) else source,
            name=name,
            fields={str(held): column for held, column in fields.items()},
            on_bad_example=spec.datasets.on_bad_example,
            max_examples=max_examples,
            seed=spec.seed,
        )
    planted = source.planted
    found = planted_questions(
        _PLANTED,
        shortcut=planted.shortcut,
        strength=planted.strength,
        n_questions=planted.questions,
        seed=10 * spec.seed + _SEEDS[role],
    )
    notes = [note.replace(f"{_PLANTED}: ", f"{name}: ", 1) for note in found.notes]
    return replace(found, name=name, notes=notes)


def read_training(spec: specs.QaBiasSpec, train: specs.QaTrainSpec, asked: Mapping[str, QuestionSet]) -> TrainingInputs:
    """Return what training starts from; ``asked`` are the sets that the run measures, by name.

    Raises:
        InputError: all that is wrong with files, bases and settings, in one message.
    """
    problems = Problems()
    sets: list[tuple[str, QuestionSet]] = []
    for role, sources in (("train", train.data), ("validation", train.validation)):
        for name, source in sources.items():
            with problems.noted():
                # A set for validation that the run measures, and not a part of it.
                is_asked = role == "validation" and name in asked and spec.datasets.max_examples is None
                if is_asked and not isinstance(source, specs.GeneratedSpec):
                    sets.append((role, asked[name]))
                    continue
                try:
                    sets.append((role, read_source(spec, source, name, role)))
                except InputError as error:
                    raise InputError(f"train.{'data' if role == 'train' else role}.{name}: {error}") from error
    with problems.noted():
        check_deepspeed(reader_recipe(train, train.bases[0], "standard", train.seeds[0]))
    training = [questions for role, questions in sets if role == "train"]
    if (
        train.bias_model.predictions is not None
        and any(own in specs.GUIDED for own in train.methods)
        and len(training) == len(train.data)
    ):
        ids = [question.example_id for questions in training for question in questions.questions]
        with problems.noted():
            check_logits_file(train.bias_model.predictions, train.biases, ids)
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    shapes = []
    for base in train.bases:
        with problems.noted():
            shapes.append(_shape(spec, base))
            counts[base.name] = {questions.name: _counted(spec, train, base, questions) for questions in training}
    problems.refuse()
    readers = readers_of(train)
    steps = [_n_steps(train, reader, counts[reader.base][reader.data][0]) for reader in readers]
    notes = [note for _, questions in sets for note in questions.notes]
    measured_sets = list(map(id, asked.values()))
    validation = [own for role, own in sets if role == "validation" and id(own) not in measured_sets]
    notes += _overlaps(training, [*asked.values(), *validation])
    if deciding := [own.name for role, own in sets if role == "validation" and id(own) in measured_sets]:
        notes.append(
            f"{', '.join(deciding)}: decides which step's weights are kept, and is measured, as in the paper: its "
            "numbers are of questions that this choice saw"
        )
    return TrainingInputs(
        sets=sets,
        readers=readers,
        n_windows={base: {data: n for data, (n, _) in own.items()} for base, own in counts.items()},
        tokens={base: {data: tokens for data, (_, tokens) in own.items()} for base, own in counts.items()},
        tfidf_weights=_tfidf_weights(spec, train, training),
        steps=steps,
        cost=_cost(spec, train, shapes, readers, steps, counts),
        reading_flops=_reading_flops(train, sets, asked, shapes, list(zip(readers, steps, strict=True)), counts),
        notes=notes,
    )


def write_training(run: Run, inputs: TrainingInputs, part_questions: int) -> dict[str, Any]:
    """Write the questions of training and validation in parts, and return what ``plan.json`` says of them."""
    parts: list[dict[str, Any]] = []
    for role, questions in inputs.sets:
        rows = question_rows(questions, "train" if role == "train" else "validation")
        for start in range(0, rows.num_rows, part_questions):
            part = rows.slice(start, part_questions)
            run.write_part("qa_training_examples", len(parts), part)
            parts.append({"part": len(parts), "role": role, "dataset": questions.name, "n_questions": part.num_rows})
    return {
        "training_parts": parts,
        "training": {
            "n_windows": inputs.n_windows,
            "tokens": inputs.tokens,
            "steps": list(inputs.steps),
            "tfidf_weights": inputs.tfidf_weights,
            "notes": list(inputs.notes),
        },
        "readers": [reader.name for reader in measured(inputs.readers)],
    }


def training_lines(
    train: specs.QaTrainSpec, inputs: TrainingInputs, execution: specs.ExecutionSpec
) -> list[tuple[str, str]]:
    """Return the lines of a plan about training: readers in order, their steps and costs."""
    lines = [
        (f"questions, {questions.name} ({role})", f"{len(questions.questions):,}") for role, questions in inputs.sets
    ]
    for base, by_data in inputs.n_windows.items():
        for data, n_windows in by_data.items():
            lines.append((f"windows, {base} on {data}", f"{n_windows:,} ({inputs.tokens[base][data]:,} tokens)"))
    by_method: dict[str, list[int]] = {}
    for reader, steps in zip(inputs.readers, inputs.steps, strict=True):
        by_method.setdefault(reader.method, []).append(steps)
    for method, own in by_method.items():  # in the order in which they are trained
        what = "bias models" if method == BIAS_MODEL else method
        lines.append((what, f"{len(own):,} to train, at most {max(own):,} steps each, {sum(own):,} together"))
    lines.append(("passes for logits of guides", f"{len(guides_of(train)):,}"))
    lines.append(("FLOPs of steps, at most", f"{inputs.cost.flops:.3g}"))
    lines += [(f"FLOPs of {name}, about", f"{flops:.3g}") for name, flops in inputs.reading_flops.items()]
    flops = inputs.cost.flops + sum(inputs.reading_flops.values())
    lines += cost_lines("FLOPs, all together", flops, execution)
    disk = sum(
        4 * shape.n_parameters * sum(reader.base == base.name for reader in inputs.readers)
        for base, shape in zip(train.bases, inputs.cost.shapes, strict=True)
    )
    logits = 8 * sum(inputs.tokens[guide.base][guide.data] for guide in guides_of(train))
    windows = 5 * sum(tokens for own in inputs.tokens.values() for tokens in own.values())
    largest = max(shape.n_parameters for shape in inputs.cost.shapes)
    lines += [
        ("disk, trained models", _bytes(disk)),
        ("disk, windows and logits", f"{_bytes(windows + logits)}, before compression"),
        ("disk, checkpoints", f"up to {_bytes(_CHECKPOINT_BYTES * largest)} for each that is trained at a time"),
    ]
    return lines


def _shape(spec: specs.QaBiasSpec, base: specs.QaBaseSpec) -> ModelShape:
    from biaseval.models import ModelSource, check_encoder, describe_reader

    source = ModelSource.of(base)
    try:
        check_encoder(source)
        facts = describe_reader(source, "extractive", has_weights=False)
        if facts.window is not None and spec.windows.max_tokens > facts.window:
            raise InputError(
                f"windows.max_tokens: {spec.windows.max_tokens}; {source.path} takes {facts.window} tokens, lower it"
            )
    except InputError as error:
        raise InputError(f"train.bases: {base.name}: {error}") from error
    return ModelShape(base.name, facts.n_parameters, facts.hidden_size, facts.n_layers, ())


def _counted(
    spec: specs.QaBiasSpec, train: specs.QaTrainSpec, base: specs.QaBaseSpec, questions: QuestionSet
) -> tuple[int, int]:
    """Return the windows of a training set, and the tokens that are read of them: padding, too, where it takes part."""
    from biaseval.models import ModelSource
    from biaseval.qa_models import count_windows

    try:
        n_windows, tokens = count_windows(
            ModelSource.of(base), questions.questions, max_tokens=spec.windows.max_tokens, stride=spec.windows.stride
        )
    except InputError as error:
        raise InputError(f"train.bases: {base.name} on {questions.name}: {error}") from error
    return n_windows, tokens if train.mask_padding else n_windows * spec.windows.max_tokens


def _n_steps(train: specs.QaTrainSpec, reader: Reader, n_windows: int) -> int:
    own = train.steps_of(reader.method)
    if own is not None:
        return own
    # Resampled questions are at most twice as many.
    n_rows = n_windows * (2 if reader.method == "resample" else 1)
    steps = train.epochs * math.ceil(n_rows / (train.batch_size * train.accumulation))
    return steps if train.max_steps is None else min(steps, train.max_steps)


def _cost(
    spec: specs.QaBiasSpec,
    train: specs.QaTrainSpec,
    shapes: list[ModelShape],
    readers: Sequence[Reader],
    steps: Sequence[int],
    counts: Mapping[str, Mapping[str, tuple[int, int]]],
) -> TrainingCost:
    recipe = reader_recipe(train, train.bases[0], "standard", train.seeds[0])
    parameters = {shape.name: shape.n_parameters for shape in shapes}
    flops = 0
    for reader, n_steps in zip(readers, steps, strict=True):
        n_windows, tokens = counts[reader.base][reader.data]
        per_step = tokens / max(1, n_windows) * train.batch_size * train.accumulation
        flops += training_flops(parameters[reader.base], round(per_step * n_steps), recipe)
    return cost_of(shapes, recipe, row_tokens=spec.windows.max_tokens, flops=flops)


def _reading_flops(
    train: specs.QaTrainSpec,
    sets: Sequence[tuple[str, QuestionSet]],
    asked: Mapping[str, QuestionSet],
    shapes: Sequence[ModelShape],
    readers: Sequence[tuple[Reader, int]],
    counts: Mapping[str, Mapping[str, tuple[int, int]]],
) -> dict[str, int]:
    """Return what reading without training costs; all questions are taken to be as long as those of training."""
    parameters = {shape.name: shape.n_parameters for shape in shapes}
    sizes = {questions.name: len(questions.questions) for role, questions in sets if role == "train"}
    most = train.evaluation_questions
    deciding = {questions.name: len(questions.questions) for role, questions in sets if role == "validation"}
    others = {name: len(own.questions) for name, own in asked.items() if name not in deciding}
    n_deciding, n_others = (
        sum(number if most is None else min(number, most) for number in own.values()) for own in (deciding, others)
    )
    found = {"evaluations": 0.0, "guides": 0.0, "answers": 0.0}
    for reader, steps in readers:
        per_question = counts[reader.base][reader.data][1] / max(1, sizes[reader.data])
        a_question = 2 * parameters[reader.base] * per_question
        n_evaluations = math.ceil(steps / train.evaluation_steps)
        n_asked = n_deciding + (n_others if train.evaluate_others and reader.is_measured else 0)
        found["evaluations"] += n_evaluations * n_asked * a_question
        if reader.is_measured:
            found["answers"] += sum(len(own.questions) for own in asked.values()) * a_question
    for guide in guides_of(train):
        if guide.source == "reader":
            found["guides"] += 2 * parameters[guide.base] * counts[guide.base][guide.data][1]
    return {name: round(flops) for name, flops in found.items()}


def _overlaps(training: Sequence[QuestionSet], asked: Iterable[QuestionSet]) -> list[str]:
    """Return notes on questions that are both trained on and measured: such results do not show generalisation."""
    notes = []
    for questions in training:
        known = {(own.question, own.context): own.example_id for own in questions.questions}
        for other in asked:
            if shared := [own.example_id for own in other.questions if (own.question, own.context) in known]:
                named = ", ".join(shared[:_N_NAMED])
                notes.append(
                    f"{len(shared):,} of {len(other.questions):,} questions of {other.name} are trained on, too "
                    f"({questions.name}; first: {named})"
                )
    return notes


def _tfidf_weights(
    spec: specs.QaBiasSpec, train: specs.QaTrainSpec, training: Sequence[QuestionSet]
) -> dict[str, float]:
    if not (train.bias_model.tfidf and guides_of(train)):
        return {}
    from biaseval.qa_bias.heuristics.text import load_text
    from biaseval.qa_bias.tfidf_bias import SentenceCosines, fitted_weight

    cosines = SentenceCosines(load_text(spec.text.nltk_data))
    return {
        questions.name: fitted_weight(
            cosines, [(own.question, own.context, own.answer_starts[0]) for own in questions.questions]
        )
        for questions in training
    }


def _bytes(number: float) -> str:
    return f"{number / 2**30:.2f} GiB" if number >= 2**28 else f"{number / 2**20:.1f} MiB"
