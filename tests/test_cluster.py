"""Clusters: the local one, cluster.yaml and the images."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.core.generated.autoscaler_pb2 import ResourceRequest, ResourceRequestByCount

from biaseval.cache import FOLDER
from biaseval.errors import InputError
from biaseval.execute import address as addresses
from biaseval.execute import cluster
from biaseval.execute.cluster import Cluster, types_of
from biaseval.execute.resources import Resources, allocate
from biaseval.spec import ExecutionSpec
from tests.buckets import free_port
from tests.processes import own_ray


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_a_head_that_is_gone_is_said_and_not_waited_for(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = form.format(free_port())
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(addresses, "_PATIENCE_S", 2)
    gone = rf"^no Ray answers at {address} \(Connection refused\); start that cluster"
    with pytest.raises(InputError, match=gone), Cluster(ExecutionSpec()) as own:
        own.resources()
    for wrong in ("host", "host:abc", "nonsense"):
        found = addresses.unusable(wrong)
        assert found is not None
        assert found.found == f"no Ray answers at {wrong} (it is not HOST:PORT)"


@contextmanager
def http_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_who_listens_need_not_be_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_PATIENCE_S", 2)
    with http_server() as somebody:
        found = [addresses.unusable(form.format(somebody)) for form in ("{}", "ray://{}")]
    assert [one.found.partition(" (")[2] for one in found if one] == ["something else listens there)"] * 2
    monkeypatch.setattr(addresses, "_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # and says nothing
        assert addresses.unusable(f"127.0.0.1:{listener.getsockname()[1]}") is not None


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is asked of a Ray that only says whether it is there."""
    asked: list[str] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: asked.count("init") > asked.count("shutdown"))
    monkeypatch.setattr("ray.init", lambda **options: asked.append("init"))
    monkeypatch.setattr("ray.shutdown", lambda: asked.append("shutdown"))
    monkeypatch.setattr(cluster, "node_types", list)
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True, "Resources": {"CPU": 4.0}}] * 2)
    return asked


def test_a_ray_that_planning_began_is_that_of_making(rays: list[str]) -> None:
    with Cluster(ExecutionSpec(), hands_on=True) as planning:
        assert planning.resources().is_local
    assert rays == ["init"]
    with Cluster(ExecutionSpec()) as making:
        assert making.resources().is_local  # what began it knows: a head may have several nodes
    assert rays == ["init", "shutdown"]
    Cluster.leave()
    assert rays == ["init", "shutdown"]


def test_a_ray_that_nobody_takes_is_left_and_none_is_handed_on_behind_an_error(rays: list[str]) -> None:
    with Cluster(ExecutionSpec(), hands_on=True) as planning:
        planning.resources()
    Cluster.leave()
    assert rays == ["init", "shutdown"]
    rays.clear()

    def plan() -> None:
        with Cluster(ExecutionSpec(), hands_on=True) as planning:
            planning.resources()
            raise InputError("the last task is empty")

    with pytest.raises(InputError):
        plan()
    assert rays == ["init", "shutdown"]


@pytest.mark.parametrize(("address", "has_token", "is_said"), [("a:1", False, 1), ("a:1", True, 0), ("", False, 0)])
def test_a_cluster_without_a_token_is_warned_about(
    address: str, has_token: bool, is_said: int, rays: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("ray._private.authentication.authentication_utils.is_token_auth_enabled", lambda: has_token)
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(cluster, "refuse_unusable_address", lambda: None)
    with Cluster(ExecutionSpec()) as own:
        own.resources()
    assert capsys.readouterr().err.count("caution: Ray at a:1 asks for no token") == is_said


def test_somebody_elses_ray_stays(rays: list[str]) -> None:
    rays.append("init")
    for hands_on in (True, False):
        with Cluster(ExecutionSpec(), hands_on=hands_on) as own:
            assert not own.resources().is_local
    Cluster.leave()
    assert rays == ["init"]


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
            disable_launch_config_check=True, node_type_configs=own.get_node_type_configs(),
            max_num_nodes=own.get_max_num_nodes(), resource_requests=requests,
            recoverable_resource_availabilities=out_of_stock,
        ),
    )  # fmt: skip
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


DOCKERFILE = (ROOT / "Dockerfile").read_text()


def instructions(name: str) -> list[str]:
    """Return what stands behind an instruction of the Dockerfile, wherever it does."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line.removeprefix(f"{name} ") for line in joined.splitlines() if line.startswith(f"{name} ")]


def test_the_image_has_the_tested_ray_and_what_it_copies_is_here_and_not_ignored() -> None:
    assert instructions("FROM") == [f"rayproject/ray:{ray.__version__}-py311-gpu"]
    sources = [word for line in instructions("COPY") for word in line.split()[1:-1]]
    assert all((ROOT / source).exists() for source in sources)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == set(sources)
    # What the build of the package reads.
    assert {"pyproject.toml", "README.md", "LICENSE", "platform", "analytics"} <= set(sources)
    assert instructions("RUN")[0].startswith("pip install --no-cache-dir -c constraints.txt '.[")


def test_the_image_holds_no_secret() -> None:
    assert not instructions("ENV") + instructions("ARG")
    assert not re.search(r"hf_\w{8}|AKIA\w{8}|--mount=type=secret", DOCKERFILE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif("BIASEVAL_STUDIES" not in os.environ, reason="takes minutes and 20 GB; set BIASEVAL_STUDIES=1")
def test_the_image_can_be_built() -> None:
    builders = [name for name in ("docker", "podman") if shutil.which(name)]
    able = [name for name in builders if subprocess.run([name, "info"], capture_output=True).returncode == 0]
    if not able:
        pytest.skip("no builder of images works here")
    subprocess.run([able[0], "build", "-t", "biaseval-test", str(ROOT)], check=True)
    shown = subprocess.run(
        [able[0], "run", "--rm", "biaseval-test", "python", "jobs/label_bias.py", "--help"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "--run-dir" in shown.stdout


# ---- Kubernetes ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    found = yaml.safe_load_all((ROOT / "kubernetes" / "rayjob.yaml").read_text())
    return {document["kind"]: document for document in found}


@pytest.fixture(scope="module")
def derived(documents: dict[str, Any]) -> dict[str, Any]:
    """Return the file of Ray's autoscaler that it makes of the job's cluster, and accepts."""
    cluster = documents["RayJob"]["spec"]["rayClusterSpec"]
    resource = {"metadata": {"name": "biaseval", "namespace": "default"}, "spec": cluster}
    config: dict[str, Any] = _derive_autoscaling_config_from_ray_cr(resource)
    return config


def test_rays_autoscaler_starts_gpu_nodes_for_actors_and_none_for_preparing(derived: dict[str, Any]) -> None:
    assert derived["available_node_types"][derived["head_node_type"]]["resources"]["CPU"] == 0
    assert all(own["min_workers"] == 0 for own in derived["available_node_types"].values())
    renamed = _with_head(derived)
    assert started(renamed, ({"GPU": 1}, 5)) == {"gpu": 5}
    assert started(renamed, ({"CPU": 0.9}, 32)) == {"cpu": 5}


def _with_head(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config whose head is called as `started` knows it."""
    types = {("head" if name == config["head_node_type"] else name): own for name, own in
             config["available_node_types"].items()}  # fmt: skip
    return {**config, "head_node_type": "head", "available_node_types": types}


def test_runs_are_told_of_the_nodes_that_kuberay_starts(documents: dict[str, Any], derived: dict[str, Any]) -> None:
    """By a file where `ray up` leaves its own, which must say the same."""
    told = yaml.safe_load(documents["ConfigMap"]["data"]["ray_bootstrap_config.yaml"])
    types = types_of(told)
    kinds = ("CPU", "GPU")
    assert {own.name: ({kind: own.resources.get(kind, 0) for kind in kinds}, own.at_most) for own in types} == {
        name: ({kind: own["resources"].get(kind, 0) for kind in kinds}, own["max_workers"])
        for name, own in derived["available_node_types"].items()
        if name != derived["head_node_type"]
    }
    found = allocate(ExecutionSpec(), 400, Resources([{"CPU": 0}], False, 4, types=types))
    assert (found.n_actors, found.num_gpus) == ((1, 16), 1)
    [head] = documents["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    [mount] = [own for own in head["volumeMounts"] if own["name"] == "node-types"]
    assert mount["mountPath"] == "/home/ray/ray_bootstrap_config.yaml"
    assert mount["subPath"] in documents["ConfigMap"]["data"]


def test_the_job_has_what_kuberay_asks_for(documents: dict[str, Any]) -> None:
    """The fields of KubeRay's `ray.io/v1` that are used, by hand: the definition itself has a megabyte."""
    job = documents["RayJob"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
    assert spec.keys() == {
        "entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit", "rayClusterSpec"
    }  # fmt: skip
    assert cluster.keys() == {
        "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "authOptions", "headGroupSpec", "workerGroupSpecs"
    }  # fmt: skip
    assert (cluster["rayVersion"], cluster["enableInTreeAutoscaling"]) == (ray.__version__, True)
    assert cluster["autoscalerOptions"]["version"] == "v2"
    assert cluster["authOptions"]["mode"] == "token"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        assert pod["restartPolicy"] == "Never"  # the second autoscaler takes a pod for one node
        assert pod["serviceAccountName"] == documents["ServiceAccount"]["metadata"]["name"]
        [container] = pod["containers"]
        assert container["image"] == groups[0]["template"]["spec"]["containers"][0]["image"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert {own["name"] for own in container["volumeMounts"]} == {own["name"] for own in pod["volumes"]}
        volumes = {own["name"]: own for own in pod["volumes"]}
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == 1000  # the image's, by number, as Kubernetes must know it
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        disk, cache = container["resources"]["requests"]["ephemeral-storage"], volumes["cache"]["emptyDir"]["sizeLimit"]
        assert int(disk.removesuffix("Gi")) > int(cache.removesuffix("Gi"))
        environment = {own["name"]: own for own in container["env"]}
        assert environment["HF_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"]
        assert environment["HF_HOME"]["value"].startswith("/cache/")
        assert environment[FOLDER]["value"].startswith("/cache/")
    for group in cluster["workerGroupSpecs"]:
        assert group["rayStartParams"] == {}
    [gpu] = [group for group in cluster["workerGroupSpecs"] if group["groupName"] == "gpu"]
    assert gpu["template"]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_entrypoint_is_a_job_of_the_image(documents: dict[str, Any]) -> None:
    python, job, spec, option, run = documents["RayJob"]["spec"]["entrypoint"].split()
    assert (python, option) == ("python", "--run-dir")
    assert run.startswith("s3://")
    for path in (job, spec):
        assert (ROOT / Path(path).relative_to("/home/ray/biaseval")).is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "when", "code"), [(15, "start", 143), (2, "start", 130), (15, "ends", 143), (15, "left", 143)]
)
def test_signals_mean_what_they_mean_without_ray(number: int, when: str, code: int) -> None:
    program = f"""
import contextlib, os, threading; from biaseval.cli.arguments import resumable
from biaseval.execute.cluster import Cluster, ExecutionSpec; from ray._private.node import Node
end = Node.kill_all_processes  # of which Ray's core knows no more
Node.kill_all_processes = lambda *own, **how: (os.kill(os.getpid(), {15 * (when == "ends")}), end(*own, **how))
with contextlib.suppress(KeyboardInterrupt), resumable():  # Python itself may lose its code behind Ray's hooks
    with Cluster(ExecutionSpec()) as cluster:
        threading.Timer(0.7, os.kill, (os.getpid(), {number if when == "start" else 0})).start(); cluster.resources()
    os.kill(os.getpid(), {number})
raise SystemExit(130)
"""
    with own_ray() as ray_s:
        ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, **ray_s}, stderr=subprocess.PIPE)
    assert (ended.returncode, (b"stopped" if number == 15 else b"interrupted") in ended.stderr) == (128 + number, True)


@pytest.mark.parametrize(("end", "said"), [("os._exit(1)", b"error: this process was ended"), ("own.dismiss()", b"")])
def test_a_process_that_is_ended_has_a_witness(end: str, said: bytes) -> None:
    program = f"import os; from biaseval.execute.cluster import Witness; own = Witness(); {end}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (ended.returncode, ended.stderr[: len(said)], bool(ended.stderr)) == (int(bool(said)), said, bool(said))


@pytest.mark.slow
def test_a_ray_of_a_runs_own_asks_for_a_token_and_listens_on_loopback_alone() -> None:
    program = """
import psutil, ray; from biaseval.execute.cluster import Cluster, ExecutionSpec
with Cluster(ExecutionSpec()) as cluster:
    cluster.resources(); ray.get(ray.remote(lambda: 1).remote())
    for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        print(*(own.laddr.ip for own in one.net_connections("tcp") if own.status == "LISTEN"))
import os; print(os.environ["RAY_AUTH_MODE"])
"""
    with own_ray() as ray_s:
        env = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_AUTH_MODE")}
        env |= ray_s | {"HOME": ray_s["RAY_TMPDIR"]}
        *places, mode = subprocess.check_output([sys.executable, "-c", program], env=env, text=True).split()
    assert (mode, len(places) > 5) == ("token", True)
    assert {place.removeprefix("::ffff:") for place in places} == {"127.0.0.1"}
