"""A majority-bias run as a Ray job, on the terms of jobs/label_bias.py.

ray job submit --working-dir . -- python jobs/majority_bias.py SPEC --run-dir s3://bucket/runs/x
"""

from __future__ import annotations

from label_bias import submitted

if __name__ == "__main__":
    submitted()
