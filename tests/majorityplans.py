"""Runs of majority-label bias in the making, from answers given by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from biaseval.analysis import query
from biaseval.store import Run
from biaseval.tables import CONTEXTS, GENERATIONS, LABEL_SCORES, PROMPTS, SETTINGS, output_tables
from tests.relation import Relations
from tests.specs import write_plan, write_spec

Rows = list[dict[str, Any]]

GOLD = "TTTF"

ANSWERS = {
    ("0/100", True): ("TTFF", "TTFF"), ("50/50", True): ("TTTF", "TTTF"), ("100/0", True): ("TTTT", "TTTF"),
    ("0/100", False): ("FFFF", "FFFF"), ("50/50", False): ("TTFF", "TTTF"), ("100/0", False): ("TTTT", "TTTT"),
}  # fmt: skip
"""(setting, instruction) to the predictions for the four test rows, with the seeds 3 and 5."""

LARGE = {**ANSWERS, ("0/100", True): ("TTTF", "TTTF"), ("100/0", True): ("TTTT", "TTTT")}
"""What a larger model answers: with instruction always right in 0/100, always True in 100/0."""

F1 = {"TTTF": 1.0, "TTTT": 9 / 14, "FFFF": 0.1, "TTFF": 23 / 30, "TT-F": 0.85}
"""Weighted F1 of predictions (- is no label) for gold T T T F, by hand.

True has 3/4 of the rows, False 1/4.
TTTT: 3/4 * 6/7. FFFF: 1/4 * 2/5. TTFF: 3/4 * 4/5 + 1/4 * 2/3. TT-F: 3/4 * 4/5 + 1/4.
"""

SEEDS = (3, 5)

DEMOS = {
    "0/100": (["False", "False"], ["False", "False"]),
    "50/50": (["True", "False"], ["False", "True"]),
    "100/0": (["True", "True"], ["True", "True"]),
}

TEXT = {"T": "True", "F": "False", "-": None}


class MajorityPlan:
    """The rows of a run in the making, from ``ANSWERS``; generated are the same, except one output that is no label."""

    def __init__(
        self,
        predict: tuple[str, ...] = ("likelihood", "generate"),
        calibration: tuple[str, ...] = (),
        answers: Mapping[tuple[str, bool], tuple[str, str]] = ANSWERS,
        p_hat: Mapping[tuple[str, int, bool, str, int], float] | None = None,
        n_repeats: int = 1,
        golds: str = GOLD,
    ) -> None:
        self.golds = golds
        self.n_repeats = n_repeats  # of the test rows with their answers: F1 is the same, intervals are narrower
        self.spec: dict[str, Any] = {
            "kind": "majority_bias", "name": "tiny", "seed": 42, "prompt": {"preset": "boolq", "n_demos": 2},
            "model": {"path": "models/tiny", "dtype": "float32"}, "predict": list(predict),
            "calibration": list(calibration), "scoring": {"normalization": "mean", "eos": True},
        }  # fmt: skip
        self.n_parameters: int | None = 1_000
        self.p_hat = P_HAT if p_hat is None else p_hat
        self.settings: Rows = [
            {"setting": setting, "number": number, "labels": ["True", "False"], "shares": [number / 2, 1 - number / 2]}
            | {name: [number, 2 - number] for name in ("counts", "counts_asked")}
            for number, setting in enumerate(DEMOS)
        ]
        self.contexts: Rows = []
        self.prompts: Rows = []
        self.label_scores: Rows = []
        self.generations: Rows = []
        for (setting, instruction), of_seeds in answers.items():
            for seed, demos, predictions in zip(SEEDS, DEMOS[setting], of_seeds, strict=True):
                self._add(setting, seed, instruction, demos, predictions)

    def _add(self, setting: str, seed: int, instruction: bool, demos: list[str], predictions: str) -> None:
        place = {"task": "boolq", "n_demos": 2, "demo_set": seed}
        context_id = f"{setting}/{seed}/{instruction}"
        context = {"context_id": context_id, **place, "setting": setting, "instruction": instruction}
        self.contexts.append({**context, "demo_labels": demos})
        rows = list(zip(self.golds * self.n_repeats, predictions * self.n_repeats, strict=True))
        for row, (gold, answer) in enumerate(rows):
            prompt_id = f"{context_id}/{row}"
            self._prompt(prompt_id, "majority", row, TEXT[gold], {"context_id": context_id, **place})
            self._score(prompt_id, 0.9 if answer == "T" else 0.1)
            for mode in self.spec["predict"]:
                if mode == "likelihood":
                    continue
                is_no_label = mode == "generate" and (setting, seed, instruction, row) == ("0/100", 3, True, 2)
                shown = "-" if is_no_label else answer
                self.generations.append(
                    {"prompt_id": prompt_id, "mode": mode, "text": "Maybe", "prediction": TEXT[shown]}
                )
        for method in self.spec["calibration"]:
            for row, label in enumerate(demos if method == "looc" else [None]):
                # Each leave-one-out prompt has a context of its own, which holds fewer demonstrations.
                calibration_id = f"{context_id}/{method}/{row}"
                self.contexts.append({**context, "context_id": calibration_id, "demo_labels": demos[:row]})
                self._prompt(calibration_id, method, row, label, {"context_id": calibration_id, **place})
                self._score(calibration_id, self.p_hat.get((setting, seed, instruction, method, row), 0.5))

    def _prompt(self, prompt_id: str, purpose: str, row: int, gold: str | None, place: dict[str, Any]) -> None:
        instance = {"instance_id": None if gold is None else f"test-{row}", "labels": ["True", "False"]}
        self.prompts.append({"prompt_id": prompt_id, "purpose": purpose, "row": row, "gold": gold, **place, **instance})
        self.prompts[-1]["input_text"] = f"{purpose} {row}"

    def _score(self, prompt_id: str, p_true: float) -> None:
        if "label_scores" in output_tables(self.spec["predict"]):
            for label, p in (("True", p_true), ("False", 1 - p_true)):
                logprobs = {"token_logprobs": [math.log(p)] * 2, "n_label_tokens": 1}
                self.label_scores.append({"prompt_id": prompt_id, "label": label, **logprobs})

    def only(self, **where: Any) -> MajorityPlan:
        """Keep the contexts and prompts whose columns have these values, and the outputs of those prompts."""

        def fits(row: Mapping[str, Any]) -> bool:
            return all(row.get(name, value) == value for name, value in where.items())

        self.contexts = [row for row in self.contexts if fits(row)]
        contexts = {row["context_id"] for row in self.contexts}
        self.prompts = [row for row in self.prompts if fits(row) and row["context_id"] in contexts]
        prompts = {row["prompt_id"] for row in self.prompts}
        self.label_scores = [row for row in self.label_scores if row["prompt_id"] in prompts]
        self.generations = [row for row in self.generations if row["prompt_id"] in prompts]
        return self

    def relations(self, folder: Path) -> Relations:
        """Return the relations of the run, written."""
        return Relations(self.write(folder))

    def write(self, folder: Path, n_parts: int = 1) -> str:
        run = Run.open(str(folder))
        write_spec(run, self.spec)
        if self.n_parameters is not None:
            environment = {"versions": {}, "model_facts": {"n_parameters": self.n_parameters}}
            run.write_text("environment.json", json.dumps(environment))
        run.write_part("settings", 0, SETTINGS.rows(self.settings))
        run.write_part("contexts", 0, CONTEXTS.rows(self.contexts))
        for part in range(n_parts):
            run.write_part("prompts", part, PROMPTS.rows(self.prompts[part::n_parts]))
            if "label_scores" in output_tables(self.spec["predict"]):
                run.write_part("label_scores", part, LABEL_SCORES.rows(self.label_scores[part::n_parts]))
            if set(self.spec["predict"]) != {"likelihood"}:
                run.write_part("generations", part, GENERATIONS.rows(self.generations[part::n_parts]))
        write_plan(run)
        return run.uri


P_HAT = {("100/0", 3, True, "cc", 0): 0.95, ("0/100", 3, False, "looc", 0): 0.02, ("0/100", 3, False, "looc", 1): 0.04}
"""The probability of True of calibration inputs, which is else 0.5 and changes no prediction.

With 0.95, 0.9 for True becomes (0.9/0.95) / (0.9/0.95 + 0.1/0.05) < 1/2. The leave-one-out rows have one gold label,
their mean is 0.03, and 0.1 for True becomes (0.1/0.03) / (0.1/0.03 + 0.9/0.97) > 1/2.
"""


def rows(run: str | duckdb.DuckDBPyConnection, sql: str) -> Rows:
    """Return the rows of a query over a run: a directory, or one that is open already."""
    result: Rows = (query([run], sql) if isinstance(run, str) else run.sql(sql).to_arrow_table()).to_pylist()
    return result
