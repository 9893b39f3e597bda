"""Who holds what on a cluster, and what the dead of this job left: Ray keeps their placement groups until it ends."""

import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.core.generated.gcs_pb2 import ActorTableData, PlacementGroupTableData  # type: ignore[attr-defined]
from ray.util.placement_group import PlacementGroup, remove_placement_group

from biaseval.execute.resources import Holder

_ENDING_S = 30.0
"""How long Ray may take to end the actors of a process that it has killed."""


def n_placed(class_name: str) -> int:
    """Return how many actors of a class have a place, of those that this process began.

    An actor has its place before its constructor begins, which may load a large model.
    """
    own = _owned_by({ray.get_runtime_context().get_worker_id()})
    return sum(class_name in actor.class_name and bool(actor.address.worker_id.strip(b"\xff")) for actor in own)


def n_groups_placed(leaders: Set[str]) -> int:
    """Return how many groups of workers have a placement group that Ray has placed.

    ``leaders`` are Ray's ids of the processes that lead the groups: these started Ray Train's controllers.
    """
    controllers = {actor.actor_id for actor in _owned_by(leaders)}
    return sum(
        group.creator_actor_id in controllers and group.state == PlacementGroupTableData.CREATED for group in _groups()
    )


def end_leads(leads: Sequence[Any], leaders: Set[str]) -> None:
    """End those tasks that run Ray Train still, with all that they hold: their workers' place is free afterwards.

    A controller that is killed between "its placement group is ready" and "Ray Train knows of it" leaves the group.
    ``leads`` is what ``remote`` of the tasks returned, and ``leaders`` are Ray's ids of the processes that run them.
    """
    _, left = ray.wait(list(leads), num_returns=len(leads), timeout=0)
    if not left:
        return
    running = left
    for led in running:
        ray.cancel(led, force=True)
    deadline = time.monotonic() + _ENDING_S
    while (left or _owned_by(leaders)) and time.monotonic() < deadline:
        _, left = ray.wait(running, num_returns=len(running), timeout=0.1)
    remove_strays()


def remove_strays() -> None:
    """Remove the placement groups of this job that an actor asked for which is dead.

    Groups of other jobs, of actors that live and of processes that are no actors stay. Ray removes such a group only
    when its job has ended too.
    """
    job = _own_job()
    strays = [
        group
        for group in _groups()
        if group.creator_job_id == job.binary()
        and group.creator_actor_id.strip(b"\xff")
        and group.state != PlacementGroupTableData.REMOVED
    ]
    if not strays:
        return
    living = {actor.actor_id for actor in _actors(job) if actor.state != ActorTableData.DEAD}
    for group in strays:
        if group.creator_actor_id not in living:
            remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))


def free_of_nodes() -> list[Mapping[str, float]]:
    """Return the free resources of each node."""
    return list(ray._private.state.available_resources_per_node().values())


def holders(kind: str) -> list[Holder]:
    """Return which placement groups and actors, of all jobs, hold a resource; of tasks nobody says it."""
    own = _own_job().binary()
    found = [
        (group.creator_job_id, "a placement group", sum(bundle.unit_resources.get(kind, 0) for bundle in group.bundles))
        for group in _groups()
        if group.state == PlacementGroupTableData.CREATED
    ]
    found += [
        (actor.job_id, f"the actor {actor.class_name} (process {actor.pid})", actor.required_resources.get(kind, 0))
        for actor in _actors(None, "ALIVE")
        if not actor.placement_group_id.strip(b"\xff")
    ]
    return [Holder(what, None if job == own else job.hex(), amount) for job, what, amount in found if amount]


def _owned_by(processes: Set[str]) -> list[Any]:
    """Return the actors that some processes of this job started and that are not dead."""
    return [
        actor
        for actor in _actors(_own_job())
        if actor.owner_address.worker_id.hex() in processes and actor.state != ActorTableData.DEAD
    ]


def _own_job() -> Any:
    return ray._private.worker.global_worker.current_job_id


def _actors(job: Any, state: str | None = None) -> list[Any]:
    return [ActorTableData.FromString(each) for each in _tables().get_actor_table(job, state)]


def _groups() -> list[Any]:
    return [PlacementGroupTableData.FromString(each) for each in _tables().get_placement_group_table()]


def _tables() -> Any:
    """Return what reads Ray's tables: no public function says who asked for a placement group."""
    return ray._private.state.state._connect_and_get_accessor()
