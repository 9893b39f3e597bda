"""Adapters on a real S3 server on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.pipelines import train_lora
from biaseval.spec import load_spec
from tests.test_object_store import _call, bucket
from tests.training.test_distributed import TASK, write_spec

__all__ = ["bucket"]  # a fixture

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_run_with_adapters_may_be_in_a_bucket(
    bucket: dict[str, str],  # the fixture by its name
    tmp_path: Path,
    tiny_llama: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, run_dir = write_spec(tmp_path, tiny_llama), "s3://bias/runs/lora"
    done = _call({**bucket, "OMP_NUM_THREADS": "1"}, "run", str(spec), "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    assert "trained 2 of 2 adapters" in done.stderr
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    methods = query([run_dir], "select distinct method from label_bias_by_model order by all").to_pylist()
    assert [row["method"] for row in methods] == ["lora", "none"]
    again = train_lora(load_spec(spec), run_dir)
    assert (again.uri, again.n_adapters, again.n_trained) == (run_dir, 2, 0)
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=bucket["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    keys = {each["Key"] for each in client.list_objects_v2(Bucket="bias", Prefix="runs/lora/")["Contents"]}
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert f"runs/lora/adapters/{TASK}/k2.s0/{name}" in keys
    assert not [key for key in keys if ".train" in key]
