"""The work of commands on runs: ``commands`` has one function per command, ``kinds`` lists all kinds of runs.

``figure_files`` writes figures and tables, and ``exported_samples`` exports scores. ``status`` and ``measured_rate``
read a run directory. ``new_spec`` writes a first spec.

Names import their module at first use: ``status`` does not import the report.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "pipelines.directory": ("read_spec",),
    "pipelines.kind": ("Description", "Trained"),
    "runs.commands": (
        *("describe", "headline", "import_scores", "reanalyse_run", "report_run", "run_spec", "score_prompts"),
        *("train_instruct", "train_lora", "train_qa", "write_report"),
    ),
    "runs.exported_samples": ("export_samples",),
    "runs.figure_files": ("write_figures",),
    "runs.measured_rate": ("rate_so_far",),
    "runs.new_spec": ("first_spec", "init_name"),
    "runs.status": ("Status", "run_status"),
}
"""What this package gives, by the module that has it."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"biaseval.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
