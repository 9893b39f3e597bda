"""The command line: each command parses, calls one function and prints one result.

``making``, ``reading`` and ``training`` have the commands, ``arguments`` their arguments, and ``printing`` the layout
of results; ``commands`` combines them.
"""

from biaseval.cli.commands import app, main

__all__ = ["app", "main"]
