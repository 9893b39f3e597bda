"""What runs are: ``run`` is the main path, from spec to report; open it first.

``kind`` is what it knows of a kind of run, ``kinds`` lists them, and each has a file. ``directory`` guards run
directories. ``causal`` is what the kinds that score labels share, with the stages ``label_scores`` and ``adapters``;
``questions`` has the stages of QA models. ``imported`` makes a run of scores that are there, ``exported`` gives scores
away, ``publication`` figures and tables. ``train`` makes the stages that train alone, ``status`` and ``measured`` look
at a directory, ``init`` writes a first spec.

What is imported from here brings only what it needs: ``status``, which is asked beside a run that works, needs no
report.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biaseval.pipelines.directory import read_spec
    from biaseval.pipelines.exported import export_samples
    from biaseval.pipelines.init import first_spec, init_name
    from biaseval.pipelines.kind import Description, Trained
    from biaseval.pipelines.measured import rate_so_far
    from biaseval.pipelines.publication import write_figures
    from biaseval.pipelines.run import (
        analyse_run,
        describe,
        headline,
        import_scores,
        reanalyse_run,
        report_run,
        run_spec,
        score_prompts,
        write_report,
    )
    from biaseval.pipelines.status import Status, run_status
    from biaseval.pipelines.train import train_instruct, train_lora, train_qa
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for own in ("directory", "kind", "status", "run", "train", "measured", "init", "exported", "publication"):
                module = import_module(f"{__name__}.{own}")
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Description",
    "Status",
    "Trained",
    "analyse_run",
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
