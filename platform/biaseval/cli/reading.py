"""Commands that read: how far a run is, what is stored, what it says, how runs differ, whether task files are good."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from biaseval.cli.arguments import JsonOption, RunArgument, RunsArgument
from biaseval.cli.printing import Format, print_comparison, print_json, print_result, print_status, print_tasks
from biaseval.errors import InputError, TransientError
from biaseval.progress import say


def status(
    run: RunArgument,
    watch: Annotated[
        float | None,
        typer.Option("--watch", metavar="[SECONDS]", min=0.1, help="Look again every 5 seconds, until it is complete."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how far a run is, how fast it goes, and whether a process works on it; from its directory, from any machine.

    Example: biaseval status runs/quickstart --watch 10
    """
    from biaseval.pipelines import run_status

    found = run_status(run)
    while True:
        if as_json:
            print_json(found)
        else:
            print_status(found, anew=watch is not None)
        if not found.is_complete and not found.is_live:
            say("run the same command again to go on")
        if watch is None or found.is_complete:
            return
        sys.stdout.flush()
        time.sleep(watch)
        with suppress(TransientError):  # what does not answer now may do so next time
            found = run_status(run)


def sql(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="RUN... QUERY", help="Run directories, local or s3://, then one statement that reads."),
    ],
    output: Annotated[Format, typer.Option("--format", help="json is one array of objects.")] = Format.table,
) -> None:
    """Ask DuckDB about one or many runs: every table and mart is a view; several runs get a column `run`.

    The query "show tables" lists the views, "describe NAME" the columns of one.

    Example: biaseval sql runs/quickstart "from label_bias_by_model order by n_demos, method" --format csv
    """
    from biaseval.analysis import query

    if len(arguments) < 2:
        raise InputError('sql: give a run directory and a query, for example biaseval sql runs/x "from tasks"')
    *runs, question = arguments
    print_result(query(runs, question), output)


def report(
    runs: RunsArgument,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="One .html page over several runs of one kind, instead."),
    ] = None,
) -> None:
    """Compute the metrics of finished runs anew and write their report.html; or, with --out, one page over all of them.

    Loads no model. Needed where a run was moved (results.duckdb holds paths), or a newer version has more metrics.

    Example: biaseval report runs/boolq-7b runs/boolq-13b runs/rte-7b runs/rte-13b --out majority.html
    """
    if out is not None:
        from biaseval.report import write_comparison

        typer.echo(f"report: {write_comparison(runs, out)}")
        return
    from biaseval.pipelines import report_run

    for directory in runs:
        typer.echo(f"report: {report_run(directory).uri}/report.html")


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Runs of one kind; the others are compared with the first."),
    ],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write an .html page too, with figures and rows.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether models differ: each run against the first, on exactly what both share, with a verdict per metric.

    Paired by task, by row or by article of questions, simultaneous over methods and metrics. Says what the runs do not
    share (data, seeds, demonstrations, scoring, versions), and refuses where nothing can be compared. Loads no model.

    Example: biaseval compare runs/mistral-7b runs/llama-8b --out compared.html
    """
    from biaseval.analysis.comparing import compare_runs
    from biaseval.report.compare_page import refuse_other_names, write_page

    if out is not None:
        refuse_other_names(out)
    compared = compare_runs(runs)
    if as_json:
        print_json(compared)
    else:
        print_comparison(compared)
    if out is not None:
        page = write_page(compared, runs, out)
        if as_json:
            say(f"page: {page}")
        else:
            typer.echo(f"page: {page}")


def tasks_check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder of task files, or one file.")],
    min_instances: Annotated[
        int | None,
        typer.Option("--min-instances", help="Instances that a task must have; 396, as in the paper, if not given."),
    ] = None,
) -> None:
    """Validate task files: say which are usable, which a run would leave out and why, and all that is wrong.

    Exit code 2 if a file is bad.

    Example: biaseval tasks check natural-instructions/tasks
    """
    from biaseval.label_bias.tasks import check_tasks
    from biaseval.spec import MIN_INSTANCES

    checked = check_tasks(path, min_instances=MIN_INSTANCES if min_instances is None else min_instances)
    print_tasks(checked)
    if checked.bad:
        raise typer.Exit(2)
