"""Prints what a benchmark found and keeps its records."""

import json
import sys
from pathlib import Path
from typing import Any


def print_and_write(report: dict[str, Any], text: str, out: Path) -> None:
    """Print the Markdown; write it, and the records, which are JSON.

    Args:
        report: the records.
        text: as Markdown, without a last newline.
        out: where the records go; the Markdown goes beside them, with the suffix ``.md``.
    """
    print(text)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n")
    out.with_suffix(".md").write_text(text + "\n")
    print(f"written: {out}", file=sys.stderr)
