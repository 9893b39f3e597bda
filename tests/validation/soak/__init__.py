"""Kills at named points of real runs, and at random moments: the same command then finishes the run as if nothing was.

    python -m tests.validation.soak --kills 1000 --behind-ray 200 --out FILE [--seed 1] [--only scoring,search]

A round takes a kind of run, a point, a fault and a store from a seed. A command runs until the fault stops it, and the
same command runs again. `oracle` then compares the run with an undisturbed one. A second start of the suite with the
same FILE continues behind the last round. ``--table`` prints the table of `docs/reliability.md`.

`kinds` has the runs, `points` the points, `server` the processes, `rounds` the rounds without Ray and `behind_ray` the
others.
"""
