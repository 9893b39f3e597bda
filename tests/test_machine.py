"""What a worker sets for itself before it imports anything heavy."""

import os
import subprocess
import sys

import pytest

from biaseval.execute.machine import quiet_worker


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, None),  # torch reads the older name only without the new
    ],
)
def test_a_worker_sets_the_allocator_of_gpus_unless_somebody_did(
    before: dict[str, str], after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", before)
        quiet_worker()
        assert os.environ.get("PYTORCH_ALLOC_CONF") == after


def test_what_a_worker_sets_comes_before_torch_and_does_nothing_on_a_cpu() -> None:
    code = """
import sys
from biaseval.execute import datasets, machine
from biaseval.pipelines.labels import label_scores
from biaseval.pipelines.qa import stages
assert "torch" not in sys.modules
machine.quiet_worker()
import torch
assert torch.empty(3).numel() == 3
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
