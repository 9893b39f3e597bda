"""Measures a driver with many parts and many actors, which have no model: parts a second, and the driver's memory."""

import source  # noqa: F401
from tests.bench.commands.actors import main

if __name__ == "__main__":
    main()
