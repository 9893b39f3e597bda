"""Calibration of the instrument: how often its words are wrong and its intervals miss, where the truth is known.

Runs are simulated from the answers on, many at once, and go through the same SQL as real ones.
"""

from tests.validation import (
    label_bias,
    label_bias_calibrated,
    label_bias_comparison,
    label_bias_formats,
    majority_bias,
    majority_bias_comparison,
    qa_bias,
)

KINDS = (
    label_bias,
    label_bias_calibrated,
    label_bias_comparison,
    label_bias_formats,
    majority_bias,
    majority_bias_comparison,
    qa_bias,
)
"""Modules of simulated runs, each with ``cells``."""
