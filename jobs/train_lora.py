"""Training the adapters of a label-bias or majority-bias run as a Ray job.

ray job submit --working-dir . -- python jobs/train_lora.py SPEC --run-dir s3://bucket/runs/x
"""

from submission import submitted

if __name__ == "__main__":
    submitted("train", "lora")
