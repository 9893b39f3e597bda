"""Models that answer questions: extractive ones and sequence-to-sequence ones, their tokenizers and windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.initialization import no_init_weights
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
)

from biaseval.errors import InputError
from biaseval.models.adapters import for_inference, is_in_adapter
from biaseval.models.causal import bare_model, model_window
from biaseval.models.loading import ON_CPU, Loading, built_model, read_model, read_tokenizer, torch_dtype
from biaseval.models.sources import ModelSource, load_config, refuse_quantized
from biaseval.models.weights import compare_files

_PART = "question answering model"


@dataclass(frozen=True)
class ReaderFacts:
    """Facts about a question answering model from its configuration and file headers."""

    n_parameters: int
    window: int | None
    """Tokens that it (or its encoder) can read at a time; None where nothing limits them."""
    missing: tuple[str, ...]
    """Names of the weights outside its body that its local files do not have: those of a new, untrained head."""
    family: str
    """The configuration's ``model_type``."""
    hidden_size: int
    n_layers: int


def describe_reader(source: ModelSource, answers: str, *, has_weights: bool = True) -> ReaderFacts:
    """Describe a model that answers questions from its configuration, and from the names and shapes of its weights.

    Args:
        source: which model; its adapter is not looked at.
        answers: ``extractive``, or ``generative`` (a sequence-to-sequence or causal LM).
        has_weights: they are compared with the configuration, if all are there.

    Raises:
        InputError: no such model, none of this form, or weights that do not belong to the configuration.
    """
    config = load_config(source)
    refuse_quantized(source.path, config)
    part = f"model for {answers} answers"
    is_body = answers == "extractive"
    if is_body or config.is_encoder_decoder:
        with torch.device("meta"):
            model = built_model(AutoModelForQuestionAnswering if is_body else AutoModelForSeq2SeqLM, part, source)
    else:
        model = bare_model(source)
    missing = compare_files(source.path, model, part, is_body=is_body) if has_weights else []
    text = config.get_text_config()
    return ReaderFacts(
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        window=encoder_window(model),
        missing=tuple(missing),
        family=config.model_type,
        hidden_size=text.hidden_size,
        n_layers=text.num_hidden_layers * (1 + bool(config.is_encoder_decoder)),  # a decoder has as many
    )


def check_encoder(source: ModelSource) -> None:
    """Make sure that each token of a model sees later tokens, because the question may come after the answer.

    In an encoder with a decoder (T5, BART), each token of the decoder sees all tokens of the encoder.

    Raises:
        InputError: no such model, a decoder, or an encoder with a decoder that has no question answering form.
    """
    config = load_config(source)
    family = config.model_type
    if config.is_encoder_decoder and family not in MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES:
        raise InputError(
            f"{source.path}: is an encoder with a decoder ({family}) that transformers cannot read spans with; name "
            "one such as T5 or BART, or an encoder"
        )
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        raise InputError(f"{source.path}: config.json lacks decoder_start_token_id; add it (T5 has 0)")
    if family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and family not in (*MODEL_FOR_MASKED_LM_MAPPING_NAMES, "xlnet"):
        raise InputError(
            f"{source.path}: is a decoder ({family}), in which no token sees later tokens; name an encoder such as "
            "BERT, RoBERTa or ELECTRA"
        )


def load_reader_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a question answering model, which must know where in the text a token stands.

    Raises:
        InputError: no such model, no tokenizer there, or one that gives no character offsets.
    """
    tokenizer = read_tokenizer(source)
    if not tokenizer.is_fast:
        raise InputError(
            f"{source.path}: the tokenizer ({type(tokenizer).__name__}) gives no character offsets, from which answers "
            "are cut; give a model with a fast tokenizer (tokenizer.json)"
        )
    return tokenizer


def load_extractive_model(
    source: ModelSource, loading: Loading = ON_CPU, *, allow_untrained_head: bool = False, seed: int = 0
) -> PreTrainedModel:
    """Load a model that gives each token a start and an end logit: eval mode, no gradients.

    Args:
        source: which model; its adapter may hold the head.
        loading: how to hold it.
        allow_untrained_head: take a model without a question answering head, whose head is then drawn, and the same
            each time it is loaded.
        seed: of such a head.

    Raises:
        InputError: what ``load_model`` refuses, an architecture without a question answering form, or a head that is
            in neither model nor adapter.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model, missing = read_model(AutoModelForQuestionAnswering, _PART, source, loading, is_body=True)
    model = for_inference(model, source.adapter)
    untrained = [name for name in missing if source.adapter is None or not is_in_adapter(model, name)]
    if untrained and not allow_untrained_head:
        raise untrained_head(source.path, untrained)
    return model


def new_reader(source: ModelSource, loading: Loading = ON_CPU, *, seed: int) -> PreTrainedModel:
    """Return an extractive reader with random weights, of a model's configuration alone: eval mode, no gradients.

    Raises:
        InputError: no such model, or an architecture without a question answering form.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = built_model(AutoModelForQuestionAnswering, _PART, source)
    dtype = torch_dtype(loading.dtype or "float32")
    for parameter in model.parameters():  # buffers keep theirs, as where weights are loaded
        parameter.data = parameter.data.to(dtype)
    return for_inference(model.to(loading.device), None)


def unfilled_reader(source: ModelSource, dtype: str = "float32") -> PreTrainedModel:
    """Return an extractive reader on the CPU whose weights hold nothing, as `models.unfilled_model` does."""
    with no_init_weights():
        return for_inference(built_model(AutoModelForQuestionAnswering, _PART, source, dtype), None)


def untrained_head(path: str, names: Sequence[str]) -> InputError:
    """Return the error that a model without a trained question answering head is."""
    return InputError(
        f"{path}: no question answering head: {', '.join(names)} would be new and untrained; give a model fine-tuned "
        "for extractive question answering, or set allow_untrained_head"
    )


def load_sequence_model(source: ModelSource, loading: Loading = ON_CPU) -> PreTrainedModel:
    """Load a sequence-to-sequence model (T5, BART...): eval mode, no gradients; errors are those of ``load_model``."""
    model, _ = read_model(AutoModelForSeq2SeqLM, "sequence-to-sequence model", source, loading)
    return for_inference(model, source.adapter)


def is_sequence_model(source: ModelSource) -> bool:
    """Return whether a model has an encoder and a decoder, from its configuration; InputError where there is none."""
    return bool(load_config(source).is_encoder_decoder)


def encoder_window(model: PreTrainedModel) -> int | None:
    """Return how many tokens the model (or its encoder) can read at a time, or None where nothing limits them.

    Relative positions (T5, XLNet) set no limit. Where positions are counted from the padding token's id on, as in
    RoBERTa, the table of positions is longer than the window.
    """
    config = model.config.get_text_config()
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    if getattr(config, "relative_attention_num_buckets", None) is not None:
        return None
    encoder = getattr(config, "max_encoder_position_embeddings", None)
    return encoder if isinstance(encoder, int) and encoder > 0 else model_window(config)
