"""How tables, figures and sentences name and order the methods of mitigation, and which of them stand side by side."""

from __future__ import annotations

from collections.abc import Iterable

from biaseval.prompting.calibration import CALIBRATIONS

METHODS = {
    "none": "no calibration",
    **{method.name: method.shown for method in CALIBRATIONS.values()},
    "lora": "LoRA",
    **{f"lora+{method.name}": f"LoRA + {method.shown}" for method in CALIBRATIONS.values()},
}
"""The display names of the methods, in the order of tables and figures; others go by their own name."""


def method_order(method: str) -> tuple[int, str]:
    """Return the sort key of a method: those of `METHODS` first, in their order."""
    known = list(METHODS)
    return (known.index(method) if method in known else len(known), method)


def method_name(method: str, mitigation: str = "calibration") -> str:
    """Return the display name of a method.

    Args:
        method: a method of the marts.
        mitigation: what ``none`` is without, as `mitigation_of` says.
    """
    return f"no {mitigation}" if method == "none" else METHODS.get(method, method)


def is_adapted(method: str) -> bool:
    """Return whether the method scores with adapters."""
    return method == "lora" or method.startswith("lora+")


def mitigation_of(methods: Iterable[str]) -> str:
    """Return what all these methods but ``none`` are: ``calibration``, or with adapters among them ``mitigation``."""
    return "mitigation" if any(map(is_adapted, methods)) else "calibration"


def side_by_side(methods: Iterable[str]) -> list[list[str]]:
    """Return the methods in groups that are shown side by side, each in the order of `METHODS`.

    The first has none, each calibration and LoRA, as Figure 3 of P1; the second, where adapted models are calibrated,
    the same with LoRA, beside none and LoRA alone.
    """
    ordered = sorted(set(methods), key=method_order)
    calibrated = [method for method in ordered if is_adapted(method) and method != "lora"]
    first = [method for method in ordered if method not in calibrated]
    if not calibrated:
        return [first]
    return [first, [*(method for method in first if method in ("none", "lora")), *calibrated]]
