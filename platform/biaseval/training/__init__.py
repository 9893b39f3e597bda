"""Trains adapters and models; runs without Ray.

``outcome`` trains one unit: a model, or an adapter, which leaves the model free for the next adapter. Below it:

``recipe`` has the settings of a training, and ``objectives`` its data and loss, in which trainings differ. ``work``
reads a unit's objective from the tables of its run.

``preparation`` prepares the model, with adapters or all parameters. ``loop`` makes the steps by the rates of
``schedule``, with ``optimization`` in one process or several, or with ``zero`` (DeepSpeed, by ``deepspeed_config``). In
float16 ``loss_scale`` scales losses.
``checkpoints`` stores the state that a killed process needs to continue, and ``model_files`` writes a model.

``estimate`` computes the cost of training.

For few-shot prompts: ``rows`` and ``batches``. For conversations: ``conversations`` reads them, ``templates`` turns
them into tokens, and ``packing`` arranges them in rows. They have the same loss.
"""
