"""Runs of QA models: reading the questions, answering and measuring what is missing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.claim import as_json, file_digests, read_plan
from biaseval.progress import say, scoring_progress
from biaseval.qa_bias.attributes import attributes
from biaseval.qa_bias.data import QuestionSet, question_rows, read_questions
from biaseval.qa_bias.heuristics import HEURISTICS, resources_of
from biaseval.qa_bias.predictions import read_predictions
from biaseval.qa_bias.similarity import Tfidf
from biaseval.qa_bias.user_heuristics import source_digest
from biaseval.spec import QaBiasSpec, QaModelSpec, dump_spec
from biaseval.store import Run
from biaseval.tables import QA_PREDICTIONS, TABLES

if TYPE_CHECKING:
    from biaseval.execute.questions import DonePart, QuestionsPart

_PART_QUESTIONS = 512
_TFIDF = "qa_tfidf"
_COUNTERS = ("n_tokens", "n_padded_tokens", "search_s")
"""Facts of a reader that grow with each part."""

Role = Literal["in_distribution", "out_of_distribution"]


@dataclass(frozen=True)
class ModelPlan:
    """What a model is going to read."""

    name: str
    n_questions: int
    n_parameters: int | None
    """None for predictions from elsewhere."""
    n_windows: int | None
    """Parts of contexts that are read; None for models that write their answers, and for predictions."""
    tokens: int | None
    """Of all windows; None as above."""


@dataclass(frozen=True)
class QuestionsPlan:
    """What a run is going to measure, in numbers."""

    datasets: dict[str, int]
    """Questions of each."""
    models: list[ModelPlan]
    notes: list[str]
    """What a reader of the results should know, in words."""


@dataclass(frozen=True)
class QuestionsInputs:
    """What planning starts from, validated; no weights are loaded for it."""

    sets: dict[str, tuple[QuestionSet, Role]]
    train: QuestionSet | None
    plan: QuestionsPlan
    sha256: dict[str, str]
    """Of the input files, by key of the spec."""
    text: dict[str, Any]
    """Where sentences, words, entities and subjects come from."""


def read_questions_inputs(spec: QaBiasSpec) -> QuestionsInputs:
    """Return what planning starts from; loads tokenizers and no weights.

    Raises:
        InputError: questions, predictions, tokenizers, text data or heuristics that cannot be used.
    """
    text = text_sources(spec)
    roles: dict[Role, dict[str, str]] = {
        "in_distribution": spec.datasets.in_distribution,
        "out_of_distribution": spec.datasets.out_of_distribution,
    }
    sets = {name: (_read(spec, uri, name), role) for role, uris in roles.items() for name, uri in uris.items()}
    _refuse_small_sets(spec, sets)
    for heuristic in set(spec.heuristics) - set(HEURISTICS):
        first = question_rows(next(iter(sets.values()))[0], "in_distribution").slice(0, 1)
        attributes(first, [heuristic], variant=spec.variant)  # fails now rather than in a worker
    train = None
    notes = [note for questions, _ in sets.values() for note in questions.notes]
    if "tfidf" in resources_of(spec.heuristics):
        if spec.datasets.train is not None:
            train = read_questions(spec.datasets.train, name="train", on_bad_example=spec.datasets.on_bad_example)
            notes += train.notes
        else:
            first = next(iter(spec.datasets.in_distribution))
            notes.append(
                f"cos_sim: datasets.train is not given, so document frequencies come from the contexts of {first}; the "
                "published values need those of SQuAD's training questions"
            )
    notes += [f"{name}: approximate ({source['name']})" for name, source in text.items() if source["is_approximate"]]
    models = [_model_plan(spec, model, sets, notes) for model in spec.models]
    return QuestionsInputs(
        sets=sets,
        train=train,
        plan=QuestionsPlan({name: len(own.questions) for name, (own, _) in sets.items()}, models, notes),
        sha256=file_digests(spec),
        text=text,
    )


def write_questions_plan(run: Run, spec: QaBiasSpec, inputs: QuestionsInputs) -> None:
    """Write the questions in Parquet parts; ``plan.json`` comes last and says that they are complete."""
    from biaseval.models import fingerprint_model

    environment = {
        **describe_environment(),
        "seed": spec.seed,
        "models": {
            model.name: fingerprint_model(model.path, revision=model.revision, adapter=model.adapter)
            for model in spec.models
            if model.path is not None
        },
        "inputs": inputs.sha256,
        "data": {},
        "text": inputs.text,
    }
    # First of all: it is what tells a run from other people's files.
    run.write_text("environment.json", as_json(environment))
    run.write_text("spec.yaml", dump_spec(spec))
    for table in (*TABLES, _TFIDF):
        run.delete(table)
    say(f"planning {sum(inputs.plan.datasets.values()):,} questions")
    asked = spec.execution.part_rows
    n_rows = _PART_QUESTIONS if asked == "auto" else asked
    parts: list[dict[str, Any]] = []
    for questions, role in inputs.sets.values():
        rows = question_rows(questions, role)
        for start in range(0, rows.num_rows, n_rows):
            part = rows.slice(start, n_rows)
            run.write_part("qa_examples", len(parts), part)
            parts.append({"part": len(parts), "dataset": questions.name, "n_questions": part.num_rows})
    if "tfidf" in resources_of(spec.heuristics):
        first = next(iter(spec.datasets.in_distribution))
        fitted_on = inputs.train if inputs.train is not None else inputs.sets[first][0]
        run.write_part(_TFIDF, 0, Tfidf.fit([question.context for question in fitted_on.questions]).to_table())
    # The plan's final name is what says that planning is complete.
    run.write_text("plan.json", as_json({**asdict(inputs.plan), "n_parts": len(parts), "parts": parts}))


def answer_and_measure_missing(run: Run, spec: QaBiasSpec) -> None:
    """Write the parts of ``qa_predictions`` and ``qa_attributes`` that a planned run lacks.

    Part p of the questions becomes part p of the attributes, and part m * n_parts + p of the predictions of model m.

    Raises:
        InputError, BiasevalError: see `biaseval.execute.questions`.
    """
    from biaseval.execute.cluster import connected
    from biaseval.execute.questions import QuestionsPart, answer_parts, measure_parts

    plan = read_plan(run)
    sizes = [part["n_questions"] for part in plan["parts"]]
    n_parts = plan["n_parts"]

    def missing(table: str, first: int) -> list[QuestionsPart]:
        done = run.parts(table)
        return [QuestionsPart(part, first + part, size) for part, size in enumerate(sizes) if first + part not in done]

    answers = {number: missing("qa_predictions", number * n_parts) for number in range(len(spec.models))}
    attributes = missing("qa_attributes", 0)
    if not attributes and not any(answers.values()):
        say(f"all {sum(sizes):,} questions are answered and measured already")
        return
    for number, model in enumerate(spec.models):
        if model.path is None:
            _write_given(run, model, answers.pop(number))
    if attributes or any(answers.values()):
        with connected(spec.execution) as is_local:
            # What costs least comes first: a heuristic of the user's that fails does so before hours of models.
            done = measure_parts(
                run, attributes, spec.heuristics, spec.variant, spec.text, spec.execution, is_local=is_local
            )
            _follow("heuristics: measured", sizes, attributes, done)
            for number, parts in answers.items():
                model = spec.models[number]
                done = answer_parts(run, parts, model, spec.windows, spec.execution, is_local=is_local)
                _follow(f"{model.name}: answered", sizes, parts, done, partial(_record, run, model.name))
    still = n_missing_parts(run, plan, len(spec.models))
    if still:
        raise BiasevalError(f"{run.uri}: {still} parts are missing; run the same command again to make them")


def n_missing_parts(run: Run, plan: Mapping[str, Any], n_models: int) -> int:
    """Return how many parts of attributes and predictions a planned run lacks."""
    n_parts = plan["n_parts"]
    return len(run.missing_parts("qa_attributes", n_parts)) + len(
        run.missing_parts("qa_predictions", n_parts * n_models)
    )


def n_missing_rows(run: Run, plan: Mapping[str, Any], n_models: int) -> int:
    """Return how many rows those parts have."""
    n_parts = plan["n_parts"]
    missing = [
        *run.missing_parts("qa_attributes", n_parts),
        *run.missing_parts("qa_predictions", n_parts * n_models),
    ]
    return sum(plan["parts"][part % n_parts]["n_questions"] for part in missing)


def _read(spec: QaBiasSpec, uri: str, name: str) -> QuestionSet:
    return read_questions(
        uri,
        name=name,
        on_bad_example=spec.datasets.on_bad_example,
        max_examples=spec.datasets.max_examples,
        seed=spec.seed,
    )


def _refuse_small_sets(spec: QaBiasSpec, sets: Mapping[str, tuple[QuestionSet, Role]]) -> None:
    """Make sure that some in-distribution set can be cut into two groups of the sample's size.

    Raises:
        InputError: none can.
    """
    sample = spec.bootstrap.sample
    sizes = {name: len(own.questions) for name, (own, role) in sets.items() if role == "in_distribution"}
    if max(sizes.values()) < 2 * sample:
        shown = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
        raise InputError(
            f"bootstrap.sample: {sample} of each of two groups need {2 * sample:,} questions and {shown}; lower it, or "
            "give more questions"
        )


def refuse_other_sources(run: Run, spec: QaBiasSpec) -> None:
    """Make sure that what is still to be measured is measured as the rest was.

    Raises:
        InputError: text data, a spaCy pipeline, a library or a user's heuristic is another than when the run was
            planned.
    """
    recorded = run.read_json("environment.json")["text"]
    found = text_sources(spec)
    changed = [name for name in (*recorded, *found) if recorded.get(name) != found.get(name)]
    if changed:
        raise InputError.of(
            [
                f"{name}: {found.get(name)} is not what {run.uri} was planned with ({recorded.get(name)}); restore it, "
                "or choose another --run-dir"
                for name in dict.fromkeys(changed)
            ]
        )


def text_sources(spec: QaBiasSpec) -> dict[str, Any]:
    """Return what the heuristics' values depend on beside the questions, having tried that it is there."""
    from biaseval.qa_bias.annotation import load_annotator
    from biaseval.qa_bias.text import load_text

    needed = resources_of(spec.heuristics)
    sources: dict[str, Any] = {}
    if "text" in needed:
        sources["sentences and words"] = load_text(spec.text.nltk_data)
    if "annotator" in needed:
        sources["entities and subjects"] = load_annotator(spec.text.spacy, spec.heuristics)
    described: dict[str, Any] = {
        name: {"name": source.name, "is_approximate": source.is_approximate, "version": source.version}
        for name, source in sources.items()
    }
    for heuristic in sorted(set(spec.heuristics) - set(HEURISTICS)):
        described[heuristic] = {
            "name": "a function of the user's",
            "is_approximate": False,
            "version": source_digest(heuristic),
        }
    return described


def _model_plan(
    spec: QaBiasSpec, model: QaModelSpec, sets: Mapping[str, tuple[QuestionSet, Role]], notes: list[str]
) -> ModelPlan:
    """Return what a model reads; adds to the notes what its predictions lack."""
    if model.predictions is not None:
        n_questions = 0
        for name, uri in model.predictions.items():
            ids = [question.example_id for question in sets[name][0].questions]
            found, said = read_predictions(uri, ids, on_missing=model.on_missing)
            n_questions += len(found)
            # Where the file lies must not show in what is the same for the same file.
            notes += [f"{model.name}: {note.replace(uri, Path(uri).name)}" for note in said]
        return ModelPlan(model.name, n_questions, None, None, None)
    from biaseval.models import describe_reader, untrained_head
    from biaseval.reading import count_windows

    path, max_tokens = str(model.path), spec.windows.max_tokens
    questions = [question for own, _ in sets.values() for question in own.questions]
    try:
        facts = describe_reader(
            path, revision=model.revision, trust_remote_code=model.trust_remote_code, answers=model.answers
        )
        if model.answers == "generative":
            return ModelPlan(model.name, len(questions), facts.n_parameters, None, None)
        # An adapter may bring the head; loading finds out.
        if facts.missing and not model.allow_untrained_head and model.adapter is None:
            raise untrained_head(path, facts.missing)
        if facts.window is not None and max_tokens > facts.window:
            raise InputError(f"windows.max_tokens: {max_tokens}; {path} takes {facts.window} tokens, lower it")
        n_windows, tokens = count_windows(
            path,
            [(question.question, question.context) for question in questions],
            [question.example_id for question in questions],
            revision=model.revision,
            trust_remote_code=model.trust_remote_code,
            max_tokens=max_tokens,
            stride=spec.windows.stride,
        )
    except InputError as error:
        raise InputError(f"{model.name}: {error}") from error
    return ModelPlan(model.name, len(questions), facts.n_parameters, n_windows, tokens)


def _write_given(run: Run, model: QaModelSpec, parts: Iterable[QuestionsPart]) -> None:
    """Write the predictions that a file holds, with their exact match and F1; no part of another data set has rows."""
    from biaseval.execute.questions import prediction_rows

    found: dict[str, dict[str, str]] = {}
    for part in parts:
        examples = run.read_part("qa_examples", part.part)
        dataset = examples["dataset"][0].as_py()
        uri = (model.predictions or {}).get(dataset)
        if dataset not in found:
            found[dataset] = _given(run, dataset, uri, model) if uri is not None else {}
        texts = found[dataset]
        answered = examples.filter(pa.array([name in texts for name in examples["example_id"].to_pylist()], pa.bool_()))
        names = answered["example_id"].to_pylist()
        answers = pa.table(
            {
                "example_id": pa.array(names, pa.string()),
                "prediction": pa.array([texts[name] for name in names], pa.string()),
                "score": pa.nulls(len(names), QA_PREDICTIONS.schema.field("score").type),
                "n_best": pa.array([[]] * len(names), QA_PREDICTIONS.schema.field("n_best").type),
            }
        )
        run.write_part("qa_predictions", part.output, prediction_rows(model.name, answered, answers))


def _given(run: Run, dataset: str, uri: str, model: QaModelSpec) -> dict[str, str]:
    """Return the predictions of a file for a data set of the run, which the plan has found to be whole."""
    examples = run.read_table("qa_examples")
    ids = examples.filter(pc.equal(examples["dataset"], dataset))["example_id"].to_pylist()
    return read_predictions(uri, ids, on_missing=model.on_missing)[0]


def _follow(
    verb: str,
    sizes: list[int],
    parts: list[QuestionsPart],
    done: Iterable[DonePart],
    on_facts: Callable[[dict[str, Any]], None] = lambda facts: None,
) -> None:
    n_done = sum(sizes) - sum(part.n_questions for part in parts)
    if parts and n_done:
        say(f"resuming: {verb} {n_done:,} of {sum(sizes):,} questions before")
    with scoring_progress(sum(sizes), n_done, verb) as progress:
        for part in done:
            progress.advance(part.n_questions, 0)
            on_facts(part.facts)


def _record(run: Run, model: str, facts: dict[str, Any]) -> None:
    """Note in ``environment.json`` how a model was run."""
    facts = {name: fact for name, fact in facts.items() if name not in _COUNTERS}
    environment = run.read_json("environment.json")
    readers = environment.setdefault("readers", {})
    if readers.get(model) != facts:
        readers[model] = facts
        run.write_text("environment.json", as_json(environment))
