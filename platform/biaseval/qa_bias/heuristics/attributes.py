"""The values of heuristics for questions, as a table."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from biaseval.qa_bias.heuristics.annotation import SpacyAnnotator
from biaseval.qa_bias.heuristics.built_in import UNDEFINED, Questions, Variant, heuristic_of, resources_of
from biaseval.qa_bias.heuristics.similarity import Tfidf
from biaseval.qa_bias.heuristics.text import EnglishText
from biaseval.tables import QA_ATTRIBUTES


def attributes(
    examples: pa.Table,
    heuristics: Sequence[str],
    *,
    variant: Variant,
    text: EnglishText | None = None,
    annotator: SpacyAnnotator | None = None,
    tfidf: Tfidf | None = None,
) -> pa.Table:
    """Return every heuristic of every question.

    Args:
        examples: a table of ``QA_EXAMPLES``; every question has an answer.
        heuristics: ids of `HEURISTICS`, or ``module:function``.
        variant: the meaning where P3's text and its code differ.
        text: where `resources_of` the heuristics has it.
        annotator: as well.
        tfidf: as well.

    Returns:
        A table of ``QA_ATTRIBUTES``: the heuristics in the order asked for, each with the questions in their order.
        ``is_measured`` is false where ``word_dist``, ``subj_pos`` or a user's function is undefined (value -1).

    Raises:
        InputError: a user's function is not to be had, or fails.
        ValueError: something that a heuristic needs is not given, or a question has no answer.
    """
    asked = Questions({name: examples[name].to_pylist() for name in examples.column_names}, variant)
    for row, own in enumerate(asked.answers):
        if not own:
            raise ValueError(f"row {row} has no answer")
    given: dict[str, Any] = {"text": text, "annotator": annotator, "tfidf": tfidf}
    tables = []
    for heuristic in map(heuristic_of, heuristics):
        resource = None
        for needed in resources_of([heuristic.id]):
            resource = given[needed]
            if resource is None:
                raise ValueError(f"{heuristic.id} needs a resource that was not given: {needed}")
        values, closest = heuristic.values(asked, resource)
        columns = {
            "dataset": asked.columns["dataset"],
            "example_id": asked.columns["example_id"],
            "heuristic": [heuristic.id] * len(values),
            "value": [UNDEFINED if value is None else value for value in values],
            # A user's -1 is a value like any other: only None says that a question is not measured.
            "is_measured": [value != heuristic.undefined for value in values],
            "closest_word": [None] * len(values) if closest is None else closest,
        }
        tables.append(pa.table(columns, schema=QA_ATTRIBUTES.schema))
    return pa.concat_tables(tables) if tables else QA_ATTRIBUTES.empty()
