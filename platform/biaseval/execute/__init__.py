"""Runs the missing parts of a run on Ray; nothing else knows Ray.

``cluster`` connects, shares resources and maps parts over actors; each further module says what its actors do.
"""
