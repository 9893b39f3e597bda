"""What reading questions will cost, from tokenizer and configuration alone."""

from collections.abc import Sequence

from biaseval.models import ModelSource, load_reader_tokenizer
from biaseval.qa_models.windows import cut_windows


def count_windows(
    source: ModelSource, pairs: Sequence[tuple[str, str]], names: Sequence[str], *, max_tokens: int, stride: int
) -> tuple[int, int]:
    """Return the number of windows that a model will read, and of the tokens in them.

    Args:
        source: the model.
        pairs: ``[n_pairs]`` question and context.
        names: ``[n_pairs]`` what errors call them.
        max_tokens: most tokens of a window.
        stride: tokens of the context that two neighbouring windows share.

    Raises:
        InputError: no usable tokenizer, or questions that are too long for the windows.
    """
    tokenizer = load_reader_tokenizer(source)
    windows = cut_windows(tokenizer, pairs, names, max_tokens=max_tokens, stride=stride)
    return len(windows.n_tokens), int(windows.n_tokens.sum())
