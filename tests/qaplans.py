"""Runs of QA bias in the making, and the rules of thresholds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biaseval.analysis import query
from biaseval.store import Run
from biaseval.tables import QA_ATTRIBUTES, QA_EXAMPLES, QA_PREDICTIONS
from tests.relation import Relations
from tests.specs import whole_spec, write_plan, write_spec

Rows = list[dict[str, Any]]

HEURISTIC_COLUMNS = {
    "similar_words": "sim_word", "distances": "word_dist", "kth_sentence": "ans_pos", "cosine_similarity": "cos_sim",
    "answer_length": "ans_len", "max_sim_ents": "sim_ents", "answer_subject_positions": "subj_pos",
}  # fmt: skip
"""The golden tables' names to ours."""


class QaPlan:
    """The rows of a run in the making: questions with attributes, and each model's exact match and F1 on them."""

    def __init__(self, models: Sequence[str] = ("bert",), **spec: Any) -> None:
        content = {
            "kind": "qa_bias", "models": [{"name": model, "path": model} for model in models],
            "bootstrap": {"trials": 20, "sample": 10}, "heuristics": ["ans_len"],
        }  # fmt: skip
        self.spec = whole_spec(content | spec)
        self.examples: Rows = []
        self.attributes: Rows = []
        self.predictions: Rows = []

    def questions(self, values: dict[str, Sequence[float | None]], dataset: str = "squad") -> None:
        """Add questions with these values by heuristic; None is undefined."""
        for row in range(len(next(iter(values.values())))):
            place = {"dataset": dataset, "example_id": f"q{row}"}
            role = "in_distribution" if dataset in self.spec["datasets"]["in_distribution"] else "out_of_distribution"
            self.examples.append({**place, "row": row, "role": role, "question": "?", "context": f"c{row}"})
            for heuristic, column in values.items():
                value = column[row]
                attribute = {"value": -1.0 if value is None else float(value), "is_measured": value is not None}
                self.attributes.append({**place, "heuristic": heuristic, **attribute})

    def titles(self, titles: Sequence[str | None], dataset: str = "squad") -> None:
        """Give the questions of a data set titles, in their order."""
        own = [example for example in self.examples if example["dataset"] == dataset]
        for example, title in zip(own, titles, strict=True):
            example["title"] = title

    def answers(
        self,
        exact_match: Sequence[float | None],
        f1: Sequence[float | None] | None = None,
        model: str = "bert",
        dataset: str = "squad",
    ) -> None:
        """Add a model's metrics for the questions in order; None is a question without a prediction."""
        for row, (em, overlap) in enumerate(zip(exact_match, f1 or exact_match, strict=True)):
            if em is not None:
                place = {"model": model, "dataset": dataset, "example_id": f"q{row}", "prediction": f"p{row}"}
                self.predictions.append({**place, "exact_match": float(em), "f1": None if overlap is None else overlap})

    def relations(self, folder: Path) -> Relations:
        """Return the relations of the run, written."""
        return Relations(self.write(folder))

    def write(self, folder: Path, n_parts: int = 1) -> str:
        run = Run.open(str(folder))
        write_spec(run, self.spec)
        for part in range(n_parts):
            run.write_part("qa_examples", part, QA_EXAMPLES.rows(self.examples[part::n_parts]))
            run.write_part("qa_attributes", part, QA_ATTRIBUTES.rows(self.attributes[part::n_parts]))
            for number, model in enumerate(self.spec["models"]):
                own = [row for row in self.predictions if row["model"] == model["name"]]
                run.write_part("qa_predictions", number * n_parts + part, QA_PREDICTIONS.rows(own[part::n_parts]))
        write_plan(run)
        return run.uri


def rows(run: str, sql: str) -> Rows:
    result: Rows = query([run], sql).to_pylist()
    return result


Candidate = tuple[float, float | None, int, int]
"""A threshold, its distance (None where not measured), and the sizes of its segments."""


def _paper_rule(candidates: Sequence[Candidate], sample: int) -> float | None:
    """Protocol section 5, the proposal: the paper's words."""
    for n_least in (2 * sample, sample):
        significant = [
            (round(distance, 9), -threshold)
            for threshold, distance, *sizes in candidates
            if distance is not None and distance > 0 and min(sizes) >= n_least
        ]
        if significant:
            return -max(significant)[1]
    return None


def _reference_rule(candidates: Sequence[Candidate], sample: int) -> float | None:
    """Protocol section 5: the code, going through the candidates."""
    best, best_distance, smaller = None, -1.0, 0
    for threshold, distance, *sizes in candidates:
        if distance is None:
            continue
        is_large = min(sizes) > 2 * sample
        if best is None:
            replaces = distance > 0
        else:
            replaces = is_large and (distance > best_distance or (distance > 0 and smaller < 2 * sample))
        if replaces:
            best, best_distance, smaller = threshold, distance, min(sizes)
    return best


VALUES = [1] * 10 + [3] * 10

RIGHT = [1] * 8 + [0] * 2 + [1] * 5 + [0] * 5

OVERLAP = [1.0] * 9 + [0.0] + [1.0] * 5 + [0.5] * 5
"""Two segments of just the sample: each trial holds all of one, and has its mean. 80 % and 50 % exact, F1 90 and 75."""


def two_segments(**spec: Any) -> QaPlan:
    plan = QaPlan(**spec)
    plan.questions({"ans_len": [*VALUES, None, None, None]})
    plan.answers([*RIGHT, 1, 0, 0], [*OVERLAP, 1.0, 0.0, 0.0])
    return plan


def two_models(**spec: Any) -> QaPlan:
    """Return a plan with 25 questions of each of 0, 1 and 2: bert knows those of 0, roberta all but those of 2.

    The right threshold has a distance of 100, and segments of more than twice the sample of 10.
    """
    plan = QaPlan(["bert", "roberta"], **spec)
    plan.questions({"ans_len": [0] * 25 + [1] * 25 + [2] * 25})
    plan.answers([1] * 25 + [0] * 50, model="bert")
    plan.answers([1] * 50 + [0] * 25, model="roberta")
    return plan
