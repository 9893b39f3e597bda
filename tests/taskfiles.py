"""Small task files and tokenizers that tests write."""

import json
from pathlib import Path
from typing import Any

WORDS = [
    "amber", "river", "stone", "quiet", "market", "lantern", "winter", "garden", "copper", "signal", "harbor", "meadow",
    "thunder", "velvet", "orchard",
]  # fmt: skip


def task_content(n_instances: int = 400, labels: tuple[str, ...] = ("no", "yes"), number: int = 9500) -> dict[str, Any]:
    """Return a valid task file's content; inputs are distinct, labels take turns."""
    return {
        "Source": ["made"], "Categories": ["Text Matching"], "Definition": ["Say whether the two words match"],
        "Instances": [
            {"id": f"task{number}-{index:04d}", "output": [labels[index % len(labels)]],
             "input": f"First: {WORDS[index % 15]} {index} Second: {WORDS[index * 7 % 15]}"}
            for index in range(n_instances)
        ],
    }  # fmt: skip


def write_task(folder: Path, name: str = "task9500_made_classification", **content: Any) -> Path:
    """Write a task file; ``content`` goes to :func:`task_content`, and ``changes`` over its keys."""
    changes = content.pop("changes", {})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**task_content(**content), **changes}))
    return path
