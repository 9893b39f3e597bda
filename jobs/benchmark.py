"""Measures the scorer against lm-evaluation-harness, plain transformers and a prefix-cached loop, all in one run."""

import source  # noqa: F401
from tests.bench.commands.scoring import main

if __name__ == "__main__":
    main()
