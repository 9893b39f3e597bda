"""Measures the extractive reader against the published code's settings, in one run."""

import source  # noqa: F401
from tests.bench.commands.reading import main

if __name__ == "__main__":
    main()
