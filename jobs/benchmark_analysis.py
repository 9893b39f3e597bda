"""Measures metrics, page and questions on a generated run of the published suite: 256 tasks, 13 settings."""

import source  # noqa: F401
from tests.bench.commands.analysis import main

if __name__ == "__main__":
    main()
