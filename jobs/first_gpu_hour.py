"""Checks and measures the scorer on one GPU: python jobs/first_gpu_hour.py [--minutes 25]."""

from __future__ import annotations

import sys
from pathlib import Path

# The uploaded working directory is the source; the cluster's nodes need only the dependencies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from tests.bench.commands.first_gpu_hour import main

if __name__ == "__main__":
    main()
