"""Runs whose scores have a known bias; the marts behind them are the real ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biaseval.analysis import query
from biaseval.store import Run
from biaseval.tables import TABLES
from tests.measuring import measure
from tests.specs import write_plan, write_spec

Row = dict[str, Any]

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
    is_measured: bool = True,
) -> Run:
    """Return a run, measured or not, whose scores prefer the first label, less with more demonstrations.

    A main row's log-likelihoods are the preference, plus ``signal`` on the gold label, plus noise; inputs without an
    answer show the preference and noise only, so that calibration can take the preference away. With ``losses``, one
    for each step, the run has adapters, which leave a quarter of the preference.
    """
    generator = np.random.default_rng(7)
    run = Run.open(str(folder))
    run.create()
    rows: dict[str, list[Row]] = {name: [] for name in ("tasks", "contexts", "prompts", "label_scores", *_OF_ADAPTERS)}
    adapters: list[Row] = []
    for number in range(n_tasks):
        task = f"task{number:03d}_synthetic"
        names = sorted(labels or LABELS[number % len(LABELS)])
        strength = preference * generator.uniform(0.3, 1.7)
        source = ("inferred" if number % 2 else "table") if "dc" in calibration else None
        rows["tasks"].append(
            {"task": task, "number": number, "run_key": task, "category": "Sentiment Analysis"}
            | {"definition": f"Say which of the labels fits <input> & task {number}.", "labels": names}
            | {"n_instances": 396, "n_main": n_main, "is_semantically_equivalent": number < n_equivalent}
            | {"template": "Text: {INPUT}" if source else None, "template_source": source}
        )
        for k, demo_set in ((n, demo_set) for n in n_demos for demo_set in range(demo_sets if n else 1)):
            place = f"{task}/k{k}.s{demo_set}"
            setting = {"task": task, "n_demos": k, "demo_set": demo_set}
            of_adapters = {"instruction": True, "n_tokens": 40} if losses else {}
            rows["contexts"].append({"context_id": place, **setting, "text": "...", **of_adapters})
            adapters.append({"adapter": place, "model": name, "instruction": True, **setting})
            ahead = np.zeros(len(names))
            ahead[0] = strength / (1 + k / 4)
            n_rows = {"main": n_main, "bias_score": n_bias_score, "cc": 3, "dc": 20, "looc": k}
            for purpose, row in (
                (one, row) for one in ("main", "bias_score", *calibration) for row in range(n_rows[one])
            ):
                gold = None if purpose in ("cc", "dc") else row % len(names)
                logs = ahead + generator.normal(0, 0.5, len(names)) - 2
                if gold is not None:
                    logs[gold] += signal
                prompt_id = f"{place}/{purpose}/{row}"
                n_used = k - (purpose == "looc") - (k == 8 and purpose == "main" and row == 0)
                rows["prompts"].append(
                    {"prompt_id": prompt_id, "context_id": place, "purpose": purpose, **setting, "row": row}
                    | {"instance_id": None if gold is None else f"{task}-{purpose}-{row}", "labels": names}
                    | {"gold": None if gold is None else names[gold], "input_text": "Input:", "n_demos_used": n_used}
                    | {"is_truncated": False, "n_tokens": 50 if losses else None}
                )
                for table, shown in (("label_scores", logs), ("adapted_scores", logs - 0.75 * ahead)):
                    rows[table] += [
                        {"prompt_id": prompt_id, "label": label, "token_logprobs": [x, x], "n_label_tokens": 1}
                        for label, x in zip(names, (shown - np.logaddexp.reduce(shown)).tolist(), strict=True)
                    ]
    rows["training_rows"] = [
        {**adapter, "row": row, "instance_id": f"example{row}", "n_tokens": 60}
        for adapter in adapters
        for row in range(16)
    ]
    rows["training"] = [
        {**adapter, "step": step, "epoch": step // 2, "loss": loss + number / 1000, "seconds": 0.5}
        for number, adapter in enumerate(adapters)
        for step, loss in enumerate(losses)
    ]
    run.write_part("splits", 0, TABLES["splits"].empty())
    for table, found in rows.items():
        if losses or table not in _OF_ADAPTERS:
            run.write_part(table, 0, TABLES[table].rows(found))
    spec: Row = {"kind": "label_bias", "name": name, "seed": 42, "calibration": list(calibration)}
    spec |= {"model": {"path": "models/synthetic", "dtype": "float32"}}
    spec |= {"prompt": {"n_demos": list(n_demos), "demo_sets": demo_sets}}
    environment: Row = {
        "versions": {"biaseval": "0.1.0"}, "python": "3.11.9", "seed": 42, "model": {"sha256": "ab" * 32},
    }  # fmt: skip
    environment |= {"hardware": {"cpu": "some", "n_cores": 2, "gpus": []}, "scorer": {"path": "packed"}}
    environment |= {
        "model": {"sha256": "ab" * 32},
        "data": {f"{task['task']}.json": "cd" * 32 for task in rows["tasks"]},
    }
    if losses:
        spec["lora"] = {"preset": "reif2024", "epochs": len(losses) // 2}
        environment |= {"trained_parameters": 4096, "scorer": {"path": "packed", "scoring_s": 100.0}}
    write_spec(run, spec)
    write_plan(
        run, n_tasks=n_tasks, n_prompts=len(rows["prompts"]), n_scores=len(rows["label_scores"]), tokens=12345,
        tokens_unshared=67890, left_out={"task900_broken": "has <4 labels> & more"},
        notes=["task001_synthetic: 3 inputs do not fit the template and give no words to dc"],
    )  # fmt: skip
    run.write_text("environment.json", json.dumps(environment))
    if is_measured:
        measure(run.uri, has_checks=False)
    return run


_OF_ADAPTERS = ("adapted_scores", "training_rows", "training")


def said(run: Run) -> str:
    """Return the conclusions of a run as one text, a line each."""
    found = query([run.uri], "from label_bias_conclusions").to_pylist()
    return "\n".join(f"{row['lead']} {row['text']}" for row in found)
