"""Writes a tuned model in Hugging Face's layout, shard by shard."""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save

from biaseval.models import torch_dtype
from biaseval.store import Run
from biaseval.training.checkpoints import in_files
from biaseval.training.objectives import Share
from biaseval.training.optimization import n_elements
from biaseval.training.preparation import Base, Prepared
from biaseval.training.rows import MODEL_CONFIG

_SHARD_BYTES = 2 << 30


def write_weights(run: Run, folder: str, prepared: Prepared, share: Share, dtype: str) -> None:
    """Write the weights of a model, all of whose parameters are trained, in a dtype; all workers call this at once.

    `complete_model` completes the folder. The workers write the shards side by side; where weights are partitioned
    (ZeRO 3), those of one shard are whole at a time. Tied weights are written once.
    """
    model = prepared.model
    stored = model.state_dict().keys()  # all but buffers that a model computes
    buffers = {name: own for name, own in model.named_buffers(remove_duplicate=False) if name in stored}
    tensors = {**dict(model.named_parameters()), **buffers}
    width = torch_dtype(dtype).itemsize
    sizes = {name: width * n_elements(tensor) for name, tensor in tensors.items()}
    shards = list(in_files(sizes, _SHARD_BYTES))
    index: dict[str, str] = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        index |= dict.fromkeys(names, file)
        parameters = [tensor for name in names if isinstance(tensor := tensors[name], torch.nn.Parameter)]
        with prepared.optimization.gathered(parameters):
            is_own = number % share.n_workers == share.rank
            own = {name: _as_saved(tensors[name], dtype) for name in names} if is_own else {}
        if own:
            run.write_bytes(f"{folder}/{file}", save(own, metadata={"format": "pt"}))
    if share.n_workers > 1:
        dist.barrier()
    if share.rank > 0:
        return
    if len(shards) > 1:
        total = {"total_size": sum(sizes.values())}
        run.write_text(f"{folder}/model.safetensors.index.json", json.dumps({"metadata": total, "weight_map": index}))


def complete_model(run: Run, folder: str, base: Base, dtype: str) -> None:
    """Write what belongs to a model beside its weights, the configuration last; the first worker does."""
    if base.share.rank > 0:
        return
    model = base.model
    with tempfile.TemporaryDirectory(prefix="biaseval-") as temporary:
        base.tokenizer.save_pretrained(temporary)
        for path in sorted(Path(temporary).rglob("*")):
            if path.is_file():
                run.write_bytes(f"{folder}/{path.relative_to(temporary)}", path.read_bytes())
    source = Path(str(model.name_or_path))
    for path in sorted(source.glob("*.py")) if source.is_dir() else ():  # code that comes with the model
        run.write_bytes(f"{folder}/{path.name}", path.read_bytes())
    generation: Any = getattr(model, "generation_config", None)  # readers that mark answers have none
    if generation is not None:
        run.write_text(f"{folder}/generation_config.json", generation.to_json_string())
    model.config.dtype = dtype
    model.config.architectures = [type(model).__name__]
    run.write_text(f"{folder}/{MODEL_CONFIG}", model.config.to_json_string())


def _as_saved(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    tensor = tensor.detach()
    saved = tensor.to("cpu", torch_dtype(dtype)) if tensor.is_floating_point() else tensor.cpu()
    # A copy, also where nothing changes: a gathered weight is gone after its context.
    return saved.clone(memory_format=torch.contiguous_format)
