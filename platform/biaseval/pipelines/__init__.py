"""What runs are: ``run`` is the main path, from spec to report; open it first.

``claim`` guards run directories; ``label_outputs`` plans and scores the runs of causal LMs, ``prompts_file`` scores a
file of prompts.
"""

from biaseval.pipelines.label_outputs import PlanSummary
from biaseval.pipelines.prompts_file import score_prompts
from biaseval.pipelines.run import Status, run_spec, run_status, summarize_plan

__all__ = ["PlanSummary", "Status", "run_spec", "run_status", "score_prompts", "summarize_plan"]
