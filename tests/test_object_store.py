"""Whole runs and trainings on a real S3 server on loopback."""

import json
from pathlib import Path

import pytest

from biaseval.store import Run
from tests.commands import Command
from tests.training.test_distributed import TASK
from tests.training.test_distributed import write_spec as write_lora_spec
from tests.training.test_instruct import LORA
from tests.training.test_instruct import write_spec as write_instruct_spec

pytestmark = pytest.mark.slow


def test_a_run_with_adapters_may_be_in_a_bucket(
    here: None, object_store: str, tmp_path: Path, tiny_llama: Path, command: Command
) -> None:
    spec, run_dir = write_lora_spec(tmp_path, tiny_llama, (0,)), f"{object_store}/runs/first"
    done = command("run", str(spec), "--run-dir", run_dir)
    assert done.code == 0, done.err
    assert "1 of 1 adapters trained" in done.err
    assert f"report: {run_dir}/report.html" in done.out
    asked = command("sql", run_dir, "from label_bias_by_task order by all", "--format", "json")
    rows = json.loads(asked.out)
    assert [row["method"] for row in rows] == ["lora", "none"]
    assert all(0 <= row["macro_f1"] <= 1 for row in rows)
    assert "complete" in command("status", run_dir).out
    run = Run.open(run_dir)
    keys = {file for name in run.names() for file in run.files(name)}
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert f"adapters/{TASK}/k0.s0/{name}" in keys
    assert not [key for key in keys if ".train" in key]
    again = command("run", str(spec), "--run-dir", run_dir)
    assert again.code == 0
    assert "rows are scored already" in again.err
    refused = command("run", str(spec), "--run-dir", run_dir, "--set", "seed=1")
    assert refused.code == 2
    assert "seed: the run has 42, the spec 1" in refused.err
    absent = command("run", str(spec), "--run-dir", "s3://absent/run")
    assert absent.code == 2
    assert "the run directory cannot be written" in absent.err


def test_a_model_is_tuned_in_one(
    here: None, object_store: str, tmp_path: Path, tiny_llama: Path, command: Command
) -> None:
    spec = write_instruct_spec(tmp_path, tiny_llama, lora=LORA, learning_rate=1e18, warmup=0.0, checkpoint_steps=1)
    run_dir = f"{object_store}/runs/tuned"
    stopped = command("train", "instruct", str(spec), "--run-dir", run_dir)
    assert stopped.code == 1
    assert "training stopped at step" in stopped.err
    assert "steps   1 of 24 made" in command("status", run_dir).out
    # The checkpoint before the bad step is there, and read.
    again = command("train", "instruct", str(spec), "--run-dir", run_dir)
    assert "resuming: 1 of 24 steps are made" in again.err
    assert "training stopped at step 1" in again.err
