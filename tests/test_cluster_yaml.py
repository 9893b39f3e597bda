import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.core.generated.autoscaler_pb2 import ResourceRequest, ResourceRequestByCount

from biaseval.cache import FOLDER
from biaseval.errors import InputError
from biaseval.execute.node_types import types_of
from biaseval.execute.resources import Resources, allocate
from biaseval.spec import ExecutionSpec

ROOT = Path(__file__).resolve().parents[1]


def test_cluster_yaml_is_valid_against_rays_schema_and_runs_the_tested_version() -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    config, text = config_of(), (ROOT / "cluster.yaml").read_text()
    jsonschema.validate(config, schema)
    assert config["head_node_type"] in config["available_node_types"]
    sources = [source for source in config["file_mounts"].values() if not source.startswith("~")]  # a person's own
    assert all(Path(ROOT / source).exists() for source in sources)
    for option in (f":{ray.__version__}-py3", "--dashboard-host=127.0.0.1", "--disable-usage-stats"):
        assert option in text
    # The folder of models is made for who runs Ray in the container.
    [mounted] = [option.split()[1] for option in config["docker"]["run_options"] if option.startswith("-v ")]
    machine, container = mounted.split(":")
    assert config["initialization_commands"] == [f"sudo install -d -o 1000 -g 100 {machine}"]
    for name in ("HF_HOME", FOLDER):
        assert any(option.startswith(f"-e {name}={container}/") for option in config["docker"]["run_options"])


# ---- what Ray's own scheduler starts ---------------------------------------------------------------------------------


def config_of(**max_workers: int) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    for name, most in max_workers.items():
        config["available_node_types"][name]["max_workers"] = most
    return config


def started(config: Mapping[str, Any], *asked: tuple[dict[str, float], int], **out_of_stock: float) -> Counter[str]:
    """Return how many nodes of each type the autoscaler would start for requests, on a cluster that has its head."""
    own = AutoscalingConfig(dict(config), skip_content_hash=True)
    requests = [ResourceRequestByCount(request=ResourceRequest(resources_bundle=of), count=n) for of, n in asked]
    reply = ResourceDemandScheduler(event_logger=None).schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=own.get_node_type_configs(),
            max_num_nodes=own.get_max_num_nodes(),
            resource_requests=requests,
            recoverable_resource_availabilities=out_of_stock,
        )
    )
    found = Counter({request.instance_type: request.count for request in reply.to_launch})
    del found["head"]
    return found


@pytest.mark.parametrize("n_actors", [1, 5, 16])
def test_actors_with_a_gpu_get_small_spot_nodes_or_others_and_preparing_none(n_actors: int) -> None:
    assert started(config_of(), ({"GPU": 1}, n_actors)) == {"gpu_spot": n_actors}
    assert started(config_of(), ({"GPU": 1}, 4), gpu_spot=0.1) == {"gpu_on_demand": 4}
    [cpu, *gpus] = types_of(config_of())
    assert (cpu.name, [own.name for own in gpus]) == ("cpu", ["gpu_spot", "gpu_on_demand"])
    found = allocate(ExecutionSpec(), 400, Resources([{"CPU": 0}], False, 8, types=[cpu, *gpus]))
    assert (found.n_actors, found.num_gpus) == ((1, 20), 1)
    assert started(config_of(), ({"CPU": 0.9}, 32)) == {"cpu": 4}


def test_a_model_on_two_gpus_gets_its_node_once_the_file_allows_it() -> None:
    assert started(config_of(gpu_8x80gb=2), ({"GPU": 2}, 4)) == {"gpu_8x80gb": 1}
    types = types_of(config_of())
    with pytest.raises(InputError, match=r"gpus_per_actor: 2 asked for, and no node .* has more than 1"):
        allocate(ExecutionSpec(gpus_per_actor=2), 9, Resources([], False, 8, types=types))


def test_gpus_are_proved_the_head_alone_starts_nodes_and_nobody_without_the_token_reaches_ray() -> None:
    config = config_of()
    for name, own in config["available_node_types"].items():
        asserts = any("torch.cuda.is_available()" in line for line in own.get("worker_setup_commands", []))
        assert asserts == ("GPU" in own["resources"]), name
        profile = "biaseval-head" if name == "head" else "biaseval-worker"
        assert own["node_config"]["IamInstanceProfile"] == {"Name": profile}
    assert "-e RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert config["file_mounts"]["/home/ray/.ray/auth_token"] == "~/.ray/auth_token"


def test_the_documented_policies_are_json_and_let_the_head_end_machines_of_its_cluster_alone() -> None:
    _, worker, head = (ROOT / "cluster.yaml").read_text().split("# Policy of ")
    assert statements(worker)
    ending = statements(head)
    of_cluster = {"StringEquals": {"ec2:ResourceTag/ray-cluster-name": config_of()["cluster_name"]}}
    [ends] = [own for own in ending if "ec2:TerminateInstances" in own["Action"]]
    assert ends["Condition"] == of_cluster
    assert [own["Action"] for own in ending if own["Resource"] == "*"] == ["ec2:Describe*"]


def statements(text: str) -> list[dict[str, Any]]:
    """Return the statements of a policy that stands in comments, indented."""
    policy = json.loads("".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#   ")))
    found: list[dict[str, Any]] = policy["Statement"]
    return found
