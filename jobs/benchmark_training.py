"""Measures how readers are trained against Hugging Face's Trainer, in one run."""

import source  # noqa: F401
from tests.bench.commands.training import main

if __name__ == "__main__":
    main()
