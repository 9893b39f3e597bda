"""A search over keys of a spec as a Ray job.

ray job submit --working-dir . -- python jobs/tune.py SPEC --run-dir s3://bucket/runs/x
"""

from submission import submitted

if __name__ == "__main__":
    submitted("tune")
