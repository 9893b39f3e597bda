"""Runs rows of like length together, as many as memory takes."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedModel

from biaseval.errors import BiasevalError
from biaseval.reading.questions import Integers

logger = logging.getLogger(__name__)

SMALLEST_BUDGET = 32
_CPU_BUDGET = 1024
_LARGEST_CUDA_BUDGET = 1 << 16


def token_budget_of(model: PreTrainedModel, longest: int) -> int:
    """Return how many tokens, padding counted, a forward pass should take at most.

    CPU: the fastest of those measured (256 to 8,192). CUDA: what a third of the free memory holds, by a generous
    estimate of a layer's activations and its attention to ``longest`` tokens.
    """
    if model.device.type != "cuda":
        return _CPU_BUDGET
    config = model.config.get_text_config()
    widest = max(getattr(config, "intermediate_size", None) or 4 * config.hidden_size, config.hidden_size)
    n_heads = getattr(config, "num_attention_heads", 0)
    per_token = model.dtype.itemsize * 12 * widest + (model.dtype.itemsize + 4) * n_heads * longest
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    free = min(torch.cuda.mem_get_info(device)[0] for device in devices)
    return int(min(max(free // 3 // per_token, SMALLEST_BUDGET), _LARGEST_CUDA_BUDGET))


class Batches:
    """Groups rows into batches, longest first: memory runs out early or not at all.

    Args:
        token_budget: most tokens in a batch, padding counted (or one row, where that is longer); halved for good each
            time that CUDA memory runs out.
    """

    def __init__(self, token_budget: int) -> None:
        self.token_budget = token_budget
        self.is_padded = True
        """False: only rows of the same length go together."""
        self.n_tokens = 0
        """Tokens that were run."""
        self.n_padded_tokens = 0
        """The same with their padding."""

    def run(self, lengths: Integers, run: Callable[[Integers], None], name: Callable[[int], str]) -> None:
        """Call ``run`` with the rows of each batch.

        Args:
            lengths: ``[n_rows]`` tokens; rows of one length keep their order.
            run: takes ``[n_batch]`` rows.
            name: a row in words.

        Raises:
            BiasevalError: memory does not suffice for one row alone, or for the smallest budget.
        """
        order = np.argsort(-lengths, kind="stable")
        done = 0
        while done < len(order):
            rows = order[done : done + self._n_together(lengths[order[done:]])]
            try:
                run(rows)
            except torch.OutOfMemoryError as error:
                if len(rows) == 1 or self.token_budget // 2 < SMALLEST_BUDGET:
                    raise BiasevalError(
                        f"GPU memory runs out with {self.token_budget} tokens in a pass, at {name(int(rows[0]))} "
                        f"({lengths[rows[0]]} tokens): use a GPU with more memory, or float16 or bfloat16"
                    ) from error
                self.token_budget //= 2
                torch.cuda.empty_cache()
                logger.warning("GPU memory ran out; going on with at most %d tokens in a pass", self.token_budget)
                continue
            done += len(rows)
            self.n_tokens += int(lengths[rows].sum())
            self.n_padded_tokens += int(lengths[rows[0]]) * len(rows)

    def _n_together(self, lengths: Integers) -> int:
        """Return how many of the first rows, longest first, make a batch."""
        n = max(self.token_budget // int(lengths[0]), 1)
        return n if self.is_padded else min(n, int(np.searchsorted(-lengths, -lengths[0], side="right")))
