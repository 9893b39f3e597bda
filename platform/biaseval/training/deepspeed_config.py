"""DeepSpeed's configuration, derived from a spec; a JSON file may add to it and not contradict it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from biaseval.errors import InputError
from biaseval.spec import LoraSpec

_AUTO = "auto"
"""What Hugging Face's integration writes for values that come from elsewhere."""

_BUCKET = 500_000_000
"""DeepSpeed's default for what it reduces and gathers at once, in elements; its buffers are that large."""


def deepspeed_config(lora: LoraSpec, n_trainable: int) -> dict[str, Any]:
    """Return the configuration for training one adapter.

    DeepSpeed casts nothing: the model has its dtypes already, and ZeRO keeps the optimizer's own weights in float32.

    Args:
        lora: its ``zero`` is not null.
        n_trainable: parameters of the adapter; bounds the buffers.

    Raises:
        InputError: the file cannot be read, is no JSON object, or contradicts the spec; all contradictions in one
            message, each with both keys.
    """
    bucket = min(_BUCKET, max(n_trainable, 1))
    derived: dict[str, Any] = {
        "train_batch_size": lora.batch_size * lora.accumulation,
        "train_micro_batch_size_per_gpu": lora.batch_size,
        "gradient_accumulation_steps": lora.accumulation // lora.workers,
        "gradient_clipping": lora.max_grad_norm,
        "zero_optimization": {"stage": lora.zero, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket},
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
    if lora.deepspeed_config is None:
        return derived
    added = _without_auto(_read(lora.deepspeed_config))
    problems = [f"{lora.deepspeed_config}: {problem}" for problem in _contradictions(added, derived, lora)]
    if problems:
        raise InputError.of(problems)
    # Its purpose is met: the model comes in this precision.
    added.pop("bf16", None)
    added.pop("fp16", None)
    return {**derived, **added, "zero_optimization": {**derived["zero_optimization"], **_section(added)}}


def _section(added: Mapping[str, Any]) -> Mapping[str, Any]:
    section: Mapping[str, Any] = added.get("zero_optimization", {})
    return section


def _read(path: str) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); mend lora.deepspeed_config") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no JSON object; lora.deepspeed_config takes DeepSpeed's configuration")
    return content


def _without_auto(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {key: _without_auto(value) for key, value in content.items() if value != _AUTO}


def _contradictions(added: Mapping[str, Any], derived: Mapping[str, Any], lora: LoraSpec) -> Iterator[str]:
    sources = {
        "train_batch_size": f"lora.batch_size {lora.batch_size} times lora.accumulation {lora.accumulation}",
        "train_micro_batch_size_per_gpu": f"lora.batch_size {lora.batch_size}",
        "gradient_accumulation_steps": f"lora.accumulation {lora.accumulation} over lora.workers {lora.workers}",
        "gradient_clipping": f"lora.max_grad_norm {lora.max_grad_norm}",
    }
    for key, source in sources.items():
        if key in added and added[key] != derived[key]:
            yield f"{key} {added[key]!r} contradicts {source}, which makes {derived[key]!r}; remove it or change one"
    for section in ("zero_optimization", "bf16", "fp16"):
        if not isinstance(added.get(section, {}), dict):
            yield f"{section} {added[section]!r} is no section; write an object"
            return
    stage = added.get("zero_optimization", {}).get("stage", lora.zero)
    if stage != lora.zero:
        yield f"zero_optimization.stage {stage!r} contradicts lora.zero {lora.zero}; remove it or change one"
    if added.get("fp16", {}).get("enabled"):
        yield f"fp16.enabled contradicts lora.precision {lora.precision}; remove the section fp16"
    if added.get("bf16", {}).get("enabled") not in (None, lora.precision == "bfloat16"):
        yield f"bf16.enabled {added['bf16']['enabled']!r} contradicts lora.precision {lora.precision}; change one"
    for key in ("optimizer", "scheduler"):
        if key in added:
            yield f"{key} contradicts the section lora, which says how steps are made; remove it"
