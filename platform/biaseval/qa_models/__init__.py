"""Answers questions about contexts with extractive and generative models: torch and transformers only.

questions   the questions, each different pair once
windows     questions and contexts -> token ids, long contexts cut into overlapping windows
spans       start and end logits of windows -> the best answers
batches     windows of like length together, within memory
extractive  ExtractiveReader: answers that are spans of their context
sequences   greedy answers of sequence-to-sequence models
generative  GenerativeReader: answers that a model writes
"""

from biaseval.qa_models.extractive import ExtractiveReader, reader_inputs
from biaseval.qa_models.generative import GenerativeReader
from biaseval.qa_models.windows import WindowSettings, count_windows

__all__ = ["ExtractiveReader", "GenerativeReader", "WindowSettings", "count_windows", "reader_inputs"]
