"""How many actors share a GPU: one, unless its model is so small that the GPU would wait for one process. Pure.

A model below about 1.5 billion parameters is limited by how fast a process starts kernels. Nothing of this was measured
on a GPU: the floors are generous, and whoever names `execution.gpus_per_actor` gets whole GPUs.
"""

from collections.abc import Mapping, Sequence

from biaseval.spec.accelerators import MEMORY_GIB

_GIB = 1 << 30
_MOST_ACTORS = 4
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
    return max(1, min(_MOST_ACTORS, by_memory, n_parts // (_LEAST_PARTS * n_gpus)))


def fits_one_gpu(weights: int, memory: int) -> bool:
    """Return whether a GPU has room for a model and what runs through it; both in bytes."""
    return weights <= _SHARE_FOR_WEIGHTS * memory
