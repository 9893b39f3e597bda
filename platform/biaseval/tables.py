"""The schema, grain and key of every table of a run. Columns may be added, never renamed."""

from __future__ import annotations

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
        return self.schema.empty_table()

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

TABLES: dict[str, TableSchema] = {
    "tasks": TASKS,
    "splits": SPLITS,
    "contexts": CONTEXTS,
    "prompts": PROMPTS,
    "label_scores": LABEL_SCORES,
}
