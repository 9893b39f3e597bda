"""The training examples of adapters, from a run's tables, and which adapters a run has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from biaseval.errors import InputError
from biaseval.models import CONFIG_FILE
from biaseval.spec import LoraSpec
from biaseval.store import Run
from biaseval.tables import TRAINING_ROWS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CUTOFFS = "cutoffs.json"
"""The file of a run in which a search says what its readers must reach to go on: reader to steps to F1."""

MODEL_CONFIG = "config.json"
"""The last file of a tuned model: a folder with it is complete."""

ADAPTERS = "adapters"
"""The folder of a run that holds its adapters."""


def rows_of(adapter: str, rows: pa.Table) -> pa.Table:
    """Return the adapter's rows, in their order, of a part of ``training_rows``."""
    return rows.filter(pc.equal(rows["adapter"], adapter)).sort_by("row")


def with_tokens(
    tokenizer: PreTrainedTokenizerBase, rows: pa.Table, lora: LoraSpec, window: int | None
) -> tuple[pa.Table, list[str]]:
    """Return a part of ``training_rows`` with ``n_tokens``, and what keeps its adapters from being trained.

    Args:
        tokenizer: one that ``models.load_tokenizer`` accepts.
        rows: of any number of adapters, each adapter's together.
        lora: sets the longest row.
        window: tokens that the model can take; None if unknown.
    """
    from biaseval.training.batches import encode_rows

    counted: list[dict[str, Any]] = []
    problems = []
    for adapter, own in _by_adapter(rows):
        try:
            lengths = [len(row.token_ids) for row in encode_rows(tokenizer, own)]
        except InputError as error:
            problems.append(f"{adapter}: {error}")
            continue
        longest = max(lengths)
        if longest > lora.max_tokens:
            problems.append(
                f"{adapter}: a training row has {longest} tokens with label and EOS, and lora.max_tokens is "
                f"{lora.max_tokens}; raise it within the model's window, or make prompts shorter"
            )
        elif window is not None and longest > window:
            problems.append(
                f"{adapter}: a training row has {longest} tokens with label and EOS, and the model's window {window}; "
                "make prompts shorter, or choose a model with a longer window"
            )
        counted += [{**row, "n_tokens": n_tokens} for row, n_tokens in zip(own.to_pylist(), lengths, strict=True)]
    return TRAINING_ROWS.rows(counted), problems


def _by_adapter(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield each adapter with its rows, in the order of the table."""
    start = 0
    for adapter, own in groupby(rows["adapter"].to_pylist()):
        n_rows = len(list(own))
        yield adapter, rows.slice(start, n_rows)
        start += n_rows


def adapters_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Return, for each adapter of a part of ``training_rows``: ``adapter``, ``n_rows``, ``tokens`` and ``longest``."""
    found = []
    for adapter, own in _by_adapter(rows):
        lengths = own["n_tokens"].to_pylist()
        found.append({"adapter": adapter, "n_rows": len(lengths), "tokens": sum(lengths), "longest": max(lengths)})
    return found


def trained_adapters(run: Run) -> set[str]:
    """Return the names of the run's complete adapters: those whose configuration, which is written last, is there."""
    folder = run.path(ADAPTERS)
    found = run.fs.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    # The last two folders name an adapter, however a file system writes the path of the run.
    return {"/".join(info.path.split("/")[-3:-1]) for info in found if info.base_name == CONFIG_FILE}
