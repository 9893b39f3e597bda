"""What is wrong with a store, a cluster file or Ray, and what to do: a finding for each thing that is looked at.

finding       what a check says
examine       all checks, in order: open this first
ray           Ray, without starting one
run_dir       a run directory: readable, writable, how long that takes, who works on it
cluster_file  a file of Ray's cluster launcher
"""

from biaseval.doctor.examine import examine
from biaseval.doctor.finding import Finding

__all__ = ["Finding", "examine"]
