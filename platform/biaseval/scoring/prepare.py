"""From prompts to what a scorer runs: everything that needs no model, for CPU workers to do ahead of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.scoring.encoding import encode
from biaseval.scoring.trie import TokenTrie, build_trie

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prepared:
    """Tokenised prompts, each shared prefix stored once. Can be pickled and sent to where the model is."""

    rows: pa.Table
    """One row per (prompt, label): ``prompt_id``, ``label``, ``n_tokens`` (of the whole text), ``n_label_tokens``."""
    trie: TokenTrie
    """The texts of ``rows``; the targets of a row are its label's tokens and EOS."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """``[n_rows + 1]`` the first slot of each row in the trie, and their number."""
        n_targets = self.rows["n_label_tokens"].to_numpy().astype(np.int64) + 1
        return np.concatenate([[0], np.cumsum(n_targets)])

    def target_tokens(self) -> list[list[int]]:
        """Return the token ids of each row's label, and EOS."""
        tokens = np.empty(len(self.trie.target_slot), dtype=np.int64)
        tokens[self.trie.target_slot] = self.trie.target_token
        return [tokens[start:stop].tolist() for start, stop in pairwise(self.offsets)]


def prepare(tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> Prepared:
    """Tokenise prompts with each of their labels and arrange them as a trie; arguments and errors are `encode`'s."""
    encoded = encode(tokenizer, prompts)
    ids = encoded["token_ids"].chunk(0)
    values = ids.values.to_numpy(zero_copy_only=False)
    sequences = [values[start:stop] for start, stop in pairwise(ids.offsets.to_numpy())]
    rows = {
        "prompt_id": encoded["prompt_id"],
        "label": encoded["label"],
        "n_tokens": pa.array([len(sequence) for sequence in sequences], pa.int32()),
        "n_label_tokens": encoded["n_label_tokens"],
    }
    return Prepared(pa.table(rows), build_trie(sequences, encoded["n_context_tokens"].to_pylist()))


def prepare_texts(sequences: Sequence[npt.NDArray[np.integer]]) -> TokenTrie:
    """Return the trie of whole texts with one target each, the token that follows; its token id is of no meaning."""
    return build_trie([np.append(sequence, 0) for sequence in sequences], [len(sequence) for sequence in sequences])
