"""Logits of bias models from elsewhere: a Parquet file with a row for each window that is trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import InputError
from biaseval.records import read_file

_SIDES = ("start_logits", "end_logits")

Sides = tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]
"""Start and end logits of windows, in their order."""


class FileLogits:
    """Logits that a Parquet file holds for a bias, for the windows that ask for them; until then they stay in Arrow."""

    def __init__(self, uri: str, bias: str | None, padded_to: int | None) -> None:
        self._uri, self._padded_to = uri, padded_to
        rows = _of_bias(uri, _parquet(uri), bias)
        self._places = {key: place for place, key in enumerate(_keys(rows))}
        self._sides = [rows[name].combine_chunks() for name in _SIDES]

    def __call__(self, work: Mapping[str, Any], features: pa.Table) -> Sides:
        """Return the logits of windows.

        Raises:
            InputError: the file lacks some, or has another number of logits than a window has tokens.
        """
        names = _keys(features)
        lacking = [name for name in names if name not in self._places]
        if lacking:
            raise InputError(
                f"{self._uri}: lacks {len(lacking):,} of {len(names):,} windows of a part of {work['data']} (first: "
                f"window {lacking[0][1]} of question {lacking[0][0]}); add them, one row for each window"
            )
        found = [[self._of(side, self._places[name]) for name in names] for side in self._sides]
        lengths = [self._padded_to or len(own) for own in features["token_ids"].to_pylist()]
        for name, start, end, length in zip(names, *found, lengths, strict=True):
            if {len(start), len(end)} != {length}:
                raise InputError(
                    f"{self._uri}: window {name[1]} of question {name[0]} has {len(start)} start and {len(end)} end "
                    f"logits, and {length} tokens by the tokenizer of {work['base']}; give one for each"
                )
        return found[0], found[1]

    @staticmethod
    def _of(side: Any, place: int) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = side.slice(place, 1).flatten().to_numpy(zero_copy_only=False)
        return values


def check_logits_file(uri: str, biases: Sequence[str], ids: Sequence[str]) -> None:
    """Make sure that a file has logits of all questions for all biases, as far as that is known before windows are cut.

    Raises:
        InputError: it cannot be used, or lacks questions.
    """
    table = _parquet(uri)
    for bias in biases:
        known = set(_of_bias(uri, table, bias)["example_id"].to_pylist())
        lacking = [name for name in ids if name not in known]
        if lacking:
            raise InputError(
                f"{uri}: has no logits of {len(lacking):,} of {len(ids):,} training questions for {bias} (first: "
                f"{lacking[0]}); add them, or leave these questions out of train.data"
            )


def _of_bias(uri: str, table: pa.Table, bias: str | None) -> pa.Table:
    """Return the rows for a bias, and those for any.

    Raises:
        InputError: a window stands there twice, or with a number that is not finite.
    """
    if bias is not None:
        table = table.filter(pc.or_(pc.is_null(table["bias"]), pc.fill_null(pc.equal(table["bias"], bias), False)))
    keys = _keys(table)
    if len(set(keys)) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise InputError(f"{uri}: has window {twice[1]} of question {twice[0]} twice; keep one row")
    for name in _SIDES:
        side = table[name].combine_chunks()
        is_finite = pc.fill_null(pc.is_finite(side.flatten()), False)
        if not pc.all(is_finite, min_count=0).as_py():
            question, window = keys[side.value_parent_indices()[is_finite.index(False).as_py()].as_py()]
            raise InputError(f"{uri}: a logit of window {window} of question {question} is not finite; mend it")
    return table


def _keys(table: pa.Table) -> list[tuple[str, int]]:
    """Return question and window of each row."""
    return list(zip(table["example_id"].to_pylist(), table["window"].to_pylist(), strict=True))


def _parquet(uri: str) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(read_file(uri)))
    except pa.ArrowException as error:
        raise InputError(f"{uri}: is no Parquet file ({error}); give one with a row for each window") from error
    sides = ("start_logits", "end_logits")
    lacking = [name for name in ("example_id", *sides) if name not in table.column_names]
    lacking += [
        name for name in sides if name in table.column_names and not _is_list_of_numbers(table.schema.field(name).type)
    ]
    if lacking:
        raise InputError(
            f"{uri}: has no such column {', '.join(lacking)}; it needs example_id, start_logits and end_logits (lists "
            "of a number for each token), and window where questions have several"
        )
    windows = table["window"] if "window" in table.column_names else pa.array([0] * table.num_rows)
    is_for_one = "bias" in table.column_names
    biases = pc.cast(table["bias"], pa.string()) if is_for_one else pa.nulls(table.num_rows, pa.string())
    lists = pa.large_list(pa.float32())
    columns = {"example_id": table["example_id"], "window": windows, "bias": biases}
    columns |= {name: pc.cast(table[name], lists, safe=False) for name in sides}
    return pa.table(columns)


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))
