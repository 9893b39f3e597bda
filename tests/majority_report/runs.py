"""Runs whose answers depend on the proportions of labels, and what is read of their pages."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biaseval.store import Run
from biaseval.tables import ADAPTED_GENERATIONS, ADAPTED_SCORES, TRAINING, TRAINING_ROWS, output_tables
from tests.majorityplans import ANSWERS, MajorityPlan
from tests.measuring import measure
from tests.specs import write_plan

HOSTILE = "<img src=//evil onerror=alert(1)>"


def make_run(
    folder: Path,
    n_parameters: int | None,
    answers: Mapping[tuple[str, bool], tuple[str, str]] = ANSWERS,
    data: str = "boolq",
    calibration: tuple[str, ...] = (),
    digest: str | None = None,
    predict: tuple[str, ...] = ("likelihood",),
    n_repeats: int = 50,
    adapted: Mapping[tuple[str, bool], tuple[str, str]] | None = None,
    is_measured: bool = True,
    **spec: Any,
) -> str:
    """Return a run of the model ``models/{n_parameters}``, measured or not; the questions of other data are others.

    With ``adapted``, what the model answers with adapters.
    """
    plan = MajorityPlan(predict, calibration, answers, n_repeats=n_repeats)
    plan.n_parameters = n_parameters
    plan.spec |= {"name": folder.name, "model": {"path": f"models/llm-{n_parameters}", "dtype": "float32"}, **spec}
    if data != "boolq":
        plan.spec["prompt"] = {"item": "Text: {sentence}\nStance: {label}", "n_demos": 2}
        plan.spec["data"] = {"train": f"data/{data}/train.jsonl", "test": f"data/{data}/test.jsonl"}
        for row in plan.prompts:
            row["input_text"] = f"{data} {row['input_text']}"
    if adapted is not None:
        plan.spec["lora"] = {"preset": "reif2024"}
        for rows, n_tokens in ((plan.contexts, 10), (plan.prompts, 15)):
            for row in rows:
                row["n_tokens"] = n_tokens
    run = plan.write(folder)
    if adapted is not None:
        _write_adapted(Run.open(run), plan, MajorityPlan(predict, calibration, adapted, n_repeats=n_repeats))
    if digest is not None:
        environment = {"model": {"digest": digest}, "model_facts": {"n_parameters": n_parameters}}
        Run.open(run).write_text("environment.json", json.dumps(environment))
    if is_measured:
        measure(run, has_checks=False)
    return run


def _write_adapted(run: Run, plan: MajorityPlan, with_adapters: MajorityPlan) -> None:
    """Write what the model gives with adapters, and their training: two steps over four rows of 20 tokens each."""
    if "label_scores" in output_tables(plan.spec["predict"]):
        run.write_part("adapted_scores", 0, ADAPTED_SCORES.rows(with_adapters.label_scores))
    if set(plan.spec["predict"]) != {"likelihood"}:
        run.write_part("adapted_generations", 0, ADAPTED_GENERATIONS.rows(with_adapters.generations))
    adapters = [
        {"adapter": context["context_id"]}
        | {name: context[name] for name in ("task", "n_demos", "demo_set", "setting", "instruction")}
        for context in plan.contexts
        if context["context_id"].count("/") == 3
    ]
    examples = [
        {**adapter, "row": row, "instance_id": f"example{row}", "n_tokens": 20}
        for adapter in adapters
        for row in range(4)
    ]
    steps = [
        {**adapter, "step": step, "epoch": 0, "loss": loss, "seconds": 0.5}
        for adapter in adapters
        for step, loss in enumerate((2.0, 1.0))
    ]
    run.write_part("training_rows", 0, TRAINING_ROWS.rows(examples))
    run.write_part("training", 0, TRAINING.rows(steps))
    write_plan(run)
    environment = {"model_facts": {"n_parameters": plan.n_parameters}, "trained_parameters": 512}
    run.write_text("environment.json", json.dumps(environment))


def tables(source: str) -> dict[str, list[list[str]]]:
    """Return the cells of each table by its caption; a table that comes again is left out."""
    found: dict[str, list[list[str]]] = {}
    written = re.sub(r"<script>.*?</script>", "", source, flags=re.S)
    for table in re.findall(r"<table.*?</table>", written, re.S):
        caption = re.sub(r"\s+", " ", re.search(r"<caption>(.*?)</caption>", table, re.S)[1])  # type: ignore[index]
        rows = [
            [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.S)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)
        ]
        found.setdefault(caption, rows)
    return found


def table(source: str, word: str) -> list[list[str]]:
    [rows] = [rows for caption, rows in tables(source).items() if word in caption]
    return rows
