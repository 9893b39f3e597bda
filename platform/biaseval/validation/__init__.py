"""Calibration of the instrument: how often its words are wrong and its intervals miss, where the truth is known.

Runs are simulated from the answers on, many at once, and go through the same SQL as real ones.
"""
