"""Predictions made elsewhere: SQuAD's ``{id: text}``, or rows of ids and texts: a list, lines, or a table."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import BiasevalError, InputError, first_of, refuse
from biaseval.qa_bias.data import first_ids, is_id, is_text
from biaseval.qa_bias.files import whole
from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.records import Records, json_values, read_file
from biaseval.tables import QA_PREDICTIONS

_KNOWN_FORMATS = (
    'predictions are read from JSON {"id": "text", ...}, or from rows of id and prediction_text (or prediction) as '
    "JSON list, JSON lines, CSV, TSV or Parquet, each plain or gzipped"
)
_TABLES = (".csv", ".tsv", ".parquet")
_TEXT_NAMES = ("prediction_text", "prediction")


def read_predictions(
    uri: str, questions: Sequence[str], *, on_missing: Literal["error", "drop"]
) -> tuple[dict[str, str], list[str]]:
    """Return the predictions of a file for the given questions, and notes with counts.

    An empty text is a prediction. A question without a prediction is refused or omitted from the result, so that it is
    never scored.

    Args:
        uri: a local path, or one on an object store.
        questions: the ids that are measured; predictions for others are left out, counted in the notes.
        on_missing: what to do about questions without a prediction; ``drop`` counts them in the notes.

    Returns:
        Id to text, in the order of ``questions``; the notes.

    Raises:
        InputError: the file cannot be read, has none of the formats, has an id twice or a prediction that is no text,
            has nothing for any of the questions, or not for all and ``on_missing`` is ``error``.
    """
    predictions: dict[str, object] = {}
    twice: list[str] = []
    notes: list[str] = []
    for example_id, text in _pairs(uri, notes):
        if example_id in predictions:
            twice.append(example_id)
        predictions[example_id] = text
    no_texts = [example_id for example_id, text in predictions.items() if not is_text(text)]
    problems = []
    if twice:
        ids = list(dict.fromkeys(twice))
        problems.append(f"{uri}: has {_ids(ids)} twice; keep one prediction of each")
    if no_texts:
        problems.append(
            f"{uri}: the prediction of {_ids(no_texts)} is no text; write one string for each (a file of n-best lists "
            "cannot be read)"
        )
    refuse(problems)
    found = {example_id: str(predictions[example_id]) for example_id in questions if example_id in predictions}
    missing = [example_id for example_id in questions if example_id not in predictions]
    if missing and not found:
        own = first_ids([_shown(example_id) for example_id in predictions]) or "none"
        raise InputError(
            f"{uri}: has no prediction for any of the {len(questions):,} questions (its ids: {own}; theirs: "
            f"{first_ids(missing)}); name the file of this set"
        )
    if missing and on_missing == "error":
        raise InputError(
            f"{uri}: has no prediction for {len(missing):,} of {len(questions):,} questions ({first_ids(missing)}); "
            "add them, or leave these questions out for this model with on_missing: drop"
        )
    if missing:
        notes.append(
            f"{uri}: has no prediction for {len(missing):,} of {len(questions):,} questions, which are left out for "
            f"this model ({first_ids(missing)})"
        )
    if unknown := [_shown(example_id) for example_id in predictions if example_id not in found]:
        notes.append(f"{uri}: left out {len(unknown):,} predictions for questions that are not measured")
    return found, notes


def _pairs(uri: str, notes: list[str]) -> Iterator[tuple[str, object]]:
    """Yield the ids and predictions of a file, and add to the notes what should be known of how it is written."""
    problems = []
    for place, row, is_whole in _rows(uri, notes):
        fields = row if isinstance(row, dict) else {}
        name = next((name for name in _TEXT_NAMES if name in fields), None)
        example_id = whole(fields.get("id"))
        if is_id(example_id) and name is not None:
            yield str(example_id), fields[name]
        elif is_whole and isinstance(row, dict) and not (name and "id" in row):
            yield from row.items()
        else:
            problems.append(f"{place}: has no id with a prediction_text or prediction")
    if problems:
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        raise InputError(f"{uri}: {problems[0]}{more}; {_KNOWN_FORMATS}")


def _rows(uri: str, notes: list[str]) -> Iterator[tuple[str, object, bool]]:
    """Yield the rows of a file, each with its place and whether it is all of the file."""
    if uri.lower().removesuffix(".gz").endswith(_TABLES):
        records = Records(uri)
        for place, row in records:
            yield place, row, False
        refuse(first_of(records.problems, f"{uri}: ", "lines", most=11))
        notes += [f"{uri}: {note}" for note in records.notes]
        return
    for place, value in json_values(uri, read_file(uri), known_formats=_KNOWN_FORMATS):
        if isinstance(value, list) and not place:
            yield from ((f"[{index}]", row, False) for index, row in enumerate(value))
        else:
            yield place or "the file", value, not place


def _ids(ids: Sequence[str]) -> str:
    shown = first_ids([_shown(example_id) for example_id in ids])
    return f"the id {shown}" if len(ids) == 1 else f"{len(ids):,} ids ({shown})"


def _shown(example_id: str) -> str:
    return example_id.encode("utf-8", "backslashreplace").decode()


ANSWERS = pa.schema([QA_PREDICTIONS.schema.field(name) for name in ("example_id", "prediction", "score", "n_best")])
"""Of a reader's answers."""


def written_answers(ids: Sequence[str], texts: Sequence[str]) -> pa.Table:
    """Return texts from elsewhere, or that a model wrote, as answers, which have neither score nor alternatives."""
    return pa.table(
        {"example_id": ids, "prediction": texts, "score": [None] * len(ids), "n_best": [[]] * len(ids)}, schema=ANSWERS
    )


def are_of_annotators(answers: Iterable[Sequence[str]]) -> bool:
    """Return whether the answers to each question are those of several people, some of whom say the same.

    Where no question lists an answer twice they are alternatives, all of them right: one scored against the others says
    nothing about people.
    """
    return any(len(set(own)) < len(own) for own in answers)


def annotator_rows(name: str, examples: pa.Table) -> pa.Table:
    """Return the second answer of each question, scored against its others, as rows of ``QA_PREDICTIONS``.

    Rajpurkar et al. 2016 (section 6) measure people so. Questions with one answer have no row.

    Args:
        name: what the rows call the people.
        examples: a table of ``QA_EXAMPLES``.
    """
    several = examples.filter(pc.greater(pc.list_value_length(examples["answers"]), 1))
    answers = several["answers"].to_pylist()
    others = pa.array([[own[0], *own[2:]] for own in answers], pa.list_(pa.string()))
    place = several.column_names.index("answers")
    given = written_answers(several["example_id"].to_pylist(), [own[1] for own in answers])
    return prediction_rows(name, several.set_column(place, "answers", others), given)


def prediction_rows(model: str, examples: pa.Table, answers: pa.Table) -> pa.Table:
    """Return answers as rows of ``QA_PREDICTIONS``, with their exact match and F1.

    Args:
        model: its name.
        examples: a table of ``QA_EXAMPLES``.
        answers: for each of them, in order, see `ANSWERS`.
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
