"""Values as JSON, tables and Markdown have them."""

import dataclasses
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Return a value as JSON: data classes as objects, numbers that are not finite as null, dates as text."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def as_text(value: object) -> str:
    """Return a value as tables show it: numbers to four places, nothing where there is none."""
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def in_markdown(text: str) -> str:
    """Return a text for a cell of Markdown, with escaped marks; underscores inside names stay."""
    return re.sub(r"([\\|<>*`\[\]]|\b_|_\b)", r"\\\1", " ".join(text.split()))
