"""The commands: each parses, calls one function, prints one result.

Results go to standard output, messages to standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 a gate failed, 130 interrupted, 143 stopped (run the same
command again to resume).
"""

import errno
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from biaseval.cli import exchange, making, reading, training
from biaseval.cli.arguments import WatchingCommand, resumable, stopped
from biaseval.errors import BiasevalError, refuse_broken, without_credentials
from biaseval.execute.machine import PATIENT_THREADS
from biaseval.progress import say

app = typer.Typer(
    help="Measure biases of language models (labels, majority labels, QA shortcuts): every number a SQL query.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 a gate failed (check), 130 interrupted and "
    "143 stopped (run it again to resume).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
tasks_app = typer.Typer(help="Check task files.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
data_app = typer.Typer(help="Check data.", no_args_is_help=True)
app.add_typer(data_app, name="data")
import_app = typer.Typer(help="Measure scores that somebody else made.", no_args_is_help=True)
app.add_typer(import_app, name="import")
export_app = typer.Typer(help="Give a run's scores to other tools.", no_args_is_help=True)
app.add_typer(export_app, name="export")
train_app = typer.Typer(help="Train adapters and models.", no_args_is_help=True)
app.add_typer(train_app, name="train")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"biaseval {version('biaseval')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options before a command."""


for _command in (
    *(making.run, making.tune, making.init, making.plan, making.score, making.analyse),
    *(reading.status, reading.sql, reading.check, reading.report, reading.compare, reading.figures),
    *(making.demo, reading.doctor),
):
    _own = resumable()(_command) if _command in (making.analyse, reading.report) else _command
    app.command(cls=WatchingCommand if _command is reading.status else None)(_own)
tasks_app.command("check")(reading.tasks_check)
data_app.command("check")(reading.data_check)
import_app.command("lm-eval")(resumable()(exchange.import_lm_eval))
import_app.command("table")(resumable()(exchange.import_table))
export_app.command("lm-eval")(exchange.export_lm_eval)
train_app.command("lora")(training.train_lora)
train_app.command("instruct")(training.train_instruct)
train_app.command("qa")(training.train_qa)


def main() -> None:
    """Run the command line and turn errors into one message and an exit code."""
    os.environ.update({**PATIENT_THREADS, **os.environ})
    stopped.clear()
    try:
        for argument in sys.argv[1:]:
            refuse_broken("arguments", argument)
        app()
    except (SystemExit, Exception) as error:
        code = error.code if isinstance(error, SystemExit) else _told(error)
        # Ray's core makes 1 of a stop's code while it waits, and what a stop interrupts may raise errors.
        sys.exit(128 + stopped[0] if stopped else code)


def _told(error: Exception) -> int:
    """Print one message on an error, and return its exit code."""
    if isinstance(error, BiasevalError):
        say(f"error: {_short(str(error))}")
        return error.exit_code
    if "Query interrupted" in str(error):  # DuckDB's error after a signal
        if not stopped:
            say("interrupted; run the same command again")
        return 128 + signal.SIGINT
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        say(f"error: {str(error.filename)[:200]!r}: is no path ({error.strerror}); correct it")
        return 2
    if isinstance(error, MemoryError):  # also Arrow's, of a query's result
        say("error: there is not enough memory; free some, take a larger machine, or ask a query for fewer rows")
        return 1
    say(f"error: {_unforeseen(error)}")
    return 1


def _short(message: str) -> str:
    """Return a message without credentials, whose lines lack their middle where they have 4,000 characters or more."""
    lines = without_credentials(message).split("\n")
    return "\n".join(one if len(one) < 4000 else f"{one[:2000]} … {one[-1000:]}" for one in lines)


def _unforeseen(error: Exception) -> str:
    """Return one line on an error that no command foresees, whose traceback goes to a temporary file."""
    said = without_credentials(" ".join(f"{type(error).__name__}: {error}".split()))[:500]
    said += "; biaseval did not expect this: check its input"
    with suppress(OSError):
        file = Path(tempfile.mkstemp(prefix="biaseval-", suffix=".log")[1])
        told = without_credentials("".join(traceback.format_exception(error)))
        file.write_text(told, encoding="utf-8", errors="backslashreplace")
        said += f"; {file} has the traceback"
    return said
