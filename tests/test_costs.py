"""What plans say of GPU-hours and costs, by hand."""

import pytest
import yaml
from pydantic import ValidationError

from biaseval.pipelines.cost_lines import cost_lines, costs, idle_budget, reference_hours
from biaseval.pipelines.qa.plan import ModelPlan, QuestionsPlan, describe_questions
from biaseval.spec import ExecutionSpec, QaBiasSpec

FLOPS = 10 * 0.4 * 989e12 * 3600
"""Ten hours of an H200 at 40 % of its peak."""


def test_hours_and_costs_follow_from_peak_rates_and_prices() -> None:
    found = costs(FLOPS, ExecutionSpec(prices={"H200": 4.5, "L4": 0.8}))
    assert found["H200"] == pytest.approx({"gpu_hours": 10, "cost": 45})
    assert found["L4"] == pytest.approx({"gpu_hours": 10 * 989 / 121, "cost": 8 * 989 / 121})
    assert costs(FLOPS, ExecutionSpec()) == {}


def test_a_plan_says_them_a_line_an_accelerator() -> None:
    lines = dict(cost_lines("FLOPs", int(FLOPS), ExecutionSpec(prices={"H200": 4.5}, actors=4, gpus_per_actor=2)))
    assert lines["on H200"] == (
        "10 GPU-hours at 40% of its peak, 1.25 hours with 8 of them: 45 at 4.5 an hour, in the unit of "
        "execution.prices; each has 139 GiB"
    )
    assert lines["GPU-hours at 100 TFLOP/s"] == f"{reference_hours(FLOPS):.3g}, a rate to compare plans by"
    assert reference_hours(3.6e17) == 1
    assert list(cost_lines("FLOPs", 1)) == [("FLOPs", "1"), ("GPU-hours at 100 TFLOP/s", "under 0.01")]


def test_a_plan_says_which_hours_are_more_than_a_run_may_take() -> None:
    hours = FLOPS / (1e14 * 3600)
    for most, expected in ((9.5, ["stops", "stops"]), (hours - 1, ["stops", ""]), (hours + 1, ["", ""])):
        execution = ExecutionSpec(prices={"H200": 4.5}, max_gpu_hours=most)
        [_, at_a_rate, on_h200] = [value for _, value in cost_lines("FLOPs", int(FLOPS), execution)]
        for value, word in zip((at_a_rate, on_h200), expected, strict=True):
            assert value.endswith(f"; execution.max_gpu_hours stops it at {most:g}") == bool(word)


def test_accelerators_are_known_by_name() -> None:
    with pytest.raises(ValidationError, match="prices: V9000 is no known accelerator; name T4, A10G, L4, A100"):
        ExecutionSpec(prices={"V9000": 1})
    with pytest.raises(ValidationError, match="greater than 0"):
        ExecutionSpec(max_gpu_hours=0)


def test_what_readers_cost_is_said_too() -> None:
    models = [ModelPlan("reader", 900, 10**9, 1000, 5 * 10**6), ModelPlan("file", 900, None, None, None)]
    plan = QuestionsPlan({"dev": 900}, models, [])
    content = """
        {kind: qa_bias, name: x, datasets: {in_distribution: {dev: dev.json}}, execution: {prices: {H100: 2}},
         models: [{name: reader, path: reader}, {name: file, predictions: {dev: file.json}}]}
    """
    hours = 1e16 / (0.4 * 989e12 * 3600)  # two operations a parameter and token
    found = describe_questions(QaBiasSpec.model_validate(yaml.safe_load(content)), plan, None)
    assert found.facts["costs"]["H100"] == pytest.approx({"gpu_hours": hours, "cost": 2 * hours})
    assert dict(found.lines)["on H100"].endswith("at 2 an hour, in the unit of execution.prices; each has 79 GiB")
    assert found.facts["gpu_hours_at_100_tflops"] == pytest.approx(1e16 / 3.6e17)
    idle = idle_budget(ExecutionSpec(max_gpu_hours=2, gpus_per_actor=0))
    assert idle == ["note: no GPU is used: execution.max_gpu_hours counts nothing"]
    assert idle_budget(ExecutionSpec(max_gpu_hours=2)) == idle_budget(ExecutionSpec(gpus_per_actor=0)) == []
