"""Read one line of samples of lm-evaluation-harness: the scored choices, and the right one.

A line has ``target`` as text, originally an index of the choices or one of them. If the task's configuration leaves
this open, the logged accuracy of the doc decides. A logged accuracy must also follow from the scores, so that the
import matches the measurement.
"""

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from biaseval.outputs.records import Record
from biaseval.outputs.scored import MOST_LOGPROB

EXPORTED = ("id", "input", "prompt", "label")
"""The fields of a doc that `biaseval.outputs.export` writes."""

_NEEDED = ("doc_id", "doc", "target", "arguments", "filtered_resps")


class DocError(Exception):
    """A reason why a doc cannot be imported, with advice."""


@dataclass(frozen=True)
class Doc:
    """A doc with the scores of its choices."""

    doc_id: str
    choices: tuple[str, ...]
    """The choices in the order of the task; contexts if the task puts each choice before the same continuation."""
    logprobs: tuple[float, ...]
    """The summed log-likelihood of each choice's tokens, in nats."""
    gold: int
    """The index of the right choice."""
    prompt: str | None
    """The prompt; null if each choice has another one."""
    instance: str
    """The name of the data row: the doc's number, or its name in an exported run of this platform."""
    doc: str
    """The question without its prompt: the doc as JSON, or the row's input in an exported run of this platform."""
    place: str
    filter: str

    @property
    def predicted(self) -> int:
        """Return the index of the most likely choice, the first of equally likely ones, as the harness does."""
        return self.logprobs.index(max(self.logprobs))

    @property
    def is_distinct(self) -> bool:
        """Return whether all choices differ."""
        return len(set(self.choices)) == len(self.choices)

    @property
    def is_tied(self) -> bool:
        """Return whether another choice is equally likely."""
        return self.logprobs.count(max(self.logprobs)) > 1


def read_doc(place: str, record: Record, config: Mapping[str, Any]) -> Doc:
    """Return the doc that a line holds.

    ``place`` is the file and line, for messages, and ``config`` the task's configuration.

    Raises:
        DocError: the line lacks data, or the right choice is unknown, or several choices are right.
    """
    if lacking := [key for key in _NEEDED if key not in record]:
        raise DocError(f"has no {', '.join(lacking)}; is no sample that lm_eval --log_samples wrote")
    requests = _requests(record["arguments"])
    logprobs = _logprobs(record["filtered_resps"])
    if len(logprobs) != len(requests):
        raise DocError(f"has {len(requests)} arguments and {len(logprobs)} filtered_resps; log the samples again")
    # With acc_mutual_info the harness scores every choice a second time, after an empty context.
    n_choices = len(requests) // 2 if "acc_mutual_info" in record else len(requests)
    requests, logprobs = requests[:n_choices], logprobs[:n_choices]
    contexts, continuations = zip(*requests, strict=True)
    has_inputs = len(set(contexts)) > 1 and len(set(continuations)) == 1
    delimiter = str(config.get("target_delimiter", " "))
    choices = contexts if has_inputs else tuple(text.removeprefix(delimiter) for text in continuations)
    instance, asked = _row(record)
    doc = Doc(
        instance=instance, doc_id=str(record["doc_id"]), choices=choices, logprobs=logprobs, gold=0,
        prompt=None if has_inputs else contexts[0], doc=asked, place=place,
        filter=str(record.get("filter", "none")),
    )  # fmt: skip
    candidates = _candidates(record, choices, config, has_inputs=has_inputs)
    if "acc" in record:
        candidates = [index for index in candidates if float(index == doc.predicted) == record["acc"]]
        if not candidates:
            raise DocError(
                f"acc {record['acc']} does not follow from its target {record['target']!r} and scores: the task is "
                "scored in a way of its own; leave the file out"
            )
    elif config.get("process_results"):
        raise DocError("has no acc, and the task is scored by a function of its own; leave the file out")
    if len(candidates) != 1:
        raise DocError(
            f"target {record['target']!r} does not tell which of the choices {list(choices)} is right; leave the file "
            "out"
        )
    return replace(doc, gold=candidates[0])


def _requests(arguments: Any) -> list[tuple[str, str]]:
    try:
        requests = [(own["arg_0"], own["arg_1"]) for own in arguments.values()]
    except (AttributeError, KeyError, TypeError):
        requests = []
    if not requests or not all(isinstance(text, str) for request in requests for text in request):
        raise DocError("arguments hold no pairs of context and continuation; log the samples as lm_eval 0.4.13 does")
    return requests


def _logprobs(responses: Any) -> tuple[float, ...]:
    """Return the log-likelihood of each request; the harness writes numbers as text."""
    try:
        logprobs = tuple(float(response[0]) for response in responses)
    except (TypeError, ValueError, LookupError) as error:
        raise DocError(
            "filtered_resps hold no log-likelihoods; leave the file out, or log it without a filter of its own"
        ) from error
    for logprob in logprobs:
        if not math.isfinite(logprob) or logprob > MOST_LOGPROB:
            raise DocError(f"filtered_resps hold {logprob}, which is no log-likelihood; score the task again")
    return logprobs


def _row(record: Record) -> tuple[str, str]:
    """Return the name of the doc's row and its question."""
    doc = record["doc"]
    if isinstance(doc, dict) and doc.keys() == set(EXPORTED):
        return str(doc["id"]), str(doc["input"])
    return str(record["doc_id"]), json.dumps(doc, ensure_ascii=False)


def _candidates(record: Record, choices: Sequence[str], config: Mapping[str, Any], *, has_inputs: bool) -> list[int]:
    """Return the choices that the target may mean; a single one if that is clear."""
    # Where choices are contexts, doc_to_text gives the right one; the log has it if doc_to_text is a field.
    key = config.get("doc_to_text" if has_inputs else "doc_to_target")
    fields = record["doc"] if isinstance(record["doc"], dict) else {}
    if isinstance(key, str) and key in fields:
        meant = _meant(fields[key], choices)
    elif isinstance(key, int):
        meant = _meant(key, choices)
    elif has_inputs:
        meant = list(range(len(choices)))
    else:
        text = str(record["target"])
        is_template = isinstance(key, str) and "{{" in key
        meant = _meant(_literal(text), choices)
        if not is_template and text in choices:
            meant = [*meant, choices.index(text)]
    meant = list(dict.fromkeys(meant))
    if not meant:
        raise DocError(f"target {record['target']!r} is none of the choices {list(choices)}; mend the task")
    return meant


def _literal(text: str) -> Any:
    """Return the number or list that the text of a target spells, or else the text."""
    if text.isascii() and text.isdigit():
        return int(text)
    if text.startswith("[") and text.endswith("]"):
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text
    return text


def _meant(value: Any, choices: Sequence[str]) -> list[int]:
    """Return the choices whose index or text equals the target; none if nothing matches."""
    if isinstance(value, list):
        if len(value) > 1:
            raise DocError(
                f"target {value!r} names several right choices; label bias needs one gold label: leave the file out"
            )
        return _meant(value[0], choices) if value else []
    if isinstance(value, int):
        return [int(value)] if 0 <= value < len(choices) else []
    return [choices.index(value)] if value in choices else []
