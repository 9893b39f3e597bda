"""A label-bias run as a Ray job.

ray job submit --working-dir . -- python jobs/label_bias.py jobs/specs/quickstart.yaml --run-dir s3://bucket/runs/x
"""

from submission import submitted

if __name__ == "__main__":
    submitted()
