"""The work of commands on runs: ``commands`` has one function per command, ``kinds`` lists all kinds of runs.

``figure_files`` writes figures and tables, and ``exported_samples`` exports scores. ``train`` makes the stages of
commands that only train. ``status`` and ``measured_rate`` read a run directory. ``new_spec`` writes a first spec.

Names import their module at first use: ``status`` does not import the report.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biaseval.pipelines.directory import read_spec
    from biaseval.pipelines.kind import Description, Trained
    from biaseval.runs.commands import (
        describe,
        headline,
        import_scores,
        reanalyse_run,
        report_run,
        run_spec,
        score_prompts,
        write_report,
    )
    from biaseval.runs.exported_samples import export_samples
    from biaseval.runs.figure_files import write_figures
    from biaseval.runs.measured_rate import rate_so_far
    from biaseval.runs.new_spec import first_spec, init_name
    from biaseval.runs.status import Status, run_status
    from biaseval.runs.train import train_instruct, train_lora, train_qa
else:
    _MODULES = (
        *("pipelines.directory", "pipelines.kind", "runs.status", "runs.commands", "runs.train"),
        *("runs.measured_rate", "runs.new_spec", "runs.exported_samples", "runs.figure_files"),
    )

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for own in _MODULES:
                module = import_module(f"biaseval.{own}")
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Description",
    "Status",
    "Trained",
    "describe",
    "export_samples",
    "first_spec",
    "headline",
    "import_scores",
    "init_name",
    "rate_so_far",
    "read_spec",
    "reanalyse_run",
    "report_run",
    "run_spec",
    "run_status",
    "score_prompts",
    "train_instruct",
    "train_lora",
    "train_qa",
    "write_figures",
    "write_report",
]
