"""The command line: ``commands`` parse, call one function and print one result; ``printing`` is how it looks."""

from biaseval.cli.commands import app, main

__all__ = ["app", "main"]
