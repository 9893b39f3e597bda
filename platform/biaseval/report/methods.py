"""Names, order and groups of the mitigation methods in tables, figures and sentences."""

import math
from collections.abc import Collection, Iterable

from biaseval.prompting.calibration import CALIBRATIONS, PURPOSES, Calibration, Variant

METHODS = {
    "none": "no mitigation",
    **{method.name: method.shown for method in CALIBRATIONS.values()},
    "lora": "LoRA",
    **{f"lora+{method.name}": f"LoRA + {method.shown}" for method in CALIBRATIONS.values()},
}
"""The display names of the methods, in the order of tables and figures; a variant uses the name of its method."""


Order = tuple[int, str, float, float]
"""A sort key of methods."""


def method_order(method: str) -> Order:
    """Return the sort key of a method: the order of `METHODS`, with variants after their method and others last."""
    known, (own, variant) = list(METHODS), _variant(method)
    if variant is None:
        return (known.index(own), "", -1, 0) if own in known else (len(known), own, -1, 0)
    return (known.index(own), "", variant.strength, variant.inputs or math.inf)


def _variant(method: str) -> tuple[str, Variant | None]:
    """Return the method of `METHODS` that a method varies, with the variant; else the method itself, and None."""
    if method in METHODS:
        return method, None
    adapted, plus, calibration = method.rpartition("+")
    try:
        variant = Variant.of(calibration)
    except ValueError:
        return method, None
    if variant.method not in CALIBRATIONS:  # a calibration that the spec brings
        return method, None
    return f"{adapted}{plus}{variant.method}", variant


def method_name(method: str) -> str:
    """Return the display name of a method of the marts."""
    own, variant = _variant(method)
    shown = METHODS.get(own, own)
    if variant is None:
        return shown
    strength = "" if variant.strength == 1 else f" {variant.strength:g}"
    return f"{shown}{strength}{'' if variant.inputs is None else f' (first {variant.inputs})'}"


def is_adapted(method: str) -> bool:
    """Return whether the method scores with adapters."""
    return method == "lora" or method.startswith("lora+")


def explained(methods: Collection[str]) -> list[Calibration]:
    """Return the calibrations that a page explains: those of P1, and those among these methods."""
    measured = {_variant(method)[0].removeprefix("lora+") for method in methods}
    return [
        method
        for method in CALIBRATIONS.values()
        if method.name in measured or (method.name in PURPOSES and not PURPOSES[method.name].permutes)
    ]


def side_by_side(methods: Iterable[str]) -> list[list[str]]:
    """Return the methods in groups that pages show side by side, each in the order of `METHODS`.

    The first group has none, each calibration and LoRA, as Figure 3 of P1. If the run calibrates adapted models, the
    second group has these, together with none and LoRA alone.
    """
    ordered = sorted(set(methods), key=method_order)
    calibrated = [method for method in ordered if is_adapted(method) and method != "lora"]
    first = [method for method in ordered if method not in calibrated]
    if not calibrated:
        return [first]
    return [first, [*(method for method in first if method in ("none", "lora")), *calibrated]]
