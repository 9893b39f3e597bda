"""Commands that read: progress, tables, reports, comparisons, figures of runs; checks of files, data and machines."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from biaseval.cli import printing
from biaseval.cli.arguments import JsonOption, RunArgument, RunsArgument, SetOption, SpecArgument, each_run
from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.progress import say

_GO_ON = "run the same command again to go on"


def status(
    run: RunArgument,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="[SECONDS]",
            min=0.1,
            help="Look again every 5 seconds, until it is complete or nobody works on it.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress and throughput of a run, and whether a process works on it; from any machine.

    With --watch the command ends with exit code 1 if the run is incomplete and no process works on it.

    Example: biaseval status runs/quickstart --watch 10
    """
    from biaseval.runs.status import run_status

    if (runs := each_run([run])) != [run]:
        for own in runs:
            say(own)
            status(own, watch, as_json)
        return
    was_left = False
    while True:
        try:
            found = run_status(run)
        except TransientError as error:  # a temporary failure may end before the next look
            if watch is None:
                raise
            say(str(error))
            time.sleep(watch)
            continue
        printing.show(found, partial(printing.print_status, anew=watch is not None), as_json=as_json)
        sys.stdout.flush()
        if watch is None or found.is_complete:
            if not found.is_complete and not found.is_live:
                say(_GO_ON)
            return
        # A driver may end normally between the two looks at its files: only two such results in a row are certain.
        if was_left and not found.is_live:
            raise BiasevalError(f"{run}: no process works on it, and it is not complete; {_GO_ON}")
        was_left = not found.is_live
        time.sleep(watch)


def sql(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="RUN... QUERY", help="Run directories, local or s3://, then one statement that reads."),
    ],
    output: Annotated[printing.Format, typer.Option("--format", help="json is one array of objects.")] = "table",
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Instead of a QUERY: list the columns of all tables, or of the one named after RUN."
        ),
    ] = False,
    files: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="FILE", help="A local file or folder that the query may also read; repeatable."),
    ] = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Let the query read any file.")] = False,
) -> None:
    """Ask DuckDB about one or many runs: every table and mart is a view; several runs get a column `run`.

    A query reads the runs and the files of --with, and writes nothing. The query "show tables" lists the views;
    --schema explains them and their columns, with units and values.

    Example: biaseval sql runs/quickstart "from label_bias_by_model order by n_demos, method" --format csv
    """
    from biaseval.analysis import query
    from biaseval.analysis.query_help import describe_tables, is_vain, vain_literals
    from biaseval.store import Run

    if schema:
        is_run = Run.open(arguments[-1]).has("spec.yaml") or each_run(arguments[-1:]) != arguments[-1:]
        has_name = len(arguments) > 1 and not is_run
        runs, name = (arguments[:-1], arguments[-1]) if has_name else (arguments, None)
        printing.print_result(describe_tables(each_run(runs), name), output)
        return
    if len(arguments) < 2:
        raise InputError('sql: give a run directory and a query, for example biaseval sql runs/x "from tasks"')
    *named, question = arguments
    runs = each_run(named)
    found = query(runs, question, files or (), unsafe=unsafe)
    printing.print_result(found, output)
    if is_vain(found):
        for sentence in vain_literals(runs, question):
            say(f"note: {sentence}")


def report(
    runs: RunsArgument,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="One .html page over several runs of one kind, instead.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the metrics of finished runs again and write report.html; with --out, write one page over all runs.

    Loads no model. Use it after you moved a run (results.duckdb holds paths), or for metrics of a newer version.

    Example: biaseval report runs/boolq-7b runs/boolq-13b runs/rte-7b runs/rte-13b --out majority.html
    """
    if out is not None:
        from biaseval.report import write_comparison

        printing.say_made({"report": write_comparison(runs, out)}, as_json=as_json)
        return
    from biaseval.runs.commands import report_run

    made = []
    for directory in runs:
        made.append({"report": f"{report_run(directory).uri}/report.html"})
        if not as_json:
            printing.say_made(made[-1], as_json=False)
    if as_json:
        printing.print_json({"reports": [own["report"] for own in made]})


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Runs of one kind, the others against the first.", callback=each_run),
    ],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write an .html page too, with figures and rows.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Test whether models differ: each run against the first, on shared rows, with a verdict per metric.

    Tests pair tasks, rows or articles, and correct over methods and metrics. The output lists differences of data,
    seeds, demonstrations, scoring and versions. Runs that share nothing are refused. Loads no model.

    Example: biaseval compare runs/mistral-7b runs/llama-8b --out compared.html
    """
    from biaseval.analysis.comparing import comparing
    from biaseval.report.compare import RELATIONS, refuse_other_names, write_page

    if out is not None:
        refuse_other_names(out)
    with comparing(runs, "" if out is None else RELATIONS) as (compared, ask):
        printing.show(compared, printing.print_comparison, as_json=as_json)
        if out is not None:
            page = write_page(compared, ask, out)
            (say if as_json else typer.echo)(f"page: {page}")


def figures(
    runs: RunsArgument,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="The folder to write into, local or s3://.")],
    output: Annotated[
        Literal["svg", "png", "pdf"], typer.Option("--format", help="The file format of figures.")
    ] = "svg",
    tables: Annotated[
        str, typer.Option("--tables", metavar="LIST", help="The file formats of tables: csv, md, tex.")
    ] = "csv,md",
    as_json: JsonOption = False,
) -> None:
    """Write the figures and tables of finished runs as files for a paper; the same run gives the same bytes.

    Several runs of one kind get a folder each, and the figures and tables of the kind's paper over several models.
    Colours follow model.family, and dashes model.tuned_from. CSV has all digits, Markdown and LaTeX have four places.
    Loads no model.

    Example: biaseval figures runs/boolq-7b runs/boolq-13b --out figures --format pdf
    """
    from biaseval.analysis.table_files import TABLE_FILES
    from biaseval.runs.figure_files import write_figures

    endings = tables.split(",")
    if unknown := [ending for ending in endings if ending not in TABLE_FILES]:
        raise InputError(f"--tables {tables}: {', '.join(unknown)} is not one of {', '.join(TABLE_FILES)}")
    printing.say_files(write_figures(runs, out, output, endings), as_json=as_json)


def check(
    run: RunArgument,
    expressions: Annotated[
        list[str] | None,
        typer.Argument(metavar="GATE...", help="CONDITION [where SELECTION], in SQL over columns of the metrics."),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="A ready-made gate, unbiased or better-than-constant; write NAME where SELECTION to check rows other "
            "than those without mitigation.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RUN", help="Gates are about the differences: RUN minus this one."),
    ] = None,
    as_json: JsonOption = False,
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE", help="Write a test suite with a test for each gate, too.")
    ] = None,
) -> None:
    """Check gates, for continuous integration: conditions that every row of the metrics must meet. Loads no model.

    A column belongs to label_bias_by_model, majority_by_model, qa_by_model or search_best, by the kind of the run;
    write MART.COLUMN for another mart. Ends of intervals are columns, too (rsd_high). The first word "where" begins the
    selection of rows. A null condition fails; a selection without a row is bad input. With --against, accuracy is the
    difference on shared rows, and accuracy_low and accuracy_high are its interval.

    The preset unbiased fails if a bias is shown, or if neither accuracy nor F1 exceeds the best constant answer;
    better-than-constant fails only for the second reason. With too few rows both pass and say so.

    Exit code 3 if a gate failed.

    Example: biaseval check runs/quickstart --preset unbiased "rsd_high < 0.5 where method = 'looc'"
    """
    from biaseval.analysis.gates import check_run
    from biaseval.cli.gates import gates_junit, print_gates
    from biaseval.store import write_file

    checked = check_run(run, expressions or [], against, preset or [])
    printing.show(checked, print_gates, as_json=as_json)
    if junit is not None:
        write_file(junit, gates_junit(checked))
    if not checked.holds:
        raise typer.Exit(3)


def tasks_check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder of task files, or one file.")],
    min_instances: Annotated[
        int | None,
        typer.Option("--min-instances", help="Instances that a task must have; 396, as in the paper, if not given."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Validate task files: say which are usable, which a run would leave out and why, and all that is wrong.

    Exit code 2 if a file is bad.

    Example: biaseval tasks check natural-instructions/tasks
    """
    from biaseval.label_bias.tasks import check_tasks
    from biaseval.spec import MIN_INSTANCES

    checked = check_tasks(path, min_instances=MIN_INSTANCES if min_instances is None else min_instances)
    printing.show(checked, printing.print_tasks, as_json=as_json)
    if checked.bad:
        raise typer.Exit(2)


def data_check(spec: SpecArgument, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Compare the data that a spec names with the published counts of the three papers; loads no model.

    Exit code 1 if counts differ. Exit code 2 if data are missing or damaged; the output says where they come from.

    Example: biaseval data check jobs/specs/papers/p3-measuring.yaml
    """
    from biaseval.runs.published_data import check_data
    from biaseval.spec import load_specs

    specs = load_specs(spec, overrides or ()).values()
    checked = list(dict.fromkeys(one for own in specs for one in check_data(own)))
    lines = [(own.state, f"{own.key}: {own.text}") for own in checked]
    printing.show(checked, lambda _: printing.print_lines(lines), as_json=as_json)
    raise typer.Exit(max(({"missing": 2, "differs": 1}.get(own.state, 0) for own in checked), default=0))


def doctor(
    run_dir: Annotated[
        str | None,
        typer.Option("--run-dir", metavar="DIR", help="A run directory to try, local or s3://; need not exist."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="FILE", help="A file of Ray's cluster launcher to look at.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check Ray, a run directory and a cluster file: one line per check, with the fix for each problem.

    A line says ok, warning or problem. Doctor starts nothing and leaves no file. Exit code 1 if there is a problem.

    Example: biaseval doctor --run-dir s3://bucket/runs/m7 --cluster cluster.yaml
    """
    from biaseval.doctor import examine

    findings = []
    for finding in examine(run_dir, cluster):
        findings.append(finding)
        if not as_json:
            printing.print_finding(finding)
    has_problem = any(finding.state == "problem" for finding in findings)
    if as_json:
        printing.print_json({"has_problem": has_problem, "checks": findings})
    if has_problem:
        raise typer.Exit(1)
