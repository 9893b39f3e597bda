"""Prediction bias of QA models (P3): questions, heuristics, the answer metric, thresholds and draws. No Ray, no torch.

P3 is Mikula, Štefánik et al. (2024), "Think Twice: Measuring the Efficiency of Eliminating Prediction Shortcuts of
Question Answering Models".
"""
