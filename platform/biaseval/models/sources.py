"""Where a model is: its directory or hub name, its configuration, whether its files are complete, what identifies it.

Neither torch nor transformers is imported before a configuration is read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlparse

from biaseval.cache import file_digest, is_remote, kept_copy, local_copy
from biaseval.errors import BiasevalError, InputError
from biaseval.parsing import json_value

if TYPE_CHECKING:
    from transformers import PretrainedConfig

WEIGHTS_FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
"""What PEFT calls the files of an adapter."""

_INDEX_FILE = "model.safetensors.index.json"
_IDENTITY_SUFFIXES = (".json", ".txt", ".model", ".py", ".jinja", ".tiktoken")


class _Section(Protocol):
    """What the section of a spec that names a model has."""

    @property
    def path(self) -> Any: ...

    @property
    def revision(self) -> str | None: ...

    @property
    def adapter(self) -> str | None: ...

    @property
    def trust_remote_code(self) -> bool: ...


@dataclass(frozen=True)
class ModelSource:
    """Which model."""

    path: str
    """A directory in the Hugging Face layout, local or ``s3://``, or the name of a model on the hub."""
    revision: str | None = None
    """Hub branch, tag or commit."""
    adapter: str | None = None
    """LoRA adapter in PEFT's layout, directory or hub name; applied, not merged into the weights."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""

    @classmethod
    def of(cls, section: _Section) -> Self:
        """Return the model that a spec's section names; its ``path`` must be given."""
        return cls(section.path, section.revision, section.adapter, section.trust_remote_code)


def located(path: str, *, has_weights: bool = True) -> str:
    """Return the argument for ``from_pretrained``; files on an object store are fetched once per machine.

    Args:
        path: of a model or adapter, or its name on the hub.
        has_weights: they are read, too.

    Raises:
        InputError: the path is no directory and no possible name on the hub.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented, but not in __all__

    if is_remote(path):
        return str(local_copy(path, has_weights=has_weights))
    local = Path(path).expanduser()
    if local.is_dir():
        return str(local)
    if local.exists():
        raise InputError(f"{path}: a file; give the directory that holds config.json and the weights")
    try:
        validate_repo_id(path)
    except HFValidationError as error:
        raise InputError(f"{path}: no such directory; correct the path of the model") from error
    if not _has_hub() and _cached(path, "config.json") is None and _cached(path, CONFIG_FILE) is None:
        raise InputError(
            f"{path}: neither a local directory (looked in {Path.cwd()}) nor in the cache of the Hugging Face hub, "
            "which cannot be reached from here; correct the path or download the model first"
        )
    return path


def local_folder(path: str, *, is_fetched: bool = True) -> Path | None:
    """Return the directory that the model is on this machine, perhaps once it was fetched; None for a hub name."""
    fetched = local_copy if is_fetched else kept_copy
    folder = fetched(path) if is_remote(path) else Path(path).expanduser()
    return folder if folder is not None and folder.is_dir() else None


@contextmanager
def explained(problem: str, remedy: str, *, is_description: bool = False) -> Iterator[None]:
    """Turn the errors of transformers and PEFT for unusable files into one InputError.

    Args:
        problem: the beginning of the message.
        remedy: its end.
        is_description: the block computes nothing, so the files cause every error. Otherwise a RuntimeError passes
            unless it is about sizes or PEFT's key ``bias``, because the device may cause it.
    """
    try:
        yield
    except (BiasevalError, MemoryError):
        raise
    except Exception as error:
        of_files = any(words in str(error) for words in ("size mismatch", "Requested bias"))
        if isinstance(error, RuntimeError) and not is_description and not of_files:
            raise
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if "custom code" in reason:
            remedy = "if you trust its code, set trust_remote_code: true in the section model of the spec"
        raise InputError(f"{problem}: {reason}; {remedy}") from error


def reading(path: str, part: str, *, is_description: bool = False) -> AbstractContextManager[None]:
    """Name the model and what of it is read in errors about its files, see `explained`."""
    return explained(f"{path}: no usable {part}", "check the files of the model", is_description=is_description)


def load_config(source: ModelSource) -> PretrainedConfig:
    """Load the configuration of a model; InputError where there is none."""
    from transformers import AutoConfig

    folder = Path(located(source.path, has_weights=False))
    file = folder / "config.json"
    if folder.is_dir() and not file.is_file():
        what = "give the directory of a Hugging Face model"
        raise InputError(f"{source.path}: {_only_gguf(folder) or f'model directory without config.json; {what}'}")
    with reading(source.path, "config.json", is_description=True):
        if file.is_file() and not isinstance(written := json_value(file.read_bytes()), dict):
            raise InputError(
                f"{file}: holds {json.dumps(written)[:60]}, which is no JSON object; give the config.json of a Hugging "
                "Face model"
            )
        config: PretrainedConfig = AutoConfig.from_pretrained(
            str(folder), revision=source.revision, trust_remote_code=source.trust_remote_code
        )
    return config


def quantization_of(config: PretrainedConfig) -> dict[str, Any]:
    """Return how a checkpoint says that its weights are quantized; empty if it does not."""
    own: Any = getattr(config, "quantization_config", None)
    own = own or getattr(config.get_text_config(decoder=True), "quantization_config", None) or {}
    return own if isinstance(own, dict) else dict(own.to_dict())


def refuse_quantized(path: str, config: PretrainedConfig, device: str | None = None, added: str | None = None) -> None:
    """Make sure that transformers can read the weights of a quantized checkpoint; others pass.

    Weights of compressed-tensors are unpacked to the dtype of the model; so is FP8 if the package `kernels` is absent.

    Args:
        path: of the model, for messages.
        config: of the model.
        device: on which the weights will be; None: another machine loads them, which may have a GPU.
        added: a quantization that the weights get while they load.

    Raises:
        InputError: a package is not installed, the device does not suffice, or weights are to be quantized twice.
    """
    from transformers.quantizers.auto import AutoHfQuantizer

    own = quantization_of(config)
    method = own.get("quant_method")
    what = f"{path}: its weights are quantized ({method})"
    if own and added is not None:
        raise InputError(f"{what}, and {added} would quantize them again; set model.quantization to null")
    groups = own.get("config_groups") if method == "compressed-tensors" else None
    groups = [each for each in groups.values() if isinstance(each, dict)] if isinstance(groups, dict) else []
    if len({repr(group.get("weights")) for group in groups}) > 1:
        raise InputError(f"{what} in several ways, which transformers mixes up; give the model in 16 bits or FP8")
    if method == "compressed-tensors" or (method in ("fp8", "mxfp8") and importlib.util.find_spec("kernels") is None):
        own["dequantize"] = True
    try:
        if not own or not AutoHfQuantizer.supports_quant_method(own):
            return  # transformers ignores one that it does not know
        quantizer = AutoHfQuantizer.from_config(own, pre_quantized=True)
        quantizer.validate_environment(device_map={"": device or "cuda"})
    except Exception as error:  # whatever the code of a quantization raises
        reason = " ".join(str(error).split())[:300]
        if device is None and not (isinstance(error, ImportError) and "GPU" not in reason):
            return
        raise InputError(f"{what}: {reason}; install the package, or give the model in 16 bits or FP8") from error


def _only_gguf(folder: Path) -> str | None:
    """Return what to do with a directory whose weights are GGUF alone, or None."""
    files = [] if any(folder.glob("*.safetensors")) else sorted(folder.glob("*.gguf"))
    how = "which save_pretrained writes of a model loaded with gguf_file and GgufConfig(dequantize=True)"
    return f"weights only as GGUF ({files[0].name}); give the model as safetensors, {how}" if files else None


def check_weights(path: str) -> None:
    """Make sure that a directory holds all its weights, as safetensors; a hub name passes.

    Raises:
        InputError: it does not.
    """
    folder = local_folder(path)
    problem = None if folder is None else missing_weights(folder)
    if problem is not None:
        raise InputError(f"{path}: {problem}")


def missing_weights(folder: Path) -> str | None:
    """Return what the weights of a local directory lack, or None: all are there, as safetensors."""
    if (folder / "model.safetensors").is_file() or (folder / _INDEX_FILE).is_file():
        files = weights_files(folder)
        if missing := [file.name for file in files if not file.is_file()]:
            return f"{len(missing)} of {len(files)} weights files missing (first: {missing[0]}); copy them there"
    else:
        if pickled := sorted(folder.glob("pytorch_model*.bin")):
            return (
                f"weights only as pickle ({pickled[0].name}), which can run code when read; "
                "convert them to safetensors (save_pretrained of the loaded model writes them)"
            )
        return _only_gguf(folder) or "model directory without weights; model.safetensors or its shards must be in it"
    return None


def weights_files(folder: Path) -> list[Path]:
    """Return the files of a local model that hold its weights, as transformers chooses them; they may be missing.

    Raises:
        InputError: the index of several files cannot be used.
    """
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    with reading(str(folder), _INDEX_FILE, is_description=True):
        index = json_value((folder / _INDEX_FILE).read_bytes())
        return [folder / shard for shard in sorted(set(index["weight_map"].values()))]


def fingerprint_model(source: ModelSource) -> dict[str, Any]:
    """Return what identifies a model by content, wherever it lies.

    Local directory: SHA-256 of every configuration, tokenizer and generation file; each weights file by name, size and
    SHA-256 (a few seconds for a 7B model; remembered on this machine until it changes). Hub: the commit that
    ``revision`` stands for.

    Returns:
        ``{"model": {...}, "adapter": {...} or None, "digest": str}``; the digest covers the rest and no path.

    Raises:
        InputError: no model or adapter there.
    """
    identity: dict[str, Any] = {
        "model": _fingerprint(source.path, "config.json", source.revision),
        "adapter": None if source.adapter is None else _fingerprint(source.adapter, CONFIG_FILE, None),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return {**identity, "digest": digest}


def _fingerprint(path: str, config_name: str, revision: str | None) -> dict[str, Any]:
    folder = Path(located(path))
    if not folder.is_dir():
        from transformers.utils.hub import cached_file, extract_commit_hash

        with reading(path, config_name):
            commit = extract_commit_hash(cached_file(path, config_name, revision=revision), None)
        return {"hub": path, "commit": commit}
    if not (folder / config_name).is_file():
        raise InputError(f"{path}: directory without {config_name}; give the directory of a model or adapter")
    own = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    files = [file for file in own if file.suffix in _IDENTITY_SUFFIXES]
    weights = [file for file in own if file.suffix == ".safetensors"]
    with ThreadPoolExecutor() as threads:  # hashing takes no lock: the shards of a large model go side by side
        digests = dict(zip([*files, *weights], threads.map(file_digest, [*files, *weights]), strict=True))
    return {
        "files": {file.name: digests[file] for file in files},
        "weights": {file.name: {"bytes": file.stat().st_size, "sha256": digests[file]} for file in weights},
    }


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


def _cached(path: str, filename: str) -> str | None:
    from transformers.utils.hub import cached_file

    found: str | None = cached_file(
        path, filename, local_files_only=True, _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False, _raise_exceptions_for_gated_repo=False,
    )  # fmt: skip
    return found
