"""Makes the missing parts of a run, on Ray unless they are little work; nothing else knows Ray.

cluster     connects, once a run; `address` says where, and asks whether a Ray answers there
resources   nodes in, shares out; `node_types` says which nodes may come, `gpu_sharing` how many actors have one GPU
parts       the stage of independent parts, of which a task and its worker are `tasks`: by `datasets` (one actor, one
            loop, on Ray Data), or by `here` (in the driver's own process)
training    the stage of what is trained, on Ray Train: `groups` has the worker's main, `workers` begins lost ones anew
waiting     what is said while no actor is there; `devices` leaves a broken GPU; `versions` compares workers
machine     this machine
"""
