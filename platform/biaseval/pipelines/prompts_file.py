"""Scores any prompts with any labels: no tasks, no metrics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from biaseval.environment import describe_environment
from biaseval.errors import InputError
from biaseval.pipelines.claim import as_json, refuse_another_model, refuse_foreign
from biaseval.pipelines.label_outputs import LIKELIHOOD, model_inputs, part_entry, score_missing
from biaseval.prompting.labels import label_problem
from biaseval.prompting.lengths import TokenCounter
from biaseval.spec import ExecutionSpec, ModelSpec
from biaseval.store import Run
from biaseval.tables import CONTEXTS, PROMPTS, TABLES

_SHOWN_PROBLEMS = 10
_END_CHARACTERS = 16


def score_prompts(model: ModelSpec, execution: ExecutionSpec, prompts_file: Path, out_uri: str) -> Run:
    """Score any prompts with any labels; the scores are OUT/label_scores/part-*.parquet.

    Args:
        model: what to score with.
        execution: actors and their resources.
        prompts_file: Parquet or JSONL with ``prompt_id``, ``text`` and ``labels`` (list of text).
        out_uri: the directory for the scores; the same call resumes.

    Raises:
        InputError: bad input; the directory belongs to other prompts or another model.
    """
    from biaseval.models import fingerprint_model

    prompts = _read_prompts(prompts_file)
    facts, tokenizer = model_inputs(model)
    _refuse_indistinct_labels(prompts_file, prompts, tokenizer)
    _refuse_long_prompts(prompts_file, prompts, TokenCounter(tokenizer), facts.window)
    run = Run.open(out_uri)
    refuse_foreign(run)
    fingerprint = fingerprint_model(model.path, revision=model.revision, adapter=model.adapter)
    content_hash = hashlib.sha256(repr(prompts.to_pylist()).encode()).hexdigest()
    claim = {"kind": "score", "model": model.model_dump(), "prompts_sha256": content_hash}
    run.create()
    with run.lock():
        run.sweep()
        claimed = run.read_yaml("spec.yaml") if run.has("plan.json") else None
        if claimed == claim:
            refuse_another_model(run, model)
        elif claimed is not None and (claimed.get("kind") != "score" or run.parts("label_scores")):
            raise InputError(f"{run.uri}: holds scores of other prompts or another model; choose another --out")
        else:
            run.write_text("environment.json", as_json({**describe_environment(), "model": fingerprint}))
            run.write_text("spec.yaml", yaml.safe_dump(claim, sort_keys=False, allow_unicode=True))
            _write_prompts(run, prompts, execution)
        score_missing(run, model, execution, LIKELIHOOD)
    return run


def _read_prompts(path: Path) -> pa.Table:
    """Return ``prompt_id``, ``text`` and ``labels`` of a Parquet or JSONL file, validated."""
    rows = list(_prompt_rows(path))
    problems = []
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        identifier, text, labels = row.get("prompt_id"), row.get("text"), row.get("labels")
        if not isinstance(identifier, str) or not identifier:
            problems.append(f"row {number}: prompt_id is missing or not a string")
        elif identifier in seen:
            problems.append(f"row {number}: prompt_id {identifier!r} stands there twice; make ids unique")
        else:
            seen.add(identifier)
        if not isinstance(text, str):
            problems.append(f"row {number}: text is missing or not a string")
        elif _has_half_surrogate(text):
            problems.append(f"row {number}: text holds half a surrogate pair, which is no character; take it out")
        if not isinstance(labels, list) or not labels or not all(isinstance(x, str) and x.strip() for x in labels):
            problems.append(f"row {number}: labels must be a list of at least one label, each a string with a word")
        elif len(set(labels)) < len(labels):
            problems.append(f"row {number}: labels names a label twice")
    if not rows:
        problems.append("holds no row")
    if problems:
        n_more = len(problems) - _SHOWN_PROBLEMS
        shown = problems[:_SHOWN_PROBLEMS] + ([f"{n_more} more like these"] if n_more > 0 else [])
        raise InputError.of([f"{path}: {problem}" for problem in shown])
    schema = pa.schema([("prompt_id", pa.string()), ("text", pa.string()), ("labels", pa.list_(pa.string()))])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _has_half_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _refuse_indistinct_labels(path: Path, prompts: pa.Table, tokenizer: Any) -> None:
    """Make sure that the tokenizer tells the labels of each prompt apart."""
    problems = []
    seen = set()
    for row in prompts.to_pylist():
        # What stands further ahead does not change how a label is tokenised.
        key = (row["text"][-_END_CHARACTERS:], tuple(row["labels"]))
        if key not in seen:
            seen.add(key)
            if problem := label_problem(tokenizer, *key):
                problems.append(f"{path}: prompt {row['prompt_id']!r}: {problem}; change its labels")
    if problems:
        raise InputError.of(problems[:_SHOWN_PROBLEMS])


def _refuse_long_prompts(path: Path, prompts: pa.Table, counter: TokenCounter, window: int | None) -> None:
    """Make sure that each text with its longest label and EOS fits the model's window."""
    problems = []
    for row in prompts.to_pylist() if window is not None else ():
        longest = max(row["labels"], key=len)
        # A token is at least a byte: most texts need not be tokenised to be known to fit.
        if window is not None and len(row["text"].encode()) + len(longest.encode()) + 8 > window:
            n_tokens = counter.count(f"{row['text']} {longest}") + 1
            if n_tokens > window:
                problems.append(
                    f"{path}: prompt {row['prompt_id']!r} needs {n_tokens} tokens with label and EOS and the model's "
                    f"window has {window}; shorten it"
                )
    if problems:
        raise InputError.of(problems[:_SHOWN_PROBLEMS])


def _prompt_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            yield from pq.read_table(path).to_pylist()
            return
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise InputError(f"{path}: line {number} is not an object with prompt_id, text and labels")
                    yield row
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {number} is not JSON ({error.msg}); write one object a line") from error
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet or UTF-8 JSONL ({error}); check --prompts") from error


def _write_prompts(run: Run, prompts: pa.Table, execution: ExecutionSpec) -> None:
    for table in TABLES:
        run.delete(table)
    part_rows = 512 if execution.part_rows == "auto" else execution.part_rows
    # One empty context: the text is the prompt.
    run.write_part("contexts", 0, CONTEXTS.rows([{"context_id": "", "text": ""}]))
    parts = []
    for number, start in enumerate(range(0, prompts.num_rows, part_rows)):
        rows = [
            {
                "prompt_id": row["prompt_id"],
                "context_id": "",
                "labels": row["labels"],
                "input_text": row["text"],
            }
            for row in prompts.slice(start, part_rows).to_pylist()
        ]
        run.write_part("prompts", number, PROMPTS.rows(rows))
        characters = sum(len(row["input_text"]) for row in rows)
        parts.append(part_entry(number, 0, len(rows), characters // 4))
    run.write_text("plan.json", as_json({"n_prompts": prompts.num_rows, "n_parts": len(parts), "parts": parts}))
