"""A table of label scores from any program: a row per (prompt, label), in CSV, JSONL or Parquet.

Columns:

task        the task, whose prompts all have the same labels
prompt_id   names the input within task and purpose, the same in every setting; default: ``input`` or ``text``
label       one of the prompt's labels
logprob     the summed log-likelihood of the label's tokens, in nats: at most 0
gold        the right label; may be missing for inputs of a calibration
n_demos     demonstrations in the prompt; 0 if missing
demo_set    number of the demonstration set, from 0; 0 if missing
purpose     ``main`` (if missing), ``bias_score`` for held-out rows; ``cc``, ``dc``, ``looc`` for inputs of calibration
input       the question, without demonstrations
text        the whole prompt
"""

import difflib
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from biaseval.errors import InputError, Problems, first_of, refuse
from biaseval.outputs.plan import PURPOSES, needs_gold
from biaseval.outputs.records import Record, digest_of, records
from biaseval.outputs.scored import MOST_LOGPROB, Outputs, ScoredPrompt
from biaseval.prompting.labels import same_number
from biaseval.spec import OnBadRow, is_label, label_key

REQUIRED = ("task", "label", "logprob")
COLUMNS = (*REQUIRED, "prompt_id", "gold", "n_demos", "demo_set", "purpose", "input", "text")
"""All columns that a table may have."""

_SHARED = ("gold", "input", "text")
"""Columns that must agree in all rows of a prompt."""

_MOST_DIGITS = 9
"""The most digits of a count, which is stored in 32 bits."""

_Key = tuple[str, tuple[int, int], str, str]


class _RowError(Exception):
    """A problem of a row, with advice."""


def read_table(paths: Sequence[Path], *, on_bad_row: OnBadRow = "error") -> Outputs:
    """Return the scores of all files together.

    ``drop`` drops a prompt in all settings if it needs a right label and lacks it in one setting; the notes count such
    prompts.

    Raises:
        InputError: a file cannot be read, or rows do not hold valid columns; the message lists the mistakes.
    """
    problems = Problems()
    prompts: dict[_Key, ScoredPrompt] = {}
    notes: list[str] = []
    for path in paths:
        with problems.noted():
            problems.found += _read(path, prompts, notes)
    refuse(first_of(problems.found))
    kept = list(prompts.values())
    if on_bad_row == "drop":
        bad = {(one.task, one.purpose, one.instance) for one in kept if one.gold is None and needs_gold(one.purpose)}
        kept = [one for one in kept if (one.task, one.purpose, one.instance) not in bad]
        if bad and not kept:
            raise InputError(f"{paths[0]}: no input has a right label; add the column gold")
        if bad:
            notes.append(f"{len(bad):,} inputs without a right label are left out in all settings (--on-bad-row drop).")
    return Outputs(model=None, prompts=kept, sha256=digest_of(paths), notes=notes)


def _read(path: Path, prompts: dict[_Key, ScoredPrompt], notes: list[str]) -> Iterator[str]:
    """Add the rows of a file to ``prompts`` and remarks on it to ``notes``, and yield its problems."""
    known: set[str] = set()
    for place, record in records(path, notes):
        _refuse_columns(path, place, record, known)
        known |= record.keys()
        try:
            _add(record, place, prompts)
        except _RowError as error:
            yield f"{place}: {error}"


def _refuse_columns(path: Path, place: str, record: Record, known: Collection[str]) -> None:
    lacking = [] if known else [name for name in REQUIRED if name not in record]
    if lacking:
        raise InputError(f"{path}: has no column {', '.join(lacking)}; a table needs {', '.join(REQUIRED)}")
    for name in record:
        if name not in known and name not in COLUMNS:
            close = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"columns may be {', '.join(COLUMNS)}; leave it out"
            where = f"{path}: {place}" if known else path
            raise InputError(f"{where}: column {name!r} is unknown; {hint}")


def _add(record: Record, place: str, prompts: dict[_Key, ScoredPrompt]) -> None:
    """Add the score in a row to its prompt, of which it may be the first."""
    purpose = _text(record, "purpose") or "main"
    if purpose not in PURPOSES:
        raise _RowError(f"purpose {purpose!r} is unknown; use {', '.join(PURPOSES)}")
    shared = {name: _text(record, name) for name in _SHARED}
    instance = _text(record, "prompt_id") or shared["input"] or shared["text"]
    if instance is None:
        raise _RowError("none of prompt_id, input and text tells which prompt this is; add one")
    setting = (_count(record, "n_demos"), _count(record, "demo_set"))
    task, label, logprob = _needed(record, "task"), _needed(record, "label"), _logprob(record)
    key = (task, setting, purpose, instance)
    known = prompts.get(key)
    if known is None:
        scores = {label: logprob}
        prompts[key] = ScoredPrompt(task, setting, purpose, instance, logprobs=scores, place=place, **shared)
        return
    if label in known.logprobs:
        raise _RowError(
            f"label {label!r} of prompt {instance!r} stands there twice, in one setting and purpose (the prompt "
            f"begins at {known.place}); where these are two prompts, tell them apart by prompt_id"
        )
    for name, value in shared.items():
        if value != getattr(known, name):
            raise _RowError(
                f"{name} {value!r} of prompt {instance!r} is {getattr(known, name)!r} at {known.place}; "
                "all rows of a prompt need the same"
            )
    assert isinstance(known.logprobs, dict)
    known.logprobs[label] = logprob


def _text(record: Record, name: str) -> str | None:
    """Return a text; true, false and integers count as texts, and an empty text becomes null."""
    value: Any = record.get(name)
    if is_label(value) and not isinstance(value, str):
        return label_key(value)
    if value is not None and not isinstance(value, str):
        raise _RowError(f"{name} {value!r} is no text; write it as text")
    return value or None


def _needed(record: Record, name: str) -> str:
    value = _text(record, name)
    if value is None:
        raise _RowError(f"{name} is missing; add it")
    return value


def _count(record: Record, name: str) -> int:
    value = _text(record, name)
    if value is None:
        return 0
    number = same_number(value) or ""
    if not number.isdigit() or len(number) > _MOST_DIGITS:
        raise _RowError(f"{name} {value!r} is no number from 0 to {10**_MOST_DIGITS - 1:,}; mend it")
    return int(number)


def _logprob(record: Record) -> float:
    value = record.get("logprob")
    try:
        logprob = float("nan") if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        logprob = math.nan
    if not math.isfinite(logprob) or logprob > MOST_LOGPROB:
        raise _RowError(f"logprob {value!r} is no logarithm of a probability: a number of at most 0; mend it")
    return logprob
