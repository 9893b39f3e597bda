"""Fixtures that every test module may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of golden values and real data, beside the repository or at ``BIASEVAL_SHARED``."""
    folder = Path(os.environ.get("BIASEVAL_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"golden values and real data are not here: {folder} (set BIASEVAL_SHARED)")
    return folder
