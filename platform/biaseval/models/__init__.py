"""Loads tokenizers, models and adapters, and describes and identifies them; nothing else in the package does.

sources    where a model is: directory or hub name, configuration, complete files, fingerprint
weights    whether the weights in a model's files fit its configuration
loading    dtype, device and quantization
adapters   LoRA adapters: creating, attaching and removing them, their files
causal     causal language models, and tokenizers that can score labels
readers    models that answer questions, and their tokenizers

Names import their module at first use: ``sources`` needs no torch, and only adapters need peft.
"""
# ruff: noqa: F403, F405

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biaseval.models.adapters import *
    from biaseval.models.causal import *
    from biaseval.models.loading import *
    from biaseval.models.readers import *
    from biaseval.models.sources import *
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for own in ("sources", "loading", "adapters", "causal", "readers"):
                module = import_module(f"{__name__}.{own}")
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CONFIG_FILE", "ON_CPU", "REFUSED", "WEIGHTS_FILE", "AdapterSlot", "Loading", "ModelSource", "adapter_files",
    "attached", "attention_window", "bare_model", "check_causal", "check_encoder", "check_source", "check_weights",
    "describe_model", "describe_reader", "encoder_window", "fingerprint_model", "inputs_taken", "is_sequence_model",
    "layer_configs", "load_extractive_model", "load_model", "load_reader_tokenizer", "load_sequence_model",
    "load_tokenizer", "located", "model_window", "new_reader", "read_tokenizer", "refuse_looking_ahead", "size_of",
    "target_names", "target_shapes", "torch_dtype", "unfilled_model", "unfilled_reader", "untrained_head",
]  # fmt: skip
