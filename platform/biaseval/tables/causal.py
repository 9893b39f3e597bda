"""The tables of runs that score labels with a causal LM: what is planned, what it gives, and what SQL needs beside."""

from __future__ import annotations

import pyarrow as pa

from biaseval.tables.schema import STRINGS, TableSchema

TASKS = TableSchema(
    name="tasks",
    grain="task of the run",
    key=("task",),
    kinds=frozenset({"label_bias"}),
    schema=pa.schema(
        [
            ("task", pa.string()),
            ("number", pa.int32()),
            ("run_key", pa.string()),
            ("category", pa.string()),
            ("definition", pa.string()),
            ("labels", STRINGS),
            ("n_instances", pa.int32()),
            ("n_main", pa.int32()),
            ("template", pa.string()),
            ("template_source", pa.string()),
            ("is_semantically_equivalent", pa.bool_()),
        ]
    ),
)

SPLITS = TableSchema(
    name="splits",
    grain="(task, instance) drawn",
    key=("task", "instance_id"),
    kinds=frozenset({"label_bias"}),
    schema=pa.schema(
        [
            ("task", pa.string()),
            ("instance_id", pa.string()),
            ("role", pa.string()),
            ("position", pa.int32()),
            ("input", pa.string()),
            ("label", pa.string()),
        ]
    ),
)

CONTEXTS = TableSchema(
    name="contexts",
    grain="prompt prefix",
    key=("context_id",),
    kinds=frozenset({"label_bias", "majority_bias", "score"}),
    later={"n_tokens": "null::integer", "format": "'base'"},
    optional=frozenset({"format"}),
    schema=pa.schema(
        [
            ("context_id", pa.string()),
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("text", pa.string()),
            ("demo_ids", STRINGS),
            ("demo_labels", STRINGS),
            ("n_tokens", pa.int32()),
            ("format", pa.string()),
        ]
    ),
)

PROMPTS = TableSchema(
    name="prompts",
    grain="scored input",
    key=("prompt_id",),
    kinds=frozenset({"label_bias", "majority_bias", "score"}),
    later={"n_tokens": "null::integer", "format": "'base'"},
    optional=frozenset({"format"}),
    schema=pa.schema(
        [
            ("prompt_id", pa.string()),
            ("context_id", pa.string()),
            ("task", pa.string()),
            ("purpose", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("row", pa.int32()),
            ("instance_id", pa.string()),
            ("gold", pa.string()),
            ("labels", STRINGS),
            ("input_text", pa.string()),
            ("n_demos_used", pa.int32()),
            ("is_truncated", pa.bool_()),
            ("n_tokens", pa.int32()),
            ("format", pa.string()),
        ]
    ),
)

LABEL_SCORES = TableSchema(
    name="label_scores",
    grain="(prompt, label)",
    key=("prompt_id", "label"),
    kinds=frozenset({"label_bias", "majority_bias", "score"}),
    part_of="prompts",
    if_asked=frozenset({"majority_bias"}),
    schema=pa.schema(
        [
            ("prompt_id", pa.string()),
            ("label", pa.string()),
            ("token_logprobs", pa.list_(pa.float32())),
            ("n_label_tokens", pa.int32()),
        ]
    ),
)

SETTINGS = TableSchema(
    name="settings",
    grain="setting of a majority-bias run",
    key=("setting",),
    also_unique=(("number",),),
    kinds=frozenset({"majority_bias"}),
    schema=pa.schema(
        [
            ("setting", pa.string()),
            ("number", pa.int32()),
            ("labels", STRINGS),
            ("shares", pa.list_(pa.float64())),
            ("counts", pa.list_(pa.int32())),
            ("counts_asked", pa.list_(pa.int32())),
        ]
    ),
)

GENERATIONS = TableSchema(
    name="generations",
    grain="(prompt, mode)",
    key=("prompt_id", "mode"),
    kinds=frozenset({"majority_bias"}),
    part_of="prompts",
    if_asked=frozenset({"majority_bias"}),
    schema=pa.schema(
        [
            ("prompt_id", pa.string()),
            ("mode", pa.string()),
            ("text", pa.string()),
            ("prediction", pa.string()),
        ]
    ),
)

ADAPTED_SCORES = TableSchema(
    name="adapted_scores",
    grain="(prompt, label), scored with the adapter of the prompt's context",
    key=LABEL_SCORES.key,
    kinds=frozenset({"label_bias", "majority_bias"}),
    part_of="prompts",
    if_asked=frozenset({"label_bias", "majority_bias"}),
    schema=LABEL_SCORES.schema,
)

ADAPTED_GENERATIONS = TableSchema(
    name="adapted_generations",
    grain="(prompt, mode), written with the adapter of the prompt's context",
    key=GENERATIONS.key,
    kinds=frozenset({"majority_bias"}),
    part_of="prompts",
    if_asked=frozenset({"majority_bias"}),
    schema=GENERATIONS.schema,
)

BOOTSTRAP_DRAWS = TableSchema(
    name="bootstrap_draws",
    grain="(suite, draw, task); draw 0 is the suite itself, each task once",
    key=("suite", "draw", "task"),
    kinds=frozenset({"label_bias"}),
    schema=pa.schema(
        [
            ("suite", pa.string()),
            ("draw", pa.int32()),
            ("task", pa.string()),
            ("n_drawn", pa.int32()),
        ]
    ),
)

ROW_DRAWS = TableSchema(
    name="row_draws",
    grain="draw; draw 0 is the test rows themselves, each once",
    key=("draw",),
    kinds=frozenset({"majority_bias"}),
    schema=pa.schema(
        [
            ("draw", pa.int32()),
            ("n_drawn", pa.list_(pa.int32())),
        ]
    ),
)

SETTING_PERMUTATIONS = TableSchema(
    name="setting_permutations",
    grain="(draw, seed); draw 0 leaves the settings in their places",
    key=("draw", "seed"),
    kinds=frozenset({"majority_bias"}),
    schema=pa.schema(
        [
            ("draw", pa.int32()),
            ("seed", pa.int32()),
            ("numbers", pa.list_(pa.int32())),
        ]
    ),
)

SIGN_FLIPS = TableSchema(
    name="sign_flips",
    grain="draw; draw 0 flips nothing, and the first 2^n are all patterns of n units, up to 12",
    key=("draw",),
    kinds=frozenset({"label_bias", "majority_bias", "qa_bias", "search"}),
    schema=pa.schema(
        [
            ("draw", pa.int32()),
            ("signs", pa.list_(pa.int8())),
        ]
    ),
)

RUN_SETTINGS = TableSchema(
    name="run_settings",
    grain="run: what the metrics need of its spec, and of its environment (null where that does not say)",
    key=("model",),
    kinds=frozenset({"label_bias", "majority_bias"}),
    later={
        "adaptations": "['none']",
        "trained_parameters": "null::bigint",
        "scoring_seconds": "null::double",
        "formats": "['base']",
        "primary_metric": "null::varchar",
        "primary_method": "null::varchar",
    },
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("n_parameters", pa.int64()),
            ("trained_parameters", pa.int64()),
            ("scoring_seconds", pa.float64()),
            ("seed", pa.int64()),
            ("normalization", pa.string()),
            ("eos", pa.bool_()),
            ("predict", STRINGS),
            ("calibration", STRINGS),
            ("adaptations", STRINGS),
            ("formats", STRINGS),
            ("primary_metric", pa.string()),
            ("primary_method", pa.string()),
        ]
    ),
)
