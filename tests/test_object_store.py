"""A whole run on a real S3 server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_cli import call
from tests.test_pipelines import write_spec
from tests.training.test_instruct import LORA
from tests.training.test_instruct import write_spec as write_instruct_spec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("object_store")]


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that needs a Ray of its own, whose workers know of the bucket."""
    command = [sys.executable, "-m", "biaseval", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_a_run_directory_may_be_a_bucket(
    tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}, calibration=["cc"])
    run_dir = "s3://bias/runs/first"
    done = start("run", str(spec), "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    assert f"report: {run_dir}/report.html" in done.stdout
    asked = call(capsys, monkeypatch, "sql", run_dir, "from label_bias_by_task order by all", "--format", "json")
    rows = json.loads(asked.out)
    assert len(rows) == 4
    assert all(0 <= row["macro_f1"] <= 1 for row in rows)
    assert "complete" in call(capsys, monkeypatch, "status", run_dir).out
    again = call(capsys, monkeypatch, "run", str(spec), "--run-dir", run_dir)
    assert again.code == 0
    assert "all 150 rows are scored already" in again.err
    refused = call(capsys, monkeypatch, "run", str(spec), "--run-dir", run_dir, "--set", "seed=1")
    assert refused.code == 2
    assert "seed: the run has 42, the spec 1" in refused.err
    absent = call(capsys, monkeypatch, "run", str(spec), "--run-dir", "s3://absent/run")
    assert absent.code == 2
    assert "the run directory cannot be written" in absent.err


def test_a_model_may_be_tuned_in_a_bucket(
    tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_instruct_spec(tmp_path, tiny_llama, lora=LORA, learning_rate=1e30, warmup=0.0, checkpoint_steps=1)
    run_dir = "s3://bias/runs/tuned"
    stopped = start("train", "instruct", str(spec), "--run-dir", run_dir)
    assert stopped.returncode == 1
    assert "training stopped at step" in stopped.stderr
    assert "steps   1 of 24 made" in call(capsys, monkeypatch, "status", run_dir).out
    # The checkpoint before the bad step is there, and read.
    again = start("train", "instruct", str(spec), "--run-dir", run_dir)
    assert "resuming: 1 of 24 steps are made" in again.stderr
    assert "training stopped at step 1" in again.stderr
