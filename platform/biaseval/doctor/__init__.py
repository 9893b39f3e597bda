"""Checks of a store, a cluster file and Ray: one finding per checked thing, with its correction.

finding       the result of a check
examine       all checks, in order: open this first
ray           Ray, without starting one
run_dir       a run directory: readable, writable, how long that takes, who works on it
cluster_file  a file of Ray's cluster launcher
"""

from biaseval.doctor.examine import examine
from biaseval.doctor.finding import Finding

__all__ = ["Finding", "examine"]
