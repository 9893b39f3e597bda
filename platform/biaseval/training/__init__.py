"""Trains adapters, one small one after another on a base model that stays in memory; runs without Ray.

``rows`` says what an adapter is trained on, ``batches`` turns it into tokens, ``schedule`` says when each row's turn is
and ``estimate`` what training costs: these load no model. ``adapters`` puts an adapter on the model and takes it off
again, ``loss`` is what is minimised, ``optimization`` makes the steps, in one process or several, with DeepSpeed (as
``deepspeed_config`` has it) or without, and ``trainer`` is the loop.
"""
