"""Metrics: runs ``analytics/*.sql`` over run directories.

``build`` computes the metrics of a run: ``causal_draws`` and ``qa_draws`` derive what SQL needs beside its outputs,
``marts`` has the marts computed. ``queries`` opens finished runs. ``relations`` has the files and the views.
"""

from biaseval.analysis.build import build_marts
from biaseval.analysis.causal_draws import derive_label_bias, derive_majority_bias
from biaseval.analysis.qa_draws import derive_qa_bias
from biaseval.analysis.queries import kind_of, open_runs, query, run_names
from biaseval.analysis.relations import ANALYTICS

__all__ = [
    "ANALYTICS",
    "build_marts",
    "derive_label_bias",
    "derive_majority_bias",
    "derive_qa_bias",
    "kind_of",
    "open_runs",
    "query",
    "run_names",
]
