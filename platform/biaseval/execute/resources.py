"""How work shares a cluster: nodes in, allocations out. Pure: nothing here asks Ray or the machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from biaseval.errors import InputError, TransientError
from biaseval.spec import ExecutionSpec, TrainingSpec
from biaseval.spec.accelerators import MEMORY_GIB

SPARE_CPUS = 2
"""Logical CPUs beside the actors': Ray Data's reading tasks must find a slot, or it waits for ever."""

LEADER_CPUS = 0.01
"""The CPUs of a run that another run starts, besides its work: Ray Tune places no trial without resources."""

_MOST_ACTORS = 1000

_PREPARING_AT_ONCE = 2
"""Tasks that prepare parts, for each actor: more of them would only have an autoscaler start nodes."""

_ON_CPUS = "on CPUs: the cluster shows no GPU; where GPU nodes come on demand, set execution.gpus_per_actor"
_IN_TURN = (
    "on several GPUs for each model, which work one after another: for a model that does not fit fewer; "
    "model.quantization makes it smaller"
)
_SPARE = "the others would do nothing; set execution.gpus_per_actor to 1"

_GIB = 1 << 30
_MOST_SHARING = 4
"""Actors of a GPU, each with a model below about 1.5 billion parameters, which the start of kernels limits. Nothing of
this was measured on a GPU: the floors are generous, and whoever names `execution.gpus_per_actor` gets whole GPUs."""
_LEAST_SHARE = 8 * _GIB
"""Of an actor: a CUDA context and torch's kernels take about one of them."""
_LARGEST_WEIGHTS = 3 * _GIB
_WEIGHTS_IN_SHARE = 4
"""An actor has so many times its weights, for what runs through them and for keys and values."""
_LEAST_PARTS = 4
"""Of an actor, for which another process starts and another copy of the model is loaded."""
_SHARE_FOR_WEIGHTS = 0.8
"""Of a GPU that holds a model alone."""

_TYPE = "accelerator_type:"
"""How Ray names a node's GPUs among its resources."""


@dataclass(frozen=True)
class NodeType:
    """Nodes that come on demand."""

    name: str
    resources: Mapping[str, float]
    """``CPU`` and ``GPU`` of one."""
    at_most: int
    """That may be there at a time."""


@dataclass(frozen=True)
class Resources:
    """What there is to share."""

    nodes: Sequence[Mapping[str, float]]
    """``CPU`` and ``GPU`` of each node, and what Ray calls its kind of GPU, ``accelerator_type:A100``."""
    is_local: bool
    """The cluster is this machine's own Ray, whose logical CPUs may be more than its cores."""
    n_cores: int
    """Of this machine."""
    omp_threads: int | None = None
    """``OMP_NUM_THREADS`` of this machine, which Ray hides from its workers."""
    types: Sequence[NodeType] = ()
    """The node types that may join; empty if none does or none is known."""
    is_shared: bool = False
    """Other runs of the same process have the rest of the cluster."""

    def may_grow(self, execution: ExecutionSpec) -> bool:
        """Return whether nodes may come: an autoscaler is known, or a number of GPUs on a cluster says that some do."""
        return bool(self.types) or (not self.is_local and execution.gpus_per_actor not in ("auto", 0))

    @property
    def n_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(sum(node.get("GPU", 0) for node in self.nodes))

    @property
    def reachable_gpus(self) -> int:
        """GPUs that there are, or will be once all nodes have come."""
        return int(self.most("GPU"))

    @property
    def gpus_of_a_node(self) -> int:
        """The most that one node has, or will have."""
        nodes = (*self.nodes, *(each.resources for each in self.types))
        return int(max((own.get("GPU", 0) for own in nodes), default=0))

    def most(self, kind: str) -> float:
        """Return how much of a resource there is, or will be once all nodes have come."""
        there = sum(node.get(kind, 0) for node in self.nodes)
        return max(there, sum(each.at_most * each.resources.get(kind, 0) for each in self.types))

    @property
    def cpus(self) -> list[float]:
        """Logical CPUs of each node that has some, or of those that will come, where these are more.

        Work without GPUs starts nodes without GPUs, where there are such.
        """
        there = [node["CPU"] for node in self.nodes if node.get("CPU", 0)]
        plain = [each for each in self.types if not each.resources.get("GPU", 0)] or self.types
        coming = [own for each in plain for own in [each.resources.get("CPU", 0)] * each.at_most if own]
        return max(there, coming, key=sum)


@dataclass(frozen=True)
class Holder:
    """Who holds some of a resource."""

    what: str
    job: str | None
    """None: that of this process."""
    amount: float

    def __str__(self) -> str:
        return f"{self.what} of {'this process' if self.job is None else f'job {self.job}'} holds {self.amount:g}"


@dataclass(frozen=True)
class Ask:
    """What work waits for."""

    what: str
    """For messages: ``an actor``."""
    bundle: Mapping[str, float]
    """``CPU`` and ``GPU`` that one node must have free."""
    n: int = 1
    """Bundles, all of which it needs at once."""

    def fits(self, nodes: Sequence[Mapping[str, float]]) -> bool:
        """Return whether nodes with these free resources have room for all bundles."""
        asked = {kind: amount for kind, amount in self.bundle.items() if amount > 0}
        rooms = [[int((own.get(kind, 0) + 1e-6) / amount) for kind, amount in asked.items()] for own in nodes]
        return sum(min(room, default=self.n) for room in rooms) >= self.n

    def __str__(self) -> str:
        amounts = ", ".join(f"{amount * self.n:g} {kind}" for kind, amount in self.bundle.items() if amount)
        return f"{self.what}, which asks for {amounts}"


@dataclass(frozen=True)
class Allocation:
    """What one actor gets."""

    n_actors: int | tuple[int, int]
    """A number, or (at least, at most)."""
    num_cpus: float
    num_gpus: float
    """Below one where several actors share a GPU."""
    n_threads: int | None
    n_preparing: int
    """Tasks that prepare parts at a time: one for each actor where they share this machine's cores, else more."""
    caution: str | None = None
    """What a person should know of it, behind the name of the work."""

    @property
    def device(self) -> Literal["cpu", "cuda", "auto"]:
        """Where an actor's model lies; several GPUs share it (``device_map``)."""
        if self.num_gpus == 0:
            return "cpu"
        return "cuda" if self.num_gpus <= 1 else "auto"


@dataclass(frozen=True)
class Groups:
    """How workers that train share a cluster."""

    n_groups: int
    n_workers: int
    """Of one group."""
    resources_per_worker: dict[str, float]
    use_gpu: bool
    n_threads: int | None
    """Of one worker on CPUs."""
    is_alone: bool = False
    """One worker on the CPUs of this machine, which needs no process but the one that leads its group."""
    caution: str | None = None
    """What a person should know of it, behind the name of the work."""

    @property
    def ask(self) -> Ask:
        """What a group asks for."""
        return Ask("a group of workers", self.resources_per_worker, self.n_workers)

    def threads(self, n_cores: int, n_local: int) -> int:
        """Return the threads of a worker: with a GPU its part of the cores of its machine, which ``n_local`` share.

        Ray gives who asks for no CPU one thread, by which an optimizer on the CPU (ZeRO offload) would wait for itself.
        """
        return self.n_threads or max(1, n_cores // n_local)


def local_cpus(execution: ExecutionSpec, n_cores: int) -> int:
    """Return the logical CPUs of a Ray of this machine's own."""
    n_actors = 1 if execution.actors == "auto" else execution.actors
    at_once = execution.n_at_once
    of_one = n_actors * max(1, n_cores // at_once // n_actors) + SPARE_CPUS
    return at_once * of_one + (at_once > 1)  # what starts them takes some of one


def share_of(resources: Resources, at_once: int) -> Resources:
    """Return what each of several runs at once gets: as many GPUs, from the first nodes on, and its part of the CPUs.

    Together they never ask for more than there is, so that none waits for what another holds and itself waits for.
    """
    left = resources.n_gpus // at_once
    nodes = []
    for node in resources.nodes:
        n_gpus = min(left, int(node.get("GPU", 0)))
        left -= n_gpus
        nodes.append({**node, "CPU": (node.get("CPU", 0) - LEADER_CPUS * at_once) / at_once, "GPU": float(n_gpus)})
    types = [
        replace(each, at_most=each.at_most // at_once)
        if each.resources.get("GPU", 0)
        else replace(each, resources={"CPU": (each.resources.get("CPU", 0) - LEADER_CPUS * at_once) / at_once})
        for each in resources.types
    ]
    n_cores = max(1, resources.n_cores // at_once)
    return replace(resources, nodes=nodes, n_cores=n_cores, types=types, is_shared=at_once > 1)


def runs_at_once(
    asked: int | None, execution: ExecutionSpec, gpus_of_one: int, n_runs: int, resources: Resources
) -> int:
    """Return how many of ``n_runs``, which may train, share a cluster at a time.

    ``asked`` by the spec; None: one on CPUs, else as many as the GPUs allow; all where GPUs come on demand. One run
    needs ``gpus_of_one`` where there are GPUs.

    Raises:
        InputError: the cluster cannot hold as many as are asked for.
    """
    if resources.may_grow(execution) and not resources.types:
        return min(n_runs, asked or n_runs)
    has_gpus = bool(resources.reachable_gpus) and execution.gpus_per_actor != 0
    n_actors = 1 if execution.actors == "auto" else execution.actors
    if has_gpus:
        most = max(1, resources.reachable_gpus // max(1, gpus_of_one * n_actors))
    else:
        if execution.actors == "auto" and not resources.is_local:
            n_actors = len(resources.cpus)  # one on every node
        most = int((sum(resources.cpus) - LEADER_CPUS) // (SPARE_CPUS + 0.5 * n_actors + LEADER_CPUS))
        # A worker that trains takes a whole CPU of a node.
        most = max(1, min(most, int(max(resources.cpus, default=0) // (1 + LEADER_CPUS))))
    if asked is not None and min(asked, n_runs) > most:
        kind = "GPUs" if has_gpus else "CPUs"
        raise InputError(
            f"execution.at_once: {asked} trials at a time, and Ray has {kind} for {most}; lower it, or submit the "
            "search to a larger cluster"
        )
    return min(n_runs, asked or (most if has_gpus else 1))


def blocks_at_once(asked: int | Literal["auto"], n_blocks: int, resources: Resources) -> int:
    """Return how many pieces of work that take a CPU each are done at a time.

    Raises:
        InputError: the cluster cannot hold as many as are asked for.
    """
    slots = int(sum(int(own) for own in resources.cpus))
    most = max(1, min(slots, resources.n_cores) if resources.is_local else slots)
    if asked != "auto" and min(asked, n_blocks) > slots:
        raise InputError(
            f"execution.at_once: {asked} at a time, and Ray has CPUs for {slots}; lower it, or submit the search to a "
            "larger cluster"
        )
    return min(n_blocks, most if asked == "auto" else asked)


def allocate(
    execution: ExecutionSpec, n_parts: int, resources: Resources, weights_bytes: int | None = None
) -> Allocation:
    """Return what each actor gets, for work in ``n_parts`` parts, at least 1.

    Each actor holds a model of ``weights_bytes``; None: nobody knows.

    Raises:
        InputError: an actor is to have more GPUs than any node has, or will have.
    """
    is_local, total_gpus, cpus = resources.is_local, resources.n_gpus, resources.cpus
    num_gpus = min(1, resources.reachable_gpus) if execution.gpus_per_actor == "auto" else execution.gpus_per_actor
    if is_local and num_gpus > total_gpus:
        raise InputError(
            f"execution.gpus_per_actor: {num_gpus} asked for and this machine has {total_gpus}; "
            "lower it, or submit the run to a cluster with GPUs"
        )
    if resources.types and num_gpus > resources.gpus_of_a_node:
        raise InputError(
            f"execution.gpus_per_actor: {num_gpus} asked for, and no node of the cluster, there or on demand "
            f"({', '.join(each.name for each in resources.types)}), has more than {resources.gpus_of_a_node}; lower "
            "it, or add a node type to the cluster's file"
        )
    if num_gpus:
        at_most = max(1, min(n_parts, _MOST_ACTORS))
        together = _together(execution, n_parts, resources, weights_bytes)
        if is_local or resources.types:
            at_most = max(1, min(at_most, together * resources.reachable_gpus // num_gpus))
        most = at_most if execution.actors == "auto" else execution.actors
        # An actor that waits for its GPU takes no CPU slot, which Ray Data's reading tasks need.
        return Allocation(
            most if is_local or execution.actors != "auto" else (1, most),
            num_cpus=0,
            # As Ray counts: in ten-thousandths, of which that many do not exceed one.
            num_gpus=num_gpus if together == 1 else (10_000 // together) / 10_000,
            n_threads=None,
            n_preparing=max(2, _PREPARING_AT_ONCE * most),
            caution=_caution(num_gpus, resources, weights_bytes),
        )
    caution = None if is_local or execution.gpus_per_actor != "auto" else _ON_CPUS
    n_actors = (1 if is_local else max(1, len(cpus))) if execution.actors == "auto" else execution.actors
    n_actors = min(n_actors, n_parts)
    # A Ray that somebody else started may have fewer slots than this machine has cores.
    largest = max(1, resources.n_cores // n_actors) if is_local else min(cpus, default=1) - 1
    slots = max(0.5, min(largest, (sum(cpus) - SPARE_CPUS) / n_actors))
    slots = slots if slots < 1 else float(int(slots))  # Ray takes no fraction above one
    return Allocation(
        n_actors,
        num_cpus=slots,
        num_gpus=0,
        n_threads=int(largest) if is_local else max(1, int(slots)),
        n_preparing=n_actors if is_local else max(2, _PREPARING_AT_ONCE * n_actors),
        caution=caution,
    )


def _together(execution: ExecutionSpec, n_parts: int, resources: Resources, weights_bytes: int | None) -> int:
    """Return how many actors share a GPU: one where a person says how many there are, or nodes are still to come."""
    memory = gpu_bytes(resources.nodes)
    is_asked = (execution.actors, execution.gpus_per_actor) != ("auto", "auto")
    if is_asked or resources.types or weights_bytes is None or memory is None:
        return 1
    return actors_of_a_gpu(weights_bytes, memory, resources.n_gpus, n_parts)


def _caution(num_gpus: int, resources: Resources, weights_bytes: int | None) -> str | None:
    """Return what a person should know of GPUs that may never come, and of models that lie on several."""
    if num_gpus > resources.gpus_of_a_node:
        return _awaited(num_gpus)
    if num_gpus == 1:
        return None
    memory = gpu_bytes(resources.nodes)
    if memory is not None and weights_bytes is not None and weights_bytes <= _SHARE_FOR_WEIGHTS * memory:
        return f"on {num_gpus} GPUs for each model, which one has room for: {_SPARE}"
    return _IN_TURN


def _awaited(n_gpus: int) -> str:
    """Return the message about GPUs that no node type offers: nodes may join by hand, or by an unknown autoscaler."""
    return (
        f"waits for a node with {'a GPU' if n_gpus == 1 else f'{n_gpus} GPUs'}: there is none, and no autoscaler is "
        "known that would add one; if none is going to join, end this (Ctrl-C) and set execution.gpus_per_actor to "
        f"{0 if n_gpus == 1 else 'less'}"
    )


def share(training: TrainingSpec, execution: ExecutionSpec, n_models: int, resources: Resources) -> Groups:
    """Return how many groups of ``training.workers`` train side by side, and what each worker gets.

    With GPUs, a worker has one, and there are as many groups as the GPUs allow. On CPUs there is one group on this
    machine, and on a cluster one for every ``training.workers`` nodes. ``execution.actors`` sets another number; there
    are never more groups than models (or adapters). ``execution.gpus_per_actor`` 0 keeps training off GPUs, and a
    number on a cluster says that GPU nodes come on demand.

    Raises:
        InputError: there are fewer GPUs or CPUs than the workers need, and none will come.
        TransientError: all nodes are gone.
    """
    is_local, gpus, cpus = resources.is_local, resources.reachable_gpus, resources.cpus
    asked = None if execution.actors == "auto" else min(execution.actors, n_models)
    if execution.gpus_per_actor != 0 and (gpus or execution.gpus_per_actor != "auto"):
        n_groups = asked or max(1, min(n_models, gpus // training.workers))
        # Where nobody says which nodes come, whoever names a number of GPUs says that some will.
        comes_on_demand = resources.may_grow(execution) and not resources.types
        if n_groups * training.workers > gpus and not comes_on_demand:
            raise _too_few(training, n_groups, gpus, "GPU")
        caution = None if gpus or not comes_on_demand else _awaited(1)
        return Groups(n_groups, training.workers, {"GPU": 1}, use_gpu=True, n_threads=None, caution=caution)
    n_groups = asked or max(1, min(n_models, 1 if is_local else len(cpus) // training.workers))
    n_workers = n_groups * training.workers
    most = int(max(cpus, default=0))
    per_worker = next((n for n in range(most, 0, -1) if sum(int(own // n) for own in cpus) >= n_workers), 0)
    if not cpus and not gpus:
        raise TransientError("no node of Ray has CPUs or GPUs now; run the same command again when one has")
    if not per_worker:
        raise _too_few(training, n_groups, int(sum(cpus)), "CPU")
    threads = max(1, resources.omp_threads or resources.n_cores // n_workers) if is_local else per_worker
    caution = None if is_local or execution.gpus_per_actor != "auto" else _ON_CPUS
    return Groups(
        n_groups, training.workers, {"CPU": per_worker}, use_gpu=False, n_threads=threads,
        is_alone=is_local and training.workers == 1 and training.zero is None, caution=caution,
    )  # fmt: skip


def _too_few(training: TrainingSpec, n_groups: int, found: int, kind: str) -> InputError:
    needed = n_groups * training.workers
    key = f"{training.SECTION}.workers"
    groups = "" if n_groups == 1 else f" in each of {n_groups} groups (execution.actors)"
    return InputError(
        f"{key}: {training.workers}{groups} need {needed} {kind}s, one each, and Ray has {found}: {needed - found} "
        f"missing; lower {key}{' or execution.actors' if groups else ''}, or submit the run to a larger cluster"
    )


def gpu_bytes(nodes: Sequence[Mapping[str, float]]) -> int | None:
    """Return the memory of the smallest GPU of some nodes; None where one of them has GPUs of no known type."""
    found = []
    for node in nodes:
        if node.get("GPU", 0):
            named = [name.removeprefix(_TYPE).partition("-")[0] for name in node if name.startswith(_TYPE)]
            found.append(min((MEMORY_GIB.get(name, 0) for name in named), default=0))
    return min(found) * _GIB if found and all(found) else None


def actors_of_a_gpu(weights: int, memory: int, n_gpus: int, n_parts: int) -> int:
    """Return how many actors share each GPU; weights of the model and memory of a GPU are in bytes."""
    if weights > _LARGEST_WEIGHTS:
        return 1
    by_memory = memory // max(_LEAST_SHARE, _WEIGHTS_IN_SHARE * weights)
    return max(1, min(_MOST_SHARING, by_memory, n_parts // (_LEAST_PARTS * n_gpus)))
