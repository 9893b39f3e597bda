"""Runs rows of like length together, as many as memory takes."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from transformers import PreTrainedModel

from biaseval.errors import BiasevalError
from biaseval.models import layer_configs, size_of
from biaseval.qa_models.questions import Integers
from biaseval.scoring.memory import free_bytes, is_out_of_memory, widest_layer

logger = logging.getLogger(__name__)

SMALLEST_BUDGET = 32
_CPU_BUDGET = 1024
_LARGEST_CUDA_BUDGET = 1 << 16
_BATCHES_PER_WORKER = 8

Run = Callable[[Integers], None]


def token_budget_of(model: PreTrainedModel, longest: int) -> int:
    """Return how many tokens, padding counted, a forward pass should take at most.

    CPU: the fastest of those measured (256 to 8,192). CUDA: what a third of the free memory holds, by a generous
    estimate of a layer's activations and its attention to ``longest`` tokens.
    """
    if model.device.type != "cuda":
        return _CPU_BUDGET
    n_heads = max(size_of(layer, "num_attention_heads") for layer in layer_configs(model.config))
    per_token = model.dtype.itemsize * 12 * widest_layer(model) + (model.dtype.itemsize + 4) * n_heads * longest
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    free = min(map(free_bytes, devices))
    return int(min(max(free // 3 // per_token, SMALLEST_BUDGET), _LARGEST_CUDA_BUDGET))


class Batches:
    """Groups rows into batches, longest first: memory runs out early or not at all.

    Args:
        token_budget: most tokens in a batch, padding counted (or one row, where that is longer); halved for good each
            time that CUDA memory runs out.
        n_workers: how many batches run at the same time, each on one thread. On a CPU that is faster than many threads
            for one batch; elsewhere 1.
    """

    def __init__(self, token_budget: int, n_workers: int = 1) -> None:
        self.token_budget = token_budget
        self.n_workers = n_workers
        self.is_padded = True
        """False: only rows of the same length go together."""
        self.n_tokens = 0
        """Tokens that were run."""
        self.n_padded_tokens = 0
        """The same with their padding."""

    def run(self, lengths: Integers, run: Run, name: Callable[[int], str]) -> None:
        """Call ``run`` with the rows of each batch.

        Args:
            lengths: ``[n_rows]`` tokens; rows of one length keep their order.
            run: takes ``[n_batch]`` rows; with several workers, on any of their threads.
            name: a row in words.

        Raises:
            BiasevalError: memory does not suffice for one row alone, or for the smallest budget.
        """
        order = np.argsort(-lengths, kind="stable")
        done = 0
        with _workers(self.n_workers) as run_all:
            while done < len(order):
                batches = self._next(order[done:], lengths)
                try:
                    run_all(run, batches)
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    rows = batches[0]
                    if all(len(own) == 1 for own in batches) or self.token_budget // 2 < SMALLEST_BUDGET:
                        raise BiasevalError(
                            f"memory runs out with {self.token_budget} tokens in a pass, at {name(int(rows[0]))} "
                            f"({lengths[rows[0]]} tokens): use a GPU with more memory, or float16 or bfloat16"
                        ) from error
                    self.token_budget //= 2
                    torch.cuda.empty_cache()
                    logger.warning("memory ran out; going on with at most %d tokens in a pass", self.token_budget)
                    continue
                for rows in batches:
                    done += len(rows)
                    self.n_tokens += int(lengths[rows].sum())
                    self.n_padded_tokens += int(lengths[rows[0]]) * len(rows)

    def _next(self, order: Integers, lengths: Integers) -> list[Integers]:
        """Return the next batches to run: one, or some for each worker."""
        batches: list[Integers] = []
        while len(order) and len(batches) < (1 if self.n_workers == 1 else self.n_workers * _BATCHES_PER_WORKER):
            n = self._n_together(lengths[order])
            batches.append(order[:n])
            order = order[n:]
        return batches

    def _n_together(self, lengths: Integers) -> int:
        """Return how many of the first rows, longest first, make a batch."""
        n = max(self.token_budget // int(lengths[0]), 1)
        return n if self.is_padded else min(n, int(np.searchsorted(-lengths, -lengths[0], side="right")))


@contextmanager
def _workers(n: int) -> Iterator[Callable[[Run, list[Integers]], None]]:
    """Yield what runs batches, on ``n`` threads of their own that each compute on one core."""
    if n == 1:

        def one_by_one(run: Run, batches: list[Integers]) -> None:
            for rows in batches:
                run(rows)

        yield one_by_one
        return
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that start from now on take it over
    try:
        with ThreadPoolExecutor(n) as executor:

            def at_once(run: Run, batches: list[Integers]) -> None:
                list(executor.map(torch.inference_mode()(run), batches))

            yield at_once
    finally:
        torch.set_num_threads(n_threads)
