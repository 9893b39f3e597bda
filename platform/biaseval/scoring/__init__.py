"""Scores labels with a causal language model: per-token log-probabilities, exact and fast. And continues texts.

encoding    prompts and labels -> token ids (CPU; runs anywhere)
boundary    where in the tokens of its text a label begins
trie        token ids -> a trie of shared prefixes, and the packs in which it runs
prepare     both in one call: all that needs no model
attention   the attention of a pack, without computing what is masked
packed      runs a trie in packs: every shared prefix once, many branches in one row
batched     runs a trie in padded batches behind cached prefixes, or each text whole
readout     logits -> log-probabilities, greedy tokens
memory      how many tokens fit at a time
runner      chooses among the ways to run, checks them, keeps within memory
scorer      LabelScorer: the public face
"""

from biaseval.scoring.encoding import encode
from biaseval.scoring.prepare import Prepared, prepare
from biaseval.scoring.scorer import LabelScorer

__all__ = ["LabelScorer", "Prepared", "encode", "prepare"]
