"""Measures how readers are trained against Hugging Face's Trainer: same model, windows and machine, one run.

settings    what to measure, and on which questions
steps       optimizer steps of both sides, in ways that take turns
unit        what a unit of training costs around its steps
cutting     how questions are cut into windows, and in how much memory
measure     all of that in one run
page        the records as Markdown
"""

from tests.bench.training.measure import benchmark
from tests.bench.training.page import markdown
from tests.bench.training.settings import SHAPES, Settings, default_cases, generated_training, read_squad

__all__ = ["SHAPES", "Settings", "benchmark", "default_cases", "generated_training", "markdown", "read_squad"]
