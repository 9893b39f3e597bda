"""Puts the uploaded working directory on Python's path: a cluster's nodes need only the dependencies."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]
