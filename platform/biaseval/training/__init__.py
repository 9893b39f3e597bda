"""Trains adapters and models; runs without Ray.

``outcome`` makes one unit: an adapter, which is taken off the model again for the next one, or a model. Below it:

``recipe`` is how something is trained, ``objectives`` what on, and what is minimised: all in which one training differs
from another. ``work`` reads a unit's objective from the tables of its run.

``preparation`` readies the model, with adapters or all its parameters; ``loop`` makes the steps, when ``schedule``
says, by ``optimization``, in one process or several, or by ``zero``, with DeepSpeed as ``deepspeed_config`` has it; in
float16 losses are scaled by ``loss_scale``.
``checkpoints`` keeps what a killed process needs to go on, and ``model_files`` writes a model.

``estimate`` says what training costs.

Of few-shot prompts: ``rows`` and ``batches``. Of conversations: ``conversations`` reads them, ``templates`` turns them
into tokens, ``packing`` lays them out in rows. ``loss`` is that of both.
"""
