"""How plans say what work costs."""

from biaseval.execute.budget import IDLE_BUDGET
from biaseval.spec import ExecutionSpec
from biaseval.spec.accelerators import EFFICIENCY, MEMORY_GIB, gpu_hours

_FLOPS_AN_HOUR = 1e14 * 3600


def cost_lines(name: str, flops: int, execution: ExecutionSpec | None = None) -> list[tuple[str, str]]:
    """Return the lines of a plan for this many floating-point operations; ``execution`` has prices and limits."""
    hours = reference_hours(flops)
    what = ", a rate to compare plans by" if execution is not None and execution.prices else ""
    value = f"{_amount(hours)}{what}{_beyond(hours, execution)}"
    lines = [(name, f"{flops:.3g}"), ("GPU-hours at 100 TFLOP/s", value)]
    if execution is None:
        return lines
    return [*lines, *price_lines(flops, execution)]


def reference_hours(flops: float) -> float:
    """Return the GPU-hours at 100 TFLOP/s, which is no GPU's rate: plans are compared by them."""
    return flops / _FLOPS_AN_HOUR


def idle_budget(execution: ExecutionSpec) -> list[str]:
    """Return the note of a plan on GPU-hours that cannot be used up, if it has one."""
    return [f"note: {IDLE_BUDGET}"] if execution.max_gpu_hours is not None and execution.gpus_per_actor == 0 else []


def price_lines(flops: float, execution: ExecutionSpec) -> list[tuple[str, str]]:
    """Return a line for each accelerator of ``execution.prices``: its hours and their cost."""
    lines, n_gpus = [], execution.n_gpus
    for accelerator, facts in costs(flops, execution).items():
        hours = f"{_amount(facts['gpu_hours'])} GPU-hours at {EFFICIENCY:.0%} of its peak"
        wall = "" if n_gpus is None else f", {_amount(facts['gpu_hours'] / n_gpus)} hours with {n_gpus} of them"
        price = f"{execution.prices[accelerator]:g} an hour"
        beyond = _beyond(facts["gpu_hours"], execution)
        cost = f"{_amount(facts['cost'])} at {price}, in the unit of execution.prices"
        memory = f"; each has {MEMORY_GIB[accelerator]} GiB"
        lines.append((f"on {accelerator}", f"{hours}{wall}: {cost}{memory}{beyond}"))
    return lines


def costs(flops: float, execution: ExecutionSpec) -> dict[str, dict[str, float]]:
    """Return by accelerator the hours of one GPU and their cost, in the unit of ``execution.prices``."""
    return {
        accelerator: {"gpu_hours": hours, "cost": hours * price}
        for accelerator, price in execution.prices.items()
        for hours in [gpu_hours(flops, accelerator)]
    }


def _beyond(hours: float, execution: ExecutionSpec | None) -> str:
    most = None if execution is None else execution.max_gpu_hours
    return "" if most is None or hours <= most else f"; execution.max_gpu_hours stops it at {most:g}"


def _amount(number: float) -> str:
    return f"{number:.3g}" if number >= 0.01 else "under 0.01"
