"""Halves of what a run measures, and groups within each: one half chooses, the other shows what the choice is worth.

What belongs together stays together: questions about one article, a row in all its settings.
"""

import re
import zlib
from collections.abc import Collection
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.sql_files import opened, rows
from biaseval.errors import BiasevalError
from biaseval.store import Run
from biaseval.tables import TABLES

N_GROUPS = 10
"""Of each half, that are left out in turn for intervals (a delete-a-group jackknife)."""

ChooseOn = Literal["half", "held_out", "published"]
"""The rows for a choice: one half of the measured rows, held-out rows, or all rows."""

_PURPOSES = "('main', 'bias_score', 'held_out', 'majority')"
"""Of prompts whose rows are measured; calibration inputs belong to every sample."""

_PROMPTS = (
    ("prompts",),
    "select distinct task, purpose, row, concat(task, ' ', purpose) as named, row as unit, 1 as size from prompts "
    f"where purpose in {_PURPOSES}",
)
_MEMBERS = {
    "qa_bias": (
        ("qa_examples",),
        "select dataset, example_id, dataset as named, article as unit, "
        "count(*) over (partition by dataset, article) as size from qa_articles",
    ),
    "label_bias": _PROMPTS,
    "majority_bias": _PROMPTS,
}
"""Kind to the tables that its rows are found in, and these: their keys, the set, and the unit of it with its size."""

_DEALT = {
    "half": "select members.* exclude (named, unit, size), dealt.half as sample, dealt.group",
    "published": "select members.* exclude (named, unit, size), 'choice' as sample, dealt.group",
    # Main rows are for evaluation alone, and other rows in their place for the choice.
    "held_out": "select members.* exclude (named, unit, size), dealt.group, "
    "unnest(case when purpose = 'main' then [{'sample': 'evaluation', 'as_purpose': 'main'}] "
    "when purpose = 'held_out' then [{'sample': 'choice', 'as_purpose': 'main'}] "
    "else [{'sample': 'choice', 'as_purpose': 'main'}, {'sample': dealt.half, 'as_purpose': 'bias_score'}] end, "
    "recursive := true)",
}

_OF_PROMPTS = "select * from {place}.{table} semi join drawn.prompts using (prompt_id)"
_DEALT_ROWS = "from {place}.{table} where sample = '{sample}' and {is_kept}"
_AS_PROMPTS = (
    "select own.* replace (prompts.purpose as purpose) from {place}.{table} as own "
    "inner join drawn.prompts using (prompt_id)"
)
_OF_QUESTIONS = "select * from {place}.{table} semi join main.kept using (dataset, example_id)"
_PARTS = {
    "prompts": "select prompts.* replace (kept.as_purpose as purpose) from {place}.{table} "
    "inner join main.kept using (task, purpose, row) "
    f"union all select * from {{place}}.{{table}} where purpose not in {_PURPOSES}",
    **dict.fromkeys(("qa_examples", "qa_attributes", "qa_predictions"), _OF_QUESTIONS),
    **dict.fromkeys(("label_scores", "adapted_scores", "generations", "adapted_generations"), _OF_PROMPTS),
    "prompt_probabilities": _AS_PROMPTS,
    **dict.fromkeys(
        ("calibrated_predictions", "majority_predictions"), f'select * exclude (sample, "group") {_DEALT_ROWS}'
    ),
    "prediction_counts": 'select * exclude (sample, "group", n_rows), sum(n_rows)::bigint as n_rows '
    f"{_DEALT_ROWS} group by all",
}
"""Tables and views of which a sample has a part; prompts come first, as others follow from theirs."""

ROW_BY_ROW = {
    "calibration_means": "{sql}",
    "majority_contexts": "{sql}",
    # Relations made row by row keep this order, so that the rows of a purpose lie together.
    "prompt_probabilities": "from ({sql}) order by purpose",
    # Large, and asked for in every sample: which rows belong to it is looked up once.
    "calibrated_predictions": 'select own.* replace (as_purpose as purpose), members.sample, members."group" '
    "from ({sql}) as own inner join main.members using (task, purpose, row)",
    "majority_predictions": 'select own.*, members.sample, members."group" '
    "from ({sql}) as own inner join main.members using (task, row)",
    "prediction_counts": "{sql}",
}
"""Views whose rows do not depend on which other rows are measured, and how they are made once, of all rows; and one of
counts, which is made of each group (`made_once`)."""


def made_once(view: str, sql: str) -> str:
    """Return the query that makes a view of `ROW_BY_ROW` of all rows, from its own."""
    if view == "prediction_counts":  # groups by all of its other columns
        sql = re.sub(r"^select\b", 'select sample, "group",', sql, count=1, flags=re.MULTILINE)
    return ROW_BY_ROW[view].format(sql=sql)


def samples_of(members: pa.Table) -> list[str]:
    """Return the samples: ``choice``; ``evaluation`` if the choice does not see all rows; for halved questions also
    ``all``, for a comparison with published numbers.
    """
    there = set(members["sample"].unique().to_pylist())
    return [sample for sample in ("choice", "evaluation", "all") if sample in there]


def assigned(run: Run, kind: str, choose_on: ChooseOn, seed: int) -> pa.Table:
    """Return which sample and group each measured row belongs to.

    Articles or rows of each data set or task are shuffled, and each goes to the half with the least so far, and there
    to the group with the least. Each set has a generator of its own with this seed.

    Returns:
        The rows' keys, ``sample`` and ``group`` (0-based, of the sample; null in ``all``, which has no intervals), and
        of prompts ``as_purpose``: theirs there.

    Raises:
        BiasevalError: a set has a single article or row, and is to be halved.
    """
    needed, members_sql = _MEMBERS[kind]
    tables = {name: TABLES[name] for name in needed}
    with opened(run, tables) as connection:
        connection.from_arrow(rows(members_sql, connection)).create("members")
        units = rows("select distinct named, unit, size from members order by all", connection)
        connection.from_arrow(_dealt(units, choose_on, seed)).create("dealt")
        found = rows(f"{_DEALT[choose_on]} from members join dealt using (named, unit) order by all", connection)
    if choose_on == "half" and "purpose" not in found.column_names:  # questions
        whole = {"sample": pa.repeat(pa.scalar("all"), len(found)), "group": pa.nulls(len(found), pa.int32())}
        columns = [whole.get(name, found[name]) for name in found.column_names]
        found = pa.concat_tables([found, pa.table(columns, schema=found.schema)])
    if "purpose" in found.column_names and "as_purpose" not in found.column_names:
        found = found.append_column("as_purpose", found["purpose"])
    return found


def _dealt(units: pa.Table, choose_on: ChooseOn, seed: int) -> pa.Table:
    by_set: dict[str, list[tuple[int, int]]] = {}
    for row in units.to_pylist():
        by_set.setdefault(row["named"], []).append((row["unit"], row["size"]))
    n_halves = 1 if choose_on == "published" else 2
    if lacking := [named for named, own in by_set.items() if len(own) < n_halves]:
        raise BiasevalError(
            f"choose_on: {', '.join(lacking)} has a single article or row, which cannot be halved; give more, or "
            "choose on all of it (choose_on: published)"
        )
    dealt = []
    for named, own in by_set.items():
        loads = np.zeros((n_halves, N_GROUPS))
        for place in np.random.default_rng([seed, zlib.crc32(named.encode())]).permutation(len(own)):
            unit, size = own[place]
            half = int(loads.sum(axis=1).argmin())
            group = int(loads[half].argmin())
            loads[half, group] += size
            dealt.append({"named": named, "unit": unit, "half": ("choice", "evaluation")[half], "group": group})
    schema = pa.schema([("named", pa.string()), ("unit", pa.int64()), ("half", pa.string()), ("group", pa.int32())])
    return pa.Table.from_pylist(dealt, schema=schema)


def kept(members: pa.Table, sample: str, left_out: int | None) -> pa.Table:
    """Return the keys of a sample's rows, without those of a group if one is left out."""
    inside = pc.equal(members["sample"], sample)
    if left_out is not None:
        inside = pc.and_(inside, pc.not_equal(members["group"], left_out))
    return members.filter(inside).drop_columns(["sample", "group"])


def groups(members: pa.Table, sample: str) -> list[int]:
    """Return the groups of a sample."""
    return sorted(members.filter(pc.equal(members["sample"], sample))["group"].drop_null().unique().to_pylist())


def parts_of(names: Collection[str]) -> list[str]:
    """Return the tables and views among these of which a sample has a part, in the order in which parts follow."""
    own = sorted(name for name in names if name in _PARTS and name != "prompts")
    follow = "prompts" in names or any("drawn.prompts" in _PARTS[name] for name in own)
    return ["prompts", *own] if follow else own


def part_of(table: str, place: str, sample: str, left_out: int | None) -> str:
    """Return the query for a sample's part, of the rows ``main.kept`` and what belongs to ``drawn.prompts``.

    The schema ``place`` has all of the table or view; the sample is one of `samples_of`.
    """
    is_kept = "true" if left_out is None else f'"group" <> {left_out}'
    return _PARTS[table].format(table=table, place=place, sample=sample, is_kept=is_kept)
