"""LoRA adapters in PEFT's layout: created, attached to a model from their files, removed again, written as files.

Functions import PEFT when they use it, so a model without adapter does not need it.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from biaseval.errors import InputError, how_to_install
from biaseval.models.sources import CONFIG_FILE, WEIGHTS_FILE, explained, located
from biaseval.parsing import json_value

if TYPE_CHECKING:
    from peft import PeftModel

_LINEAR = (torch.nn.Linear, Conv1D)
"""Linear layers; the second is GPT-2's, which keeps its weights transposed."""


class LoraShape(Protocol):
    """What a LoRA adapter is, as the section of a spec has it."""

    r: int
    alpha: float
    dropout: float
    targets: Literal["all_linear"] | list[str]


def target_names(model: torch.nn.Module, lora: LoraShape) -> list[str]:
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
    if unknown := [name for name in lora.targets if name not in linear]:
        raise InputError(
            f"lora.targets: {', '.join(unknown)}: no such linear layer in {type(model).__name__}; it has "
            f"{', '.join(sorted(linear))}"
        )
    return sorted(lora.targets)


def target_shapes(model: torch.nn.Module, lora: LoraShape) -> list[tuple[int, int]]:
    """Return inputs and outputs of every layer that an adapter changes; the model may be without storage.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``.
    """
    names = set(target_names(model, lora))
    return [
        (module.nx, module.nf) if isinstance(module, Conv1D) else (module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, _LINEAR) and name.rpartition(".")[2] in names
    ]


@contextmanager
def attached(model: PreTrainedModel, lora: LoraShape, seed: int, *, in_float32: bool) -> Iterator[PeftModel]:
    """Yield the model with a fresh adapter, its own weights frozen; after the block it is the bare model again.

    The adapter is drawn on the CPU from ``seed`` alone, so all workers and devices begin with the same one.

    Where the output layer is tied to the embedding, an adapter on it changes the logits alone: base weights stay
    shared, and the adapter must not be merged into them.

    Args:
        model: changed in the block.
        lora: what the adapter is.
        seed: of its first weights.
        in_float32: the adapter's numbers, whatever the layers have that it changes; otherwise theirs.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # PEFT divides it by r: any number will do
        lora_dropout=lora.dropout,
        target_modules=target_names(model, lora),
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    with _unwarned():
        adapted: Any = get_peft_model(model, config, autocast_adapter_dtype=in_float32)
    try:
        yield adapted
    finally:
        _take_off(adapted, model)
        model.requires_grad_(False)


def _take_off(adapted: Any, model: PreTrainedModel) -> None:
    adapted.unload()
    # PEFT leaves its configuration on the base model and warns at the next adapter because of it.
    vars(model).pop("peft_config", None)


@contextmanager
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        # PEFT warns that an adapter on a tied output layer cannot be merged.
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
        # Nor need it say that it adapts itself to each layer whose weights are transposed or not.
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        yield


def adapter_files(adapted: PeftModel) -> dict[str, bytes]:
    """Return the files of the adapter on this model by name: weights as safetensors, then the configuration.

    The configuration comes last: who writes the files in this order leaves no folder that looks like an adapter and is
    none. It names a base model of the hub, and none that is a directory: the files do not say where they were made.
    """
    from peft import get_peft_model_state_dict

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


def for_inference(model: Any, adapter: str | None) -> PreTrainedModel:
    """Return the model with an adapter from files, if one is named, in eval mode and without gradients.

    Raises:
        InputError: PEFT is not installed, or the adapter does not fit the model.
    """
    if adapter is not None:
        model = _with_adapter(model, adapter)
    model.requires_grad_(False)
    evaluated: PreTrainedModel = model.eval()
    return evaluated


def _with_adapter(model: PreTrainedModel, adapter: str) -> PreTrainedModel:
    if importlib.util.find_spec("peft") is None:
        raise InputError(f"adapter {adapter}: peft is not installed; {how_to_install('train')}")
    from peft import PeftModel, get_peft_model_state_dict
    from peft.utils import load_peft_weights

    folder = located(adapter)
    with _fitting(adapter, str(model.name_or_path)), warnings.catch_warnings():
        # PEFT only warns, and goes on with an adapter that does nothing where its weights are missing.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        adapted: Any = PeftModel.from_pretrained(model, folder, is_trainable=False)
        # Nor does it mind what the model has no place for.
        placed = get_peft_model_state_dict(adapted, save_embedding_layers=False)
        prefix = getattr(adapted.base_model, "prefix", "")
        surplus = [name for name in load_peft_weights(folder, device="cpu") if prefix in name and name not in placed]
        if surplus:
            raise ValueError(f"the model has no place for {len(surplus)} of its weights (first: {min(surplus)})")
    if adapted.active_peft_config.is_prompt_learning:
        raise InputError(
            f"adapter {adapter}: adds tokens to the prompt; use one that changes the weights, such as LoRA"
        )
    # The layers are already in place in the model itself; PEFT's wrapper would only hide its signature.
    base: PreTrainedModel = adapted.get_base_model()
    return base


def is_in_adapter(model: PreTrainedModel, weight: str) -> bool:
    """Return whether an adapter brought its own copy of the module that this weight belongs to."""
    from peft.utils import ModulesToSaveWrapper

    return isinstance(model.get_submodule(weight.partition(".")[0]), ModulesToSaveWrapper)


def _fitting(adapter: str, path: str) -> AbstractContextManager[None]:
    """Name both in what PEFT raises for an adapter of another model."""
    problem = f"adapter {adapter}: does not fit the model {path}"
    return explained(problem, f"give the model that it was trained on, or restore {CONFIG_FILE}")


class AdapterSlot:
    """A slot for one LoRA adapter on a model that stays in memory; a new adapter replaces the previous one.

    Base weights do not change: without its adapter the model computes the same as before.

    Args:
        model: in eval mode, without an adapter.
        path: of the model, for messages.

    Raises:
        InputError: the model has an adapter already.
    """

    def __init__(self, model: PreTrainedModel, path: str) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
            raise InputError(f"{path}: was loaded with an adapter; load it without one to put adapters on it")
        self._model = model
        self._path = path
        self._adapted: Any = None
        self._config: dict[str, Any] = {}

    def put(self, name: str, config: bytes, weights: bytes) -> None:
        """Put an adapter on the model by the content of its two files, and use it; messages call it by its name.

        Raises:
            InputError: the adapter does not fit the model; the message names both.
        """
        from peft import get_peft_model_state_dict, set_peft_model_state_dict

        try:
            settings, state = json_value(config), load(weights)
        except (ValueError, SafetensorError) as error:
            raise InputError(
                f"adapter {name}: is damaged ({' '.join(str(error).split())}); delete its folder and train it again"
            ) from error
        with _fitting(name, self._path):
            if settings != self._config:
                self._attach(settings)
            wanted = get_peft_model_state_dict(self._adapted, save_embedding_layers=False)
            if state.keys() != wanted.keys():
                first = min(state.keys() ^ wanted.keys())
                raise ValueError(f"{first} is in {'the adapter' if first in state else 'the model'} alone")
            set_peft_model_state_dict(self._adapted, state)
        self.use(is_on=True)

    def use(self, *, is_on: bool) -> None:
        """Have the model compute with the adapter that was put there last, or without."""
        if self._adapted is not None:
            layers = self._adapted.base_model
            (layers.enable_adapter_layers if is_on else layers.disable_adapter_layers)()
            self._model.requires_grad_(False)

    def _attach(self, settings: dict[str, Any]) -> None:
        from peft import LoraConfig, get_peft_model

        if self._adapted is not None:
            _take_off(self._adapted, self._model)
        with _unwarned():
            # In the model's dtype: PEFT would compute with a bfloat16 adapter in float32.
            self._adapted = get_peft_model(self._model, LoraConfig(**settings), autocast_adapter_dtype=False)
        self._config = settings
        for_inference(self._model, None)
