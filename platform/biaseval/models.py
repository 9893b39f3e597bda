"""Loads tokenizers, models and adapters, and describes and identifies them; nothing else in the package does.

A model is a local directory in the Hugging Face layout (config.json, tokenizer files, safetensors weights), or the
name of a model on the Hugging Face hub where there is a network or a filled cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import socket
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights
from transformers.utils.hub import cached_file, extract_commit_hash

from biaseval.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
QUANTIZATIONS = ("8bit", "4bit")

_WINDOW_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "max_sequence_length", "n_ctx")
_UNUSABLE = (OSError, ValueError, KeyError, ImportError, SafetensorError, UserWarning, RuntimeError)
"""What transformers and PEFT raise for unusable files; of runtime errors only those about sizes."""

_IDENTITY_SUFFIXES = (".json", ".txt", ".model", ".py", ".jinja", ".tiktoken")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the planner must know about a model; read from its configuration, without any weights."""

    family: str
    """The configuration's ``model_type``: ``llama``, ``mistral``, ``falcon``..."""
    window: int | None
    """Tokens the model can take, or None where the configuration sets no limit (ALiBi models such as BLOOM)."""
    sliding_window: int | None
    """Tokens one position attends to, where that is fewer than all; not a limit on the length of a text."""
    n_parameters: int
    """Parameters; tied ones count once."""
    n_layers: int
    hidden_size: int
    vocabulary: int
    """Rows of the token embedding, which may exceed the tokenizer's vocabulary."""
    kv_values_per_token: int
    """Numbers that the key-value cache of all layers holds for one token."""

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Return the bytes that the key-value cache needs for one token in ``dtype``, over all layers."""
        return self.kv_values_per_token * torch_dtype(dtype).itemsize


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype called ``name``; InputError for a name that is not in ``DTYPES``."""
    if name not in DTYPES:
        raise InputError(f"dtype {name!r}: unknown; use one of {', '.join(DTYPES)}")
    return DTYPES[name]


def load_tokenizer(
    path: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model and make sure that it can score labels.

    The scoring rule takes the first ``len(tokenizer(prompt))`` ids of the full text as its context and scores an EOS
    after each label, so the tokenizer must have an EOS, must read the EOS string back as that one id, and must not
    append anything by itself.

    Raises:
        InputError: no model at ``path``, no tokenizer there, or one that breaks the rule above.
    """
    with _reading(path, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(
            _located(path), revision=revision, trust_remote_code=trust_remote_code
        )
    if tokenizer.eos_token is None or tokenizer.eos_token_id is None:
        raise InputError(f"{path}: the tokenizer has no EOS token, which is scored after every label; set eos_token")
    bare = _ids(tokenizer, "a", add_special_tokens=False)
    if not bare:
        raise InputError(f"{path}: the tokenizer gives no token for 'a'; the tokenizer files are broken or incomplete")
    if _ids(tokenizer, "a")[-len(bare) :] != bare:
        raise InputError(
            f"{path}: the tokenizer appends special tokens to every text, so that a prompt is not the beginning of "
            "prompt + label; set add_eos_token to false, or remove what follows the text from its post-processor"
        )
    if _ids(tokenizer, "a" + tokenizer.eos_token)[-1] != tokenizer.eos_token_id:
        raise InputError(
            f"{path}: the tokenizer splits its own EOS {tokenizer.eos_token!r} into other tokens; "
            "list it as a special token in tokenizer.json"
        )
    return tokenizer


def describe_model(path: str, *, revision: str | None = None, trust_remote_code: bool = False) -> ModelFacts:
    """Describe a causal language model from its configuration alone; no weight is read.

    Parameters and cache are counted on an instance without storage (torch's meta device).

    Raises:
        InputError: no model at ``path``, no configuration or (local directory) no complete safetensors weights there,
            or not a causal language model.
    """
    config = _load_config(path, revision=revision, trust_remote_code=trust_remote_code)
    if Path(path).expanduser().is_dir():
        _check_weights(path)
    text = config.get_text_config()
    auto: Any = AutoModelForCausalLM
    with _reading(path, "causal language model"), torch.device("meta"), torch.no_grad():
        model = auto.from_config(config, dtype=torch.float32, trust_remote_code=trust_remote_code)
        cache = model(input_ids=torch.zeros((1, 1), dtype=torch.long), use_cache=True).past_key_values
    return ModelFacts(
        family=config.model_type,
        window=model_window(config),
        sliding_window=getattr(text, "sliding_window", None),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        n_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocabulary=model.get_input_embeddings().weight.shape[0],
        kv_values_per_token=sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers),
    )


def model_window(config: PretrainedConfig) -> int | None:
    """Return the number of tokens that a model of this configuration can take, or None where it sets no limit."""
    text = config.get_text_config()
    if getattr(text, "alibi", False) or getattr(getattr(text, "attn_config", None), "alibi", False):
        # ALiBi has no position table. MPT still refuses texts beyond the length that its bias is built for.
        return getattr(text, "max_seq_len", None)
    return next((value for key in _WINDOW_KEYS if isinstance(value := getattr(text, key, None), int)), None)


def fingerprint_model(path: str, *, revision: str | None = None, adapter: str | None = None) -> dict[str, Any]:
    """Return what identifies a model by content, wherever it lies.

    Local directory: SHA-256 of every configuration, tokenizer and generation file; each weights file by name, size and
    SHA-256 (a few seconds for a 7B model). Hub: the commit that ``revision`` stands for.

    Returns:
        ``{"model": {...}, "adapter": {...} or None, "digest": str}``; the digest covers the rest and no path.

    Raises:
        InputError: no model or adapter there.
    """
    identity: dict[str, Any] = {
        "model": _fingerprint(path, "config.json", revision),
        "adapter": None if adapter is None else _fingerprint(adapter, "adapter_config.json", None),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return {**identity, "digest": digest}


def load_model(
    path: str,
    *,
    revision: str | None = None,
    dtype: str | None = "float32",
    device: str = "cpu",
    quantization: str | None = None,
    adapter: str | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """Load a causal language model for scoring: eval mode, no gradients.

    Args:
        path: local directory or hub name.
        revision: hub branch, tag or commit.
        dtype: ``float32``, ``bfloat16`` or ``float16``, whatever the checkpoint is stored in; None for as stored.
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto`` (CUDA where there is one). On ``cuda`` and ``auto`` a model
            that does not fit one GPU, or any model given ``max_memory``, is spread over all visible GPUs.
        quantization: ``8bit`` or ``4bit`` (bitsandbytes, CUDA only), or None.
        adapter: LoRA adapter in PEFT's layout, local directory or hub name; applied, not merged into the weights.
        max_memory: device to bytes or text such as ``"70GiB"``, as in accelerate.
        trust_remote_code: run Python code that comes with the model.

    Raises:
        InputError: no such model, weights missing or not in safetensors, unknown dtype or quantization, a device that
            is not there, or bitsandbytes absent.
    """
    model, missing = _load(
        AutoModelForCausalLM,
        "causal language model",
        path,
        revision=revision,
        dtype=dtype,
        device=device,
        quantization=quantization,
        adapter=adapter,
        max_memory=max_memory,
        trust_remote_code=trust_remote_code,
    )
    _refuse_missing(path, model, missing)
    return _for_inference(model, adapter)


def unfilled_model(
    path: str, *, revision: str | None = None, dtype: str = "float32", trust_remote_code: bool = False
) -> PreTrainedModel:
    """Return a causal language model on the CPU whose weights hold nothing and whose buffers are right.

    Its memory is taken only as weights are written: for workers that get theirs from another.

    Raises:
        InputError: no model at ``path``.
    """
    config = _load_config(path, revision=revision, trust_remote_code=trust_remote_code)
    auto: Any = AutoModelForCausalLM
    with _reading(path, "causal language model"), no_init_weights():
        model = auto.from_config(config, dtype=torch_dtype(dtype), trust_remote_code=trust_remote_code)
    return _for_inference(model, None)


def load_reader_tokenizer(
    path: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a question answering model, which must know where in the text a token stands.

    Raises:
        InputError: no model at ``path``, no tokenizer there, or one that gives no character offsets.
    """
    with _reading(path, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(
            _located(path), revision=revision, trust_remote_code=trust_remote_code
        )
    if not tokenizer.is_fast:
        raise InputError(
            f"{path}: the tokenizer ({type(tokenizer).__name__}) gives no character offsets, from which answers are "
            "cut; give a model with a fast tokenizer (tokenizer.json)"
        )
    return tokenizer


def load_extractive_model(
    path: str,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    adapter: str | None = None,
    trust_remote_code: bool = False,
    allow_untrained_head: bool = False,
) -> PreTrainedModel:
    """Load a model that gives each token a start and an end logit: eval mode, no gradients.

    Args:
        path: local directory or hub name.
        revision: hub branch, tag or commit.
        dtype: ``float32``, ``bfloat16`` or ``float16``, whatever the checkpoint is stored in.
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``, as in ``load_model``.
        adapter: LoRA adapter in PEFT's layout, which may hold the head.
        trust_remote_code: run Python code that comes with the model.
        allow_untrained_head: take a model without a question answering head, whose head is then drawn, and the same
            each time it is loaded.

    Raises:
        InputError: what ``load_model`` refuses, an architecture without a question answering form, or a head that is
            in neither model nor adapter.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, missing = _load(
            AutoModelForQuestionAnswering,
            "question answering model",
            path,
            revision=revision,
            dtype=dtype,
            device=device,
            adapter=adapter,
            trust_remote_code=trust_remote_code,
        )
    body = f"{model.base_model_prefix}."
    _refuse_missing(path, model, [name for name in missing if name.startswith(body)])
    model = _for_inference(model, adapter)
    untrained = [name for name in missing if adapter is None or not _is_in_adapter(model, name)]
    if untrained and not allow_untrained_head:
        raise untrained_head(path, untrained)
    return model


@dataclass(frozen=True)
class ReaderFacts:
    """What is known of a model that answers questions before its weights are read."""

    n_parameters: int
    window: int | None
    """Tokens that it (or its encoder) can read at a time; None where nothing limits them."""
    missing: tuple[str, ...]
    """Names of the weights outside its body that its local files do not have: those of a new, untrained head."""


def describe_reader(
    path: str, *, answers: str, revision: str | None = None, trust_remote_code: bool = False
) -> ReaderFacts:
    """Describe a model that answers questions from its configuration and the names of its weights.

    Args:
        path: local directory or hub name.
        answers: ``extractive``, or ``generative`` (a sequence-to-sequence or causal LM).
        revision: hub branch, tag or commit.
        trust_remote_code: run Python code that comes with the model.

    Raises:
        InputError: no model at ``path``, or none of this form.
    """
    config = _load_config(path, revision=revision, trust_remote_code=trust_remote_code)
    auto: Any = AutoModelForQuestionAnswering
    if answers == "generative":
        auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with _reading(path, f"model for {answers} answers"), torch.device("meta"):
        model = auto.from_config(config, trust_remote_code=trust_remote_code)
    missing: tuple[str, ...] = ()
    if answers == "extractive" and Path(path).expanduser().is_dir():
        _check_weights(path)
        body = f"{model.base_model_prefix}."
        there = _weight_names(Path(path).expanduser())
        missing = tuple(name for name, _ in model.named_parameters() if not name.startswith(body) and name not in there)
    return ReaderFacts(sum(parameter.numel() for parameter in model.parameters()), encoder_window(model), missing)


def untrained_head(path: str, names: Sequence[str]) -> InputError:
    """Return the error that a model without a trained question answering head is."""
    return InputError(
        f"{path}: no question answering head: {', '.join(names)} would be new and untrained; give a model fine-tuned "
        "for extractive question answering, or set allow_untrained_head"
    )


def _weight_names(folder: Path) -> set[str]:
    names: set[str] = set()
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, framework="numpy") as weights:
            names.update(weights.keys())
    return names


def load_sequence_model(
    path: str,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    adapter: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """Load a sequence-to-sequence model (T5, BART...): eval mode, no gradients; arguments and errors as above."""
    model, missing = _load(
        AutoModelForSeq2SeqLM,
        "sequence-to-sequence model",
        path,
        revision=revision,
        dtype=dtype,
        device=device,
        adapter=adapter,
        trust_remote_code=trust_remote_code,
    )
    _refuse_missing(path, model, missing)
    return _for_inference(model, adapter)


def load_sequence_tokenizer(
    path: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a sequence-to-sequence model; InputError where there is none."""
    with _reading(path, "tokenizer"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            _located(path), revision=revision, trust_remote_code=trust_remote_code
        )
    return tokenizer


def is_sequence_model(path: str, *, revision: str | None = None, trust_remote_code: bool = False) -> bool:
    """Return whether a model has an encoder and a decoder, from its configuration; InputError where there is none."""
    config = _load_config(path, revision=revision, trust_remote_code=trust_remote_code)
    return bool(config.is_encoder_decoder)


def encoder_window(model: PreTrainedModel) -> int | None:
    """Return how many tokens the model (or its encoder) can read at a time, or None where nothing limits them.

    Relative positions (T5, XLNet) set no limit. Where positions are counted from the padding token's id on, as in
    RoBERTa, the table of positions is longer than the window.
    """
    config = model.config.get_text_config()
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    if getattr(config, "relative_attention_num_buckets", None) is not None:
        return None
    encoder = getattr(config, "max_encoder_position_embeddings", None)
    window = encoder if isinstance(encoder, int) else model_window(config)
    return window if window is not None and window > 0 else None


def _load(
    auto: Any,
    part: str,
    path: str,
    *,
    revision: str | None,
    dtype: str | None,
    device: str,
    adapter: str | None,
    trust_remote_code: bool,
    quantization: str | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
) -> tuple[PreTrainedModel, list[str]]:
    """Return the model of an auto class without adapter, and the names of the weights that its files do not have."""
    config = _load_config(path, revision=revision, trust_remote_code=trust_remote_code)
    if Path(path).expanduser().is_dir():
        _check_weights(path)
    if adapter is not None:
        _located(adapter)
    device = _resolved_device(device)
    own: Any = config.get_text_config().dtype
    numbers = torch_dtype(dtype) if dtype is not None else own or torch.float32
    options: dict[str, Any] = {"dtype": "auto" if dtype is None else numbers}
    if quantization is not None:
        options["quantization_config"] = _quantization_config(quantization, device, numbers)
    if device.startswith("cuda"):
        is_spread = max_memory is not None or (device == "cuda" and not _fits_one_gpu(auto, config, numbers))
        options["device_map"] = "auto" if is_spread else {"": device}
    if max_memory is not None:
        options["max_memory"] = dict(max_memory)
    with _reading(path, part):
        model, loading = auto.from_pretrained(
            _located(path),
            config=config,
            revision=revision,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    return model, sorted(loading["missing_keys"])


def _refuse_missing(path: str, model: PreTrainedModel, missing: Sequence[str]) -> None:
    if missing:  # transformers would go on with random numbers in their place
        raise InputError(
            f"{path}: {len(missing)} weights of {type(model).__name__} missing (first: {missing[0]}); "
            "give a complete model"
        )


def _for_inference(model: Any, adapter: str | None) -> PreTrainedModel:
    if adapter is not None:
        model = _with_adapter(model, adapter)
    model.requires_grad_(False)
    evaluated: PreTrainedModel = model.eval()
    return evaluated


def _is_in_adapter(model: PreTrainedModel, weight: str) -> bool:
    """Return whether an adapter brought its own copy of the module that this weight belongs to."""
    from peft.utils import ModulesToSaveWrapper

    return isinstance(model.get_submodule(weight.partition(".")[0]), ModulesToSaveWrapper)


def _located(path: str) -> str:
    """Return what ``from_pretrained`` should be given; InputError where neither a directory nor the hub can have it."""
    local = Path(path).expanduser()
    if local.is_dir():
        return str(local)
    if local.exists():
        raise InputError(f"{path}: a file; give the directory that holds config.json and the weights")
    is_hub_name = path.count("/") <= 1 and not path.startswith((".", "/", "~")) and "\\" not in path
    if not is_hub_name:
        raise InputError(f"{path}: no such directory; correct the path of the model")
    if not _has_hub() and _cached(path, "config.json") is None and _cached(path, "adapter_config.json") is None:
        raise InputError(
            f"{path}: neither a local directory (looked in {Path.cwd()}) nor in the cache of the Hugging Face hub, "
            "which cannot be reached from here; correct the path or download the model first"
        )
    return path


def _has_hub() -> bool:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        return False
    if urllib.request.getproxies():  # names may then be resolved by the proxy alone
        return True
    host = urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _cached(path: str, filename: str, revision: str | None = None) -> str | None:
    found: str | None = cached_file(
        path, filename, revision=revision, local_files_only=True, _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False, _raise_exceptions_for_gated_repo=False,
    )  # fmt: skip
    return found


@contextmanager
def _reading(path: str, part: str) -> Iterator[None]:
    """Turn what transformers raises for unusable files into one InputError that names ``path``."""
    try:
        yield
    except _UNUSABLE as error:
        if isinstance(error, RuntimeError) and "size mismatch" not in str(error):
            raise
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{path}: no usable {part}: {reason}; check the files of the model") from error


def _load_config(path: str, *, revision: str | None, trust_remote_code: bool) -> PretrainedConfig:
    located = _located(path)
    if Path(located).is_dir() and not (Path(located) / "config.json").is_file():
        raise InputError(f"{path}: model directory without config.json; give the directory of a Hugging Face model")
    with _reading(path, "config.json"):
        config: PretrainedConfig = AutoConfig.from_pretrained(
            located, revision=revision, trust_remote_code=trust_remote_code
        )
    return config


def _check_weights(path: str) -> None:
    folder = Path(path).expanduser()
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        missing = [shard for shard in shards if not (folder / shard).is_file()]
        if missing:
            raise InputError(
                f"{path}: {len(missing)} of {len(shards)} weights files missing (first: {missing[0]}); copy them there"
            )
    elif not (folder / "model.safetensors").is_file():
        pickled = sorted(folder.glob("pytorch_model*.bin"))
        if pickled:
            raise InputError(
                f"{path}: weights only as pickle ({pickled[0].name}), which can run code when read; "
                "convert them to safetensors (save_pretrained of the loaded model writes them)"
            )
        raise InputError(f"{path}: model directory without weights; model.safetensors or its shards must be in it")


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, *, add_special_tokens: bool = True) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
    return ids


def _fingerprint(path: str, config_name: str, revision: str | None) -> dict[str, Any]:
    located = Path(_located(path))
    if not located.is_dir():
        with _reading(path, config_name):
            commit = extract_commit_hash(cached_file(path, config_name, revision=revision), None)
        return {"hub": path, "commit": commit}
    if not (located / config_name).is_file():
        raise InputError(f"{path}: directory without {config_name}; give the directory of a model or adapter")
    files = sorted(file for file in located.iterdir() if file.is_file() and not file.name.startswith("."))
    return {
        "files": {file.name: _sha256(file) for file in files if file.suffix in _IDENTITY_SUFFIXES},
        "weights": {
            file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)}
            for file in files
            if file.suffix == ".safetensors"
        },
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
    if quantization not in QUANTIZATIONS:
        raise InputError(f"quantization {quantization!r}: unknown; use 8bit, 4bit or null")
    if not device.startswith("cuda"):
        raise InputError(f"quantization {quantization!r}: needs a CUDA GPU; use quantization null on the CPU")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InputError(f"quantization {quantization!r}: bitsandbytes is not installed; pip install bitsandbytes")
    settings = (
        {"load_in_8bit": True} if quantization == "8bit" else {"load_in_4bit": True, "bnb_4bit_compute_dtype": dtype}
    )
    config: BitsAndBytesConfig = BitsAndBytesConfig(**settings)  # type: ignore[no-untyped-call]
    return config


def _fits_one_gpu(auto: Any, config: PretrainedConfig, dtype: torch.dtype) -> bool:
    """Return whether weights of this dtype leave a fifth of the first GPU's free memory; one GPU has to do anyway."""
    if torch.cuda.device_count() == 1:
        return True
    free, _ = torch.cuda.mem_get_info()
    with torch.device("meta"):
        n_parameters = sum(parameter.numel() for parameter in auto.from_config(config).parameters())
    return bool(n_parameters * dtype.itemsize <= 0.8 * free)


class AdapterSlot:
    """Room for one LoRA adapter on a model that stays in memory; each adapter takes the place of the last.

    Base weights are not changed: without its adapter the model computes what it did before.

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
        """Put an adapter on the model, and use it.

        Args:
            name: of the adapter, for messages.
            config: its ``adapter_config.json``.
            weights: its ``adapter_model.safetensors``.

        Raises:
            InputError: the adapter does not fit the model; the message names both.
        """
        from peft import get_peft_model_state_dict, set_peft_model_state_dict
        from safetensors.torch import load

        try:
            settings, state = json.loads(config), load(weights)
        except (ValueError, SafetensorError) as error:
            raise InputError(
                f"adapter {name}: is damaged ({' '.join(str(error).split())}); delete its folder and train it anew"
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
            self._adapted.unload()
            vars(self._model).pop("peft_config", None)
        with warnings.catch_warnings():
            # PEFT warns that an adapter on a tied output layer cannot be merged.
            warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
            # Nor need it say that it adapts itself to each layer whose weights are transposed or not.
            warnings.filterwarnings("ignore", message="fan_in_fan_out")
            # In the model's dtype: PEFT would compute with a bfloat16 adapter in float32.
            self._adapted = get_peft_model(self._model, LoraConfig(**settings), autocast_adapter_dtype=False)
        self._config = settings
        _for_inference(self._model, None)


@contextmanager
def _fitting(adapter: str, path: str) -> Iterator[None]:
    """Turn what PEFT raises for an adapter of another model into one InputError that names both."""
    try:
        yield
    except (*_UNUSABLE, TypeError) as error:
        if isinstance(error, RuntimeError) and "size mismatch" not in str(error):
            raise
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"adapter {adapter}: does not fit the model {path}: {reason}; give the model that it was trained on"
        ) from error


def _with_adapter(model: PreTrainedModel, adapter: str) -> PreTrainedModel:
    if importlib.util.find_spec("peft") is None:
        raise InputError(f"adapter {adapter}: peft is not installed; pip install peft")
    from peft import PeftModel, get_peft_model_state_dict
    from peft.utils import load_peft_weights

    located = _located(adapter)
    with _fitting(adapter, str(model.name_or_path)), warnings.catch_warnings():
        # PEFT only warns, and goes on with an adapter that does nothing where its weights are missing.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        adapted: Any = PeftModel.from_pretrained(model, located, is_trainable=False)
        # Nor does it mind what the model has no place for.
        placed = get_peft_model_state_dict(adapted, save_embedding_layers=False)
        prefix = getattr(adapted.base_model, "prefix", "")
        surplus = [name for name in load_peft_weights(located, device="cpu") if prefix in name and name not in placed]
        if surplus:
            raise ValueError(f"the model has no place for {len(surplus)} of its weights (first: {min(surplus)})")
    if adapted.active_peft_config.is_prompt_learning:
        raise InputError(
            f"adapter {adapter}: adds tokens to the prompt; use one that changes the weights, such as LoRA"
        )
    # The layers are already in place in the model itself; PEFT's wrapper would only hide its signature.
    base: PreTrainedModel = adapted.get_base_model()
    return base
