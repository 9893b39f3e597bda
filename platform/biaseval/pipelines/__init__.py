"""What runs are: ``run`` is the main path, from a spec to a finished run, and is given a kind; open it first.

``kind`` is what it knows of a kind of run, ``trial_kinds`` lists those that a search may try, and each has a file.
``directory`` guards run directories. ``causal`` is what the kinds that score labels share, with the stages
``label_scores`` and ``adapters``; ``questions`` has the stages of QA models.
"""
