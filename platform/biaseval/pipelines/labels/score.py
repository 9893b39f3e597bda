"""The kind score: any prompts with any labels, without tasks or metrics."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from biaseval.errors import InputError, Problems, first_of, refuse
from biaseval.pipelines.kind import Description, Kind, Plan
from biaseval.pipelines.labels.causal import model_inputs, part_entry
from biaseval.pipelines.labels.label_scores import scoring_stage
from biaseval.progress import say
from biaseval.prompting.beginnings import bos_cautions
from biaseval.prompting.labels import label_cautions, label_problem, looks
from biaseval.prompting.lengths import TokenCounter
from biaseval.records import Records
from biaseval.spec import ExecutionSpec, ModelSpec, ScoreSpec
from biaseval.store import Run
from biaseval.tables import CONTEXTS, PROMPTS

_SHOWN_PROBLEMS = 10
_END_CHARACTERS = 16
_PART_ROWS = 512


@dataclass(frozen=True)
class PromptsInputs:
    """What planning starts from, validated."""

    prompts: pa.Table
    """``prompt_id``, ``text``, ``labels``."""
    facts: dict[str, Any]
    subject: str
    notes: list[str]
    """What a reader of the scores should know, in sentences that begin with ``note:``."""


def score_spec(model: ModelSpec, execution: ExecutionSpec, prompts_file: Path) -> ScoreSpec:
    """Return the spec of scoring a file of prompts (see `biaseval.runs.score_prompts`): it names them by content.

    Raises:
        InputError: the file cannot be read, or has rows that cannot be scored; the message lists them.
    """
    digest = _sha256(_read_prompts(prompts_file))
    return ScoreSpec(kind="score", model=model, prompts_sha256=digest, execution=execution, prompts=str(prompts_file))


def _sha256(prompts: pa.Table) -> str:
    return hashlib.sha256(repr(prompts.to_pylist()).encode()).hexdigest()


def _read(spec: ScoreSpec) -> PromptsInputs:
    path = Path(spec.prompts)
    prompts = _read_prompts(path)
    problems = Problems()
    with problems.noted():
        if _sha256(prompts) != spec.prompts_sha256:
            raise InputError(f"{path}: changed while it was read; run the same command again")
    with problems.noted():
        facts, tokenizer = model_inputs(spec.model)
    problems.refuse()
    found = [_indistinct_labels(prompts, tokenizer)]
    if facts.window is not None:
        found.append(_long_prompts(prompts, TokenCounter(tokenizer), facts.window))
    problems.found += [f"{path}: {problem}" for each in found for problem in islice(each, _SHOWN_PROBLEMS)]
    problems.refuse()
    cautions = [*bos_cautions(tokenizer, prompts["text"].to_pylist()), *islice(_odd_labels(prompts), _SHOWN_PROBLEMS)]
    notes = [f"note: {path}: {caution}" for caution in cautions]
    return PromptsInputs(prompts, {"model_facts": asdict(facts)}, f"{prompts.num_rows:,} prompts", notes)


def _describe(spec: ScoreSpec, inputs: PromptsInputs) -> Description:
    n_prompts = inputs.prompts.num_rows
    return Description([("prompts", f"{n_prompts:,}")], inputs.notes, {"n_prompts": n_prompts})


def _write(run: Run, spec: ScoreSpec, inputs: PromptsInputs) -> Plan:
    for note in inputs.notes:
        say(note)
    asked = spec.execution.part_rows
    part_rows = _PART_ROWS if asked == "auto" else asked
    # One empty context: the text is the prompt.
    run.write_part("contexts", 0, CONTEXTS.rows([{"context_id": "", "text": ""}]))
    parts = []
    for number, start in enumerate(range(0, inputs.prompts.num_rows, part_rows)):
        rows = [
            {"prompt_id": row["prompt_id"], "context_id": "", "labels": row["labels"], "input_text": row["text"]}
            for row in inputs.prompts.slice(start, part_rows).to_pylist()
        ]
        run.write_part("prompts", number, PROMPTS.rows(rows))
        characters = sum(len(row["input_text"]) for row in rows)
        parts.append(part_entry(number, 0, len(rows), characters // 4))
    return {"n_prompts": inputs.prompts.num_rows, "n_parts": len(parts), "parts": parts}


def _read_prompts(path: Path) -> pa.Table:
    """Return ``prompt_id``, ``text`` and ``labels`` of a Parquet or JSONL file, validated."""
    records = Records(str(path))
    rows = [row for _, row in records]
    refuse(first_of(records.problems, f"{path}: ", "lines", most=11))
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
        for name, value in (("prompt_id", identifier), ("text", text), ("labels", labels)):
            if _has_half_surrogate(value):
                problems.append(f"row {number}: {name} holds half a surrogate pair, which is no character; take it out")
        if not isinstance(labels, list) or not labels or not all(isinstance(x, str) and looks(x) for x in labels):
            problems.append(f"row {number}: labels must be a list of at least one label, each a string with a word")
        elif len(set(labels)) < len(labels):
            problems.append(f"row {number}: labels names a label twice")
    if not rows:
        problems.append("holds no row")
    refuse(first_of(problems, f"{path}: "))
    schema = pa.schema([("prompt_id", pa.string()), ("text", pa.string()), ("labels", pa.list_(pa.string()))])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _has_half_surrogate(value: object) -> bool:
    texts = value if isinstance(value, list) else [value]
    return any("\ud800" <= character <= "\udfff" for text in texts if isinstance(text, str) for character in text)


def _odd_labels(prompts: pa.Table) -> Iterator[str]:
    """Yield oddities of labels, each once."""
    seen: set[object] = set()
    for row in prompts.to_pylist():
        labels = tuple(sorted(row["labels"]))
        for caution in () if labels in seen else label_cautions(labels):
            if caution not in seen:
                yield f"{caution} (first in prompt {row['prompt_id']!r})"
            seen.add(caution)
        seen.add(labels)


def _indistinct_labels(prompts: pa.Table, tokenizer: Any) -> Iterator[str]:
    seen = set()
    for row in prompts.to_pylist():
        # Earlier text does not change the tokens of a label.
        key = (row["text"][-_END_CHARACTERS:], tuple(row["labels"]))
        if key not in seen:
            seen.add(key)
            if problem := label_problem(tokenizer, *key):
                yield f"prompt {row['prompt_id']!r}: {problem}; change its labels"


def _long_prompts(prompts: pa.Table, counter: TokenCounter, window: int) -> Iterator[str]:
    """Yield the prompts that do not fit the model's window with their longest label and EOS."""
    for row in prompts.to_pylist():
        longest = max(row["labels"], key=len)
        # A token is at least a byte: most texts need not be tokenised to be known to fit.
        if len(row["text"].encode()) + len(longest.encode()) + 8 > window:
            n_tokens = counter.count(f"{row['text']} {longest}") + 1
            if n_tokens > window:
                yield (
                    f"prompt {row['prompt_id']!r} needs {n_tokens} tokens with label and EOS and the model's "
                    f"window has {window}; shorten it"
                )


SCORE = Kind(
    read=_read,
    describe=_describe,
    write=_write,
    stages=lambda run, spec, plan: [scoring_stage(run, plan, spec.model, spec.execution)],
)
