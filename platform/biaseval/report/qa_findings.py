"""What the report of a QA-bias run tells: marts by SQL, and example questions of each bias that is more than chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb

from biaseval.analysis import open_runs
from biaseval.environment import raw_spec, read_environment
from biaseval.report.findings import Row
from biaseval.store import Run

N_EXAMPLES = 2
"""Shown of each model, heuristic and side."""

_AROUND = 140
"""Characters of the context that are shown on each side of the answer."""

_LONGEST = 240
"""Characters that are shown of a question, an answer or a prediction."""

_N_ANSWERS = 4
"""Different gold answers that are shown."""


@dataclass(frozen=True)
class QaFindings:
    """All that one report shows, by model, data set and heuristic, each in the spec's order.

    Scales are the marts': points 0 to 100 of segments, 0 to 1 of data sets and curves. What was not measured is None.
    """

    name: str
    models: tuple[str, ...]
    """Those of the spec, then the standard readers that the run trained; the debiased ones are `QaTraining`'s."""
    heuristics: tuple[str, ...]
    in_distribution: tuple[str, ...]
    """The data sets that some model has answered."""
    out_of_distribution: tuple[str, ...]
    by_heuristic: dict[tuple[str, str, str], Row]
    """(model, data set, heuristic) to the row of ``qa_bias_by_heuristic``."""
    tests: dict[tuple[str, str, str], Row]
    """(model, data set, heuristic) to the row of ``qa_bias_tests``: is it more than chance?"""
    n_tests: dict[str, int]
    """Data set to the tests of ``qa_bias_tests`` that its ``p_adjusted`` are over, trained readers included."""
    comparisons: list[Row]
    """The rows of ``qa_model_comparisons``, each pair of models both ways round."""
    averages: dict[tuple[str, str], Row]
    """(model, data set) to the row of ``qa_by_model``."""
    by_dataset: dict[tuple[str, str], Row]
    """(model, data set) to the row of ``qa_by_dataset``."""
    elsewhere: dict[str, Row]
    """Model to its row of ``qa_over_datasets`` out of distribution."""
    curves: dict[tuple[str, str], list[Row]]
    """(data set, heuristic) to the rows of ``qa_curves``, by model and bin."""
    examples: dict[tuple[str, str, str], list[Row]]
    """(model, data set, heuristic) to questions right on the better side (``is_better``), and wrong on the other."""
    searched_before: frozenset[str]
    """Heuristics whose thresholds an earlier spec of the run searched."""
    spec: Row
    plan: Row
    environment: Row

    def is_supported(self, row: Row) -> bool:
        """Return whether a row of ``qa_bias_by_heuristic`` has a bias that is more than chance."""
        return bool(self.tests[row["model"], row["dataset"], row["heuristic"]]["is_supported"])

    def has_interval(self, row: Row) -> bool:
        """Return whether the interval of a row's difference may be shown, which takes the threshold as given."""
        return row["searched_on"] is None or self.is_supported(row)

    def compared(self, dataset: str, metric: str, heuristic: str | None = None) -> dict[tuple[str, str], Row]:
        """Return (model, other model) to the comparison of the first against the second by a metric."""
        return {
            (row["other_model"], row["model"]): row
            for row in self.comparisons
            if (row["dataset"], row["metric"], row["heuristic"]) == (dataset, metric, heuristic)
        }

    @property
    def datasets(self) -> tuple[str, ...]:
        """Every data set, those in distribution first."""
        return (*self.in_distribution, *self.out_of_distribution)


def read_qa_findings(run: Run) -> QaFindings:
    """Return what the report of a QA-bias run shows.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    spec = raw_spec(run)
    with closing(open_runs([run.uri])) as connection:
        by_heuristic = _rows(connection, "from qa_bias_by_heuristic")
        by_dataset = _rows(connection, "from qa_by_dataset")
        tests = _rows(connection, "from qa_bias_tests")
        comparisons = _rows(connection, "from qa_model_comparisons")
        averages = _rows(connection, "from qa_by_model")
        elsewhere = _rows(connection, "from qa_over_datasets where role = 'out_of_distribution'")
        curve_points = _rows(connection, "from qa_curves order by dataset, heuristic, model, bin")
        examples = _rows(connection, _EXAMPLES, [N_EXAMPLES])
        readers = _rows(connection, _STANDARD_READERS)
    models = (*(model["name"] for model in spec["models"]), *(row["model"] for row in readers))
    answered = {row["dataset"] for row in by_dataset}
    inside, outside = (
        tuple(name for name in spec["datasets"].get(role) or {} if name in answered)
        for role in ("in_distribution", "out_of_distribution")
    )
    curves: dict[tuple[str, str], list[Row]] = {}
    for row in curve_points:
        curves.setdefault((row["dataset"], row["heuristic"]), []).append(row)
    chosen: dict[tuple[str, str, str], list[Row]] = {}
    for row in examples:
        chosen.setdefault((row["model"], row["dataset"], row["heuristic"]), []).append(_shown(row))
    return QaFindings(
        name=spec["name"],
        models=models,
        heuristics=tuple(spec["heuristics"]),
        in_distribution=inside,
        out_of_distribution=outside,
        by_heuristic={
            (row["model"], row["dataset"], row["heuristic"]): row for row in by_heuristic if row["model"] in models
        },
        tests={(row["model"], row["dataset"], row["heuristic"]): row for row in tests if row["model"] in models},
        n_tests=Counter(row["dataset"] for row in tests if row["p_adjusted"] is not None),
        comparisons=comparisons,
        averages={(row["model"], row["dataset"]): row for row in averages},
        by_dataset={(row["model"], row["dataset"]): row for row in by_dataset},
        elsewhere={row["model"]: row for row in elsewhere},
        curves=curves,
        examples=chosen,
        searched_before=_searched_before(run),
        spec=spec,
        plan=run.read_json("plan.json") if run.has("plan.json") else {},
        environment=read_environment(run),
    )


def excerpt(context: str, answers: Sequence[str], starts: Sequence[int]) -> tuple[str, str, str]:
    """Return the context around its first answer: the text before, the answer, the text after.

    The place is the answer's start, or the first that has its text; without one, the context's beginning is before.
    """
    if not answers:
        return _cut(context, 2 * _AROUND), "", ""
    answer = answers[0]
    start = starts[0] if starts else -1
    if start < 0 or context[start : start + len(answer)] != answer:
        start = context.find(answer)
    if start < 0 or not answer:
        return _cut(context, 2 * _AROUND), "", ""
    before, after = context[:start], context[start + len(answer) :]
    if len(before) > _AROUND:
        before = f"…{before[-_AROUND:].partition(' ')[2]}"
    if len(after) > _AROUND:
        after = f"{after[:_AROUND].rpartition(' ')[0]}…"
    return before, _cut(answer, _LONGEST), after


def _shown(row: Row) -> Row:
    answers = row["answers"] or []
    different = list(dict.fromkeys(answers))
    more = f"… ({len(different) - _N_ANSWERS} more)"
    before, answer, after = excerpt(row["context"], answers, row["answer_starts"] or [])
    return {
        "example_id": row["example_id"],
        "is_better": row["is_better"],
        "value": row["value"],
        "closest_word": row["closest_word"],
        "question": _cut(row["question"], _LONGEST),
        "before": before,
        "answer": answer,
        "after": after,
        "gold": [_cut(text, _LONGEST) for text in different[:_N_ANSWERS]]
        + ([more] if len(different) > _N_ANSWERS else []),
        "prediction": _cut(row["prediction"] or "", _LONGEST),
        "exact_match": row["exact_match"],
        "f1": row["f1"],
    }


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
    rows: list[Row] = connection.sql(sql, params=parameters).to_arrow_table().to_pylist()
    return rows


def _searched_before(run: Run) -> frozenset[str]:
    """Return the heuristics whose thresholds a spec that the run had before searched."""
    found: set[str] = set()
    for name in run.files("specs"):
        before = run.read_yaml(name)
        given = before.get("thresholds", "search")
        if given != "mikula2024":
            fixed = [] if given == "search" else [own for own, value in given.items() if not isinstance(value, list)]
            found |= set(before.get("heuristics", ())) - set(fixed)
    return frozenset(found)


_STANDARD_READERS = """
select model
from trained_models
where method = 'standard' and problem is null
order by number
"""

# By a hash, so that the choice neither changes nor follows the order of the file.
_EXAMPLES = """
with

biased as (

    select
        model,
        dataset,
        heuristic,
        qa_bias_by_heuristic.threshold,
        biased_segment
    from qa_bias_by_heuristic
    inner join qa_bias_tests using (model, dataset, heuristic)
    where
        qa_bias_tests.is_supported
        and dataset in (select dataset from qa_by_dataset where role = 'in_distribution')

),

placed as (

    select
        biased.model,
        dataset,
        biased.heuristic,
        example_id,
        qa_attributes.value,
        qa_attributes.closest_word,
        qa_predictions.prediction,
        qa_predictions.exact_match,
        qa_predictions.f1,
        (qa_attributes.value <= biased.threshold) = (biased.biased_segment = 'lower') as is_better
    from biased
    inner join qa_attributes using (dataset, heuristic)
    inner join qa_predictions using (model, dataset, example_id)
    where qa_attributes.is_measured

),

numbered as (

    select
        *,
        row_number() over (
            partition by model, dataset, heuristic, is_better order by md5(heuristic || ' ' || example_id), example_id
        ) as number
    from placed
    where (exact_match = 1) = is_better

)

select
    numbered.*,
    qa_examples.question,
    qa_examples.context,
    qa_examples.answers,
    qa_examples.answer_starts
from numbered
inner join qa_examples using (dataset, example_id)
where numbered.number <= $1
order by model, dataset, heuristic, is_better desc, number
"""
