"""DeepSpeed's configuration, derived from a spec; a JSON file may add to it and not contradict it."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from biaseval.errors import InputError, refuse
from biaseval.parsing import ParseError, json_value
from biaseval.spec import TrainingSpec
from biaseval.training.recipe import Recipe

_AUTO = "auto"
"""What Hugging Face's integration writes for values that come from elsewhere."""

_BUCKET = 500_000_000
"""DeepSpeed's default for elements that it reduces and gathers at once; its buffers have this size."""


# fmt: off
_KNOWN = frozenset((
    "activation_checkpointing", "aio", "autotuning", "bf16", "checkpoint", "comet", "comms_logger",
    "communication_data_type", "compile", "csv_monitor", "data_efficiency", "data_types", "dataloader_drop_last",
    "datastates_ckpt", "disable_allgather", "disable_python_gc", "dump_state", "expert_parallel", "flops_profiler",
    "fp16", "gradient_accumulation_steps", "gradient_clipping", "gradient_predivide_factor", "hybrid_engine",
    "log_level", "memory_breakdown", "pipeline", "prescale_gradients", "seq_parallel_communication_data_type",
    "steps_per_print", "tensor_parallel", "tensorboard", "timers", "train_batch_size",
    "train_micro_batch_size_per_gpu", "use_data_before_expert_parallelism", "vocabulary_size",
    "wall_clock_breakdown", "wandb", "weight_quantization", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "zero_optimization",
))
# fmt: on
"""What a file may have: the top-level keys of DeepSpeed 0.19, but for those that say how steps are made."""

_OF_STEPS = ("optimizer", "scheduler", "gradient_allreduce_op", "managed_gradient_accumulation")
_OF_PRECISION = ("amp", "bfloat16", "torch_autocast")


def deepspeed_config(training: TrainingSpec, n_trainable: int) -> dict[str, Any]:
    """Return the configuration for training one adapter or model with ZeRO; the trained parameters bound its buffers.

    DeepSpeed casts nothing: the model has its dtypes already, and ZeRO keeps the optimizer's own weights in float32. In
    float16 ZeRO scales losses by the factor that it gets before each step (`loss_scale.LossScale`).

    Raises:
        InputError: the file cannot be read, is no JSON object, has a key that DeepSpeed would ignore, or
            contradicts the spec; all contradictions in one message, each with both keys.
    """
    bucket = min(_BUCKET, max(n_trainable + n_trainable % 2, 2))  # ZeRO 1 and 2 take an even number
    derived: dict[str, Any] = {
        "train_batch_size": training.batch_size * training.accumulation,
        "train_micro_batch_size_per_gpu": training.batch_size,
        "gradient_accumulation_steps": training.accumulation // training.workers,
        "gradient_clipping": training.max_grad_norm,
        "zero_optimization": {"stage": training.zero, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket},
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
    if training.precision == "float16" and training.zero:
        derived["fp16"] = {"enabled": True, "loss_scale": 1.0}
    if training.deepspeed_config is None:
        return derived
    added = deepspeed_file(training)
    problems = [f"{training.deepspeed_config}: {problem}" for problem in _contradictions(added, derived, training)]
    refuse(problems)
    # Its purpose is met: the model comes in this precision.
    added.pop("bf16", None)
    added.pop("fp16", None)
    return {**derived, **added, "zero_optimization": {**derived["zero_optimization"], **_section(added)}}


def deepspeed_file(training: TrainingSpec) -> dict[str, Any]:
    """Return the keys of the spec's DeepSpeed file, without those set to ``auto``; empty without a file.

    Raises:
        InputError: the file cannot be read, or is no JSON object.
    """
    if training.deepspeed_config is None:
        return {}
    path, key = training.deepspeed_config, f"{training.SECTION}.deepspeed_config"
    try:
        content = json_value(Path(path).read_bytes())
    except (OSError, ParseError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); mend {key}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no JSON object; {key} takes DeepSpeed's configuration")
    return {key: _without_auto(value) for key, value in content.items() if value != _AUTO}


def check_deepspeed(recipe: Recipe) -> None:
    """Make sure that a DeepSpeed file does not contradict the spec, and that checkpoints support its settings.

    Raises:
        InputError: see `deepspeed_config`; or a part is offloaded to a place that checkpoints do not support.
    """
    training = recipe.training
    if training.zero is None:
        return
    deepspeed_config(training, n_trainable=1)
    if recipe.checkpoint_steps is None:
        return
    problems = []
    for key, own in _offloads(training).items():
        if not isinstance(own, dict):
            problems.append(f"{training.deepspeed_config}: zero_optimization.{key} {own!r}: write an object")
        elif own.get("device", "none") not in ("none", "cpu") or own.get("ratio", 1) != 1:
            problems.append(
                f"{training.deepspeed_config}: zero_optimization.{key} {own}: checkpoints hold only weights "
                "in memory; use the device cpu, and no ratio"
            )
    refuse(problems)


def offloaded_parts(training: TrainingSpec) -> dict[int, list[str]]:
    """Return what the spec's DeepSpeed file keeps in the machine's memory, by ZeRO stage.

    Returns:
        Any of ``optimizer``, ``weights`` and ``gradients``, which are beside the optimizer from stage 3 on.
    """
    away = {key for key, own in _offloads(training).items() if isinstance(own, dict) and own.get("device") == "cpu"}
    optimizer = ["optimizer"] if "offload_optimizer" in away else []
    weights = ["weights"] if "offload_param" in away else []
    return {1: optimizer, 2: optimizer, 3: [*optimizer, *weights, *(["gradients"] if optimizer else [])]}


def _offloads(training: TrainingSpec) -> dict[str, Any]:
    section = _section(deepspeed_file(training))
    return {key: section.get(key) or {} for key in ("offload_optimizer", "offload_param")}


def _section(added: Mapping[str, Any]) -> Mapping[str, Any]:
    section: Mapping[str, Any] = added.get("zero_optimization", {})
    return section


def _without_auto(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {key: _without_auto(value) for key, value in content.items() if value != _AUTO}


def _contradictions(added: Mapping[str, Any], derived: Mapping[str, Any], training: TrainingSpec) -> Iterator[str]:
    own = training.SECTION
    sources = {
        "train_batch_size": f"{own}.batch_size {training.batch_size} times {own}.accumulation {training.accumulation}",
        "train_micro_batch_size_per_gpu": f"{own}.batch_size {training.batch_size}",
        "gradient_accumulation_steps": f"{own}.accumulation {training.accumulation} over {own}.workers "
        f"{training.workers}",
        "gradient_clipping": f"{own}.max_grad_norm {training.max_grad_norm}",
    }
    for key, source in sources.items():
        if key in added and added[key] != derived[key]:
            yield f"{key} {added[key]!r} contradicts {source}, which makes {derived[key]!r}; remove it or change one"
    for section in ("zero_optimization", "bf16", "fp16"):
        if not isinstance(added.get(section, {}), dict):
            yield f"{section} {added[section]!r} is no section; write an object"
            return
    stage = added.get("zero_optimization", {}).get("stage", training.zero)
    if stage != training.zero:
        yield f"zero_optimization.stage {stage!r} contradicts {own}.zero {training.zero}; remove it or change one"
    precision = f"{own}.precision {training.precision}"
    halves = added.get("fp16", {})
    if training.precision != "float16" and halves.get("enabled"):
        yield f"fp16.enabled contradicts {precision}; remove the section fp16"
    elif training.precision == "float16":
        if halves.get("enabled") is False:
            yield f"fp16.enabled False contradicts {precision}; remove the section fp16"
        for key in sorted(halves.keys() - {"enabled"}):
            yield f"fp16.{key}: losses are scaled in the same way at every stage, as torch's GradScaler does; remove it"
    if added.get("bf16", {}).get("enabled") not in (None, training.precision == "bfloat16"):
        yield f"bf16.enabled {added['bf16']['enabled']!r} contradicts {precision}; change one"
    for key in added:
        if key in _OF_STEPS:
            yield f"{key} contradicts the section {own}, which says how steps are made; remove it"
        elif key in _OF_PRECISION:
            yield f"{key} contradicts {precision}, which says in which numbers; remove it"
        elif key not in _KNOWN:
            close = difflib.get_close_matches(key, _KNOWN, n=1)
            hint = f"did you mean {close[0]}?" if close else "remove it"
            yield f"{key}: DeepSpeed has no such key, and would pass over it; {hint}"
