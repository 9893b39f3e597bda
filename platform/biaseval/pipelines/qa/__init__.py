"""QA bias: ``kind`` is the kind of run, ``plan`` and ``training_plan`` what is planned, ``stages`` what answers.

``trained_models`` says which readers a run trains, and ``training_stages`` makes a stage of each step of it.
``biased_segments`` and ``guide_logits`` have what methods against shortcuts are told.
"""
