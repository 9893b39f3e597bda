"""Tuning a model on conversations as a Ray job.

ray job submit --working-dir . -- python jobs/train_instruct.py SPEC --run-dir s3://bucket/runs/x
"""

from submission import submitted

if __name__ == "__main__":
    submitted("train", "instruct")
