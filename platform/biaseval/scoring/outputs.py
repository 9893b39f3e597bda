"""What a model says of a part of prompts: tables in, tables out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.prompting.matching import N_NEW_TOKENS, constrained_choice, match_label
from biaseval.scoring.prepare import Prepared, prepare
from biaseval.tables import ADAPTED, GENERATIONS, LABEL_SCORES

if TYPE_CHECKING:
    from biaseval.scoring.scorer import LabelScorer

_OF_PROMPT = -1
"""Stands for a token of the prompt among those of labels."""


@dataclass(frozen=True)
class ReadPart:
    """A part as a scorer takes it."""

    prepared: Prepared | None
    """Prompts with labels; None where nothing asks for their scores."""
    predicted: pa.Table | None
    """The prompts to predict by generation: ``prompt_id``, ``text``, ``labels``; None where nothing asks for that."""


def read_part(
    tokenizer: Any, prompts: pa.Table, contexts: pa.Table, predict: Sequence[str], tables: Collection[str]
) -> ReadPart:
    """Return a part in tokens, laid out for scoring, from tables of ``PROMPTS`` and of their ``CONTEXTS``.

    ``predict`` says how predictions are made (``likelihood``, ``generate``, ``constrained``), and ``tables`` which
    tables of outputs are to be made.
    """
    texts = dict(zip(contexts["context_id"].to_pylist(), contexts["text"].to_pylist(), strict=True))
    heads = pa.array([texts[identifier] for identifier in prompts["context_id"].to_pylist()], pa.string())
    scorable = pa.table(
        {
            "prompt_id": prompts["prompt_id"],
            "text": pc.binary_join_element_wise(heads, prompts["input_text"].combine_chunks(), ""),
            "labels": prompts["labels"],
        }
    )
    if "n_prefix_characters" in prompts.column_names:
        scorable = scorable.append_column("n_prefix_characters", prompts["n_prefix_characters"])
    asked = set(tables)
    is_scored = not asked.isdisjoint(("label_scores", ADAPTED["label_scores"])) or "constrained" in predict
    is_predicted = not asked.isdisjoint(("generations", ADAPTED["generations"]))
    return ReadPart(
        prepared=prepare(tokenizer, scorable) if is_scored else None,
        predicted=scorable.filter(pc.equal(prompts["purpose"], "majority")) if is_predicted else None,
    )


def part_outputs(
    scorer: LabelScorer, read: ReadPart, predict: Sequence[str], tables: Collection[str]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables ``label_scores`` and ``generations`` that ``tables`` names, each when it is computed.

    Generation, free or constrained, runs for prompts of the purpose ``majority`` only.
    """
    scores = None
    if read.prepared is not None and ("label_scores" in tables or "constrained" in predict):
        scores = scorer.score_prepared(read.prepared)
    if scores is not None and "label_scores" in tables:
        yield "label_scores", scores.select(LABEL_SCORES.schema.names).cast(LABEL_SCORES.schema)
    if read.predicted is not None and "generations" in tables:
        rows: list[dict[str, object]] = []
        if "generate" in predict:
            rows += _generated(scorer, read.predicted)
        if "constrained" in predict and read.prepared is not None and scores is not None:
            rows += _constrained(read.prepared, scores, read.predicted)
        yield "generations", GENERATIONS.rows(rows)


def _generated(scorer: LabelScorer, predicted: pa.Table) -> Iterator[dict[str, object]]:
    found = scorer.generate(predicted, N_NEW_TOKENS).to_pylist() if predicted.num_rows else []
    for own, labels in zip(found, predicted["labels"].to_pylist(), strict=True):
        prediction = match_label(own["text"], labels)
        yield {"prompt_id": own["prompt_id"], "mode": "generate", "text": own["text"], "prediction": prediction}


def _constrained(prepared: Prepared, scores: pa.Table, predicted: pa.Table) -> Iterator[dict[str, object]]:
    """Yield the constrained predictions: what the scores of the labels say that such a decoder would write.

    Of labels that begin at other tokens than the rest, those before the later ones are the prompt's, and certain.
    """
    scored: dict[str, list[tuple[str, int, list[int], list[float]]]] = {}
    columns = (scores["prompt_id"], scores["label"], prepared.rows["n_tokens"], scores["token_logprobs"])
    rows = zip(*(column.to_pylist() for column in columns), prepared.target_tokens(), strict=True)
    for prompt_id, label, n_tokens, logprobs, tokens in rows:
        scored.setdefault(prompt_id, []).append((label, n_tokens - len(tokens), tokens, logprobs))
    for prompt_id in predicted["prompt_id"].to_pylist():
        labels, starts, tokens, logprobs = zip(*scored[prompt_id], strict=True)
        given = [start - min(starts) for start in starts]
        chosen = constrained_choice(
            [[_OF_PROMPT] * n + own for n, own in zip(given, tokens, strict=True)],
            [[0.0] * n + own for n, own in zip(given, logprobs, strict=True)],
        )
        label = labels[chosen]
        yield {"prompt_id": prompt_id, "mode": "constrained", "text": label, "prediction": label}
