"""How plans say what work costs."""

from __future__ import annotations

_FLOPS_AN_HOUR = 1e14 * 3600


def cost_lines(name: str, flops: int) -> list[tuple[str, str]]:
    """Return the lines of a plan for this many floating-point operations."""
    hours = flops / _FLOPS_AN_HOUR
    return [
        (name, f"{flops:.3g}"),
        ("GPU-hours at 100 TFLOP/s", f"{hours:.3g}" if hours >= 0.01 else "under 0.01"),
    ]
