"""Runs the missing parts of a run on Ray; nothing else knows Ray.

cluster     connects, once a run
resources   nodes in, shares out
parts       the stage of independent parts: one actor, one loop, on Ray Data
training    the stage of what is trained, on Ray Train: `groups` has the worker's main, `workers` begins lost ones anew
machine     this machine
"""
