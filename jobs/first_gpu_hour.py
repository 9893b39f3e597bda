"""Checks and measures the scorer on one GPU: python jobs/first_gpu_hour.py [--minutes 25]."""

import source  # noqa: F401
from tests.bench.commands.first_gpu_hour import main

if __name__ == "__main__":
    main()
