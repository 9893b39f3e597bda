"""Which reader a model that answers questions is."""

from typing import Literal

from biaseval.models import ON_CPU, Loading, ModelSource
from biaseval.qa_models.extractive import ExtractiveReader
from biaseval.qa_models.generative import PROMPT, GenerativeReader
from biaseval.qa_models.windows import AS_PUBLISHED, WindowSettings


def load_reader(
    source: ModelSource,
    loading: Loading = ON_CPU,
    *,
    answers: Literal["extractive", "generative"],
    prompt: str = PROMPT,
    windows: WindowSettings = AS_PUBLISHED,
    allow_untrained_head: bool = False,
) -> ExtractiveReader | GenerativeReader:
    """Load a model and its tokenizer and return their reader.

    Args:
        source: which model.
        loading: how to hold it.
        answers: ``extractive``, or ``generative`` for a sequence-to-sequence or causal language model.
        prompt: what a generative model is given.
        windows: how an extractive model reads.
        allow_untrained_head: take an extractive model without a head.

    Raises:
        InputError: it cannot be loaded as such.
    """
    if answers == "generative":
        return GenerativeReader.load(source, loading, prompt=prompt)
    return ExtractiveReader.load(source, loading, windows, allow_untrained_head=allow_untrained_head)
