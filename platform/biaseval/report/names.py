"""Names of models, data, suites and methods in pages, figures and terminals, with the order of methods."""

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from biaseval.prompting.calibration import CALIBRATIONS, Calibration, Variant

METHODS = {
    "none": "no mitigation",
    **{method.name: method.shown for method in CALIBRATIONS.values()},
    "lora": "LoRA",
    **{f"lora+{method.name}": f"LoRA + {method.shown}" for method in CALIBRATIONS.values()},
}
"""The display names of the methods, in the order of tables and figures; a variant uses the name of its method."""

SUITES = {"all": "all tasks", "semantically_equivalent": "tasks with semantically equivalent labels"}

WAYS = {"likelihood": "label likelihood", "generate": "free generation", "constrained": "constrained generation"}
"""The ways of predicting, in the order of tables and figures."""

INSTRUCTIONS = {False: "without", True: "with"}
"""Prompts without and with the instruction, in P2's order."""

OF_MAJORITY = {
    "mean_f1": "mean weighted F1",
    "sd_f1": "standard deviation",
    "rb_at_10": "RB@10 of a seed",
    "tails_f1": "weighted F1 at the tails",
    "middle_f1": "weighted F1 in the middle",
}
"""The metrics of majority bias."""

LOWER_IS_BETTER = (
    "rsd", "bias_score", "sd_f1", "relative_variance", "squared_preference", "ece", "brier", "ckld", "gap",
    "significance_change",
)  # fmt: skip
"""Columns whose lower values are better; for others, higher values are better."""

WORDS = {"unclear": "no clear change", "too few": "too few rows"}
"""Verdicts that pages name differently than the marts."""


def way_name(predict: str, method: str) -> str:
    """Return a page's name for a way of predicting with its method."""
    shown = WAYS.get(predict, predict)
    return shown if method == "none" else f"{shown}, {method_name(method)}"


def model_of(spec: Mapping[str, Any]) -> str:
    """Return a page's name for the model of a spec: its folder, or else the name of the run."""
    path = (spec.get("model") or {}).get("path") or (spec.get("imported") or {}).get("model")
    name = PurePosixPath(str(path)).name if path else ""
    return name if name not in ("", "model") else str(spec["name"])


def title_of(spec: Mapping[str, Any]) -> str:
    """Return a page's name for a run: its model, and its own name where that is another."""
    return model_of(spec) + (f" (run {spec['name']})" if spec["name"] != model_of(spec) else "")


def data_of(spec: Mapping[str, Any]) -> str:
    """Return a page's name for the data of a spec: its files or folders."""
    data = spec.get("data") or spec.get("tasks") or {}
    files = data if isinstance(data, list) else [data]
    paths = [one.get(key) for one in files for key in ("train", "test", "path")]
    return ", ".join(PurePosixPath(str(path)).name for path in paths if path)


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
    """Return the calibrations among these methods and their variants, which a page explains."""
    measured = {_variant(method)[0].removeprefix("lora+") for method in methods}
    return [method for method in CALIBRATIONS.values() if method.name in measured]


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
