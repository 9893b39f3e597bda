"""What a QA-bias run is going to read, in numbers, and what a plan says of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from biaseval.errors import InputError
from biaseval.pipelines.cost_lines import costs, price_lines, reference_hours
from biaseval.pipelines.kind import Description
from biaseval.pipelines.qa.training_plan import TrainingInputs, training_lines
from biaseval.prompting.power import CHANGED, EXACT_MATCH, FAMILY_FACTOR, smallest_detectable, smallest_gap
from biaseval.qa_bias.data import QuestionSet, Role
from biaseval.qa_bias.predictions import are_of_annotators, read_predictions
from biaseval.spec import QaBiasSpec, QaModelSpec


@dataclass(frozen=True)
class ModelPlan:
    """What a model is going to read."""

    name: str
    n_questions: int
    n_parameters: int | None = None
    """None for predictions from elsewhere."""
    n_windows: int | None = None
    """Parts of contexts that are read; None for models that write their answers, and for predictions."""
    tokens: int | None = None
    """Of all windows; None as above."""


@dataclass(frozen=True)
class QuestionsPlan:
    """What a run is going to measure, in numbers."""

    datasets: dict[str, int]
    """Questions of each."""
    models: list[ModelPlan]
    notes: list[str]
    """What a reader of the results should know, in words."""


def model_plan(
    spec: QaBiasSpec, model: QaModelSpec, sets: Mapping[str, tuple[QuestionSet, Role]], notes: list[str]
) -> ModelPlan:
    """Return what a model reads of the sets that could be read; adds to the notes what its predictions lack."""
    if model.predictions is not None:
        n_questions = 0
        for name, uri in model.predictions.items():
            if name not in sets:
                continue
            ids = [question.example_id for question in sets[name][0].questions]
            found, said = read_predictions(uri, ids, on_missing=model.on_missing)
            n_questions += len(found)
            # The path of the file must not appear in facts about its content.
            notes += [f"{model.name}: {note.replace(uri, Path(uri).name)}" for note in said]
        return ModelPlan(model.name, n_questions)
    if model.annotators:
        n_questions = 0
        for name, (own, _) in sets.items():
            several = sum(len(question.answers) > 1 for question in own.questions)
            if are_of_annotators([question.answers for question in own.questions]):
                n_questions += several
            elif several:
                notes.append(
                    f"{model.name}: {name} lists no answer twice: alternatives, not several people's; left out"
                )
        if not n_questions and len(sets) == len(spec.datasets.in_distribution) + len(spec.datasets.out_of_distribution):
            raise InputError(
                f"{model.name}: no set has answers of several people, some of whom say the same; leave it out"
            )
        notes.append(f"{model.name}: people's second answers, scored against the others, of questions with several")
        return ModelPlan(model.name, n_questions)
    from biaseval.models import ModelSource, describe_reader, untrained_head
    from biaseval.qa_models import count_windows

    source, max_tokens = ModelSource.of(model), spec.windows.max_tokens
    questions = [question for own, _ in sets.values() for question in own.questions]
    try:
        facts = describe_reader(source, model.answers)
        if model.answers == "generative":
            return ModelPlan(model.name, len(questions), facts.n_parameters)
        # An adapter may bring the head; loading finds out.
        if facts.missing and not model.allow_untrained_head and model.adapter is None:
            raise untrained_head(source.path, facts.missing)
        if facts.window is not None and max_tokens > facts.window:
            raise InputError(f"windows.max_tokens: {max_tokens}; {source.path} takes {facts.window} tokens, lower it")
        n_windows, tokens = count_windows(source, questions, max_tokens=max_tokens, stride=spec.windows.stride)
    except InputError as error:
        raise InputError(f"{model.name}: {error}") from error
    return ModelPlan(model.name, len(questions), facts.n_parameters, n_windows, tokens)


def describe_questions(spec: QaBiasSpec, plan: QuestionsPlan, training: TrainingInputs | None) -> Description:
    """Return the description for `biaseval plan`: questions, tokens per model, detectable bias, trainings."""
    lines = [(f"questions, {name}", f"{n_questions:,}") for name, n_questions in plan.datasets.items()]
    for model in plan.models:
        answered = f"{model.n_questions:,} questions"
        if model.n_parameters is None:
            lines.append((f"model {model.name}", f"predictions for {answered}"))
            continue
        words = [answered, f"{model.n_parameters:,} parameters"]
        if model.tokens is not None:
            flops = 2 * model.n_parameters * model.tokens
            words += [f"{model.n_windows:,} windows", f"{model.tokens:,} tokens", f"{flops:.3g} FLOPs"]
        lines.append((f"model {model.name}", ", ".join(words)))
    flops_of_all = sum(2 * (own.n_parameters or 0) * (own.tokens or 0) for own in plan.models)
    if flops_of_all:
        lines += price_lines(flops_of_all, spec.execution)
    detectable = {name: smallest_detectable(1, n_questions) for name, n_questions in plan.datasets.items()}
    found = "; ".join(f"{100 * smallest:.1f} points of exact match on {name}" for name, smallest in detectable.items())
    gaps = {
        name: smallest_gap(n_questions, spec.bootstrap.sample, replacement=spec.bootstrap.replacement)
        for name, n_questions in plan.datasets.items()
    }
    shown_gaps = "; ".join(
        f"none on {name} (fewer questions than two samples)"
        if gap is None
        else f"a gap of {100 * gap:.1f} points of exact match on {name}"
        for name, gap in gaps.items()
    )
    lines += [
        ("smallest change found", f"{found}, in four of five such runs"),
        (
            "",
            f"if two models answer {CHANGED:.0%} of the questions otherwise, these being independent; by one test "
            f"alone, and by those of a whole page if it is {FAMILY_FACTOR} times as large",
        ),
        ("smallest bias found", f"{shown_gaps}, in four of five such runs"),
        (
            "",
            f"if {EXACT_MATCH:.0%} of the answers are exact and a given threshold halves the questions, which are "
            "independent; a search takes larger gaps for noise",
        ),
    ]
    notes = [f"note: {note}" for note in plan.notes]
    facts = {
        **asdict(plan),
        "gpu_hours_at_100_tflops": reference_hours(flops_of_all),
        "costs": costs(flops_of_all, spec.execution),
        "smallest_detectable": detectable,
        "smallest_gap": gaps,
    }
    if spec.train is None or training is None:
        return Description(lines, notes, facts)
    facts["training"] = {
        "readers": [
            {"name": reader.name, "method": reader.method, "bias": reader.bias, "steps": steps}
            for reader, steps in zip(training.readers, training.steps, strict=True)
        ],
        "n_windows": training.n_windows,
        "tokens": training.tokens,
        "flops": {"steps": training.cost.flops, **training.reading_flops},
    }
    return Description(lines, notes, facts, training_lines(spec.train, training, spec.execution), training.cost)
