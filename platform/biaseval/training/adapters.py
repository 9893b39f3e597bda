"""Puts a LoRA adapter on a model, takes it off without residue, and gives its files (PEFT's layout)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from biaseval.errors import InputError
from biaseval.spec import AdapterSpec, ModelSpec
from biaseval.training.rows import CONFIG_FILE, WEIGHTS_FILE

_LINEAR = (torch.nn.Linear, Conv1D)
"""Linear layers; the second is GPT-2's, which keeps its weights transposed."""


def target_names(model: torch.nn.Module, lora: AdapterSpec) -> list[str]:
    """Return the last parts of the names of the layers that the adapter changes, sorted.

    ``all_linear`` is every linear layer, the output layer (``lm_head``) included, as in P1's code; PEFT's own
    ``all-linear`` leaves it out.

    Raises:
        InputError: a name in ``lora.targets`` is no linear layer of the model, or the model has none.
    """
    linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, _LINEAR)}
    if lora.targets == "all_linear":
        if not linear:
            raise InputError(f"lora.targets: {type(model).__name__} has no linear layer; LoRA cannot change this model")
        return sorted(linear)
    unknown = [name for name in lora.targets if name not in linear]
    if unknown:
        raise InputError(
            f"lora.targets: {', '.join(unknown)}: no such linear layer in {type(model).__name__}; it has "
            f"{', '.join(sorted(linear))}"
        )
    return sorted(lora.targets)


def bare_model(model: ModelSpec) -> PreTrainedModel:
    """Return the model of a spec without storage (torch's meta device); loads no weights."""
    config = AutoConfig.from_pretrained(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    auto: Any = AutoModelForCausalLM
    with torch.device("meta"):
        bare: PreTrainedModel = auto.from_config(config, trust_remote_code=model.trust_remote_code)
    return bare


def target_shapes(model: ModelSpec, lora: AdapterSpec) -> list[tuple[int, int]]:
    """Return inputs and outputs of every layer that an adapter changes; loads no weights.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``.
    """
    bare = bare_model(model)
    names = set(target_names(bare, lora))
    return [
        _shape(module)
        for name, module in bare.named_modules()
        if isinstance(module, _LINEAR) and name.rpartition(".")[2] in names
    ]


def _shape(layer: torch.nn.Linear | Conv1D) -> tuple[int, int]:
    return (layer.nx, layer.nf) if isinstance(layer, Conv1D) else (layer.in_features, layer.out_features)


def new_adapter(model: PreTrainedModel, lora: AdapterSpec, seed: int, *, in_float32: bool) -> PeftModel:
    """Put a fresh adapter on the model, whose own weights are frozen.

    It is drawn on the CPU from ``seed`` alone, so all workers and devices begin with the same one.

    Where the output layer is tied to the embedding, an adapter on it changes the logits alone: base weights stay
    shared, and the adapter must not be merged into them.

    Args:
        model: changed in place.
        lora: what the adapter is.
        seed: of its first weights.
        in_float32: the adapter's numbers, whatever the layers have that it changes; otherwise theirs.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``.
    """
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # PEFT divides it by r: any number will do
        lora_dropout=lora.dropout,
        target_modules=target_names(model, lora),
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        # PEFT warns that an adapter on a tied output layer cannot be merged.
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
        # Nor need it say that it adapts itself to each layer whose weights are transposed or not.
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        adapted: Any = get_peft_model(model, config, autocast_adapter_dtype=in_float32)
    return cast(PeftModel, adapted)


@contextmanager
def attached(model: PreTrainedModel, lora: AdapterSpec, seed: int, *, in_float32: bool) -> Iterator[PeftModel]:
    """Yield the model with a fresh adapter, see `new_adapter`; behind the block it is the bare model again.

    Base weights are not changed.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``.
    """
    adapted: Any = new_adapter(model, lora, seed, in_float32=in_float32)
    try:
        yield adapted
    finally:
        adapted.unload()
        # PEFT leaves its configuration on the base model and warns at the next adapter because of it.
        vars(model).pop("peft_config", None)
        model.requires_grad_(False)


def adapter_files(adapted: PeftModel) -> dict[str, bytes]:
    """Return the files of the adapter on this model by name: weights as safetensors, then the configuration.

    The configuration comes last: who writes the files in this order leaves no folder that looks like an adapter and is
    none. It names a base model of the hub, and none that is a directory: the files do not say where they were made.
    """
    # PEFT would add the frozen output layer to every adapter that changes it.
    state = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    config = {**adapted.peft_config["default"].to_dict(), "inference_mode": True}
    if Path(config["base_model_name_or_path"] or "").is_dir():
        config["base_model_name_or_path"] = None
    readable = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    return {
        WEIGHTS_FILE: save(weights, metadata={"format": "pt"}),
        CONFIG_FILE: (json.dumps(readable, indent=2, sort_keys=True) + "\n").encode(),
    }
