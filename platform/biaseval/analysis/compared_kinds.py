"""The comparison of runs by kind: its measures, and the conditions that runs must share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class ComparedKind:
    """One kind of run in SQL; its relations are named after it."""

    name: str
    """The name of the measured bias."""
    listed: str
    """The condition on the setting whose rows are listed and counted, with ``n_demos`` and ``predict``."""
    why_not: Callable[[Row], str]
    """Returns advice for a row of ``*_shared``: it names the data that two runs must share."""


def _without_common_tasks(pair: Row) -> str:
    if not pair["n_tasks"] and pair["differing_tasks"]:
        return (
            f"{some(pair['differing_tasks'])} have other main rows or labels in each; a single file is split by "
            "prompt.n_demos and demo_sets, so give both runs the same, or a file data.test, and prompts that show the "
            "same columns; of task files, tasks.splits: RUN/splits takes the rows of another run"
        )
    if not pair["n_tasks"]:
        return f"no task is in both ({some(pair['lacking_tasks'])} only in the first); run both over the same tasks"
    what = "number of demonstrations" if not pair["n_demos"] else "method"
    return f"no {what} is in both; run both with a common one (prompt.n_demos, calibration)"


def _without_common_rows(pair: Row) -> str:
    if not pair["has_same_rows"]:
        n_shared, n_rows = pair["n_shared_rows"], pair["n_rows"]
        return f"{n_shared} of {n_rows} test rows of the first are in both, and all of them must be; use one data.test"
    if not pair["has_same_settings"]:
        return "their proportions are others; use the same proportions and labels"
    return (
        "no number of demonstrations, instruction, way of predicting and method is in both; run both with a common one"
    )


def _without_common_questions(pair: Row) -> str:
    differing = f"{pair['n_differing']} questions have the same name and another text; " if pair["n_differing"] else ""
    return f"no question is in both, by dataset, id and text; {differing}measure both on the same data sets"


def some(names: Sequence[str], n_shown: int = 3) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return f"{', '.join(names[:n_shown])}{more}"


KINDS = {
    "label_bias": ComparedKind("label bias", "method = 'none' and n_demos = {n_demos}", _without_common_tasks),
    "majority_bias": ComparedKind(
        "majority-label bias", "method = 'none' and n_demos = {n_demos} and predict = {predict}", _without_common_rows
    ),
    "qa_bias": ComparedKind("QA bias", "true", _without_common_questions),
}
"""The kinds of run that can be compared."""
