"""Measures a search of a thousand calibration strengths over four tasks: arithmetic on stored scores."""

import source  # noqa: F401
from tests.bench.commands.search import main

if __name__ == "__main__":
    main()
