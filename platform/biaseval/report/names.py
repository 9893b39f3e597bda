"""Names of models, data and suites in pages, figures and terminals."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from biaseval.report.methods import method_name

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


def data_of(spec: Mapping[str, Any]) -> str:
    """Return a page's name for the data of a spec: its files or folders."""
    data = spec.get("data") or spec.get("tasks") or {}
    files = data if isinstance(data, list) else [data]
    paths = [one.get(key) for one in files for key in ("train", "test", "path")]
    return ", ".join(PurePosixPath(str(path)).name for path in paths if path)
