"""Measures the questions of a QA-bias run and answers them: actors take a part of the questions and write a table.

A part of ``qa_examples`` becomes a part of ``qa_attributes`` and, for each model, one of ``qa_predictions``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from biaseval.errors import BiasevalError
from biaseval.execute.cluster import allocate, answer, as_row, device_of, map_parts, n_cores, quiet_worker
from biaseval.qa_bias.annotation import load_annotator
from biaseval.qa_bias.attributes import attributes
from biaseval.qa_bias.heuristics import resources_of
from biaseval.qa_bias.similarity import Tfidf
from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.qa_bias.text import load_text
from biaseval.spec import ExecutionSpec, QaModelSpec, QaTextSpec, WindowsSpec
from biaseval.store import Run
from biaseval.tables import QA_PREDICTIONS

if TYPE_CHECKING:
    from biaseval.reading import ExtractiveReader, GenerativeReader


_MOST_MEASURING_ACTORS = 8


@dataclass(frozen=True)
class QuestionsPart:
    """A part of the questions, and the part of another table that is to be made of it."""

    part: int
    """Number of the part of ``qa_examples``."""
    output: int
    """Number of the part that is written."""
    n_questions: int


@dataclass(frozen=True)
class DonePart:
    """What came of one part."""

    output: int
    n_questions: int
    facts: dict[str, Any]
    """How the reader worked; empty for attributes."""


def measure_parts(
    run: Run,
    parts: Sequence[QuestionsPart],
    heuristics: Sequence[str],
    variant: str,
    text: QaTextSpec,
    execution: ExecutionSpec,
    *,
    is_local: bool,
) -> Iterator[DonePart]:
    """Compute the heuristics of ``parts`` on CPUs, write ``qa_attributes``, and yield each part as it is complete.

    Args:
        run: the run directory, which every node must reach.
        parts: what to measure.
        heuristics: ids, or ``module:function``.
        variant: ``paper`` or ``reference``.
        text: where sentences, words, entities and subjects come from.
        execution: actors.
        is_local: what `connected` said of the Ray that is there.

    Raises:
        InputError: the text's data or pipeline, or a heuristic of the user's, cannot be used.
        BiasevalError: a worker failed; complete parts stay.
    """
    # Each actor holds a pipeline of its own: more of them would not fit many machines' memory.
    n_actors = min(n_cores(), _MOST_MEASURING_ACTORS) if execution.actors == "auto" else execution.actors
    on_cpus = ExecutionSpec(actors=n_actors, gpus_per_actor=0)
    arguments = {"heuristics": list(heuristics), "variant": variant, "text": text.model_dump()}
    yield from _mapped(run, parts, _MeasuringActor, arguments, on_cpus, is_local=is_local)


def answer_parts(
    run: Run,
    parts: Sequence[QuestionsPart],
    model: QaModelSpec,
    windows: WindowsSpec,
    execution: ExecutionSpec,
    *,
    is_local: bool,
) -> Iterator[DonePart]:
    """Answer the questions of ``parts``, write ``qa_predictions``, and yield each part as it is complete.

    Raises:
        InputError: the model cannot be used, a question does not fit, or Ray lacks the resources asked for.
        BiasevalError: a worker failed; complete parts stay.
    """
    arguments = {"model": model.model_dump(), "windows": windows.model_dump()}
    yield from _mapped(run, parts, _AnsweringActor, arguments, execution, is_local=is_local)


def prediction_rows(model: str, examples: pa.Table, answers: pa.Table) -> pa.Table:
    """Return answers as rows of ``QA_PREDICTIONS``, with their exact match and F1.

    Args:
        model: its name.
        examples: a table of ``QA_EXAMPLES``.
        answers: for each of them, in order: ``example_id``, ``prediction``, ``score``, ``n_best``.
    """
    if answers["example_id"].to_pylist() != examples["example_id"].to_pylist():
        raise BiasevalError(f"{model}: answers came back for other questions than were asked; report this as a mistake")
    pairs = list(zip(answers["prediction"].to_pylist(), examples["answers"].to_pylist(), strict=True))
    return pa.table(
        {
            "model": pa.array([model] * len(pairs), pa.string()),
            "dataset": examples["dataset"],
            "example_id": examples["example_id"],
            "prediction": answers["prediction"],
            "exact_match": pa.array([exact_match(*pair) for pair in pairs], pa.float64()),
            "f1": pa.array([f1(*pair) for pair in pairs], pa.float64()),
            "score": answers["score"],
            "n_best": answers["n_best"],
        },
        schema=QA_PREDICTIONS.schema,
    )


def _mapped(
    run: Run,
    parts: Sequence[QuestionsPart],
    actor: type,
    arguments: dict[str, Any],
    execution: ExecutionSpec,
    *,
    is_local: bool,
) -> Iterator[DonePart]:
    if not parts:
        return
    allocation = allocate(execution, len(parts), is_local=is_local)
    everything = {
        "run_uri": run.uri,
        "arguments": json.dumps(arguments),
        "num_gpus": allocation.num_gpus,
        "n_threads": allocation.n_threads,
    }
    for done in map_parts([asdict(part) for part in parts], actor, everything, allocation):
        yield DonePart(**done)


class _QuestionsActor:
    """Holds what questions are put to; reads a part, and writes what comes of it."""

    def __init__(self, run_uri: str, arguments: str, num_gpus: int, n_threads: int | None) -> None:
        quiet_worker()
        self._run = Run.open(run_uri)
        self._error: str | None = None
        self._make: Callable[[pa.Table], tuple[str, pa.Table, dict[str, Any]]] | None = None
        try:
            self._make = self._load(json.loads(arguments), num_gpus, n_threads)
        except BiasevalError as caught:
            # Ray would start the actor again and again; said with the first part instead.
            self._error = as_row(caught)

    def _load(
        self, arguments: dict[str, Any], num_gpus: int, n_threads: int | None
    ) -> Callable[[pa.Table], tuple[str, pa.Table, dict[str, Any]]]:
        """Return what makes of questions the name of a table, its rows, and facts."""
        raise NotImplementedError

    def __call__(self, batch: pa.Table) -> pa.Table:
        if self._error is not None:
            return pa.table({"done": pa.array([None], pa.string()), "error": pa.array([self._error], pa.string())})
        part = json.loads(batch["part"][0].as_py())
        return answer(lambda: self._written(part))

    def _written(self, part: dict[str, int]) -> dict[str, Any]:
        make = cast("Callable[[pa.Table], tuple[str, pa.Table, dict[str, Any]]]", self._make)
        table, rows, facts = make(self._run.read_part("qa_examples", part["part"]))
        self._run.write_part(table, part["output"], rows)
        return {"output": part["output"], "n_questions": part["n_questions"], "facts": facts}


class _MeasuringActor(_QuestionsActor):
    """Computes heuristics."""

    def _load(
        self, arguments: dict[str, Any], num_gpus: int, n_threads: int | None
    ) -> Callable[[pa.Table], tuple[str, pa.Table, dict[str, Any]]]:
        heuristics, text = arguments["heuristics"], QaTextSpec(**arguments["text"])
        needed = resources_of(heuristics)
        measure = partial(
            attributes,
            heuristics=heuristics,
            variant=arguments["variant"],
            text=load_text(text.nltk_data) if "text" in needed else None,
            annotator=load_annotator(text.spacy, heuristics) if "annotator" in needed else None,
            tfidf=Tfidf.from_table(self._run.read_table("qa_tfidf")) if "tfidf" in needed else None,
        )
        return lambda examples: ("qa_attributes", measure(examples), {})


class _AnsweringActor(_QuestionsActor):
    """Holds a model."""

    def _load(
        self, arguments: dict[str, Any], num_gpus: int, n_threads: int | None
    ) -> Callable[[pa.Table], tuple[str, pa.Table, dict[str, Any]]]:
        import torch

        if n_threads is not None:
            # Ray sets OMP_NUM_THREADS to the actor's logical CPUs, which need not be the cores it may use.
            torch.set_num_threads(n_threads)
        model = QaModelSpec(**arguments["model"])
        reader = load_reader(model, WindowsSpec(**arguments["windows"]), device_of(num_gpus))
        return lambda examples: (
            "qa_predictions",
            prediction_rows(model.name, examples, reader.read(examples)),
            reader.facts(),
        )


def load_reader(model: QaModelSpec, windows: WindowsSpec, device: str) -> ExtractiveReader | GenerativeReader:
    """Return the reader that a model of a spec is.

    Raises:
        InputError: it cannot be loaded as such.
    """
    from biaseval.reading import ExtractiveReader, GenerativeReader

    shared: dict[str, Any] = {
        "revision": model.revision,
        "dtype": model.dtype,
        "device": device,
        "adapter": model.adapter,
        "trust_remote_code": model.trust_remote_code,
    }
    path = cast(str, model.path)
    if model.answers == "generative":
        return GenerativeReader.load(path, **shared, prompt=model.prompt)
    return ExtractiveReader.load(
        path, **shared, **windows.model_dump(), allow_untrained_head=model.allow_untrained_head
    )
