"""A file of Ray's cluster launcher: whether `ray up` takes it, and whether the nodes will fit this machine."""

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from biaseval.doctor.finding import Finding, State
from biaseval.parsing import json_value, yaml_1_1_value

_NAME = "cluster file"


def cluster_file(path: Path) -> Iterator[Finding]:
    """Yield findings about a file of Ray's cluster launcher."""
    try:
        config = yaml_1_1_value(path.read_text())
    except (OSError, ValueError) as error:
        yield Finding(_NAME, State.problem, f"{path}: cannot be read ({error})", "name a YAML file as cluster.yaml")
        return
    if problems := _by_schema(config):
        found = f"{path}: {'; '.join(problems)}"
        yield Finding(_NAME, State.problem, found, "see docs.ray.io, Cluster YAML Configuration Options")
        return
    findings = list(_judged(config, path))
    yield from findings or [Finding(_NAME, State.ok, f"{path}: fits Ray's schema and the versions here")]
    yield from _provider(config["provider"])


def _by_schema(config: Any) -> list[str]:
    """Return what Ray's own schema says against it, a line a place."""
    import jsonschema
    import ray

    schema = json_value((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    errors = sorted(
        jsonschema.Draft7Validator(schema).iter_errors(config), key=lambda error: list(map(str, error.path))
    )
    return [f"{'.'.join(map(str, error.path)) or 'the file'}: {error.message}" for error in errors]


def _judged(config: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Yield what Ray's schema does not know."""
    types = config.get("available_node_types", {})
    head = config.get("head_node_type")
    if types and head not in types:
        found = f"head_node_type: {head} is none of {', '.join(types)}"
        yield Finding(_NAME, State.problem, found, "name one of available_node_types")
    images = {name: str((own.get("node_config") or {}).get("ImageId", "")) for name, own in types.items()}
    if unnamed := [name for name, image in images.items() if set(image.removeprefix("ami-")) == {"0"}]:
        found = f"available_node_types: {', '.join(unnamed)}: node_config.ImageId names no image"
        yield Finding(_NAME, State.problem, found, "name one of your region, as the file says at its beginning")
    for there, here in config.get("file_mounts", {}).items():
        if not os.path.exists(path.parent / os.path.expanduser(str(here))):
            found = f"file_mounts: {here}, for {there}, is not here"
            yield Finding(_NAME, State.problem, found, f"mend the path: it is looked for from {path.parent.resolve()}")
    python = "".join(platform.python_version_tuple()[:2])
    versions = (("ray", r"ray[^:]*:(\d+\.\d+\.\d+)", metadata.version("ray")), ("python", r"py(3\d+)", python))
    for image in _images(config):
        for package, pattern, own in versions:
            match = re.search(pattern, image)
            if match and match.group(1) != own:
                found = f"docker.image: {image} has {package} {match.group(1)}, and here is {own}"
                yield Finding(_NAME, State.problem, found, "take the image of the version that is installed here")
    for command in config.get("head_start_ray_commands", []):
        if re.search(r"--dashboard-host[= ](0\.0\.0\.0|::)", command):
            found = "head_start_ray_commands: the dashboard runs jobs of whoever reaches it, and listens to all"
            yield Finding(_NAME, State.problem, found, "use --dashboard-host=127.0.0.1, and ray dashboard for a tunnel")


def _images(config: Mapping[str, Any]) -> list[str]:
    sections = [
        config.get("docker") or {},
        *(own.get("docker") or {} for own in config.get("available_node_types", {}).values()),
    ]
    return [section[key] for section in sections for key in ("image", "head_image", "worker_image") if section.get(key)]


def _provider(provider: Mapping[str, Any]) -> Iterator[Finding]:
    """Say whether `ray up` reaches the cloud."""
    if provider.get("type") != "aws":
        return
    if find_spec("boto3") is None:
        found = "boto3 is not installed, and `ray up` needs it for AWS"
        yield Finding("cloud", State.problem, found, "pip install 'boto3>=1.36'")
        return
    from botocore.session import get_session

    if get_session().get_credentials() is None:
        yield Finding("cloud", State.problem, "no credentials for AWS are found", "aws configure, or set AWS_PROFILE")
    else:
        yield Finding("cloud", State.ok, "boto3 is there and has credentials for AWS")
