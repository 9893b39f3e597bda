"""What the jobs of this folder have in common: `biaseval run`, inside a Ray job.

A job takes what `biaseval run` takes. The run directory must be one that every node reaches and that outlives the job:
the job's own working directory is a copy that Ray throws away.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

# The uploaded working directory is the source; the cluster's nodes need only the dependencies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from biaseval.cli import main
from biaseval.errors import InputError
from biaseval.progress import say


def check_run_dir(arguments: list[str]) -> None:
    """Make sure that the run outlives the job: --run-dir names an absolute path or an object store."""
    values = [value for name, value in pairwise(arguments) if name == "--run-dir"]
    values += [argument.removeprefix("--run-dir=") for argument in arguments if argument.startswith("--run-dir=")]
    if not values or not (values[-1].startswith("/") or "://" in values[-1]):
        raise InputError(
            "--run-dir: name an absolute path or s3:// URI that every node reaches and that outlives the job"
        )


def submitted() -> None:
    """Do what `biaseval run` does with the arguments of the job."""
    if "--help" not in sys.argv:
        try:
            check_run_dir(sys.argv[1:])
        except InputError as error:
            say(f"error: {error}")
            sys.exit(error.exit_code)
    sys.argv = ["biaseval", "run", *sys.argv[1:]]
    main()
