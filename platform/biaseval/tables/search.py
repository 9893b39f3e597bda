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
            ("trial", pa.int32()),  # 0-based
            ("parameters", pa.string()),  # JSON: searched key to value
            ("state", pa.string()),  # 'done', 'stopped' (early), 'failed'
            # JSON: objective to value, with per to scope to value, on the data that the choice is made on; null where
            # it is not done
            ("objectives", pa.string()),
            # the same on the other half of the data; null where all of it is chosen on (choose_on: published)
            ("evaluation", pa.string()),
            ("steps", pa.int64()),  # optimizer steps of what it trained itself, not of what trials share
            ("seconds", pa.float64()),  # by the clock, of the sitting that ended it
            ("seed", pa.int64()),  # of its run
            (
                "run",
                pa.string(),
            ),  # its directory, relative to the search's; null: it is computed of shared outputs
            ("problem", pa.string()),  # why it is not done
        ]
    ),
)

TRIAL_VALUES = TableSchema(
    name="trial_values",
    grain="(trial, objective, scope, sample, group of articles or rows left out)",
    key=("trial", "objective", "scope", "sample", "left_out"),
    kinds=_SEARCH,
    schema=pa.schema(
        [
            ("trial", pa.int32()),
            ("objective", pa.string()),  # or what its query returns beside it
            ("scope", pa.string()),  # what it is of (per), its columns joined by ', '; 'all' where it is one number
            # 'choice', 'evaluation'; of QA that is halved also 'all', without any left out
            ("sample", pa.string()),
            ("left_out", pa.int32()),  # 0-based number of the group; null: none, this is the objective itself
            ("value", pa.float64()),  # null: not to be had without these
        ]
    ),
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
            ("n_steps", pa.int64()),  # optimizer steps that were made
            ("f1", pa.float64()),  # mean over its sets for validation, 0 to 1
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
            ("searched", pa.string()),  # the kind of the spec
            ("objectives", STRINGS),
            ("are_maximized", pa.list_(pa.bool_())),
            ("keys", STRINGS),
            ("per", STRINGS),
            ("algorithm", pa.string()),
            ("choose_on", pa.string()),
            ("batch", pa.int32()),
            ("seed", pa.int64()),
            ("shared_steps", pa.int64()),  # optimizer steps of what all trials share, made once
        ]
    ),
)
