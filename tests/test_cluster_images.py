"""What nodes are made of, as far as that can be seen without a cloud: the image, and the file for Kubernetes."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

from biaseval.cache import FOLDER
from biaseval.execute.node_types import types_of
from biaseval.execute.resources import Resources, allocate
from biaseval.spec import ExecutionSpec
from tests.test_cluster_yaml import started

ROOT = Path(__file__).resolve().parents[1]
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
