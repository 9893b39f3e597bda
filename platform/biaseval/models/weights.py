"""Checks that the weights in a model's files fit its configuration: none missing, none unused, all of the right shape.

transformers fills missing weights with random numbers and drops unused ones.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import logging as chatter

from biaseval.errors import InputError, refuse
from biaseval.models.sources import local_folder, missing_weights, quantization_of, reading, weights_files

_UNUSED = re.compile(
    # Buffers that older versions saved, and that models compute now: rotary frequencies, positions, causal masks.
    r"(^|\.)(inv_freq|position_ids|token_type_ids|masked_bias|embed_positions\.weights|(attn|attention)\.bias)$"
    # Scales of quantized activations, which are not quantized here.
    r"|(^|\.)(input|output|[qkv])_(scale|zero_point|global_scale)$"
    # Towers of multimodal models, where the text model alone is used.
    r"|(^|\.)\w*(vision|visual|image|audio|video|speech|multi_modal|mm_projector)\w*\."
)
"""Weights that no score depends on, beside those that transformers itself knows for a family."""

_PARTS = ("shared.", "encoder.", "decoder.")
"""Weights of T5's body, which stand beside its head."""

_REMEDY = "correct config.json (the number of layers, say), or give the weights that belong to it"

_CONVERSION = re.compile(r"^(\S+)\s*\| CONVERSION", re.MULTILINE)


@contextmanager
def quietly(path: str, part: str) -> Iterator[None]:
    """Load weights without bars and reports on standard error; say what cannot be converted.

    Raises:
        InputError: weights cannot be put together as the configuration asks for.
    """
    reports = _Reports()
    logger = logging.getLogger("transformers.modeling_utils")
    was_shown = chatter.is_progress_bar_enabled()
    chatter.disable_progress_bar()
    logger.addFilter(reports)
    try:
        yield
    except RuntimeError as error:
        names = sorted({name for text in reports.texts for name in _CONVERSION.findall(text)}, key=_natural)
        if not names:
            raise
        raise InputError(
            f"{path}: {len(names)} weights of the {part} cannot be made of those in the files (first: {names[0]}), "
            f"whose shapes or number do not fit; {_REMEDY}"
        ) from error
    finally:
        logger.removeFilter(reports)
        if was_shown:
            chatter.enable_progress_bar()


class _Reports(logging.Filter):
    """Keeps what transformers reports about the weights that it loads, instead of letting it be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "LOAD REPORT" not in text:
            return True
        self.texts.append(text)
        return False


def refuse_unfit(path: str, model: PreTrainedModel, found: Mapping[str, Any], *, is_body: bool = False) -> list[str]:
    """Refuse a model whose files and configuration do not belong together.

    Args:
        path: of the model, for messages.
        model: the model that was built from the configuration.
        found: transformers' ``missing_keys``, ``unexpected_keys`` and ``mismatched_keys`` (names and two shapes).
        is_body: the files may have other heads than the model, so weights outside its body may be missing or unused.

    Returns:
        The missing weights outside the body, sorted; empty without ``is_body``.

    Raises:
        InputError: weights are missing, have no place, or have another shape; with the number and the first of them.
    """
    missing = sorted(found["missing_keys"], key=_natural)
    heads = [name for name in missing if is_body and not name.startswith((f"{model.base_model_prefix}.", *_PARTS))]
    missing = [name for name in missing if name not in heads]
    unused = [name for name in found.get("unexpected_keys", ()) if not _UNUSED.search(name)]
    if unused:
        buffers = {name for name, _ in model.named_buffers()}
        unused = [name for name in unused if name not in buffers and (not is_body or _is_of_body(model, name))]
        unused.sort(key=_natural)
    unlike = sorted(found.get("mismatched_keys", ()), key=lambda own: _natural(own[0]))
    kind = type(model).__name__
    problems = []
    if missing:
        problems.append(
            f"{path}: {len(missing)} weights of {kind} missing (first: {missing[0]}); give a complete model"
        )
    if unused:
        problems.append(
            f"{path}: {len(unused)} weights have no place in {kind} as config.json describes it (first: {unused[0]}), "
            f"and it would be used without them; {_REMEDY}"
        )
    if unlike:
        name, stored, asked = unlike[0]
        problems.append(
            f"{path}: {len(unlike)} weights do not fit {kind} as config.json describes it (first: {name} has the shape "
            f"{list(stored)} and should have {list(asked)}); {_REMEDY}"
        )
    refuse(problems)
    return heads


def compare_files(path: str, model: PreTrainedModel, part: str, *, is_body: bool = False) -> list[str]:
    """Compare the names and shapes in the files of a local model with it, see `refuse_unfit`; no weight is read.

    Nothing is compared, and nothing returned, where files are missing or not on this machine, and where weights are
    stored quantized: their shapes are the quantization's. The model was built of its configuration, without storage;
    errors call it ``part``.
    """
    folder = local_folder(path, is_fetched=False)
    if folder is None or quantization_of(model.config) or missing_weights(folder) is not None:
        return []
    with reading(path, part), quietly(path, part):
        loaded: Any = type(model).from_pretrained(
            None,
            config=model.config,
            state_dict=_shapes(folder),
            device_map={"": "meta"},
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    _, found = loaded
    return refuse_unfit(path, model, found, is_body=is_body)


def _shapes(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a local model by name, without storage."""
    shapes: dict[str, torch.Tensor] = {}
    for file in weights_files(folder):
        with safe_open(file, framework="pt") as weights:
            names = weights.keys()
            shapes |= {name: torch.empty(weights.get_slice(name).get_shape(), device="meta") for name in names}
    return shapes


def _is_of_body(model: PreTrainedModel, name: str) -> bool:
    """Return whether a weight that has no place belongs to the body, whatever head its file was saved with."""
    own = name.removeprefix(f"{model.base_model_prefix}.")
    first = own.partition(".")[0]
    if first == "pooler":  # of encoders; a head for questions reads every token
        return False
    return own != name or any(first == child for child, _ in model.base_model.named_children())


def _natural(name: str) -> str:
    """Return what sorts layer 2 before layer 10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(6), name)
