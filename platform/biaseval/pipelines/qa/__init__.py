"""QA bias: ``kind`` is the kind of run, ``plan`` and ``training_plan`` plan it, and ``stages`` has its answering.

``trained_models`` lists the readers that a run trains, and ``training_stages`` makes a stage of each training step.
``biased_segments`` and ``guide_logits`` make the inputs of debiasing methods.
"""
