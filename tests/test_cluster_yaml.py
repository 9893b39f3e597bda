from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import ray
import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_cluster_yaml_is_valid_against_rays_schema() -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    jsonschema.validate(config, schema)
    assert config["head_node_type"] in config["available_node_types"]
    assert all(Path(ROOT / source).exists() for source in config["file_mounts"].values())


def test_cluster_yaml_runs_the_tested_version_of_ray_and_keeps_its_dashboard_to_itself() -> None:
    text = (ROOT / "cluster.yaml").read_text()
    assert f":{ray.__version__}-py3" in text
    assert "--dashboard-host=127.0.0.1" in text
    assert "--disable-usage-stats" in text
