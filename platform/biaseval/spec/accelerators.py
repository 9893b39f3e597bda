"""GPUs by the names that clouds and Ray use, and how fast each multiplies matrices."""

from __future__ import annotations

PEAK_TFLOPS = {
    "T4": 65.0,
    "A10G": 70.0,
    "L4": 121.0,
    "A100": 312.0,
    "L40S": 362.0,
    "H100": 989.0,
    "H200": 989.0,
    "B200": 2250.0,
}
"""Dense products of 16-bit numbers, 1e12 operations a second, of NVIDIA's data sheets (A10G: of AWS's)."""

MEMORY_GIB = {"T4": 15, "A10G": 22, "L4": 22, "A100": 39, "L40S": 44, "H100": 79, "H200": 139, "B200": 178}
"""What one has for programs, rounded down; of several sizes the smallest."""

EFFICIENCY = 0.4
"""The part of it that scoring is taken to reach. Not measured: the roofline of a 7B model says 0.45 to 0.55."""


def gpu_hours(flops: float, accelerator: str) -> float:
    """Return how long one GPU takes for this many floating-point operations, hours."""
    return flops / (PEAK_TFLOPS[accelerator] * 1e12 * EFFICIENCY * 3600)
