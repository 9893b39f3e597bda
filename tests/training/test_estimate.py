"""What training costs, against numbers computed by hand; and DeepSpeed's configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.spec import InstructSpec, LoraSpec, ModelSpec
from biaseval.training.deepspeed_config import check_deepspeed, deepspeed_config
from biaseval.training.estimate import (
    PUBLISHED_SHAPES,
    Memory,
    ModelShape,
    cost_of,
    fewest_gpus,
    memory_of,
    training_flops,
)  # fmt: skip
from biaseval.training.recipe import Recipe, adapters_recipe, tuning_recipe

SHAPE = ModelShape("hand", n_parameters=1000, hidden_size=10, n_layers=3, targets=[(10, 20), (20, 10)])


def few_shot(**lora: Any) -> Recipe:
    return adapters_recipe(ModelSpec(path="m"), LoraSpec(**lora))


def tuning(lora: dict[str, object] | None = None, **training: object) -> Recipe:
    content = {
        "kind": "instruct", "name": "x", "model": {"path": "m"}, "data": {"path": "d"}, "lora": lora,
        "training": {"learning_rate": 1e-5, **training},
    }  # fmt: skip
    return tuning_recipe(InstructSpec.model_validate(content))


def test_what_an_adapter_trains_is_counted_by_hand() -> None:
    recipe = few_shot(r=2, precision="bfloat16", gradient_checkpointing=True)
    assert SHAPE.n_trained(recipe) == 2 * (30 + 30)
    memory = memory_of(SHAPE, recipe, n_tokens=5, zero=None, n_workers=4)
    assert (memory.activations, memory.total) == (3 * 50 * 2 + 34 * 50, 2000 + 240 + 240 + 480 + 2000)


def parts(memory: Memory) -> tuple[int, ...]:
    return memory.weights, memory.adapter, memory.gradients, memory.optimizer


def test_each_stage_shares_one_thing_more() -> None:
    adapter = [(2000, 240, 240, 480), (2000, 240, 240, 480), (2000, 240, 240, 360), (2000, 240, 60, 360)]
    for zero, expected in zip((None, 0, 1, 2, 3), [*adapter, (500, 60, 60, 360)], strict=True):
        assert parts(memory_of(SHAPE, few_shot(r=2), n_tokens=5, zero=zero, n_workers=4)) == expected
    # All parameters need float32 somewhere.
    whole = [(4000, 4000, 8000), (4000, 4000, 8000), (2000, 2000, 3000), (2000, 1000, 3000), (500, 1000, 3000)]
    for zero, (weights, gradients, optimizer) in zip((None, 0, 1, 2, 3), whole, strict=True):
        memory = memory_of(SHAPE, tuning(), n_tokens=5, zero=zero, n_workers=4)
        assert parts(memory) == (weights, 0, gradients, optimizer)
        assert memory.activations == 3 * 50 * 2 + 34 * 50
        assert memory.total == sum(parts(memory)) + memory.activations


@pytest.mark.parametrize("n_needed", [1, 2, 4, 8, 16, 32, 64, 128])
def test_the_fewest_gpus_are_a_power_of_two_that_holds_the_shares(n_needed: int) -> None:
    whole = int(0.9 * 80 * 2**30) * n_needed
    found = fewest_gpus(lambda _, n_gpus: Memory(whole // n_gpus, adapter=0, gradients=0, optimizer=0, activations=0))
    assert found == (n_needed if n_needed <= 64 else 0)


def test_flops_are_those_of_a_case_done_by_hand() -> None:
    for recipe, expected in (
        (few_shot(gradient_checkpointing=True), 6),
        (few_shot(gradient_checkpointing=False), 4),
        (tuning(), 8),
        (tuning(gradient_checkpointing=False), 6),
        (tuning({"r": 2}), 6),
    ):
        assert training_flops(1000, 100, recipe) == expected * 1000 * 100  # fmt: skip


def gpus(recipe: Recipe, row_tokens: int = 2048) -> list[int]:
    """Return the GPUs that the published shapes need."""
    return cost_of(list(PUBLISHED_SHAPES), recipe, row_tokens=row_tokens, flops=1).gpus


def test_published_models_need_the_gpus_that_they_are_known_to_need() -> None:
    # Llama-2 7B at rank 64: 32 layers of 4 (4096 + 4096) and 3 (4096 + 11008), and the head (4096 + 32000).
    assert PUBLISHED_SHAPES[0].n_trained(few_shot()) == 64 * (32 * (4 * 8192 + 3 * 15104) + 36096) == 162_217_984
    assert gpus(few_shot()) == [1, 1, 2]
    assert gpus(few_shot(precision="float32"))[2] == 4
    # The activations of a single row are too much for any number of GPUs.
    assert gpus(few_shot(), 10_000_000) == [0, 0, 0]


def test_costs_are_those_of_each_shape_and_stage(tmp_path: Path) -> None:
    both = {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    file = write(tmp_path, {"zero_optimization": both})
    recipe = tuning(zero=2, workers=2, deepspeed_config=file)
    cost = cost_of([SHAPE, *PUBLISHED_SHAPES], recipe, row_tokens=5, flops=training_flops(1000, 100, recipe))
    assert (cost.row_tokens, cost.flops) == (5, 8 * 1000 * 100)
    assert cost.shapes == [SHAPE, *PUBLISHED_SHAPES]
    assert cost.n_trainable == [shape.n_parameters for shape in cost.shapes]
    own = cost.memory[0]
    assert own["none"] == memory_of(SHAPE, recipe, 5, None, 2)
    assert own["2"] == memory_of(SHAPE, recipe, 5, 2, 2, ["optimizer"])
    assert own["3"] == memory_of(SHAPE, recipe, 5, 3, 2, ["optimizer", "weights", "gradients"])


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
        "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
        "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}, "bf16": {"enabled": False},
        "fp16": {"enabled": True}, "optimizer": {"type": "Adam"}, "amp": {"enabled": True},
        "torch_autocast": {"enabled": True}, "zero_optimisation": {"stage": 2}, "frobnicate": 1,
    }  # fmt: skip
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
        assert part in message  # fmt: skip


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        deepspeed_config(LoraSpec(zero=2, deepspeed_config=str(tmp_path / "ds.json")), n_trainable=1)
    with pytest.raises(InputError, match="is no JSON object"):
        deepspeed_config(LoraSpec(zero=2, deepspeed_config=write(tmp_path, [])), n_trainable=1)


def test_checkpoints_cannot_hold_what_is_not_in_memory(tmp_path: Path) -> None:
    file = write(tmp_path, {"zero_optimization": {"offload_optimizer": {"device": "nvme"}, "offload_param": "cpu"}})
    with pytest.raises(InputError, match=r"(?s)offload_optimizer .*use the device cpu.*offload_param 'cpu': write an"):
        check_deepspeed(tuning(zero=3, deepspeed_config=file))
    # Where none are kept it may be anywhere.
    check_deepspeed(few_shot(zero=3, deepspeed_config=file))
