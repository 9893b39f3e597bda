"""Scores that somebody else made, as a label-bias run has them.

scored       the one form of such scores, and ``plan`` makes a run's tables of it
records      rows of files, each with its place
table        reads a table of label scores
export       writes scores as the harness writes its samples
lm_eval      reads the samples of lm-evaluation-harness: ``harness_files`` are those files, ``harness_docs`` a doc
"""
