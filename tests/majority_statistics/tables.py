"""Rows of files of analytics, over tables written for them."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.analysis import sql_files as relations
from tests.majorityplans import Rows

Floats = npt.NDArray[np.float64]

PLACE = {"task": "boolq", "n_demos": 10, "instruction": True, "predict": "likelihood"}


def computed(layer: str, name: str, **tables: pa.Table) -> Rows:
    """Return the rows of a file of ``analytics`` over tables written for it."""
    with closing(relations.connect([])) as connection:
        for table, content in tables.items():
            connection.from_arrow(content).create(table)
        found: Rows = (
            connection.sql((relations.ANALYTICS / layer / f"{name}.sql").read_text()).to_arrow_table().to_pylist()
        )
    return found
