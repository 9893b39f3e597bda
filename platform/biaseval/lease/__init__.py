"""Who works on a run, and whether it still does: a small file of the run that its driver renews while it works.

On a local disk the file lock keeps others out, and the lease is what they are told of. On an object store the lease
itself keeps them out, by conditional requests.

record   what the file says, and of which process
files    how it is read and written: with conditions, or without
hold     taking it, renewing it, losing it
look     who held a run last, for whoever only looks
"""

from biaseval.lease.files import Seen
from biaseval.lease.hold import held
from biaseval.lease.look import Sight, look

__all__ = ["Seen", "Sight", "held", "look"]
