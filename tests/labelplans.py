"""Runs of label bias in the making, written row by row."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.label_bias.begin import begin_tasks
from biaseval.label_bias.plan import TaskPlan, plan_task
from biaseval.label_bias.sources import read_sources
from biaseval.spec.label_bias import LabelBiasSpec
from biaseval.store import Run
from biaseval.tables import CONTEXTS, LABEL_SCORES, PROMPTS, SPLITS, TASKS
from tests.relation import Relations
from tests.specs import write_plan, write_spec

Rows = list[dict[str, Any]]


def plan_tasks(spec: LabelBiasSpec, tokenizer: Any, window: int | None = None) -> list[TaskPlan]:
    """Return the plan of each task of a spec."""
    return [plan_task(spec, begun, tokenizer, window) for begun in begin_tasks(spec, read_sources(spec))]


class Plan:
    """The rows of a run in the making: tasks, and prompts with one list of token log-probabilities per label."""

    def __init__(self, **scoring: Any) -> None:
        scoring = {"normalization": "mean", "eos": True} | scoring
        self.spec = {"kind": "label_bias", "name": "tiny", "seed": 42, "scoring": scoring}
        self.tasks: Rows = []
        self.contexts: Rows = []
        self.prompts: Rows = []
        self.label_scores: Rows = []
        self._n_prompts = Counter[str]()

    def task(self, task: str, labels: list[str], is_semantically_equivalent: bool = False) -> str:
        row = {"task": task, "category": "Question Answering", "labels": labels}
        self.tasks.append({**row, "is_semantically_equivalent": is_semantically_equivalent})
        return task

    def prompt(
        self, task: str, purpose: str, gold: str | None, tokens: list[list[float]], n_demos: int = 0, demo_set: int = 0
    ) -> None:
        """Add a prompt and its scores; ``tokens`` are lists of log-probabilities in the order of the task's labels."""
        [labels] = [row["labels"] for row in self.tasks if row["task"] == task]
        setting = {"context_id": f"{task}/{n_demos}/{demo_set}", "task": task, "n_demos": n_demos, "demo_set": demo_set}
        if setting not in self.contexts:
            self.contexts.append(setting)
        group = f"{setting['context_id']}/{purpose}"
        number = self._n_prompts[group]
        self._n_prompts[group] += 1
        prompt_id = f"{group}/{number}"
        self.prompts.append(
            setting
            | {"prompt_id": prompt_id, "purpose": purpose, "row": number, "labels": labels, "gold": gold}
            | {"instance_id": None if gold is None else f"{task}-{purpose}-{number}"}
        )
        for label, logprobs in zip(labels, tokens, strict=True):
            scored = {"prompt_id": prompt_id, "label": label, "token_logprobs": logprobs}
            self.label_scores.append({**scored, "n_label_tokens": len(logprobs) - 1})

    def probabilities(self, task: str, purpose: str, gold: str | None, probs: list[float], **setting: int) -> None:
        """Add a prompt whose mean log-likelihoods over one label token and EOS are the logarithms of ``probs``."""
        self.prompt(task, purpose, gold, [[max(math.log(p), -700.0) if p else -700.0] * 2 for p in probs], **setting)

    def write(self, folder: Path, n_parts: int = 1) -> str:
        run = Run.open(str(folder))
        write_spec(run, self.spec)
        run.write_part("tasks", 0, TASKS.rows(self.tasks))
        run.write_part("splits", 0, SPLITS.empty())
        run.write_part("contexts", 0, CONTEXTS.rows(self.contexts))
        for part in range(n_parts):
            run.write_part("prompts", part, PROMPTS.rows(self.prompts[part::n_parts]))
            run.write_part("label_scores", part, LABEL_SCORES.rows(self.label_scores[part::n_parts]))
        write_plan(run)
        return run.uri


def two_tasks() -> Plan:
    """Return a plan with two tasks, zero and two demonstrations, two sets, every purpose; drawn with seed 0."""
    rng = np.random.default_rng(0)
    plan = Plan()
    plan.task("task001_animals", ["cat", "dog"])
    plan.task("task002_letters", ["A", "B", "C"], is_semantically_equivalent=True)
    for row in list(plan.tasks):
        task, labels = row["task"], row["labels"]
        golds = {purpose: rng.choice(labels, size=n).tolist() for purpose, n in (("main", 30), ("bias_score", 12))}
        for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
            rows = [(purpose, gold) for purpose in golds for gold in golds[purpose]]
            rows += [("cc", None)] * 3 + [("dc", None)] * 5 + [("looc", rng.choice(labels)) for _ in range(n_demos)]
            for purpose, gold in rows:
                tokens = [(-rng.exponential(2, size=i + 2)).tolist() for i in range(len(labels))]
                plan.prompt(task, purpose, gold, tokens, n_demos=n_demos, demo_set=demo_set)
    return plan


def rows(run: str, sql: str) -> Rows:
    result: Rows = query([run], sql).to_pylist()
    return result


def counts_of_draws(run: Relations) -> np.ndarray[Any, Any]:
    """Return how often each draw of the suite of all tasks holds each of its two tasks."""
    draws = run.rows("select n_drawn from bootstrap_draws where suite = 'all' and draw > 0 order by draw, task")
    return np.array([row["n_drawn"] for row in draws]).reshape(1000, 2)


def reach(error: float, n_tasks: int) -> float:
    """Return how far Student's interval reaches, of an error among resamples of so many tasks."""
    return float(stats.t.ppf(0.975, n_tasks - 1) * math.sqrt(n_tasks / (n_tasks - 1)) * error)
