"""Values that come from a model's scores: on another processor, or in another batch, their last digits differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

TOLERANCE = 1e-6
"""Of sums of log-probabilities in float32, and of what is computed from them."""


def assert_alike(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Compare two tables, or two values of rows, lists and scalars: all but floats are equal, and those nearly."""
    assert _nearly(_plain(found), tolerance) == _plain(expected)


def _plain(value: Any) -> Any:
    return value.to_pylist() if isinstance(value, pa.Table) else value


def _nearly(value: Any, tolerance: float) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True)
    if isinstance(value, Mapping):
        return {key: _nearly(own, tolerance) for key, own in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return type(value)(_nearly(own, tolerance) for own in value)  # type: ignore[call-arg]
    return value
