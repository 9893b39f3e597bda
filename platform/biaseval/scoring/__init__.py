"""Scores labels with a causal language model: per-token log-probabilities, exact and fast.

encoding    prompts and labels -> token ids (CPU; runs anywhere)
trie        token sequences -> a trie of shared prefixes, and the order in which to run it
packed      runs that trie: shared prefixes once, many branches in one row
full_text   runs whole texts in padded batches: for every other model, and what the packed path is checked against
scorer      LabelScorer: the two paths behind one call
"""

from biaseval.scoring.encoding import encode
from biaseval.scoring.scorer import LabelScorer

__all__ = ["LabelScorer", "encode"]
