"""What the jobs of this folder have in common: a command, inside a Ray job.

A job takes what its command takes, `biaseval run` unless it names another. The run directory must be one that every
node reaches and that outlives the job: the job's own working directory is a copy that Ray throws away.
"""

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from typer.core import TyperGroup, TyperOption
from typer.main import get_command

import source  # noqa: F401
from biaseval.cli import app, main
from biaseval.errors import InputError
from biaseval.progress import say

RUN_DIR = "an absolute path or s3:// URI that every node reaches and that outlives the job"


def check_run_dir(arguments: list[str]) -> None:
    """Make sure that the run outlives the job: --run-dir names an absolute path or an object store."""
    values = [value for name, value in pairwise(arguments) if name == "--run-dir"]
    values += [argument.removeprefix("--run-dir=") for argument in arguments if argument.startswith("--run-dir=")]
    if not values or not (values[-1].startswith("/") or "://" in values[-1]):
        raise InputError(f"--run-dir: name {RUN_DIR}")


def submitted(*command: str) -> None:
    """Do what a command does with the arguments of the job; without one named, `biaseval run`."""
    words = command or ("run",)
    if "--help" in sys.argv:
        show_help(words)
    try:
        check_run_dir(sys.argv[1:])
    except InputError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    sys.argv = ["biaseval", *words, *sys.argv[1:]]
    main()


def show_help(words: Sequence[str]) -> NoReturn:
    """Print what the job is and takes, under its own name, and end."""
    own = get_command(app)
    for word in words:
        assert isinstance(own, TyperGroup)
        own = own.commands[word]
    own.help = (
        f"{sys.modules['__main__'].__doc__}\n\nIt takes what `biaseval {' '.join(words)}` takes, and needs --run-dir."
    )
    for option in own.params:
        if isinstance(option, TyperOption) and "--run-dir" in option.opts:
            option.required, option.help = True, f"The run's directory: {RUN_DIR}."
    own(["--help"], prog_name=f"python jobs/{Path(sys.argv[0]).name}")
    sys.exit()
