"""The tables of training: the rows of adapters, conversations, and the steps of both."""

from __future__ import annotations

import pyarrow as pa

from biaseval.tables.schema import STRINGS, TableSchema

TRAINING_ROWS = TableSchema(
    name="training_rows",
    grain="(adapter, training example)",
    key=("adapter", "row"),
    also_unique=(("adapter", "instance_id"),),
    kinds=frozenset({"label_bias", "majority_bias"}),
    schema=pa.schema(
        [
            ("adapter", pa.string()),
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("row", pa.int32()),
            ("instance_id", pa.string()),
            ("prompt", pa.string()),
            ("label", pa.string()),
            ("labels", STRINGS),
            ("n_demos_used", pa.int32()),
            ("n_tokens", pa.int32()),
        ]
    ),
)

TRAINING = TableSchema(
    name="training",
    grain="(trained adapter or model, step)",
    key=("model", "adapter", "step"),
    null_keys=frozenset({"adapter"}),
    kinds=frozenset({"label_bias", "majority_bias", "instruct", "qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("adapter", pa.string()),
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("step", pa.int32()),
            ("epoch", pa.int32()),
            ("loss", pa.float64()),
            ("grad_norm", pa.float64()),
            ("learning_rate", pa.float64()),
            ("seconds", pa.float64()),
            ("n_tokens", pa.int64()),
            ("eval_loss", pa.float64()),
        ]
    ),
)

TRAINED_MODELS = TableSchema(
    name="trained_models",
    grain="trained reader of a QA-bias run",
    key=("model",),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("number", pa.int32()),
            ("model", pa.string()),
            ("base", pa.string()),
            ("data", pa.string()),
            ("method", pa.string()),
            ("bias", pa.string()),
            ("seed", pa.int64()),
            (
                "standard",
                pa.string(),
            ),
            ("path", pa.string()),
            ("steps", pa.int64()),
            ("best_step", pa.int64()),
            ("problem", pa.string()),
            ("n_windows", pa.int64()),
            ("n_workers", pa.int32()),
            ("device", pa.string()),
            ("is_stopped", pa.bool_()),
        ]
    ),
    later={"is_stopped": "false"},
)

EVALUATIONS = TableSchema(
    name="evaluations",
    grain="(trained reader, step, set of questions)",
    key=("model", "step", "dataset"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("step", pa.int32()),
            ("dataset", pa.string()),
            ("loss", pa.float64()),
            ("exact_match", pa.float64()),
            ("f1", pa.float64()),
            ("seconds", pa.float64()),
        ]
    ),
    later={"seconds": "null::double"},
)

CONVERSATIONS = TableSchema(
    name="conversations",
    grain="conversation that a model is tuned on, or that is held out",
    key=("number",),
    kinds=frozenset({"instruct"}),
    schema=pa.schema(
        [
            ("number", pa.int32()),
            ("conversation_id", pa.string()),
            ("role", pa.string()),
            ("turns", pa.list_(pa.struct([("role", pa.string()), ("text", pa.string())]))),
            ("token_ids", pa.list_(pa.int32())),
            ("is_answer", pa.list_(pa.bool_())),
        ]
    ),
)
