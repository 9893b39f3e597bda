"""Commands, called in this process as their user calls them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from biaseval import cli


@dataclass(frozen=True)
class Result:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]
"""What the fixture `command` is: `call` without its fixtures."""


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """Run ``biaseval`` with arguments."""
    monkeypatch.setattr(sys, "argv", ["biaseval", *arguments])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    captured = capsys.readouterr()
    return Result(code, captured.out, captured.err)
