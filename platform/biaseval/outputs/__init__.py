"""Imported scores in the form of a label-bias run.

scored       the common form of such scores; ``plan`` makes a run's tables from it
records      rows of files, each with its place
table        reads a table of label scores
export       writes scores in the harness's sample format
lm_eval      reads the samples of lm-evaluation-harness: ``harness_files`` has the files, ``harness_docs`` one doc
"""
