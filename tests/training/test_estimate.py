"""What training costs, against numbers computed by hand; and DeepSpeed's configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.models import ModelSource, bare_model, target_shapes
from biaseval.spec import InstructSpec, LoraSpec
from biaseval.training.deepspeed_config import deepspeed_config
from biaseval.training.estimate import (
    PUBLISHED_SHAPES,
    ModelShape,
    fewest_gpus,
    gpus_needed,
    memory_of,
    training_flops,
    tuning_flops,
    tuning_memory,
)

SHAPE = ModelShape("hand", n_parameters=1000, hidden_size=10, n_layers=3, targets=[(10, 20), (20, 10)])


def test_memory_is_that_of_a_case_done_by_hand() -> None:
    lora = LoraSpec(r=2, precision="bfloat16", gradient_checkpointing=True)
    assert SHAPE.n_trainable(2) == 2 * (30 + 30)
    memory = memory_of(SHAPE, lora, n_tokens=5, zero=None, n_workers=4)
    assert (memory.weights, memory.adapter, memory.gradients, memory.optimizer) == (2000, 240, 240, 480)
    assert memory.activations == 3 * 50 * 2 + 34 * 50
    assert memory.total == 2000 + 240 + 240 + 480 + 2000


@pytest.mark.parametrize(
    ("zero", "expected"),
    [(0, (2000, 240, 240, 480)), (1, (2000, 240, 240, 360)), (2, (2000, 240, 60, 360)), (3, (500, 60, 60, 360))],
)
def test_each_stage_shares_one_thing_more(zero: int, expected: tuple[int, ...]) -> None:
    memory = memory_of(SHAPE, LoraSpec(r=2), n_tokens=5, zero=zero, n_workers=4)
    assert (memory.weights, memory.adapter, memory.gradients, memory.optimizer) == expected


def test_without_checkpointing_and_in_float32_activations_are_larger() -> None:
    lora = LoraSpec(r=2, precision="float32", gradient_checkpointing=False)
    memory = memory_of(SHAPE, lora, n_tokens=5, zero=None, n_workers=1)
    assert (memory.weights, memory.optimizer, memory.activations) == (4000, 960, 3 * 68 * 50)


def test_flops_are_those_of_a_case_done_by_hand() -> None:
    assert training_flops(1000, 100, LoraSpec(gradient_checkpointing=True)) == 6 * 1000 * 100 * 5
    assert training_flops(1000, 100, LoraSpec(gradient_checkpointing=False)) == 4 * 1000 * 100 * 5


def test_published_models_need_the_gpus_that_they_are_known_to_need() -> None:
    seven, thirteen, forty = PUBLISHED_SHAPES
    # Llama-2 7B at rank 64: 32 layers of 4 (4096 + 4096) and 3 (4096 + 11008), and the head (4096 + 32000).
    assert seven.n_trainable(64) == 64 * (32 * (4 * 8192 + 3 * 15104) + 36096) == 162_217_984
    lora = LoraSpec()
    assert [gpus_needed(shape, lora, 2048) for shape in (seven, thirteen, forty)] == [1, 1, 2]
    assert gpus_needed(forty, LoraSpec(precision="float32"), 2048) == 4


def tuning(lora: dict[str, object] | None = None, **training: object) -> InstructSpec:
    return InstructSpec.model_validate(
        {
            "kind": "instruct",
            "name": "x",
            "model": {"path": "m"},
            "data": {"path": "d"},
            "lora": lora,
            "training": {"learning_rate": 1e-5, **training},
        }
    )


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (None, (4000, 4000, 8000)),
        (0, (4000, 4000, 8000)),
        (1, (2000, 2000, 3000)),
        (2, (2000, 1000, 3000)),
        (3, (500, 1000, 3000)),
    ],
)
def test_all_parameters_need_float32_somewhere(zero: int | None, expected: tuple[int, ...]) -> None:
    memory = tuning_memory(SHAPE, tuning(), n_tokens=5, zero=zero, n_workers=4)
    assert (memory.weights, memory.gradients, memory.optimizer) == expected
    assert (memory.adapter, memory.activations) == (0, 3 * 50 * 2 + 34 * 50)
    assert memory.total == sum(expected) + memory.activations


def test_a_tuned_adapter_is_in_float32_on_a_model_that_is_not() -> None:
    memory = tuning_memory(SHAPE, tuning({"r": 2}), n_tokens=5, zero=None, n_workers=1)
    assert (memory.weights, memory.adapter, memory.gradients, memory.optimizer) == (2000, 480, 480, 960)
    shared = tuning_memory(SHAPE, tuning({"r": 2}), n_tokens=5, zero=2, n_workers=2)
    assert (shared.weights, shared.adapter, shared.gradients, shared.optimizer) == (2000, 480, 240, 720)


def test_what_is_offloaded_is_no_memory_of_the_device() -> None:
    whole = tuning_memory(SHAPE, tuning(), n_tokens=5, zero=3, n_workers=4)
    memory = tuning_memory(SHAPE, tuning(), n_tokens=5, zero=3, n_workers=4, offloaded=["optimizer"])
    assert (memory.optimizer, memory.offloaded, memory.weights) == (0, 3000, 500)
    assert memory.total == whole.total - 3000


def test_published_models_need_several_gpus_for_all_parameters() -> None:
    def needed(*offloaded: str) -> list[int]:
        def gpus(shape: ModelShape) -> int:
            return fewest_gpus(lambda zero, n: tuning_memory(shape, tuning(), 2048, zero, n, offloaded if zero else ()))

        return [gpus(shape) for shape in PUBLISHED_SHAPES]

    # 16 bytes a parameter: 100, 194 and 615 GiB, over GPUs of which 72 GiB are usable.
    assert needed() == [2, 4, 16]
    # 2 bytes a parameter where Adam and the gradients are in the machine's memory: 13, 24 and 77 GiB.
    assert needed("optimizer", "gradients") == [1, 1, 2]


def test_tuning_flops_are_those_of_a_case_done_by_hand() -> None:
    assert tuning_flops(1000, 100, tuning()) == 8 * 1000 * 100
    assert tuning_flops(1000, 100, tuning(gradient_checkpointing=False)) == 6 * 1000 * 100
    assert tuning_flops(1000, 100, tuning({"r": 2})) == 6 * 1000 * 100


def test_layers_of_a_real_model_are_counted_without_its_weights(tiny_llama: Path) -> None:
    model = bare_model(ModelSource(str(tiny_llama)))
    shapes = target_shapes(model, LoraSpec())
    assert len(shapes) == 2 * 7 + 1
    assert shapes[-1][0] == 32
    assert target_shapes(model, LoraSpec(targets=["q_proj"])) == [(32, 32)] * 2
    with pytest.raises(InputError, match=r"lora.targets: c_attn: no such linear layer in LlamaForCausalLM; it has"):
        target_shapes(model, LoraSpec(targets=["c_attn"]))


def write(folder: Path, content: object) -> str:
    path = folder / "ds.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_the_configuration_follows_the_spec(tmp_path: Path) -> None:
    added = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "train_batch_size": "auto"}
    lora = LoraSpec(workers=2, zero=3, deepspeed_config=write(tmp_path, {**added, "bf16": {"enabled": True}}))
    config = deepspeed_config(lora, n_trainable=10)
    assert config["train_batch_size"] == 8
    assert config["gradient_accumulation_steps"] == 4
    assert config["gradient_clipping"] == 0.3
    assert config["zero_optimization"]["stage"] == 3
    assert config["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert config["zero_optimization"]["reduce_bucket_size"] == 10
    assert "bf16" not in config


def test_contradictions_are_refused_all_at_once_naming_both(tmp_path: Path) -> None:
    content = {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 8,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": False},
        "fp16": {"enabled": True},
        "optimizer": {"type": "Adam"},
        "amp": {"enabled": True},
        "torch_autocast": {"enabled": True},
        "zero_optimisation": {"stage": 2},
        "frobnicate": 1,
    }
    with pytest.raises(InputError) as caught:
        deepspeed_config(LoraSpec(workers=2, zero=3, deepspeed_config=write(tmp_path, content)), n_trainable=1)
    message = str(caught.value)
    for part in (
        "train_batch_size 16 contradicts lora.batch_size 1 times lora.accumulation 8",
        "train_micro_batch_size_per_gpu 2 contradicts lora.batch_size 1",
        "gradient_accumulation_steps 8 contradicts lora.accumulation 8 over lora.workers 2, which makes 4",
        "gradient_clipping 1.0 contradicts lora.max_grad_norm 0.3",
        "zero_optimization.stage 2 contradicts lora.zero 3",
        "bf16.enabled False contradicts lora.precision bfloat16",
        "fp16.enabled contradicts lora.precision bfloat16",
        "optimizer contradicts the section lora",
        "amp contradicts lora.precision bfloat16",
        "torch_autocast contradicts lora.precision bfloat16",
        "zero_optimisation: DeepSpeed has no such key, and would pass over it; did you mean zero_optimization?",
        "frobnicate: DeepSpeed has no such key, and would pass over it; remove it",
    ):
        assert part in message


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        deepspeed_config(LoraSpec(zero=2, deepspeed_config=str(tmp_path / "ds.json")), n_trainable=1)
    with pytest.raises(InputError, match="is no JSON object"):
        deepspeed_config(LoraSpec(zero=2, deepspeed_config=write(tmp_path, [])), n_trainable=1)
