"""A whole run on a real S3 server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_pipelines import write_spec
from tests.training.test_instruct import LORA
from tests.training.test_instruct import write_spec as write_instruct_spec

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def bucket() -> Iterator[dict[str, str]]:
    """Start an S3 server with the bucket ``bias``; yield the environment that points to it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="bias")
    yield {**os.environ, **variables, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    server.stop()


def _call(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "biaseval", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def test_a_run_directory_may_be_a_bucket(bucket: dict[str, str], tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}, calibration=["cc"])
    run_dir = "s3://bias/runs/first"
    done = _call(bucket, "run", str(spec), "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    assert f"report: {run_dir}/report.html" in done.stdout
    asked = _call(bucket, "sql", run_dir, "from label_bias_by_task order by all", "--format", "json")
    rows = json.loads(asked.stdout)
    assert len(rows) == 4
    assert all(0 <= row["macro_f1"] <= 1 for row in rows)
    assert "complete" in _call(bucket, "status", run_dir).stdout
    again = _call(bucket, "run", str(spec), "--run-dir", run_dir)
    assert again.returncode == 0
    assert "all 150 rows are scored already" in again.stderr
    refused = _call(bucket, "run", str(spec), "--run-dir", run_dir, "--set", "seed=1")
    assert refused.returncode == 2
    assert "seed: the run has 42, the spec 1" in refused.stderr
    absent = _call(bucket, "run", str(spec), "--run-dir", "s3://absent/run")
    assert absent.returncode == 2
    assert "the run directory cannot be written" in absent.stderr


def test_a_model_may_be_tuned_in_a_bucket(bucket: dict[str, str], tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_instruct_spec(tmp_path, tiny_llama, lora=LORA, learning_rate=1e30, warmup=0.0, checkpoint_steps=1)
    run_dir = "s3://bias/runs/tuned"
    stopped = _call(bucket, "train", "instruct", str(spec), "--run-dir", run_dir)
    assert stopped.returncode == 1
    assert "training stopped at step" in stopped.stderr
    assert "steps   1 of 24 made" in _call(bucket, "status", run_dir).stdout
    # The checkpoint before the bad step is there, and read.
    again = _call(bucket, "train", "instruct", str(spec), "--run-dir", run_dir)
    assert "resuming: 1 of 24 steps are made" in again.stderr
    assert "training stopped at step 1" in again.stderr
