"""Splits of questions by a threshold: significance, resampling, draws, and changes between readers."""
