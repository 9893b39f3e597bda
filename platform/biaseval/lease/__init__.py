"""The lease of a run: a small file that its driver renews while it works, so that others know who works on the run.

On a local disk the file lock keeps others out, and the lease says who holds it. On an object store the lease itself
keeps them out, by conditional requests.

record   the content of the file, and the process that it describes
files    reading and writing, with conditions or without
hold     taking, renewing and losing a lease; the last holder of a run, for commands that only read
"""

from biaseval.lease.files import Seen
from biaseval.lease.hold import Sight, held, look

__all__ = ["Seen", "Sight", "held", "look"]
