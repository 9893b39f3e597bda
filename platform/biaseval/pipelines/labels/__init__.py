"""Kinds that score labels: ``causal`` has their shared code, with the stages ``label_scores`` and ``adapters``.

``label_bias`` and ``majority_bias`` measure. ``imported_scores`` reads existing scores, and ``score`` measures nothing.
"""
