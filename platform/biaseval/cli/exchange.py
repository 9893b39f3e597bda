"""Commands that import scores, and export them for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from biaseval.cli.arguments import JsonOption, RunArgument
from biaseval.cli.printing import say_files, show_finished

if TYPE_CHECKING:
    from biaseval.spec import OnBadRow, Source

DirOption = Annotated[
    str, typer.Option("--run-dir", metavar="DIR", help="The directory of the run that is made, local or s3://.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="MODEL", help="What to call the model; if left out, as the files do.")
]


def import_lm_eval(
    samples: Annotated[
        list[Path],
        typer.Argument(
            metavar="SAMPLES...",
            help="samples_TASK_DATE.jsonl of `lm_eval --log_samples`, each beside its results_DATE.json.",
        ),
    ],
    run_dir: DirOption,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure label bias in logs of lm-evaluation-harness; no model, no scoring.

    Takes multiple-choice tasks whose documents share their labels. If options differ by document, labels are the
    positions A, B, C … Several tasks make a suite; several numbers or seeds of few-shot examples make settings. The
    result is a run of label_bias, which report, sql, compare and status take.

    Example: biaseval import lm-eval out/samples_mmlu_*.jsonl --run-dir runs/pythia-mmlu --name pythia
    """
    _import("lm-eval", samples, run_dir, name, as_json=as_json)


def import_table(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="CSV, JSONL or Parquet with a row per prompt and label.")
    ],
    run_dir: DirOption,
    name: NameOption = None,
    on_bad_row: Annotated[
        Literal["error", "drop"],
        typer.Option("--on-bad-row", help="Prompts without their right label: refuse the table, or leave them out."),
    ] = "error",
    as_json: JsonOption = False,
) -> None:
    """Measure label bias in a table of label scores, whoever wrote it; no model, no scoring.

    Columns: task, label, logprob (of the label's tokens together, nats) and gold; prompt_id, or the prompt's input or
    text, which tell prompts apart; n_demos and demo_set (0); purpose (main; bias_score for held-out rows; cc, dc, looc
    for inputs of calibration).

    Example: biaseval import table scores.csv --run-dir runs/theirs --name theirs
    """
    _import("table", files, run_dir, name, on_bad_row, as_json=as_json)


def export_lm_eval(
    run: RunArgument,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="An empty or new folder, local or s3://.")],
    as_json: JsonOption = False,
) -> None:
    """Write the test rows of a label-bias run as lm-evaluation-harness logs samples, for tools that read those.

    Each number and set of demonstrations gets a folder with samples_TASK_DATE.jsonl and results_DATE.json. The
    log-likelihoods are those before calibration. `biaseval import lm-eval` reads them back, without BiasScore and
    calibration, because the harness has no rows for these.

    Example: biaseval export lm-eval runs/quickstart --out samples
    """
    from biaseval.runs.exported_samples import export_samples

    say_files(export_samples(run, out), as_json=as_json)


def _import(
    source: Source,
    files: Sequence[Path],
    run_dir: str,
    name: str | None,
    on_bad_row: OnBadRow = "error",
    *,
    as_json: bool,
) -> None:
    from biaseval.pipelines.directory import read_spec
    from biaseval.runs.commands import import_scores

    run = import_scores(source, files, run_dir, name, on_bad_row)
    show_finished(run, read_spec(run), as_json=as_json)
