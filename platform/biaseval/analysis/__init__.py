"""Metrics: runs ``analytics/*.sql`` over run directories.

``causal_draws`` and ``qa_draws`` derive what SQL needs beside a run's outputs, ``marts`` has the marts computed, and
``queries`` opens finished runs. ``relations`` has the files and the views.
"""

from biaseval.analysis.marts import write_marts
from biaseval.analysis.queries import open_runs, query, row_list, run_names
from biaseval.analytics_files import ANALYTICS

__all__ = ["ANALYTICS", "open_runs", "query", "row_list", "run_names", "write_marts"]
