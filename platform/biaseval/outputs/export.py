"""Write a run's scores as lm-evaluation-harness does: lines of samples, and a results file with them. Pure."""

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biaseval.outputs.harness_docs import EXPORTED

_DELIMITER = " "
"""The text between a prompt and a label in scoring."""

_METRIC = {"metric": "acc", "aggregation": "mean", "higher_is_better": True}


@dataclass(frozen=True)
class ExportedRow:
    """A test row, with the log-likelihoods that decide the predicted label."""

    row: int
    instance_id: str
    input: str | None
    prompt: str
    gold: str
    log_likelihoods: Sequence[float]
    """The log-likelihoods in the order of the task's labels."""


@dataclass(frozen=True)
class ExportedTask:
    """A task in one setting."""

    task: str
    definition: str
    labels: Sequence[str]
    rows: Sequence[ExportedRow]

    def accuracy(self, row: ExportedRow) -> float:
        """Return 1 if the most likely label of a row is right, else 0; the first of equally likely labels counts."""
        values = list(row.log_likelihoods)
        return float(self.labels[values.index(max(values))] == row.gold)

    def config(self, n_demos: int) -> dict[str, Any]:
        """Return the task's configuration."""
        return {
            "task": self.task, "doc_to_text": "prompt", "doc_to_target": "label",
            "doc_to_choice": list(self.labels), "description": self.definition, "target_delimiter": _DELIMITER,
            "num_fewshot": n_demos, "metric_list": [_METRIC], "output_type": "multiple_choice", "repeats": 1,
        }  # fmt: skip

    def sample(self, row: ExportedRow) -> dict[str, Any]:
        """Return the line of samples of a row."""
        doc = dict(zip(EXPORTED, (row.instance_id, row.input, row.prompt, row.gold), strict=True))
        # The harness does not name the labels of a greedy continuation, and scores of labels do not contain them.
        responses = [[repr(value), "False"] for value in row.log_likelihoods]
        return {
            "doc_id": row.row, "doc": doc, "target": row.gold,
            "arguments": {
                f"gen_args_{number}": {"arg_0": row.prompt, "arg_1": f"{_DELIMITER}{label}"}
                for number, label in enumerate(self.labels)
            },
            "resps": [[response] for response in responses], "filtered_resps": responses, "filter": "none",
            "metrics": ["acc"], "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
            "prompt_hash": _hash(row.prompt), "target_hash": _hash(row.gold), "acc": self.accuracy(row),
        }  # fmt: skip


def results_of(tasks: Sequence[ExportedTask], n_demos: int, demo_set: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of one setting.

    ``demo_set`` takes the place of the harness's seed for drawing examples. ``facts`` about the run are ``model_name``,
    ``model_num_parameters``, ``date`` and ``scoring``.
    """
    found: dict[str, Any] = {}
    for task in tasks:
        own = [task.accuracy(row) for row in task.rows]
        error = statistics.stdev(own) / math.sqrt(len(own)) if len(own) > 1 else "N/A"
        found[task.task] = {"alias": task.task, "acc,none": statistics.fmean(own), "acc_stderr,none": error}
    return {
        "results": found, "configs": {task.task: task.config(n_demos) for task in tasks},
        "versions": dict.fromkeys(found, "N/A"), "n-shot": dict.fromkeys(found, n_demos),
        "higher_is_better": {name: {"acc": True} for name in found},
        "n-samples": {task.task: {"original": len(task.rows), "effective": len(task.rows)} for task in tasks},
        "config": {
            "model": "biaseval", "model_args": {"scoring": facts["scoring"]},
            "model_num_parameters": facts["model_num_parameters"], "fewshot_seed": demo_set,
        },
        "date": facts["date"], "model_source": "biaseval", "model_name": facts["model_name"],
    }  # fmt: skip


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
