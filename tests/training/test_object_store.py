"""Adapters on a real S3 server on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.pipelines import train_lora
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.test_object_store import start
from tests.training.test_distributed import TASK, write_spec

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_run_with_adapters_may_be_in_a_bucket(object_store: str, tmp_path: Path, tiny_llama: Path) -> None:
    spec, run_dir = write_spec(tmp_path, tiny_llama), "s3://bias/runs/lora"
    done = start("run", str(spec), "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 adapters trained" in done.stderr
    methods = query([run_dir], "select distinct method from label_bias_by_model order by all").to_pylist()
    assert [row["method"] for row in methods] == ["lora", "none"]
    again = train_lora(load_spec(spec), run_dir)
    assert (again.uri, again.n_adapters, again.n_trained) == (run_dir, 2, 0)
    run = Run.open(run_dir)
    keys = {file for name in run.names() for file in run.files(name)}
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert f"adapters/{TASK}/k2.s0/{name}" in keys
    assert not [key for key in keys if ".train" in key]
