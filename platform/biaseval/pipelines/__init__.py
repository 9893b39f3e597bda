"""The main path from a spec to a finished run: ``run`` has it for any kind; open it first.

``kind`` is the interface of a kind of run, and ``trial_kinds`` lists the kinds that a search may try. ``directory``
guards run directories. ``labels`` has the kinds that score labels, ``qa`` the kind of questions, and ``instruct`` the
training on conversations.
"""
