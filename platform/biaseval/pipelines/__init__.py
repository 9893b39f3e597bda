"""What runs are: ``run`` is the main path, from spec to report; open it first.

``claim`` guards run directories; ``label_outputs`` plans and scores the runs of causal LMs, ``prompts_file`` scores a
file of prompts, ``training`` trains adapters, ``instruct`` tunes models on conversations; ``questions`` plans, answers
and measures the runs of QA models.
"""

from biaseval.pipelines.instruct import InstructPlan, InstructSummary
from biaseval.pipelines.label_outputs import PlanSummary
from biaseval.pipelines.prompts_file import score_prompts
from biaseval.pipelines.questions import QuestionsPlan
from biaseval.pipelines.run import (
    Status,
    run_spec,
    run_status,
    summarize_instruct,
    summarize_plan,
    summarize_questions,
    train_instruct,
    train_lora,
)
from biaseval.pipelines.training import AdaptersCost, TrainingSummary, refuse_stopped

__all__ = [
    "AdaptersCost",
    "InstructPlan",
    "InstructSummary",
    "PlanSummary",
    "QuestionsPlan",
    "Status",
    "TrainingSummary",
    "refuse_stopped",
    "run_spec",
    "run_status",
    "score_prompts",
    "summarize_instruct",
    "summarize_plan",
    "summarize_questions",
    "train_instruct",
    "train_lora",
]
