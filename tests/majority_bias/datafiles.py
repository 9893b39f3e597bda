"""Small data files and specs that the tests of majority bias write."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biaseval.spec import MajorityBiasSpec
from tests.taskfiles import WORDS


def write_jsonl(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def boolq_rows(prefix: str, n_true: int, n_false: int) -> list[dict[str, Any]]:
    """Return rows in BoolQ's own form, with distinct questions."""
    return [
        {
            "question": f"is {prefix} {number} a {WORDS[number % 15]}",
            "passage": f"Page -- about {number}",
            "answer": number < n_true,
        }
        for number in range(n_true + n_false)
    ]


def boolq_spec(folder: Path, **changes: Any) -> MajorityBiasSpec:
    """Return a spec on train.jsonl and test.jsonl in ``folder``; ``changes`` go over its sections and keys."""
    content: dict[str, Any] = {
        "kind": "majority_bias", "name": "boolq", "model": {"path": "unused"},
        "data": {"train": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl")},
        "prompt": {"preset": "boolq", "n_demos": 4}, "proportions": "binary_11", "seeds": [0, 1],
    }  # fmt: skip
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(content.get(key), dict) else value
    return MajorityBiasSpec.model_validate(content)
