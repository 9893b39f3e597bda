"""Causal language models: their tokenizers as scoring needs them, weights, and facts from configurations alone."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from biaseval.errors import InputError
from biaseval.models.adapters import for_inference
from biaseval.models.loading import ON_CPU, Loading, built_model, read_model, read_tokenizer
from biaseval.models.sources import ModelSource, load_config, reading, refuse_quantized
from biaseval.models.weights import compare_files

_PART = "causal language model"
_N_PROBED = 6
_ROUNDED = 8
_OTHERWISE = "name a causal language model, or ask a model that answers questions by kind: qa_bias"
_ENCODERS = {*MODEL_FOR_MASKED_LM_MAPPING_NAMES, "bert-generation"}
"""Types whose tokens see later tokens, unless the configuration says ``is_decoder``; XLM's says ``causal``."""

REFUSED = {
    "blt": "it reads bytes in patches, which transformers cannot run with a cache",
    "cpmant": "its tokens see later tokens",
    "emu3": "transformers does not find its text model in its files",
    "gemma4_assistant": "it drafts tokens for another model, whose states it reads",
    "gemma4_unified_assistant": "it drafts tokens for another model, whose states it reads",
    "musicgen": "it writes sounds",
    "musicgen_melody": "it writes sounds",
    "reformer": "it accepts only texts of certain lengths",
    "xlnet": "its tokens see later tokens",
}
"""Types that transformers loads as causal language models and that are not scored, with the reason."""

_WINDOW_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "max_sequence_length", "n_ctx")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the planner must know about a model; read from its configuration, without any weights."""

    family: str
    """The configuration's ``model_type``: ``llama``, ``mistral``, ``falcon``..."""
    window: int | None
    """Tokens the model can take, or None where the configuration sets no limit (ALiBi models such as BLOOM)."""
    n_parameters: int
    """Parameters; tied ones count once."""
    n_layers: int
    hidden_size: int
    vocabulary: int
    """Rows of the token embedding, which may exceed the tokenizer's vocabulary."""


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model and make sure that it can score labels.

    Scoring tokenises prompt, label and EOS together, takes the tokens of the prompt as their context, and scores an
    EOS after each label. So the tokenizer must have an EOS, must read the EOS string back as that one id, and must not
    append anything by itself.

    Raises:
        InputError: no such model, no tokenizer there, or one that breaks the rule above.
    """
    path = source.path
    tokenizer = read_tokenizer(source)
    if tokenizer.eos_token is None or tokenizer.eos_token_id is None:
        raise InputError(f"{path}: the tokenizer has no EOS token, which is scored after every label; set eos_token")
    bare = _ids(tokenizer, "a", add_special_tokens=False)
    if not bare:
        raise InputError(f"{path}: the tokenizer gives no token for 'a'; the tokenizer files are broken or incomplete")
    if _ids(tokenizer, "a")[-len(bare) :] != bare:
        raise InputError(
            f"{path}: the tokenizer appends special tokens to every text, so that a prompt is not the beginning of "
            "prompt + label; set add_eos_token to false, or remove the tokens after the text from its post-processor"
        )
    if _ids(tokenizer, "a" + tokenizer.eos_token)[-1] != tokenizer.eos_token_id:
        raise InputError(
            f"{path}: the tokenizer splits its own EOS {tokenizer.eos_token!r} into other tokens; "
            "list it as a special token in tokenizer.json"
        )
    return tokenizer


def describe_model(source: ModelSource) -> ModelFacts:
    """Describe a causal language model from its configuration alone; no weight is read.

    Parameters and cache are counted on an instance without storage (torch's meta device). Where all weights are there,
    their names and shapes are compared with it.

    Raises:
        InputError: no such model, no configuration there, one that no model can be built of, not a causal language
            model, or weights that do not belong to the configuration.
    """
    model: Any = bare_model(source)
    config, text = model.config, model.config.get_text_config()
    with reading(source.path, _PART, is_description=True):
        facts = ModelFacts(
            family=config.model_type,
            window=model_window(config),
            n_parameters=sum(parameter.numel() for parameter in model.parameters()),
            n_layers=text.num_hidden_layers,
            hidden_size=text.hidden_size,
            vocabulary=model.get_input_embeddings().weight.shape[0],
        )
        _try_pass(model)
    compare_files(source.path, model, _PART)
    return facts


def _try_pass(model: Any) -> None:
    """Run a pass without storage, where one can be: sizes that do not fit each other raise whatever torch does."""
    vars(model.config)["pad_token_id"] = None  # transformers would look for padding in tokens that have no values
    try:
        with torch.device("meta"), torch.no_grad():
            model(**inputs_taken(model, input_ids=torch.zeros((1, 1), dtype=torch.long), use_cache=True))
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):  # else what is computed depends on values
            raise


def check_causal(path: str, config: PretrainedConfig) -> None:
    """Make sure by its configuration that a model is a causal language model: no token sees later tokens.

    Raises:
        InputError: the model is not causal, or its type cannot be scored (`REFUSED`).
    """
    family = config.model_type
    if config.is_encoder_decoder:
        raise InputError(f"{path}: is an encoder with a decoder ({family}), no causal language model; {_OTHERWISE}")
    if family in REFUSED:
        raise InputError(f"{path}: is no plain causal language model ({family}), as {REFUSED[family]}; {_OTHERWISE}")
    with reading(path, _PART, is_description=True):
        text: Any = config.get_text_config()
    is_encoder = family in _ENCODERS and not getattr(config, "causal" if family == "xlm" else "is_decoder", False)
    is_two_way = getattr(text, "use_bidirectional_attention", None) in (True, "all")
    if is_encoder or is_two_way or getattr(text, "is_causal", True) is False:
        raise InputError(
            f"{path}: is no causal language model ({family}), as its tokens see later tokens; {_OTHERWISE}"
        )


def check_source(source: ModelSource) -> None:
    """Make sure, by its configuration, that a model can be loaded as a causal language model; InputError where not."""
    config = load_config(source)
    check_causal(source.path, config)
    refuse_quantized(source.path, config)
    brings_code = source.trust_remote_code and "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not brings_code:
        raise InputError(
            f"{source.path}: is no causal language model ({config.model_type}): transformers has none of this type; "
            f"{_OTHERWISE}"
        )


def inputs_taken(model: PreTrainedModel, **inputs: Any) -> dict[str, Any]:
    """Return those of the inputs that the model's code takes: some takes no mask, and none would be refused."""
    parameters = inspect.signature(type(model).forward).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return inputs if takes_all else {name: value for name, value in inputs.items() if name in parameters}


def refuse_looking_ahead(path: str, model: PreTrainedModel) -> None:
    """Make sure, with two short texts that differ in their last token, that no token sees later tokens.

    The function skips quantized models, whose rounding depends on all tokens of a pass, and models without storage.

    Raises:
        InputError: a prediction before the last token depends on the last token.
    """
    if getattr(model, "is_quantized", False) or model.device.type == "meta":
        return
    embeddings: Any = model.get_input_embeddings()
    ids = torch.arange(2, 2 + _N_PROBED, device=model.device)[None] % embeddings.weight.shape[0]
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % embeddings.weight.shape[0]
    with torch.no_grad():
        logits, changed = (
            model(**inputs_taken(model, input_ids=own, attention_mask=torch.ones_like(own), use_cache=False))
            .logits[0, :-1]
            .float()
            for own in (ids, other)
        )
    rounding = max(_ROUNDED * torch.finfo(torch.float32).eps, torch.finfo(model.dtype).eps)
    if (logits - changed).abs().max() > _ROUNDED * rounding * logits.abs().max():
        raise InputError(
            f"{path}: is no causal language model ({model.config.model_type}): its prediction for a token changes "
            f"with later tokens; {_OTHERWISE}"
        )


def attention_window(config: PretrainedConfig) -> int | None:
    """Return to how many tokens one position attends in some layer, where that is fewer than all; None otherwise."""
    return min((own for layer in layer_configs(config) if (own := size_of(layer, "sliding_window"))), default=None)


def layer_configs(config: PretrainedConfig) -> list[Any]:
    """Return the configuration of each layer of the text model, ``[n_layers]``, at least one.

    Settings must be read of these: where they differ from layer to layer (Gemma 4's ``head_dim``) that of the whole
    model raises an error.
    """
    text: Any = config.get_text_config()
    n_layers = max(size_of(text, "num_hidden_layers"), 1)
    return list(text.per_layer_config) if getattr(text, "is_heterogeneous", False) else [text] * n_layers


def size_of(config: Any, name: str) -> int:
    """Return a positive size in a configuration, the largest where it lists several, or 0 where there is none."""
    value = getattr(config, name, None)
    sizes = [own for own in (value if isinstance(value, list) else [value]) if isinstance(own, int)]
    return max(*sizes, 0, 0)


def model_window(config: PretrainedConfig) -> int | None:
    """Return the number of tokens that a model of this configuration can take, or None where it sets no limit.

    A limit that is no positive number (XLNet's is -1) is none.
    """
    text = config.get_text_config()
    if getattr(text, "alibi", False) or getattr(getattr(text, "attn_config", None), "alibi", False):
        # ALiBi has no position table. MPT still refuses texts beyond the length that its bias is built for.
        return getattr(text, "max_seq_len", None)
    return next((window for key in _WINDOW_KEYS if (window := size_of(text, key))), None)


def load_model(source: ModelSource, loading: Loading = ON_CPU) -> PreTrainedModel:
    """Load a causal language model for scoring: eval mode, no gradients.

    Raises:
        InputError: no such model, or none that is causal, weights that are missing, have no place, do not fit or are
            not in safetensors, unknown dtype or quantization, a device that is not there, bitsandbytes absent, or an
            adapter that does not fit.
    """
    check_source(source)
    model, _ = read_model(AutoModelForCausalLM, _PART, source, loading)
    refuse_looking_ahead(source.path, model)
    return for_inference(model, source.adapter)


def unfilled_model(source: ModelSource, dtype: str = "float32") -> PreTrainedModel:
    """Return a causal language model on the CPU whose weights hold nothing and whose buffers are right.

    Its memory is taken only as weights are written: for workers that get theirs from another. Without adapter.

    Raises:
        InputError: no such model.
    """
    with no_init_weights():
        return for_inference(built_model(AutoModelForCausalLM, _PART, source, dtype), None)


def bare_model(source: ModelSource) -> PreTrainedModel:
    """Return a causal language model without storage (torch's meta device) and without adapter; no weight is read.

    Raises:
        InputError: no such model, or not a causal language model.
    """
    check_source(source)
    with torch.device("meta"):  # experts run without storage in this dtype alone
        return built_model(AutoModelForCausalLM, _PART, source, "bfloat16")


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, *, add_special_tokens: bool = True) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
    return ids
