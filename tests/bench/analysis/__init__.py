"""Measures how long the analysis of a run of the published suite takes, on scores that are drawn."""

from tests.bench.analysis.measure import benchmark, markdown
from tests.bench.analysis.suite import Suite, write_suite

__all__ = ["Suite", "benchmark", "markdown", "write_suite"]
