"""Specs and plans of runs that tests write by hand, whole as those of real runs are."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from biaseval.spec import stored_spec
from biaseval.store import Run
from biaseval.training.rows import adapters_of

_MINIMAL: dict[str, dict[str, Any]] = {
    "label_bias": {"name": "tiny", "model": {"path": "models/tiny"}, "tasks": {"path": "tasks"}},
    "majority_bias": {"name": "tiny", "model": {"path": "models/tiny"}, "data": {"train": "data/train.jsonl"},
        "prompt": {"n_demos": 2}, "proportions": "binary_11"},
    "qa_bias": {"name": "tiny", "models": [{"name": "bert", "path": "models/bert"}],
        "datasets": {"in_distribution": {"squad": "squad.json"}}},
}  # fmt: skip
"""The least that a spec of each kind must say."""


def whole_spec(given: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with every key, as a run's ``spec.yaml`` has it: what is given, the least, and the defaults."""
    content = dict(_MINIMAL[given["kind"]])
    for key, value in given.items():
        merges = isinstance(value, dict) and isinstance(content.get(key), dict)
        content[key] = {**content[key], **value} if merges else value
    prompt = content.get("prompt", {})
    if content["kind"] == "majority_bias" and not prompt.get("item"):
        content["prompt"] = {**prompt, "preset": prompt.get("preset") or "boolq"}
    return stored_spec(content, "spec").model_dump(mode="json")


def write_spec(run: Run, given: dict[str, Any]) -> None:
    """Write ``spec.yaml``, from what a test gives of it, of a run without digests."""
    if run.has("digests.json"):
        run.delete("digests.json")
    run.write_text("spec.yaml", yaml.safe_dump(whole_spec(given), sort_keys=False))


def write_plan(run: Run, **facts: Any) -> None:
    """Write ``plan.json`` of the parts that the run has of its prompts or questions, and of its adapters.

    Args:
        run: has them.
        facts: what else the plan says.
    """
    plan: dict[str, Any] = {}
    if not run.has("environment.json"):
        run.write_json("environment.json", {})
    if run.parts("qa_examples"):
        parts = [
            {"part": part, "dataset": rows["dataset"][0].as_py() if rows.num_rows else "", "n_questions": rows.num_rows}
            for part in sorted(run.parts("qa_examples"))
            for rows in [run.read_part("qa_examples", part)]
        ]
        datasets = run.read_table("qa_examples")["dataset"].to_pylist()
        plan["datasets"] = {name: datasets.count(name) for name in dict.fromkeys(datasets)}
    else:
        adapters = adapters_of(run.read_table("training_rows")) if run.parts("training_rows") else []
        of_adapter = {"adapter": adapters[0]["adapter"]} if adapters else {}
        parts = [
            {"part": part, "contexts_part": 0, "n_prompts": run.read_part("prompts", part).num_rows, "tokens": 100}
            | of_adapter
            for part in sorted(run.parts("prompts"))
        ]
        plan["n_prompts"] = sum(part["n_prompts"] for part in parts)
        if adapters:
            # All parts have the first one.
            plan["adapters"] = [{"part": 0, "rows_part": 0, **adapters[0]}]
    run.write_text("plan.json", json.dumps({**plan, **facts, "n_parts": len(parts), "parts": parts}))


def as_older(folder: str | Path) -> Run:
    """Return a run as of a version that kept no digests: a test may then change its files."""
    run = Run.open(str(folder))
    if run.has("digests.json"):
        run.delete("digests.json")
    if run.has("environment.json"):
        run.write_json("environment.json", run.read_json("environment.json"))
    run.write_text("spec.yaml", re.sub(r"# own_sha256: \w+\n\Z", "", run.read_text("spec.yaml")))
    return run
