"""Scores labels with a causal language model (log-probabilities per token, exact and fast), and continues texts.

encoding    prompts and labels -> token ids (CPU; runs anywhere)
boundary    the first token of a label in its text
trie        token ids -> a trie of shared prefixes, and the packs in which it runs
prepare     both in one call: the work that needs no model
attention   the attention of a pack, without computing masked scores
packed      runs a trie in packs: every shared prefix once, many branches in one row
batched     runs a trie in padded batches after cached prefixes, or each text whole
readout     logits -> log-probabilities, greedy tokens
memory      the number of tokens that fit at a time
runner      chooses a path, tests it, stays within memory
scorer      LabelScorer: the public interface
"""

from biaseval.scoring.encoding import encode
from biaseval.scoring.prepare import Prepared, prepare
from biaseval.scoring.scorer import LabelScorer

__all__ = ["LabelScorer", "Prepared", "encode", "prepare"]
