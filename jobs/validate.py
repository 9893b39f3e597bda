"""Simulates runs whose truth is known and says how often verdicts are wrong and intervals miss it."""

import source  # noqa: F401
from tests.validation.command import main

if __name__ == "__main__":
    main()
