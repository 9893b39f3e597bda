"""A study of trained readers that is small enough for a test: generated questions, a BERT of random weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.runs import run_spec
from biaseval.spec import QaBiasSpec, load_spec
from biaseval.store import Run

SIX_STEPS = {"max_steps": 6}
METHODS = ("resample", "learned_mixin", "confidence_regularization", "product_of_experts")
NAMES = ["bert", "bert+bias_model", *(f"bert+{method}" for method in METHODS)]
MAX_TOKENS = 90


def generated(questions: int, strength: float) -> dict[str, Any]:
    return {"planted": {"shortcut": "ans_pos", "strength": strength, "questions": questions}}


def write_spec(folder: Path, model: Path, **changes: Any) -> Path:
    """Write the spec of a study; ``train`` of the changes is put into that section."""
    train: dict[str, Any] = {
        "bases": [{"name": "bert", "path": str(model)}],
        "data": {"biased": generated(48, 0.6)},
        "validation": {"check": generated(24, 0.6)},
        "methods": ["standard", *METHODS],
        "biases": ["ans_pos"],
        "thresholds": {"ans_pos": 0},
        **SIX_STEPS,
        **{method: dict(SIX_STEPS) for method in (*METHODS[1:], "bias_model")},  # YAML would write aliases
        "learning_rate": 1e-3,
        "batch_size": 8,
        "evaluation_steps": 3,
        "checkpoint_steps": 2,
    }
    content: dict[str, Any] = {
        "kind": "qa_bias", "name": "study",
        "datasets": {"in_distribution": {"plain": generated(40, 0.0)},
            "out_of_distribution": {"others": generated(12, 0.0)}},
        "heuristics": ["ans_pos", "word_dist"], "thresholds": {"ans_pos": 0, "word_dist": 3},
        "bootstrap": {"trials": 10, "sample": 5}, "windows": {"max_tokens": MAX_TOKENS, "stride": 24},
        "execution": {"part_rows": 20}, "train": {**train, **changes.pop("train", {})}, **changes,
    }  # fmt: skip
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def load(path: Path) -> QaBiasSpec:
    spec = load_spec(path)
    assert isinstance(spec, QaBiasSpec)
    return spec


def rows(run_dir: Path | str, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query([str(run_dir)], sql).to_pylist()
    return found


def trained(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of ``trained_models``, also of a run that is not measured yet."""
    return {row["model"]: row for row in Run.open(str(run_dir)).read_table("trained_models").to_pylist()}


def weights(run_dir: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(run_dir / trained(run_dir)[name]["path"] / "model.safetensors")


def refused(spec: Path, tmp_path: Path) -> str:
    with pytest.raises(InputError) as caught:
        run_spec(load(spec), str(tmp_path / "run"))
    return str(caught.value)
