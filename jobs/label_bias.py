"""A label-bias run as a Ray job.

    ray job submit --working-dir . -- python jobs/label_bias.py jobs/specs/quickstart.yaml --run-dir s3://bucket/runs/x

Takes what `biaseval run` takes. The run directory must be one that every node reaches and that outlives the job: the
job's own working directory is a copy that Ray throws away.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The uploaded working directory is the source; the cluster's nodes need only the dependencies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from biaseval.cli import main

if __name__ == "__main__":
    if not any(argument == "--run-dir" or argument.startswith("--run-dir=") for argument in sys.argv):
        sys.exit(
            "error: --run-dir: name an absolute path or s3:// URI that every node reaches and that outlives the job"
        )
    sys.argv = ["biaseval", "run", *sys.argv[1:]]
    main()
