"""The schema, grain and key of every table of a run. Columns may be added, never renamed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

_STRINGS = pa.list_(pa.string())


@dataclass(frozen=True)
class TableSchema:
    """What one row of a table is."""

    grain: str
    key: tuple[str, ...]
    schema: pa.Schema

    def empty(self) -> pa.Table:
        """Return the table without a row."""
        return pa.Table.from_batches([], self.schema)  # where schema.empty_table() would import pandas

    def rows(self, rows: list[dict[str, object]]) -> pa.Table:
        """Return ``rows`` as a table of exactly this schema."""
        return pa.Table.from_pylist(rows, schema=self.schema)


TASKS = TableSchema(
    grain="task of the run",
    key=("task",),
    schema=pa.schema(
        [
            ("task", pa.string()),
            ("number", pa.int32()),
            ("run_key", pa.string()),
            ("category", pa.string()),
            ("definition", pa.string()),
            ("labels", _STRINGS),
            ("n_instances", pa.int32()),
            ("n_main", pa.int32()),
            ("template", pa.string()),
            ("template_source", pa.string()),  # 'table', 'inferred'; null where dc is not asked for
            ("is_semantically_equivalent", pa.bool_()),
        ]
    ),
)

SPLITS = TableSchema(
    grain="(task, instance) drawn",
    key=("task", "instance_id"),
    schema=pa.schema(
        [
            ("task", pa.string()),
            ("instance_id", pa.string()),
            ("role", pa.string()),  # 'demonstration', 'bias_score', 'main'
            ("position", pa.int32()),
            ("input", pa.string()),
            ("label", pa.string()),
        ]
    ),
)

CONTEXTS = TableSchema(
    grain="prompt prefix",
    key=("context_id",),
    schema=pa.schema(
        [
            ("context_id", pa.string()),
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("text", pa.string()),
            ("demo_ids", _STRINGS),
            ("demo_labels", _STRINGS),
            ("n_tokens", pa.int32()),  # of the text, about: tokens may merge where pieces meet
        ]
    ),
)

PROMPTS = TableSchema(
    grain="scored input",
    key=("prompt_id",),
    schema=pa.schema(
        [
            ("prompt_id", pa.string()),
            ("context_id", pa.string()),
            ("task", pa.string()),
            ("purpose", pa.string()),  # 'main', 'bias_score', 'cc', 'dc', 'looc', 'majority'
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("row", pa.int32()),
            ("instance_id", pa.string()),
            ("gold", pa.string()),
            ("labels", _STRINGS),
            ("input_text", pa.string()),
            ("n_demos_used", pa.int32()),  # fewer than n_demos in looc rows and under the length limit
            ("is_truncated", pa.bool_()),  # the prompt without demonstrations was cut on the right
            ("n_tokens", pa.int32()),  # of the context's text and input_text, about
        ]
    ),
)

LABEL_SCORES = TableSchema(
    grain="(prompt, label)",
    key=("prompt_id", "label"),
    schema=pa.schema(
        [
            ("prompt_id", pa.string()),
            ("label", pa.string()),
            ("token_logprobs", pa.list_(pa.float32())),  # nats; the label's tokens, then EOS
            ("n_label_tokens", pa.int32()),  # without EOS
        ]
    ),
)

SETTINGS = TableSchema(
    grain="setting of a majority-bias run",
    key=("setting",),
    schema=pa.schema(
        [
            ("setting", pa.string()),  # percentages in the order of labels, such as '30/70'
            ("number", pa.int32()),  # position in the grid, 0-based
            ("labels", _STRINGS),
            ("shares", pa.list_(pa.float64())),  # in the order of labels; sum to 1
            ("counts", pa.list_(pa.int32())),  # demonstrations of each label
            ("counts_asked", pa.list_(pa.int32())),  # more than counts where train has too few
        ]
    ),
)

GENERATIONS = TableSchema(
    grain="(prompt, mode)",
    key=("prompt_id", "mode"),
    schema=pa.schema(
        [
            ("prompt_id", pa.string()),
            ("mode", pa.string()),  # 'generate', 'constrained'
            ("text", pa.string()),
            ("prediction", pa.string()),  # a label; null where the text is none
        ]
    ),
)

ADAPTED_SCORES = TableSchema(
    grain="(prompt, label), scored with the adapter of the prompt's context",
    key=LABEL_SCORES.key,
    schema=LABEL_SCORES.schema,
)

ADAPTED_GENERATIONS = TableSchema(
    grain="(prompt, mode), written with the adapter of the prompt's context",
    key=GENERATIONS.key,
    schema=GENERATIONS.schema,
)

TRAINING_ROWS = TableSchema(
    grain="(adapter, training example)",
    key=("adapter", "row"),
    schema=pa.schema(
        [
            ("adapter", pa.string()),  # its folder below adapters/
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("row", pa.int32()),  # 0-based
            ("instance_id", pa.string()),
            ("prompt", pa.string()),
            ("label", pa.string()),
            ("labels", _STRINGS),
            ("n_demos_used", pa.int32()),  # fewer than n_demos under the length limit
            ("n_tokens", pa.int32()),  # of prompt, label and EOS
        ]
    ),
)

TRAINING = TableSchema(
    grain="(trained adapter or model, step)",
    key=("adapter", "step"),
    schema=pa.schema(
        [
            ("model", pa.string()),  # the spec's name
            ("adapter", pa.string()),  # its folder below adapters/; of tuning 'adapter', null for all parameters
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("step", pa.int32()),  # 0-based
            ("epoch", pa.int32()),  # 0-based
            ("loss", pa.float64()),  # nats a target token: mean over each row's label and EOS, then over the rows
            ("grad_norm", pa.float64()),  # of the whole adapter before clipping; null where the loss is not finite
            ("learning_rate", pa.float64()),
            ("seconds", pa.float64()),
            ("n_tokens", pa.int64()),  # of the step's conversations; null where rows are few-shot prompts
            ("eval_loss", pa.float64()),  # nats an answer token, of what is held out; null where not computed
        ]
    ),
)

CONVERSATIONS = TableSchema(
    grain="conversation that a model is tuned on, or that is held out",
    key=("number",),
    schema=pa.schema(
        [
            ("number", pa.int32()),  # 0-based, in the order of the file
            ("conversation_id", pa.string()),
            ("role", pa.string()),  # 'train', 'held_out'
            ("turns", pa.list_(pa.struct([("role", pa.string()), ("text", pa.string())]))),  # as read
            ("token_ids", pa.list_(pa.int32())),  # up to the last answer that fits
            ("is_answer", pa.list_(pa.bool_())),  # whether the token counts in the loss
        ]
    ),
)

QA_EXAMPLES = TableSchema(
    grain="question of a QA-bias run",
    key=("dataset", "example_id"),
    schema=pa.schema(
        [
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("row", pa.int32()),  # position in the data set, 0-based
            ("role", pa.string()),  # 'in_distribution', 'out_of_distribution'
            ("title", pa.string()),
            ("question", pa.string()),
            ("context", pa.string()),
            ("answers", _STRINGS),
            ("answer_starts", pa.list_(pa.int32())),  # characters of the context, one per answer
        ]
    ),
)

QA_ATTRIBUTES = TableSchema(
    grain="(question, heuristic)",
    key=("dataset", "example_id", "heuristic"),
    schema=pa.schema(
        [
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("heuristic", pa.string()),
            ("value", pa.float64()),  # -1 where undefined
            ("is_measured", pa.bool_()),  # false where the row takes no part in the measurement
            ("closest_word", pa.string()),  # word_dist only: the question's word at that distance
        ]
    ),
)

QA_PREDICTIONS = TableSchema(
    grain="(model, question)",
    key=("model", "dataset", "example_id"),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("prediction", pa.string()),
            ("exact_match", pa.float64()),  # 0 or 1
            ("f1", pa.float64()),  # 0 to 1
            ("score", pa.float64()),  # start + end logit; null for generated answers and predictions from elsewhere
            ("n_best", pa.list_(pa.struct([("text", pa.string()), ("score", pa.float64())]))),  # best first
        ]
    ),
)

QA_DRAWS = TableSchema(
    grain="(model, dataset, heuristic, threshold, segment, trial)",
    key=("model", "dataset", "heuristic", "threshold", "segment", "trial"),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("heuristic", pa.string()),
            ("threshold", pa.float64()),
            ("segment", pa.string()),  # 'lower': value <= threshold; 'higher'
            ("trial", pa.int32()),
            ("exact_match", pa.float64()),  # mean over the rows drawn, 0 to 1
            ("f1", pa.float64()),
        ]
    ),
)

TABLES: dict[str, TableSchema] = {
    "tasks": TASKS,
    "splits": SPLITS,
    "contexts": CONTEXTS,
    "prompts": PROMPTS,
    "label_scores": LABEL_SCORES,
    "settings": SETTINGS,
    "generations": GENERATIONS,
    "adapted_scores": ADAPTED_SCORES,
    "adapted_generations": ADAPTED_GENERATIONS,
    "training_rows": TRAINING_ROWS,
    "training": TRAINING,
    "conversations": CONVERSATIONS,
    "qa_examples": QA_EXAMPLES,
    "qa_attributes": QA_ATTRIBUTES,
    "qa_predictions": QA_PREDICTIONS,
    "qa_draws": QA_DRAWS,
}


ADAPTED = {"label_scores": "adapted_scores", "generations": "adapted_generations"}
"""Tables of a model's outputs to those of the same model with adapters."""


def output_tables(predict: Collection[str]) -> tuple[str, ...]:
    """Return the tables that a model's outputs fill, each with a part for each part of ``prompts``.

    Args:
        predict: the ways of predicting: ``likelihood``, ``generate``, ``constrained`` (which is read from scores).
    """
    asked = {
        "label_scores": {"likelihood", "constrained"},
        "generations": {"generate", "constrained"},
    }
    return tuple(table for table, ways in asked.items() if ways.intersection(predict))


def run_outputs(predict: Collection[str], *, has_adapters: bool) -> tuple[str, ...]:
    """Return the tables of `output_tables`, and with adapters those of `ADAPTED` too."""
    tables = output_tables(predict)
    return (*tables, *(ADAPTED[table] for table in tables)) if has_adapters else tables
