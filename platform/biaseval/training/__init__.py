"""Trains adapters and models; runs without Ray.

Two trainings share ``schedule`` (when each row's turn is), ``loss`` (what is minimised), ``optimization`` (makes the
steps, in one process or several, with DeepSpeed, as ``deepspeed_config`` has it, or without), ``preparation`` (readies
the model) and ``estimate`` (what training costs):

Few-shot adapters, one small one after another on a base model that stays in memory: ``rows`` says what an adapter is
trained on, ``batches`` turns it into tokens, and ``trainer`` is the loop.

Tuning a model on conversations: ``conversations`` reads them, ``templates`` turns them into tokens, ``packing`` lays
them out in rows, ``tuning`` is the loop, ``checkpoints`` keeps what a killed process needs to go on, and
``model_files`` writes the result.
"""
