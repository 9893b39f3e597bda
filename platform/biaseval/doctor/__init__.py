"""What is wrong with this machine or cluster, and what to do: a finding for each thing that is looked at.

finding       what a check says
examine       all checks, in order: open this first
packages      Python and the installed packages
machine       torch, GPUs, memory and disks
ray           Ray, without starting one
hub           Hugging Face: offline, token
run_dir       a run directory: readable, writable, how long that takes, who works on it
cluster_file  a file of Ray's cluster launcher
upload        what a job takes with it
"""

from biaseval.doctor.examine import examine
from biaseval.doctor.finding import Finding

__all__ = ["Finding", "examine"]
