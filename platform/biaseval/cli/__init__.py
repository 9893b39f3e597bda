"""The command line: each command parses, calls one function and prints one result.

``making``, ``reading`` and ``training`` have the commands, ``arguments`` what they take, ``printing`` how results look;
``commands`` puts them together.
"""

from biaseval.cli.commands import app, main

__all__ = ["app", "main"]
