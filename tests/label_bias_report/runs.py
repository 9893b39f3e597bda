"""Runs whose scores have a known bias; the marts behind them are the real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from biaseval.report.findings import Findings, Row
from biaseval.report.verdict import conclude
from biaseval.store import Run
from biaseval.tables import (
    ADAPTED_SCORES,
    CONTEXTS,
    LABEL_SCORES,
    PROMPTS,
    SPLITS,
    TASKS,
    TRAINING,
    TRAINING_ROWS,
)
from tests.measuring import measure
from tests.specs import write_plan, write_spec

LABELS = (("no", "yes"), ("A", "B", "C", "D"), ("contradiction", "entailment", "neutral"))

PREFERENCE = 1.6
"""Nats by which the first label is ahead whatever the input, without demonstrations."""


def make_run(
    folder: Path,
    *,
    n_tasks: int,
    n_demos: Sequence[int] = (0, 2, 8),
    demo_sets: int = 2,
    calibration: Sequence[str] = ("cc", "dc", "looc"),
    n_equivalent: int = 0,
    n_main: int = 24,
    n_bias_score: int = 20,
    signal: float = 1.0,
    labels: Sequence[str] | None = None,
    name: str = "synthetic",
    losses: Sequence[float] = (),
    preference: float = PREFERENCE,
) -> Run:
    """Return a finished run whose scores prefer the first label, less with more demonstrations.

    A main row's log-likelihoods are the preference, plus ``signal`` on the gold label, plus noise; inputs without an
    answer show the preference and noise only, so that calibration can take the preference away. With ``losses``, one
    for each step, the run has adapters, which leave a quarter of the preference.
    """
    generator = np.random.default_rng(7)
    run = Run.open(str(folder))
    run.create()
    tasks, contexts, prompts = [], [], []
    scores: list[Row] = []
    adapted_scores: list[Row] = []
    adapters = []
    for number in range(n_tasks):
        task = f"task{number:03d}_synthetic"
        names = sorted(labels or LABELS[number % len(LABELS)])
        strength = preference * generator.uniform(0.3, 1.7)
        tasks.append(
            {
                "task": task,
                "number": number,
                "run_key": task,
                "category": "Sentiment Analysis",
                "definition": f"Say which of the labels fits <input> & task {number}.",
                "labels": names,
                "n_instances": 396,
                "n_main": n_main,
                "template": "Text: {INPUT}" if "dc" in calibration else None,
                "template_source": ("inferred" if number % 2 else "table") if "dc" in calibration else None,
                "is_semantically_equivalent": number < n_equivalent,
            }
        )
        for k in n_demos:
            for demo_set in range(demo_sets if k else 1):
                place = f"{task}/k{k}.s{demo_set}"
                setting = {"task": task, "n_demos": k, "demo_set": demo_set}
                of_adapters = {"instruction": True, "n_tokens": 40} if losses else {}
                contexts.append({"context_id": place, **setting, "text": "...", **of_adapters})
                adapters.append({"adapter": place, "model": name, "instruction": True, **setting})
                ahead = np.zeros(len(names))
                ahead[0] = strength / (1 + k / 4)
                n_rows = {"main": n_main, "bias_score": n_bias_score, "cc": 3, "dc": 20, "looc": k}
                for purpose in ("main", "bias_score", *calibration):
                    for row in range(n_rows[purpose]):
                        gold = None if purpose in ("cc", "dc") else row % len(names)
                        logs = ahead + generator.normal(0, 0.5, len(names)) - 2
                        if gold is not None:
                            logs[gold] += signal
                        prompt_id = f"{place}/{purpose}/{row}"
                        prompts.append(
                            {
                                "prompt_id": prompt_id,
                                "context_id": place,
                                "task": task,
                                "purpose": purpose,
                                "n_demos": k,
                                "demo_set": demo_set,
                                "row": row,
                                "instance_id": None if gold is None else f"{task}-{purpose}-{row}",
                                "gold": None if gold is None else names[gold],
                                "labels": names,
                                "input_text": "Input:",
                                "n_demos_used": k - (purpose == "looc") - (k == 8 and purpose == "main" and row == 0),
                                "is_truncated": False,
                                "n_tokens": 50 if losses else None,
                            }
                        )
                        for rows, shown in ((scores, logs), (adapted_scores, logs - 0.75 * ahead)):
                            logprobs = (shown - np.logaddexp.reduce(shown)).tolist()
                            rows += [
                                {"prompt_id": prompt_id, "label": label, "token_logprobs": [x, x], "n_label_tokens": 1}
                                for label, x in zip(names, logprobs, strict=True)
                            ]
    run.write_part("tasks", 0, TASKS.rows(tasks))
    run.write_part("splits", 0, SPLITS.empty())
    run.write_part("contexts", 0, CONTEXTS.rows(contexts))
    run.write_part("prompts", 0, PROMPTS.rows(prompts))
    run.write_part("label_scores", 0, LABEL_SCORES.rows(scores))
    if losses:
        run.write_part("adapted_scores", 0, ADAPTED_SCORES.rows(adapted_scores))
        examples = [
            {**adapter, "row": row, "instance_id": f"example{row}", "n_tokens": 60}
            for adapter in adapters
            for row in range(16)
        ]
        run.write_part("training_rows", 0, TRAINING_ROWS.rows(examples))
        steps = [
            {**adapter, "step": step, "epoch": step // 2, "loss": loss + number / 1000, "seconds": 0.5}
            for number, adapter in enumerate(adapters)
            for step, loss in enumerate(losses)
        ]
        run.write_part("training", 0, TRAINING.rows(steps))
    spec = {
        "kind": "label_bias",
        "name": name,
        "seed": 42,
        "model": {"path": "models/synthetic", "dtype": "float32"},
        "prompt": {"n_demos": list(n_demos), "demo_sets": demo_sets},
        "calibration": list(calibration),
        "scoring": {"normalization": "mean", "eos": True},
    }
    if losses:
        spec["lora"] = {"preset": "reif2024", "epochs": len(losses) // 2}
    write_spec(run, spec)
    plan = {
        "n_tasks": n_tasks,
        "n_prompts": len(prompts),
        "n_scores": len(scores),
        "tokens": 12345,
        "tokens_unshared": 67890,
        "notes": ["task001_synthetic: 3 inputs do not fit the template and give no words to dc"],
        "left_out": {"task900_broken": "has <4 labels> & more"},
    }
    write_plan(run, **plan)
    environment = {
        "versions": {"biaseval": "0.1.0"},
        "python": "3.11.9",
        "hardware": {"cpu": "some", "n_cores": 2, "gpus": []},
        "model": {"sha256": "ab" * 32},
        "data": {f"{task['task']}.json": "cd" * 32 for task in tasks},
        "scorer": {"path": "packed"},
        "seed": 42,
    }
    if losses:
        environment |= {"trained_parameters": 4096, "scorer": {"path": "packed", "scoring_s": 100.0}}
    run.write_text("environment.json", json.dumps(environment))
    measure(run.uri)
    return run


def told(findings: Findings) -> dict[str, str]:
    """Return what the verdict of the page says, by what each of its lines begins with."""
    return {line.lead: " ".join([line.text, *line.items, line.end]).strip() for line in conclude(findings)}
