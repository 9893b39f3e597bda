"""Simulates runs whose truth is known and says how often verdicts are wrong and intervals miss it."""

from __future__ import annotations

import sys
from pathlib import Path

# The uploaded working directory is the source; the cluster's nodes need only the dependencies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from tests.validation.command import main

if __name__ == "__main__":
    main()
