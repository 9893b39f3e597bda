"""Answers questions about contexts with extractive and generative models: torch and transformers only.

questions   the questions, each different pair once, and the table of answers
windows     questions and contexts -> token ids, long contexts cut into overlapping windows
spans       start and end logits of windows -> the best answers
batches     windows of like length together, within memory
extractive  ExtractiveReader: answers that are spans of their context
sequences   greedy answers of sequence-to-sequence models
generative  GenerativeReader: answers that a model writes
readers     chooses between the two for a model
counting    the cost of reading
"""

from biaseval.qa_models.counting import count_windows
from biaseval.qa_models.extractive import ExtractiveReader, reader_inputs
from biaseval.qa_models.generative import GenerativeReader
from biaseval.qa_models.readers import load_reader
from biaseval.qa_models.windows import WindowSettings

__all__ = ["ExtractiveReader", "GenerativeReader", "WindowSettings", "count_windows", "load_reader", "reader_inputs"]
