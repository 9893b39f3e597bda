"""The commands: each parses, calls one function, prints one result.

Results go to standard output, chatter to standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 a gate fell, 130 interrupted (run the same command again to
resume).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from biaseval.cli import exchange, making, reading, training
from biaseval.errors import BiasevalError, InputError
from biaseval.progress import say

NOT_YET: Mapping[str, str] = {
    "doctor": "biaseval plan SPEC says what is wrong with a spec, its files and its model",
}
"""The commands that are to come, and what there is in their place."""


class _Commands(TyperGroup):
    """The commands; one that is to come says so, and is not taken for another that was mistyped."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that ``args`` begin with, and its arguments."""
        for name, instead in NOT_YET.items():
            words = name.split()
            is_named = args[: len(words)] == words or (args[0] == words[0] and args[0] not in self.commands)
            if is_named and not ctx.resilient_parsing:
                raise InputError(f"biaseval {name} is not part of this version; {instead}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    help="Measure biases of language models (labels, majority labels, QA shortcuts): every number a SQL query.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 a gate fell (check), 130 interrupted (run it "
    "again to resume).",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
tasks_app = typer.Typer(help="Check task files.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
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
    """Hold what comes before a command."""


for _command in (
    *(making.run, making.tune, making.init, making.plan, making.score, making.analyse),
    *(reading.status, reading.sql, reading.check, reading.report, reading.compare, reading.figures),
    making.demo,
):
    app.command()(_command)
tasks_app.command("check")(reading.tasks_check)
import_app.command("lm-eval")(exchange.import_lm_eval)
import_app.command("table")(exchange.import_table)
export_app.command("lm-eval")(exchange.export_lm_eval)
train_app.command("lora")(training.train_lora)
train_app.command("instruct")(training.train_instruct)
train_app.command("qa")(training.train_qa)


def main() -> None:
    """Run the command line; our own errors become one message and an exit code."""
    try:
        app()
    except BiasevalError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
