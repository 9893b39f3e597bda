"""Measures metrics, page and questions on a generated run of the published suite: 256 tasks, 13 settings."""

from __future__ import annotations

import sys
from pathlib import Path

# The uploaded working directory is the source; the cluster's nodes need only the dependencies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from tests.bench.commands.analysis import main

if __name__ == "__main__":
    main()
