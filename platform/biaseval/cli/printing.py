"""Print on standard output: results in four formats, plans, and the outcome of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from biaseval.json_values import as_text, plain
from biaseval.progress import duration, say

if TYPE_CHECKING:
    from biaseval.analysis.comparing import Compared
    from biaseval.doctor import Finding
    from biaseval.lease import Sight
    from biaseval.pipelines.kind import Description
    from biaseval.runs.measured_rate import Measured, Pace
    from biaseval.runs.status import Status
    from biaseval.spec import AnySpec
    from biaseval.store import Run
    from biaseval.training.estimate import TrainingCost


_MOST_TESTS = 24
"""The most differences that are all printed; of more, only those in the settings to deploy."""

_MOST_GIVEN_UP = 5

_N_CONCLUSIONS = 3
"""The number of conclusions that a terminal shows above the numbers. It shows "Not known:", too."""

_LITTLE_GIB = 1
"""Memory of one worker without ZeRO below which the table over ZeRO stages is omitted."""

_WIDEST = 100
"""The largest width of a line in a cell; longer text continues on the next line."""


T = TypeVar("T")

Format = Literal["table", "csv", "json", "parquet"]
"""The formats of `sql`."""


def print_json(value: Any) -> None:
    """Print a value as one JSON document: data classes as objects, non-finite numbers as null, dates as text."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")


def show(value: T, write: Callable[[T], object], *, as_json: bool) -> None:
    """Print a value as one JSON document, or as a function writes it for people."""
    if as_json:
        print_json(value)
    else:
        write(value)


def say_files(files: Sequence[str], *, as_json: bool) -> None:
    """Print the URIs of files that the command wrote."""
    show({"files": files}, lambda own: typer.echo("\n".join(own["files"])), as_json=as_json)


def say_made(files: Mapping[str, str], *, as_json: bool) -> None:
    """Print the files that the command wrote, each with its kind."""
    if as_json:
        print_json(files)
    else:
        for what, uri in files.items():
            typer.echo(f"{what}: {uri}")


def show_finished(run: Run, spec: AnySpec, *, as_json: bool) -> None:
    """Print a finished run's conclusions, metrics, cautions and report path, or all of it as JSON."""
    from biaseval.analysis.summary_marts import SUMMARY
    from biaseval.runs.commands import headline

    made, summary = {"report": f"{run.uri}/report.html"}, run.read_json(SUMMARY)
    if as_json:
        print_json({"run": run.uri, **made, "summary": summary})
        return
    conclusions = summary.get("conclusions", ())
    for number, conclusion in enumerate(conclusions):
        if number < _N_CONCLUSIONS or conclusion.startswith("Not known:"):
            typer.echo(conclusion)
    print_metrics(run.uri, headline(spec))
    for caution in summary["cautions"]:
        say(f"caution: {caution}")
    say_made(made, as_json=False)


def print_result(result: Any, output: Format) -> None:
    """Print the rows of an Arrow table."""
    if output == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(result, sys.stdout.buffer)
    elif output == "csv":
        from biaseval.analysis.table_files import csv_file

        sys.stdout.buffer.write(csv_file(result))
    elif output == "json":
        print_json(result.to_pylist())
    else:
        from biaseval.analysis.table_files import columns_of

        print_table(columns_of(result), ([as_text(value) for value in row.values()] for row in result.to_pylist()))


def print_metrics(run_uri: str, headline: str) -> None:
    """Print the metrics of a whole run as a table, methods in the order of reports."""
    from biaseval.analysis import query
    from biaseval.report.names import METHODS

    print_result(query([run_uri], headline.format(methods=list(METHODS))), "table")


def print_comparison(compared: Compared) -> None:
    """Print how runs differ: sentences, cautions and a table; a long table shows only the settings to deploy."""
    from biaseval.report.numbers import written

    for sentence in compared.conclusions:
        typer.echo(f"{sentence['lead']} {sentence['text']}")
    for caution in compared.cautions:
        typer.echo(f"note: {caution['text']}")
    every = [row for row in compared.told if row["measures"] != "partner"]
    rows = every if len(every) <= _MOST_TESTS else [row for row in every if row["deployed"] is not None]
    has_baseline = any(row["baseline"] is not None for row in rows)
    other = compared.others[0] if len(compared.others) == 1 else "run"
    numbers = (compared.reference, other, *["one label"] * has_baseline, "difference", "interval", "p")
    names = [("run", False), ("setting", False), ("metric", False), *((name, True) for name in numbers)]
    print_table(
        [*names, ("verdict", False)],
        [
            [
                row["who"],
                row["place"],
                row["shown"],
                *(as_text(row[name]) for name in ("value", "other_value", *["baseline"] * has_baseline)),
                written(row["estimate"], "change"),
                "" if row["verdict_low"] is None
                else f"[{written(row['verdict_low'], 'change')}, {written(row['verdict_high'], 'change')}]",
                as_text(row["verdict_p"]),
                f"no verdict: {row['doubt']}" if row["doubt"] else row["word"],
            ]
            for row in rows
        ],
    )  # fmt: skip
    if len(rows) < len(every):
        typer.echo(f"{len(every) - len(rows):,} further differences: --json has them, and the page of --out FILE.html")


def print_status(status: Status, anew: bool = False) -> None:
    """Print the progress of a run by stage; ``anew`` clears the terminal first, or else prints the time."""
    if anew and sys.stdout.isatty():
        sys.stdout.write("\033[2J\033[H")
    elif anew:
        from biaseval.lease.record import utc_now  # imports Arrow, which help does not need

        typer.echo(f"\n{utc_now()}")
    if not status.is_planned:
        typer.echo("plan    under way: inputs are read and prompts written; no model is loaded yet")
        typer.echo(f"driver  {_driver(status.driver)}")
        return
    for stage in status.stages:
        parts = f" ({stage.n_units_done:,} of {stage.n_units:,} parts)" if 1 < stage.n_units < stage.size else ""
        typer.echo(f"{stage.noun:7} {stage.size_done:,} of {stage.size:,} {stage.verb}{parts}")
    for own in status.under_way:
        planned = "" if own.n_planned is None else f" of {own.n_planned:,}"
        typer.echo(f"begun   {own.model}: step {own.n_steps:,}{planned}, loss {own.loss:.4f}")
    for name, why in list(status.given_up.items())[:_MOST_GIVEN_UP]:
        typer.echo(f"left    {name}: {why}")
    if len(status.given_up) > _MOST_GIVEN_UP:
        typer.echo(f"left    {len(status.given_up) - _MOST_GIVEN_UP:,} more, which --json has")
    for name in status.damaged[:_MOST_GIVEN_UP]:
        typer.echo(f"damaged {name}: is gone, or differs from the recorded digest; the same command makes it again")
    if len(status.damaged) > _MOST_GIVEN_UP:
        typer.echo(f"damaged {len(status.damaged) - _MOST_GIVEN_UP:,} more, which --json has")
    if status.has_metrics:
        typer.echo(f"marts   {'complete' if status.has_marts else 'not yet'}")
        typer.echo(f"report  {'complete' if status.has_report else 'not yet'}")
    else:
        typer.echo(f"result  {'complete' if status.is_complete else 'not yet'}")
    if not status.is_complete or status.driver is not None:
        typer.echo(f"driver  {_driver(status.driver)}")
    if status.pace is not None:
        typer.echo(f"pace    {_pace(status.pace)}")
    if status.log is not None:
        typer.echo(f"log     {status.log}")


def _driver(driver: Sight | None) -> str:
    if driver is None:
        return "none"
    ago = duration(driver.last_beat_age_s)
    word = "live" if driver.is_live else "ended without a word"
    if driver.is_live and driver.is_silent:
        word = f"hangs or is stopped: its process is there and has said nothing for {ago}"
    return f"{word}: {driver.who}, last seen {ago} ago"


def _pace(pace: Pace) -> str:
    words = []
    if pace.rate_per_s is not None:
        words.append(f"{pace.rate_per_s:,.{0 if pace.rate_per_s >= 10 else 2}f} {pace.noun}/s")
    if pace.left_s is not None:
        words.append(f"{duration(pace.left_s)} until all {pace.noun} are {pace.verb}")
    if pace.last_part_age_s is not None:
        words.append(f"last part {duration(pace.last_part_age_s)} ago")
    return ", ".join(words) or "not known before some parts are complete"


def print_finding(finding: Finding) -> None:
    """Print the result of a check of this machine, and advice below it."""
    typer.echo(f"{finding.state:8} {finding.check}: {finding.found}")
    if finding.remedy is not None:
        typer.echo(f"{'':8} → {finding.remedy}")


def print_tasks(checked: Any) -> None:
    """Print which task files are usable, and the reasons for the others."""
    for name, reason in checked.left_out.items():
        typer.echo(f"left out  {name}: {reason}")
    for name, problems in checked.bad.items():
        for problem in problems:
            typer.echo(f"bad       {name}: {problem}")
    typer.echo(f"{len(checked.usable)} usable, {len(checked.left_out)} left out, {len(checked.bad)} bad")


def print_plans(plans: Mapping[str, Description], rates: Mapping[str, Measured | None]) -> None:
    """Print the work of specs by the directory of their run; of several, first what all share and last the sum."""
    from biaseval.pipelines.cost_lines import cost_lines

    first, *others = plans.values()
    lines = [one for one in first.lines if all(one in own.lines for own in others)]
    notes = [one for one in first.notes if all(one in own.notes for own in others)]
    print_plan(replace(first, lines=lines, notes=notes, training_lines=(), training=None))
    for uri, own in plans.items():
        typer.echo(f"\n{uri}" if others else "", nl=bool(others))
        rest = [one for one in own.notes if one not in notes]
        print_plan(replace(own, lines=[one for one in own.lines if one not in lines], notes=rest))
        print_lines([] if (rate := rates[uri]) is None else [rate.line])
    if others:
        flops = [own.facts.get("flops", 0) + (own.training.flops if own.training else 0) for own in plans.values()]
        typer.echo(f"\nall {len(plans)} models")
        print_lines(cost_lines("FLOPs", sum(flops)))


def print_plan(plan: Description) -> None:
    """Print the work of a spec, and the cost of its training, if any."""
    print_lines(plan.lines)
    for note in plan.notes:
        typer.echo(note)
    print_lines(plan.training_lines)
    if plan.training is not None:
        _print_memory(plan.training)


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns; a value follows a name that is too long."""
    for name, value in lines:
        typer.echo(f"{name:26} {value}")


def _print_memory(cost: TrainingCost) -> None:
    """Print the memory of a worker by model and ZeRO stage; one line if no model needs `_LITTLE_GIB` or offloads."""
    from biaseval.training.estimate import PUBLISHED_SHAPES

    own = zip(cost.shapes, cost.memory, strict=True)
    largest = max(by_stage["none"].total for shape, by_stage in own if shape not in PUBLISHED_SHAPES) / 2**30
    is_offloaded = any(memory.offloaded for by_stage in cost.memory for memory in by_stage.values())
    if largest < _LITTLE_GIB and not is_offloaded:
        print_lines([("memory of training", f"{largest:.2f} GiB at most, about; any GPU has room for it without ZeRO")])
        return
    names = ["weights", "adapter", "gradients", "optimizer", "activations", "total"]
    if is_offloaded:
        names.append("offloaded")
    columns = [(name, name != "model") for name in ("model", "trainable", "ZeRO", *names, "GPUs of 80 GiB needed")]
    rows = []
    for shape, n_trainable, by_stage, gpus in zip(cost.shapes, cost.n_trainable, cost.memory, cost.gpus, strict=True):
        for number, (stage, memory) in enumerate(by_stage.items()):
            head = ["", "", stage] if number else [shape.name, f"{n_trainable:,}", stage]
            values = [f"{getattr(memory, name) / 2**30:.2f}" for name in names]
            rows.append([*head, *values, "" if number else str(gpus or "more than 64")])
    print_table(columns, rows, title="memory of one worker while it trains, GiB, about")


def print_table(columns: Iterable[tuple[str, bool]], rows: Iterable[list[str]], title: str | None = None) -> None:
    """Print rows of text under columns, each (name, whether it holds numbers)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for name, is_number in columns:
        table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold", max_width=_WIDEST)
    for row in rows:
        table.add_row(*map(Text, row))
    # Nothing may be cut: without a terminal a table is as wide as its cells, except that sentences wrap.
    Console(highlight=False, width=None if sys.stdout.isatty() else 10_000).print(table)
