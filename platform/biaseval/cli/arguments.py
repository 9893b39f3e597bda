"""Arguments that several commands share (a spec, changes of it, a run directory), and helpers for them."""

from __future__ import annotations

import itertools
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from biaseval.errors import InputError
from biaseval.progress import say

if TYPE_CHECKING:
    from biaseval.spec import Spec


def each_run(runs: list[str]) -> list[str]:
    """Return these run directories, and those in folders of runs."""
    from biaseval.environment import runs_in

    return [own for run in runs for own in runs_in(run)]


SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec: a YAML file that says what to measure.")]
TrainingArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec: a YAML file that says what to train.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help='Change a key of the spec, e.g. seed=7 or "calibration=[cc]"; the value is YAML; repeatable.',
    ),
]
RunDirOption = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="The run's directory, local or s3://; if left out, runs/NAME with the spec's name.",
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, local or s3://.")]
RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN", help="Runs, or folders of runs.", callback=each_run)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]

stopped: list[int] = []
"""Signals of stops that came; DuckDB turns the exit that they ask for into an error of its own."""

_KEPT = "complete parts are kept, run the same command again to resume"

WATCH_S = 5.0
"""Seconds between two updates of a watching command without a given number."""


class WatchingCommand(TyperCommand):
    """A command whose option ``--watch`` needs no number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after adding the default number to a bare ``--watch``."""
        watching = f"--watch={WATCH_S}"
        given = [
            watching if own == "--watch" and not _is_number(after) else own
            for own, after in itertools.pairwise([*args, ""])
        ]
        return super().parse_args(ctx, given)


def load(spec: Path, overrides: Sequence[str] | None, run_dir: str | None) -> dict[str, Spec]:
    """Return the specs of a file, with the changes from the command line, by the directory of their run."""
    from biaseval.spec import load_specs

    return load_specs(spec, overrides or (), run_dir)


@contextmanager
def resumable(spec: Path | None = None) -> Iterator[None]:
    """On an interrupt or a stop (SIGTERM), say that all complete parts are kept.

    Problems of bad input say what a comment ``# FILE: …`` in the file of the spec says of a file that they name.
    """
    is_main = threading.current_thread() is threading.main_thread()  # only the main thread receives signals
    before = signal.signal(signal.SIGTERM, _stop) if is_main else None
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; {_KEPT}")
        raise
    except InputError as error:
        text = "" if spec is None else spec.read_text(encoding="utf-8")
        said = re.findall(r"^# (\S*/\S*|\S+\.(?:csv|gz|jsonl?|parquet)): (.+)$", text, re.MULTILINE)
        added = {one: "".join(f"; {text}" for path, text in said if path in one) for one in error.problems}
        raise InputError.of([f"{one}{text}" for one, text in added.items()]) from error
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)  # None: the previous handler is not Python's


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Report the stop at once, because a kill may follow within seconds."""
    stopped.append(number)
    say(f"stopped; {_KEPT}")
    sys.exit(128 + number)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
