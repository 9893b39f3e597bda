"""What specs and SQL call that which pages show under another name; each page says it once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from biaseval.report.methods import method_name, method_order, mitigation_of
from biaseval.report.ways import INSTRUCTIONS, WAYS

Ids = tuple[str, Mapping[str, str]]
"""What it is, and ids to the names that are shown."""


def ids_of_methods(methods: Iterable[str]) -> Ids:
    """Return those of calibrations and adapters."""
    ordered = sorted(set(methods), key=method_order)
    return "method", {method: method_name(method, mitigation_of(ordered)) for method in ordered}


def ids_of_ways(ways: Iterable[tuple[str, str]]) -> list[Ids]:
    """Return those of majority bias, of each (predict, method)."""
    own = list(ways)
    predict = {name: shown for name, shown in WAYS.items() if name in {way for way, _ in own}}
    instruction = {str(given).lower(): f"{shown} instruction" for given, shown in INSTRUCTIONS.items()}
    return [("predict", predict), ids_of_methods(method for _, method in own), ("instruction", instruction)]
