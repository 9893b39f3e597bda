"""Compute metrics with ``analytics/*.sql`` over run directories.

``causal_draws`` and ``qa_draws`` derive the further inputs of the SQL, ``marts`` computes the marts, and ``queries``
opens finished runs. ``sql_files`` has the files and the views.
"""

from biaseval.analysis.marts import write_marts
from biaseval.analysis.queries import answers, open_runs, query, run_names
from biaseval.analytics_files import ANALYTICS

__all__ = ["ANALYTICS", "answers", "open_runs", "query", "run_names", "write_marts"]
