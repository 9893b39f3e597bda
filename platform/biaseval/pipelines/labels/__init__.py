"""Kinds that score labels: ``causal`` is what they share, with the stages ``label_scores`` and ``adapters``.

``label_bias`` and ``majority_bias`` measure; ``imported_scores`` takes scores that are there, and ``score`` measures
nothing.
"""
