"""What runs are: ``run`` is the main path, from a spec to a finished run, and is given a kind; open it first.

``kind`` is what it knows of a kind of run, ``trial_kinds`` lists those that a search may try.
``directory`` guards run directories. ``labels`` has the kinds that score labels, ``qa`` that of questions, and
``instruct`` the training on conversations.
"""
