"""A QA-bias run as a Ray job.

ray job submit --working-dir . -- python jobs/qa_bias.py SPEC --run-dir s3://bucket/runs/x
"""

from submission import submitted

if __name__ == "__main__":
    submitted()
