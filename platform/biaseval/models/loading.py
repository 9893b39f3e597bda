"""How a model is held: numbers, device, quantization; and the reading of tokenizers and weights as such."""

import importlib.util
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoTokenizer, BitsAndBytesConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import InputError, how_to_install
from biaseval.models.sources import ModelSource, check_weights, load_config, located, reading, refuse_quantized
from biaseval.models.weights import quietly, refuse_unfit

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_QUANTIZATIONS = {"8bit": 1.0, "4bit": 0.5}
"""Bytes of a weight."""
_SHARE_FOR_WEIGHTS = 0.8
"""Of a GPU's memory; the rest is for what runs through them."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Loading:
    """How a model is held."""

    dtype: str | None = "float32"
    """``float32``, ``bfloat16`` or ``float16``, whatever the checkpoint is stored in; None for as stored."""
    device: str = "cpu"
    """``cpu``, ``cuda``, ``cuda:N`` or ``auto`` (CUDA where there is one).

    On ``cuda`` and ``auto`` a model that does not fit one GPU, or any model given ``max_memory``, is spread over all
    visible GPUs: each holds some layers, and while it works on a text the others wait.
    """
    quantization: str | None = None
    """``8bit`` or ``4bit`` (bitsandbytes, CUDA only), or None."""
    max_memory: Mapping[int | str, int | str] | None = None
    """Device to bytes or text such as ``"70GiB"``, as in accelerate.

    A model that the GPUs have no room for is refused, unless ``cpu`` or ``disk`` is named here.
    """


ON_CPU = Loading()
"""In float32."""


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype called ``name``.

    Raises:
        InputError: a name other than ``float32``, ``bfloat16`` and ``float16``.
    """
    if name not in _DTYPES:
        raise InputError(f"dtype {name!r}: unknown; use one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def read_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model, whatever it can do; InputError where there is none."""
    with reading(source.path, "tokenizer", is_description=True):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            located(source.path, has_weights=False),
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
        )
    return tokenizer


def read_model(
    auto: Any, part: str, source: ModelSource, loading: Loading, *, is_body: bool = False
) -> tuple[PreTrainedModel, list[str]]:
    """Load a model without its adapter.

    Args:
        auto: the auto class of transformers that it is loaded as.
        part: what errors call it.
        source: which model; its adapter must be there.
        loading: how to hold it.
        is_body: its files may have another head, or none, see `weights.refuse_unfit`.

    Returns:
        The model, and the names of the weights outside its body that its files do not have.

    Raises:
        InputError: no such model, weights that are missing, have no place, do not fit or are not in safetensors,
            unknown dtype or quantization, a device that is not there, GPUs that the model does not fit, or bitsandbytes
            absent.
    """
    folder = located(source.path)  # all of it, so that its configuration is no copy of its own
    config = load_config(source)
    check_weights(source.path)
    if source.adapter is not None:
        located(source.adapter)
    device = _resolved_device(loading.device)
    refuse_quantized(source.path, config, device, loading.quantization)
    logging.getLogger("bitsandbytes.autograd").setLevel(logging.ERROR)  # it warns of float16 in every product
    own: Any = config.get_text_config().dtype
    numbers = torch_dtype(loading.dtype) if loading.dtype is not None else own or torch.float32
    options: dict[str, Any] = {"dtype": "auto" if loading.dtype is None else numbers}
    if loading.quantization is not None:
        options["quantization_config"] = _quantization_config(loading.quantization, device, numbers)
    if device.startswith("cuda"):
        width = _QUANTIZATIONS.get(loading.quantization or "", numbers.itemsize)
        is_spread = loading.max_memory is not None or (device == "cuda" and not _fits_one_gpu(auto, config, width))
        options["device_map"] = "auto" if is_spread else {"": device}
    if loading.max_memory is not None:
        options["max_memory"] = dict(loading.max_memory)
    with reading(source.path, part), quietly(source.path, part):
        model, found = auto.from_pretrained(
            folder,
            config=config,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they can be named
            **options,
        )
    heads = refuse_unfit(source.path, model, found, is_body=is_body)
    if options.get("device_map") == "auto":
        _refuse_offloaded(source.path, model, loading)
    return model, heads


def built_model(auto: Any, part: str, source: ModelSource, dtype: str = "float32") -> PreTrainedModel:
    """Build a model of a configuration alone: what its weights hold is up to the context that this is called in.

    Args:
        auto: the auto class of transformers that it is built as.
        part: what errors call it.
        source: which model; its weights and its adapter are not looked at.
        dtype: of the weights.

    Raises:
        InputError: no such model, none of this sort, or an unknown dtype.
    """
    config = load_config(source)
    with reading(source.path, part, is_description=torch.get_default_device().type == "meta"):
        model: PreTrainedModel = auto.from_config(
            config, dtype=torch_dtype(dtype), trust_remote_code=source.trust_remote_code
        )
    return model


def _resolved_device(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return device
    kind, _, index = device.partition(":")
    if kind != "cuda" or (index and not index.isdigit()):
        raise InputError(f"device {device!r}: unknown; use cpu, cuda, cuda:N or auto")
    if not torch.cuda.is_available():
        raise InputError(f"device {device!r}: this machine has no usable CUDA GPU; use cpu or auto")
    if index and int(index) >= torch.cuda.device_count():
        raise InputError(f"device {device!r}: this machine has {torch.cuda.device_count()} GPUs, numbered from 0")
    return device


def _quantization_config(quantization: str, device: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    if quantization not in _QUANTIZATIONS:
        raise InputError(f"quantization {quantization!r}: unknown; use 8bit, 4bit or null")
    if not device.startswith("cuda"):
        raise InputError(f"quantization {quantization!r}: needs a CUDA GPU; use quantization null on the CPU")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InputError(f"quantization {quantization!r}: bitsandbytes is not installed; {how_to_install('gpu')}")
    settings = (
        {"load_in_8bit": True} if quantization == "8bit" else {"load_in_4bit": True, "bnb_4bit_compute_dtype": dtype}
    )
    config: BitsAndBytesConfig = BitsAndBytesConfig(**settings)
    return config


def _fits_one_gpu(auto: Any, config: PretrainedConfig, width: float) -> bool:
    """Return whether weights of so many bytes leave enough of the first GPU's free memory; one alone has to do."""
    if torch.cuda.device_count() == 1:
        return True
    free, _ = torch.cuda.mem_get_info()
    with torch.device("meta"):
        n_parameters = sum(parameter.numel() for parameter in auto.from_config(config).parameters())
    return bool(n_parameters * width <= _SHARE_FOR_WEIGHTS * free)


def _refuse_offloaded(path: str, model: PreTrainedModel, loading: Loading) -> None:
    """Refuse a model of which a part lies outside the GPUs: accelerate says nothing and fetches it for every pass."""
    found = getattr(model, "hf_device_map", {"": model.device})  # there only where it has several places
    places = {str(place) for place in found.values()}
    offloaded = sorted(places & {"cpu", "disk"} - set(loading.max_memory or ()))
    if not offloaded:
        return
    n_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    n_gpus, (_, of_one) = torch.cuda.device_count(), torch.cuda.mem_get_info()
    n_needed = max(n_gpus + 1, math.ceil(n_bytes / (_SHARE_FOR_WEIGHTS * of_one)))
    raise InputError(
        f"{path}: {n_bytes / _GIB:.1f} GiB of weights do not fit {n_gpus} GPU{'s' * (n_gpus != 1)} of "
        f"{of_one / _GIB:.0f} GiB: a part would lie on {' and '.join(offloaded)}, at a fraction of the speed; set "
        f"execution.gpus_per_actor to {n_needed}, or model.quantization to 8bit or 4bit"
    )
