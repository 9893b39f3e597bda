"""How many tokens a model can take at a time, from what its device has to spare; and when that was too many."""

from typing import Any

import torch
from transformers import PreTrainedModel

from biaseval.models import layer_configs, size_of

SMALLEST_BUDGET = 32
_CPU_BUDGET = 512
_LARGEST_FUSED = 16_384
_LARGEST_WITH_SCORES = 4096
"""Where attention keeps the scores of all tokens with all, which grow with the square of a pack."""
_CPU_CACHE_BYTES = 1 << 30

_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",  # from cuDNN 9 on
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory does not suffice, in whatever it came wrapped.

    Torch's own allocator alone raises ``OutOfMemoryError``: CUDA, its libraries and the CPU's allocator say it as a
    ``RuntimeError``, the libraries where they first need room, in a process's first passes.
    """
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY)


def token_budget_of(model: PreTrainedModel) -> int:
    """Return how many tokens a forward pass should take at most.

    CPU: the fastest of those measured (256 to 2,048). CUDA: what a third of the free memory holds, by a generous
    estimate of activations, keys and values and logits per token.
    """
    if model.device.type != "cuda":
        return _CPU_BUDGET
    widest = widest_layer(model)
    per_token = cache_bytes(model) + model.dtype.itemsize * 8 * widest
    per_token += 2 * (model.dtype.itemsize + 4) * vocabulary_of(model) // 8
    largest = _LARGEST_FUSED if model.config._attn_implementation == "sdpa" else _LARGEST_WITH_SCORES
    return int(min(max(_third_of_free(model) // per_token, SMALLEST_BUDGET), largest))


def cache_budget_of(model: PreTrainedModel) -> int:
    """Return of how many tokens a batch may hold keys and values: a third of a GPU's free memory, 1 GiB of RAM."""
    size = _third_of_free(model) if model.device.type == "cuda" else _CPU_CACHE_BYTES
    return max(size // cache_bytes(model), 1)


def vocabulary_of(model: PreTrainedModel) -> int:
    """Return the number of token ids that the model knows."""
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def widest_layer(model: PreTrainedModel) -> int:
    """Return the most numbers that a layer computes of one token in one place."""
    layers = layer_configs(model.config)
    hidden = max(size_of(layer, "hidden_size") for layer in layers)
    return max(hidden, max(size_of(layer, "intermediate_size") for layer in layers) or 4 * hidden)


def _third_of_free(model: PreTrainedModel) -> int:
    """Return a third of the free bytes on the fullest GPU that holds a part of the model."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    return min(map(free_bytes, devices)) // 3


def free_bytes(device: torch.device) -> int:
    """Return the bytes of a GPU that this process may still take: free ones within its unreserved share."""
    free, total = torch.cuda.mem_get_info(device)
    share = torch.cuda.get_per_process_memory_fraction(device)
    return int(min(free, share * total - torch.cuda.memory_reserved(device)))


def cache_bytes(model: PreTrainedModel) -> int:
    """Return the bytes of one token's keys and values with a key head for each query head, which is the most."""
    widths = (
        max(size_of(layer, "hidden_size"), size_of(layer, "num_attention_heads") * size_of(layer, "head_dim"))
        for layer in layer_configs(model.config)
    )
    return int(2 * sum(widths) * model.dtype.itemsize)


def device_name(device: torch.device) -> str:
    """Return a device as records name it: a GPU with its model."""
    return f"{device}: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)
