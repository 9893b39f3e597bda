"""How plans say what work costs."""

from __future__ import annotations

from biaseval.spec import ExecutionSpec
from biaseval.spec.accelerators import EFFICIENCY, gpu_hours

_FLOPS_AN_HOUR = 1e14 * 3600


def cost_lines(name: str, flops: int, execution: ExecutionSpec | None = None) -> list[tuple[str, str]]:
    """Return the lines of a plan for this many floating-point operations.

    Args:
        name: of the operations.
        flops: their number.
        execution: has the prices of GPUs, how many of them there are, and the hours that they may take; None: nothing
            of it is said.
    """
    hours = flops / _FLOPS_AN_HOUR
    lines = [(name, f"{flops:.3g}"), ("GPU-hours at 100 TFLOP/s", f"{_amount(hours)}{_beyond(hours, execution)}")]
    if execution is None:
        return lines
    return [*lines, *price_lines(flops, execution)]


def price_lines(flops: float, execution: ExecutionSpec) -> list[tuple[str, str]]:
    """Return a line for each accelerator that ``execution.prices`` names: its hours, and what they cost."""
    lines, n_gpus = [], execution.n_gpus
    for accelerator, facts in costs(flops, execution).items():
        hours = f"{_amount(facts['gpu_hours'])} GPU-hours at {EFFICIENCY:.0%} of its peak"
        wall = "" if n_gpus is None else f", {_amount(facts['gpu_hours'] / n_gpus)} hours with {n_gpus} of them"
        price = f"{execution.prices[accelerator]:g} an hour"
        beyond = _beyond(facts["gpu_hours"], execution)
        lines.append((f"on {accelerator}", f"{hours}{wall}: {_amount(facts['cost'])} at {price}{beyond}"))
    return lines


def costs(flops: float, execution: ExecutionSpec) -> dict[str, dict[str, float]]:
    """Return by accelerator the hours of one GPU and what they cost, in the currency of ``execution.prices``."""
    return {
        accelerator: {"gpu_hours": hours, "cost": hours * price}
        for accelerator, price in execution.prices.items()
        for hours in [gpu_hours(flops, accelerator)]
    }


def _beyond(hours: float, execution: ExecutionSpec | None) -> str:
    """Return what is said of more GPU-hours than a run may take."""
    most = None if execution is None else execution.max_gpu_hours
    return "" if most is None or hours <= most else f"; execution.max_gpu_hours stops it at {most:g}"


def _amount(number: float) -> str:
    return f"{number:.3g}" if number >= 0.01 else "under 0.01"
