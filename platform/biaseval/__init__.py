"""Measure label bias, majority-label bias and prediction bias of language models."""
