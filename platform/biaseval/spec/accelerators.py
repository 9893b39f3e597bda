"""GPUs by the names that clouds and Ray use, with the speed of each at matrix products."""

PEAK_TFLOPS = {
    "T4": 65.0, "A10G": 70.0, "L4": 121.0, "A100": 312.0, "L40S": 362.0, "H100": 989.0, "H200": 989.0,
    "B200": 2250.0,
}  # fmt: skip
"""Dense 16-bit throughput in 1e12 operations per second, from NVIDIA's data sheets (A10G: from AWS)."""

MEMORY_GIB = {"T4": 15, "A10G": 22, "L4": 22, "A100": 39, "L40S": 44, "H100": 79, "H200": 139, "B200": 178}
"""Memory that programs can use, rounded down; the smallest size where a GPU comes in several."""

EFFICIENCY = 0.4
"""The share of the peak throughput that scoring is assumed to reach.

This value is not measured. The roofline of a 7B model gives 0.45 to 0.55.
"""


def gpu_hours(flops: float, accelerator: str) -> float:
    """Return the hours that one GPU needs for this number of floating-point operations."""
    return flops / (PEAK_TFLOPS[accelerator] * 1e12 * EFFICIENCY * 3600)
