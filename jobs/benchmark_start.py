"""Measures how long `biaseval --help` and a small query take from the shell."""

import source  # noqa: F401
from tests.bench.commands.start import main

if __name__ == "__main__":
    main()
