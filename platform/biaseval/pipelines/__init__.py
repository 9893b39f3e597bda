"""What runs are: ``run`` is the main path, from spec to report; open it first.

``kind`` is what it knows of a kind of run, ``kinds`` lists them, and each has a file. ``directory`` guards run
directories. ``causal`` is what the kinds that score labels share, with the stages ``label_scores`` and ``adapters``;
``questions`` has the stages of QA models. ``train`` makes the stages that train alone, ``status`` looks at a directory.
"""
