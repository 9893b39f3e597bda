"""The command that finds problems of this machine or cluster."""

from pathlib import Path
from typing import Annotated

import typer

from biaseval.cli.arguments import JsonOption
from biaseval.cli.printing import print_finding, print_json


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
            print_finding(finding)
    has_problem = any(finding.state == "problem" for finding in findings)
    if as_json:
        print_json({"has_problem": has_problem, "checks": findings})
    if has_problem:
        raise typer.Exit(1)
