"""The kind qa_bias: do QA models answer by shortcut (P3)?

Part p of the questions becomes part p of the attributes, and part m * n_parts + p of the predictions of model m.
Models that the run trains have higher numbers than the models of the spec.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from typing import Any, cast

import pyarrow.compute as pc

from biaseval.analysis.qa_chance import derive_chance, derive_changes
from biaseval.analysis.qa_draws import derive_qa_bias
from biaseval.errors import BiasevalError, InputError, Problems, refuse
from biaseval.pipelines.directory import read_plan, read_spec
from biaseval.pipelines.kind import Deferred, Kind, Need, Plan, Stage, Trained
from biaseval.pipelines.qa.biased_segments import SEGMENT_KEYS, segment_problems
from biaseval.pipelines.qa.plan import QuestionsPlan, describe_questions, model_plan
from biaseval.pipelines.qa.stages import answering_stage, measuring_stage
from biaseval.pipelines.qa.trained_models import READERS, answers_of, measured, readers_of
from biaseval.pipelines.qa.training_plan import TrainingInputs, read_source, read_training, write_training
from biaseval.pipelines.qa.training_stages import TrainingStages, trained_rows
from biaseval.qa_bias.data import QuestionSet, Role, question_rows
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.qa_bias.heuristics.built_in import HEURISTICS, annotated, resources_of
from biaseval.qa_bias.heuristics.similarity import Tfidf
from biaseval.qa_bias.heuristics.spacy_pipeline import load_annotator, without_pipeline
from biaseval.qa_bias.heuristics.user_heuristics import look_in, meaning_of, source_digest
from biaseval.spec import DataSource, QaBiasSpec, written_breaks
from biaseval.spec.shared_sections import is_among
from biaseval.store import Run, part_name
from biaseval.units import Done, Unit

_PART_QUESTIONS = 512

_PACKAGES = {"text": "nltk", "tfidf": "sklearn", "annotator": "spacy"}
"""What each resource of heuristics is made of."""


@dataclass(frozen=True)
class QuestionsInputs:
    """What planning starts from, validated."""

    sets: dict[str, tuple[QuestionSet, Role]]
    train: QuestionSet | None
    plan: QuestionsPlan
    text: dict[str, Any]
    """Where sentences, words, entities and subjects come from."""
    training: TrainingInputs | None
    """Of the readers that are trained."""

    @property
    def subject(self) -> str:
        """The planned work."""
        asked = f"{sum(self.plan.datasets.values()):,} questions"
        return asked if self.training is None else f"{asked}, and to train {len(self.training.readers):,} readers"

    @property
    def facts(self) -> dict[str, Any]:
        """What ``environment.json`` says of it."""
        return {"data": {}, "text": self.text}


def _read(spec: QaBiasSpec) -> QuestionsInputs:
    problems = Problems()
    problems.found += without_pipeline(spec.text.spacy, spec.heuristics)
    text: dict[str, Any] = {}
    sets: dict[str, tuple[QuestionSet, Role]] = {}
    train = None
    with problems.noted():
        text = _text_sources(spec)
    roles: dict[Role, dict[str, DataSource]] = {
        "in_distribution": spec.datasets.in_distribution,
        "out_of_distribution": spec.datasets.out_of_distribution,
    }
    for role, uris in roles.items():
        for name, uri in uris.items():
            with problems.noted():
                limit = spec.datasets.max_examples
                sets[name] = (read_source(spec, uri, name, "measured", max_examples=limit), role)
    if "tfidf" in resources_of(spec.heuristics) and spec.datasets.train is not None:
        with problems.noted():
            train = read_source(spec, spec.datasets.train, "train", "train")
    if not problems.found:
        with problems.noted():
            inside = {name: own for name, (own, role) in sets.items() if role == "in_distribution"}
            _refuse_small_sets(spec, {name: len(own.questions) for name, own in inside.items()})
        first = question_rows(next(iter(sets.values()))[0], "in_distribution").slice(0, 1)
        for heuristic in set(spec.heuristics) - set(HEURISTICS):
            with problems.noted():
                attributes(first, [heuristic], variant=spec.variant)  # fails now rather than in a worker
    prompts = {f"models.{own.name}.prompt": own.prompt for own in spec.models}
    notes = [*_notes(spec, sets, train), *written_breaks(prompts)]
    notes += [f"{name}: approximate ({own['name']})" for name, own in text.items() if own["is_approximate"]]
    models = []
    for model in spec.models:
        with problems.noted():
            models.append(model_plan(spec, model, sets, notes))
    training = None
    if spec.train is not None:
        with problems.noted():
            training = read_training(spec, spec.train, {name: own for name, (own, _) in sets.items()})
            notes += training.notes
    problems.refuse()
    sizes = {name: len(own.questions) for name, (own, _) in sets.items()}
    plan = QuestionsPlan(sizes, models, list(dict.fromkeys(notes)))
    inputs = QuestionsInputs(sets=sets, train=train, plan=plan, text=text, training=training)
    refuse(_problems(spec, inputs))
    return inputs


def _problems(spec: QaBiasSpec, inputs: QuestionsInputs, key: str = "train.thresholds") -> list[str]:
    if inputs.training is None or not is_among(key, SEGMENT_KEYS):
        return []
    return segment_problems(spec, inputs.training.sets, lambda: _tfidf(inputs.sets, inputs.train))


def _notes(spec: QaBiasSpec, sets: Mapping[str, tuple[QuestionSet, Role]], train: QuestionSet | None) -> list[str]:
    """Return notes about omitted questions and heuristics, and the source of document frequencies."""
    notes = [note for questions, _ in sets.values() for note in questions.notes]
    left_out = annotated(HEURISTICS)
    if spec.text.spacy is None and set(HEURISTICS).difference(spec.heuristics) == {*left_out}:
        notes.append(f"{' and '.join(left_out)} are not measured: they need a spaCy pipeline (text.spacy)")
    if "tfidf" not in resources_of(spec.heuristics):
        return notes
    if train is not None:
        return [*notes, *train.notes]
    first = next(iter(spec.datasets.in_distribution))
    return [
        *notes,
        f"cos_sim: datasets.train is not given, so document frequencies come from the contexts of {first}; the "
        "published values need those of SQuAD's training questions",
    ]


def _write(run: Run, spec: QaBiasSpec, inputs: QuestionsInputs) -> Plan:
    asked = spec.execution.part_rows
    n_rows = _PART_QUESTIONS if asked == "auto" else asked
    parts: list[dict[str, Any]] = []
    for questions, role in inputs.sets.values():
        rows = question_rows(questions, role)
        for start in range(0, rows.num_rows, n_rows):
            part = rows.slice(start, n_rows)
            run.write_part("qa_examples", len(parts), part)
            parts.append({"part": len(parts), "dataset": questions.name, "n_questions": part.num_rows})
    _write_tfidf(run, spec, inputs)
    trained = {} if inputs.training is None else write_training(run, inputs.training, n_rows)
    return {**asdict(inputs.plan), "n_parts": len(parts), "parts": parts, **trained}


def _write_tfidf(run: Run, spec: QaBiasSpec, inputs: QuestionsInputs) -> None:
    if "tfidf" in resources_of(spec.heuristics):
        run.write_part("qa_tfidf", 0, _tfidf(inputs.sets, inputs.train).to_table())


def _tfidf(sets: Mapping[str, tuple[QuestionSet, Role]], train: QuestionSet | None) -> Tfidf:
    """Return the document frequencies of the contexts of ``datasets.train``, or else of the first measured set."""
    fitted_on = train if train is not None else next(iter(sets.values()))[0]
    return Tfidf.fit([question.context for question in fitted_on.questions])


def _extend(run: Run, spec: QaBiasSpec, inputs: QuestionsInputs, plan: Plan) -> Plan:
    """Add models and heuristics: predictions in parts after those of the plan's models, attributes in their own parts.

    Raises:
        InputError: the models of the run do not come first.
    """
    known = [model["name"] for model in plan["models"]]
    if [model.name for model in spec.models][: len(known)] != known:
        raise InputError(f"models: {', '.join(known)} of {run.uri} must stay the first; write new ones after them")
    measured = plan.get("measured", [{"heuristics": cast(QaBiasSpec, read_spec(run)).heuristics, "first": 0}])
    there = {heuristic for own in measured for heuristic in own["heuristics"]}
    if new := [heuristic for heuristic in spec.heuristics if heuristic not in there]:
        measured = [*measured, {"heuristics": new, "first": len(measured) * plan["n_parts"]}]
    if not run.parts("qa_tfidf"):
        _write_tfidf(run, spec, inputs)
    return {**plan, **asdict(inputs.plan), "measured": measured}


def _stages(run: Run, spec: QaBiasSpec, plan: Plan) -> Iterator[Stage]:
    """Yield what costs least first: a heuristic of the user's that fails does so before hours of models."""
    for own in plan.get("measured", [{"heuristics": spec.heuristics, "first": 0}]):
        # In a run that grew, the stages need different names.
        by = {} if own["heuristics"] == spec.heuristics else {"verb": f"measured by {', '.join(own['heuristics'])}"}
        yield measuring_stage(spec, _units(plan, "qa_attributes", count(own["first"])), own["heuristics"], **by)
    answers = answers_of(spec, plan)
    for model in spec.models:
        yield answering_stage(spec, model, _units(plan, "qa_predictions", answers[model.name].values()))
    if spec.train is not None:
        training = TrainingStages(run, spec, spec.train, plan)
        yield from training
        yield from training.answers()


def _derive(run: Run, spec: QaBiasSpec) -> None:
    """Write what SQL reads beside the measurements."""
    trained = []
    if spec.train is not None:
        left_out = _left_out(run, spec)
        trained = [reader.name for reader in measured(readers_of(spec.train)) if reader.name not in left_out]
    derive_qa_bias(run, spec, trained)
    derive_chance(run, spec)
    if trained:
        derive_changes(run, spec.seed)


def _left_out(run: Run, spec: QaBiasSpec) -> Mapping[str, str]:
    """Return the readers that are not there, and why."""
    return {} if spec.train is None else TrainingStages(run, spec, spec.train, read_plan(run)).left_out


def _units(plan: Plan, table: str, numbers: Iterable[int]) -> list[Unit]:
    """Return a unit for each part of the questions, which makes a part of a table, of these numbers."""
    return [
        Unit(part["part"], part["n_questions"], (f"{table}/{part_name(number)}",), part)
        for part, number in zip(plan["parts"], numbers, strict=False)
    ]


def _changes(spec: QaBiasSpec, environment: Mapping[str, Any]) -> list[str]:
    """Return the changed inputs of heuristics: text data, a spaCy pipeline, a library, a user's heuristic."""
    recorded, found = environment["text"], _text_sources(spec)
    changed = [name for name, own in found.items() if _identity(recorded.get(name, {})) != _identity(own)]
    return [f"{name}: changed from {recorded.get(name)} to {found.get(name)}" for name in dict.fromkeys(changed)]


def _identity(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells a source from another; a meaning, which older runs lack, is of the same version."""
    return {key: fact for key, fact in source.items() if key != "meaning"}


def _refuse_analysis(run: Run, spec: QaBiasSpec) -> None:
    """Make sure that the questions that a run has are enough for an analysis; Raises InputError: they are not."""
    rows = run.read_table("qa_examples")
    names = rows.filter(pc.equal(rows["role"], "in_distribution"))["dataset"]
    _refuse_small_sets(spec, Counter(names.to_pylist()))


def _refuse_small_sets(spec: QaBiasSpec, sizes: Mapping[str, int]) -> None:
    """Make sure that some in-distribution set can be cut into two groups of the sample's size."""
    sample = spec.bootstrap.sample
    if max(sizes.values()) < 2 * sample:
        shown = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
        raise InputError(
            f"bootstrap.sample: {sample} of each of two groups need {2 * sample:,} questions and {shown}; lower it to "
            f"{max(sizes.values()) // 2} at most (with bootstrap.replacement where groups are small), or give more"
        )


def _text_sources(spec: QaBiasSpec) -> dict[str, Any]:
    """Return what the heuristics' values depend on beside the questions, having tried that it is there."""
    from biaseval.qa_bias.heuristics.text import load_text

    look_in(spec.text.modules)
    needed = resources_of(spec.heuristics)
    sources: dict[str, Any] = {}
    if "text" in needed:
        sources["sentences and words"] = load_text(spec.text.nltk_data)
    if "annotator" in needed and spec.text.spacy is not None:  # null: rules of an older version made the values
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
            **({"meaning": meaning} if (meaning := meaning_of(heuristic)) else {}),
        }
    return described


_HEADLINE = """
select
    model, {dataset} heuristic, biases.bias_significance as "significance",
    least(lower_exact_match, higher_exact_match) as "worse EM (%)", p_adjusted as p,
    smallest_detectable as "detectable",
    case
        when is_supported and biased_segment = 'lower' then 'better where ≤ ' || printf('%g', biases.threshold)
        when is_supported then 'better where > ' || printf('%g', biases.threshold)
        when biases.bias_significance > 0 and is_supported is null then 'not tested'
        when biases.bias_significance > 0 then 'within chance'
        when biases.bias_significance = 0 and has_few_right(exact_match) then 'too few right'
        when biases.bias_significance = 0 then 'no bias found'
        when biases.status = 'no threshold to try' then 'one value only'
        else biases.status
    end as finding
from qa_bias_by_heuristic as biases
inner join qa_bias_tests using (model, dataset, heuristic)
inner join qa_by_dataset using (model, dataset)
order by model, dataset, heuristic
"""
"""In points. The worse EM is that of the worse group. Four of five such runs find a bias of that size."""

_CHANGES = """
select
    model, dataset, heuristic, qa_debiasing.exact_match as "exact_match (points)", gap as "gap (points)",
    bias_significance as "bias_significance (points)", is_nearly_broken
from qa_debiasing
inner join trained_models using (model)
where is_addressed or qa_debiasing.method = 'standard'
order by trained_models.number, dataset, heuristic
"""


def _headline(spec: QaBiasSpec) -> str:
    """Return the query for the bias of the models; of a study, for the addressed heuristics."""
    if spec.train is not None:
        return _CHANGES
    n_datasets = len({**spec.datasets.in_distribution, **spec.datasets.out_of_distribution})
    return _HEADLINE.format(dataset="dataset," if n_datasets > 1 else "")


def readers_summary(stages: TrainingStages, made: Sequence[Done]) -> Trained:
    """Return what a person reads of the complete readers of a run, and of this process's training."""
    complete = [row for row in trained_rows(stages.run) if row["problem"] is None]
    trained = [done for done in made if "step_seconds" in done.facts]
    n_trained = sum(done.facts["problem"] is None for done in trained)
    lines = [
        ("readers", f"{len(complete):,} of {len(readers_of(stages.train)):,} ({n_trained:,} trained now)"),
        ("steps", f"{sum(row['steps'] for row in complete):,}"),
    ]
    if trained:
        seconds = sum(done.facts["seconds"] for done in trained)
        inside = sum(done.facts["step_seconds"] + done.facts["evaluation_seconds"] for done in trained)
        lines.append(("seconds of trainings", f"{seconds:,.1f}"))
        lines.append(("outside steps, evaluations", f"{1 - inside / seconds:.1%} of them"))
    return Trained(stages.run.uri, READERS, lines, partial(refuse_left_out, stages.run, stages.left_out))


def refuse_left_out(run: Run, left_out: Mapping[str, str]) -> None:
    """Make sure that all readers are there, once all else is made.

    Raises:
        BiasevalError: some were given up; the message says why.
    """
    if left_out:
        lines = "".join(f"\n  - {name}: {why}" for name, why in left_out.items())
        raise BiasevalError(
            f"{run.uri}: {len(left_out)} readers were given up, the others are there; lower the learning rate they "
            "were trained with (train.learning_rate, of bias models train.bias_model.learning_rate) or choose another "
            f"train.precision, in another --run-dir:{lines}"
        )


QA_BIAS = Kind(
    read=_read,
    problems=_problems,
    needs=lambda spec: [
        Need(
            "heuristics need", "qa", tuple(_PACKAGES[own] for own in _PACKAGES if own in resources_of(spec.heuristics))
        )
    ],
    describe=lambda spec, inputs: describe_questions(spec, inputs.plan, inputs.training),
    write=_write,
    extend=_extend,
    stages=_stages,
    changes=_changes,
    refuse_analysis=_refuse_analysis,
    derive=_derive,
    given_up=_left_out,
    refuse_given_up=lambda run, spec: refuse_left_out(run, _left_out(run, spec)),
    page=Deferred("biaseval.report:run_page"),
    headline=_headline,
)
