"""Makes the missing parts of a run, on Ray unless the work is little; no other package uses Ray.

cluster     connects once per run, and lists possible nodes; `address` tests whether a Ray answers there
resources   from nodes to shares, and the actors per GPU
parts       the stage of independent parts, with tasks and workers in `tasks`: by `datasets` (one actor, one loop, on
            Ray Data), or in the driver's own process
training    the stage of trainings, on Ray Train: `groups` has the worker's main, `workers` restarts lost workers
waiting     messages while no actor is there; `devices` leaves a broken GPU; `versions` compares workers
machine     this machine
"""
