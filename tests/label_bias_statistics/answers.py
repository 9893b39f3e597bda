"""Answers of a model to the rows of tasks, and the relations that follow from them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import Chosen, connect, relations
from biaseval.metric_files import metric_files
from biaseval.tables import BOOTSTRAP_DRAWS, RUN_SETTINGS, TASKS
from tests.relation import Relations

Array = npt.NDArray[Any]

Rows = list[dict[str, Any]]

METRICS = ("macro_f1", "accuracy", "rsd", "bias_score", "relative_variance", "squared_preference")

MORE = ("brier", "ckld", "ece")
"""Metrics that a spec names."""

OF_BIAS_SCORE_ROWS = ("bias_score", "squared_preference")
"""Metrics of the rows of BiasScore; the others are of main rows."""

FAMILIES = (METRICS[:4], METRICS[4:5], METRICS[5:])
"""Metrics that are tested together; each partner, which has no word of its own, is apart."""


class Answers(NamedTuple):
    """What a model answers to the rows of a task in one setting: gold labels and probabilities of every label."""

    task: str
    labels: Sequence[str]
    gold: Sequence[str]
    probabilities: Array
    method: str = "none"
    n_demos: int = 0
    demo_set: int = 0
    purpose: str = "main"
    format: str = "base"

    @property
    def predicted(self) -> list[str]:
        return [self.labels[place] for place in self.probabilities.argmax(axis=1)]


class Analysed(Relations):
    """All relations that follow from calibrated predictions, each computed when a test asks for it.

    Args:
        answers: of every task and setting, of both purposes.
        suites: their tasks; otherwise all tasks are one.
        seed: of the signs.
        primary: metric and method of the primary question.
        metrics: that the run names beside those of every run.
    """

    def __init__(
        self,
        answers: Iterable[Answers],
        suites: Mapping[str, Sequence[str]] | None = None,
        seed: int = 0,
        primary: tuple[str, str] | None = None,
        metrics: Sequence[str] = (),
    ) -> None:
        given = list(answers)
        tasks = {each.task: list(each.labels) for each in given}
        suites = suites or {"all": sorted(tasks)}
        columns: dict[str, list[Any]] = {}
        for each in given:
            own = {name: [getattr(each, name)] * len(each.gold) for name in _OF_SETTING} | {
                "row": range(len(each.gold)), "gold": each.gold, "labels": [list(each.labels)] * len(each.gold),
                "probabilities": each.probabilities.tolist(), "prediction": each.predicted,
            }  # fmt: skip
            for name, values in own.items():
                columns.setdefault(name, []).extend(values)
        drawn = [
            {"suite": suite, "draw": 0, "task": task, "n_drawn": 1}
            for suite, members in suites.items()
            for task in members
        ]
        settings = {"model": "tiny", "formats": list(dict.fromkeys(["base", *(each.format for each in given)]))}
        if primary:
            settings |= {"primary_metric": primary[0], "primary_method": primary[1]}
        n_tested = max(1000 if len(members) == 1 else len(members) for members in suites.values())
        made = {
            "calibrated_predictions": pa.table(columns),
            "tasks": TASKS.rows([{"task": task, "labels": labels, "category": ""} for task, labels in tasks.items()]),
            "run_settings": RUN_SETTINGS.rows([settings]),
            "bootstrap_draws": BOOTSTRAP_DRAWS.rows(drawn),
            "sign_flips": sign_flips(n_tested, seed),
        }
        self.connection = connect([])
        for name, table in made.items():
            self.connection.from_arrow(table).create(name)
        chosen = Chosen(metrics=metric_files(metrics))
        self._left = relations("intermediate", "marts", tables=made, chosen=chosen)


_OF_SETTING = ("task", "purpose", "n_demos", "demo_set", "format", "method")


def rows(made: Analysed | duckdb.DuckDBPyConnection, sql: str) -> Rows:
    found: Rows = made.rows(sql) if isinstance(made, Analysed) else made.sql(sql).to_arrow_table().to_pylist()
    return found


def verdicts(made: Analysed, metric: str) -> dict[str, dict[str, Any]]:
    """Return the verdicts of a metric by method, of the one suite."""
    found = rows(made, f"from label_bias_verdicts where metric = '{metric}'")
    by_method = {row["method"]: row for row in found}
    assert len(by_method) == len(found)
    return by_method


def right_with(predicted: Sequence[str], labels: Sequence[str]) -> Array:
    """Return probabilities of which the predicted label has the largest."""
    return np.array([[0.9 if label == each else 0.1 / (len(labels) - 1) for label in labels] for each in predicted])


def answers_of(
    rng: np.random.Generator,
    task: str,
    labels: str,
    gold: Sequence[str],
    recalls: Mapping[str, float] | float,
    instead: str | None = None,
    **setting: Any,
) -> Answers:
    """Return answers that are right by the recall of the gold label, and else one of the labels ``instead``."""
    predicted = []
    for label in gold:
        wrong = [each for each in instead or labels if each != label]
        recall = recalls if isinstance(recalls, float) else recalls[label]
        predicted.append(label if rng.random() < recall else str(rng.choice(wrong)))
    return Answers(task, labels, gold, right_with(predicted, labels), **setting)


def preferring(
    rng: np.random.Generator, task: str, labels: str, gold: Sequence[str], leaning: Sequence[float], **setting: Any
) -> Answers:
    """Return answers on rows of BiasScore that lean to the gold label and, in logits, to others."""
    logits = rng.normal(size=(len(gold), len(labels))) + np.array(leaning)
    logits += 1.5 * np.array([[label == each for label in labels] for each in gold])
    weights = np.exp(logits)
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    return Answers(task, labels, gold, probabilities, purpose="bias_score", **setting)


LABELS = "abcd"
"""Of which d is never a gold label of the main rows, and is predicted."""


def one_task(
    n_rows: int = 200, seed: int = 0, *, recalls: Mapping[str, float] | None = None, method: str = "none"
) -> list[Answers]:
    """Return two sets of a task with three gold labels of four, of both purposes."""
    gold = [LABELS[place] for place in np.random.default_rng(9).choice(3, size=n_rows, p=[0.5, 0.3, 0.2])]
    bias_gold = list(LABELS * 10)
    rng = np.random.default_rng(seed)
    recalls = recalls or {"a": 0.85, "b": 0.6, "c": 0.35}
    sets = []
    for demo_set in (0, 1):
        place: dict[str, Any] = {"method": method, "n_demos": 4, "demo_set": demo_set}
        sets.append(answers_of(rng, "t", LABELS, gold, recalls, **place))
        sets.append(preferring(rng, "t", LABELS, bias_gold, [0.8, 0.3, -0.6, -0.2], **place))
    return sets


def side(answers: Sequence[Answers], metric: str) -> list[Answers]:
    return [each for each in answers if (each.purpose == "bias_score") == (metric in OF_BIAS_SCORE_ROWS)]


def with_hits(task: str, n_hits: int, n_rows: int = 20, **setting: Any) -> Answers:
    """Return answers to as many rows of gold label a as of b, of which the first are right."""
    gold = "ab" * (n_rows // 2)
    predicted = [gold[row] if row < n_hits else "ba"[row % 2] for row in range(n_rows)]
    return Answers(task, "ab", list(gold), right_with(predicted, "ab"), **setting)


def tasks_that_change(changes: Sequence[int], method: str = "cc") -> list[Answers]:
    """Return tasks in which a method gets so many of 20 rows right more than none, which gets 10 right."""
    answers = []
    for number, change in enumerate(changes):
        answers += [with_hits(f"t{number}", 10), with_hits(f"t{number}", 10 + change, method=method)]
    return answers
