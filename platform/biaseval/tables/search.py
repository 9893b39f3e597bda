"""The tables of a search: its trials, what objectives are of each on parts of the data, how readers did on the way."""

from __future__ import annotations

import pyarrow as pa

from biaseval.tables.schema import STRINGS, TableSchema

_SEARCH = frozenset({"search"})

TRIALS = TableSchema(
    name="trials",
    grain="trial of a search",
    key=("trial",),
    kinds=_SEARCH,
    schema=pa.schema(
        [
            ("trial", pa.int32()),
            ("parameters", pa.string()),
            ("state", pa.string()),
            ("objectives", pa.string()),
            ("evaluation", pa.string()),
            ("steps", pa.int64()),
            ("seconds", pa.float64()),
            ("seed", pa.int64()),
            (
                "run",
                pa.string(),
            ),
            ("problem", pa.string()),
        ]
    ),
)

TRIAL_VALUES = TableSchema(
    name="trial_values",
    grain="(trial, objective, scope, sample, group of articles or rows left out)",
    key=("trial", "objective", "scope", "sample", "left_out"),
    null_keys=frozenset({"left_out"}),
    kinds=_SEARCH,
    schema=pa.schema(
        [
            ("trial", pa.int32()),
            ("objective", pa.string()),
            ("scope", pa.string()),
            ("sample", pa.string()),
            ("left_out", pa.int32()),
            ("value", pa.float64()),
            ("is_above_constant", pa.bool_()),
        ]
    ),
    later={"is_above_constant": "null::boolean"},
)

TRIAL_EVALUATIONS = TableSchema(
    name="trial_evaluations",
    grain="(trial, reader that it trained itself, evaluation)",
    key=("trial", "model", "n_steps"),
    kinds=_SEARCH,
    schema=pa.schema(
        [
            ("trial", pa.int32()),
            ("model", pa.string()),
            ("n_steps", pa.int64()),
            ("f1", pa.float64()),
        ]
    ),
)

SEARCH_SETTINGS = TableSchema(
    name="search_settings",
    grain="search",
    key=("name",),
    kinds=_SEARCH,
    schema=pa.schema(
        [
            ("name", pa.string()),
            ("searched", pa.string()),
            ("objectives", STRINGS),
            ("are_maximized", pa.list_(pa.bool_())),
            ("keys", STRINGS),
            ("per", STRINGS),
            ("algorithm", pa.string()),
            ("choose_on", pa.string()),
            ("batch", pa.int32()),
            ("seed", pa.int64()),
            ("shared_steps", pa.int64()),
            ("are_of_bias_score", pa.list_(pa.bool_())),
        ]
    ),
    later={"are_of_bias_score": "null::boolean[]"},
)
