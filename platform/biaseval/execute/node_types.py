"""Which nodes an autoscaler would start, as far as it says so to a driver."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biaseval.execute.resources import NodeType
from biaseval.parsing import yaml_1_1_value

_FILE = Path("~/ray_bootstrap_config.yaml")
"""Where `ray up` leaves its file on the head, on which jobs run."""

_UNLIMITED, _MOST = -1, 1000


def node_types() -> list[NodeType]:
    """Return the types of nodes that come on demand; none where no autoscaler says which.

    Ray knows them where the autoscaler reported them to it; `ray up` leaves its file on the head.
    """
    import ray

    config = ray._private.state.state.get_cluster_config()
    if config is not None and config.node_group_configs:
        return [
            NodeType(each.name, dict(each.resources), _MOST if each.max_count == _UNLIMITED else each.max_count)
            for each in config.node_group_configs
            if each.max_count > each.min_count or each.max_count == _UNLIMITED
        ]
    file = _FILE.expanduser()
    return types_of(yaml_1_1_value(file.read_text(encoding="utf-8"))) if file.is_file() else []


def types_of(config: Mapping[str, Any]) -> list[NodeType]:
    """Return the types of nodes that a file of `ray up` has beside its head; those that never come are left out."""
    most = int(config.get("max_workers", 2))  # Ray's own default
    return [
        NodeType(name, dict(own.get("resources", {})), at_most)
        for name, own in config.get("available_node_types", {}).items()
        if name != config.get("head_node_type") and (at_most := min(most, int(own.get("max_workers", most)))) > 0
    ]
