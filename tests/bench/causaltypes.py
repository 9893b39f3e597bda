"""Small random models of every type that transformers loads as a causal language model.

One rule shrinks the default configuration of a type and of its parts; `_SPECIAL` has what the rule cannot know.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from tests.tinymodels import make_tokenizer

VOCABULARY = 420
TYPES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)

_NAMES = {
    2: """decoder_layers encoder_layers experts_per_token linear_num_key_heads mamba_n_groups moe_k moe_top_k moe_topk
        n_group n_groups num_decoder_layers num_encoder_layers num_experts_per_tok num_experts_per_token
        num_key_value_heads num_kv_heads num_query_groups o_groups swa_num_key_value_heads top_k_experts topk_group""",
    4: """attention_heads decoder_attention_heads depth encoder_attention_heads index_n_heads linear_num_heads
        linear_num_value_heads mamba_dt_rank mamba_n_heads mamba_num_heads moe_num_experts n_head n_heads n_layer
        n_layers n_mamba_heads n_routed_experts num_attention_heads num_blocks num_decoder_attention_heads
        num_encoder_attention_heads num_experts num_heads num_hidden_layers num_layers num_local_experts
        swa_num_attention_heads time_step_rank zero_expert_num""",
    8: """attention_head_size chunk_size d_head d_kv dim_head head_dim index_head_dim kv_channels linear_head_dim
        linear_key_head_dim linear_value_head_dim mamba_chunk_size mamba_d_state qk_nope_head_dim qk_rope_head_dim
        query_pre_attn_scalar rotary_dim ssm_state_size state_size swa_head_dim v_head_dim""",
    16: """attention_head_dim embedding_size hidden_size_per_layer_input kv_lora_rank laurel_rank mamba_d_head
        mamba_head_dim mamba_headdim o_lora_rank q_lora_rank word_embed_proj_dim""",
    32: """adapter_in_dim adapter_input_size adapter_out_dim backbone_hidden_size base_channels d_model dim
        downsample_hidden_size emb_dim embedding_dim hc_lowrank hidden_size hidden_size_global
        input_embedding_size lru_width n_embd out_hidden_size output_channels output_embedding_size ple_embed_dim
        pronunciation_embed_dim shape_embed_dim""",
    48: """d_ff d_inner decoder_ffn_dim dense_intermediate_size dff dim_ff encoder_ffn_dim expert_ffn_hidden_size
        feed_forward_size ffn_dim ffn_hidden_size intermediate_size intermediate_size_mlp mlp_dim moe_intermediate_size
        moe_shared_expert_intermediate_size n_inner shared_expert_intermediate_size shared_experts_intermediate_size
        shared_intermediate_size""",
    64: """attention_chunk_size attention_hidden_size attention_window_size local_attention mamba_d_ssm sliding_window
        sliding_window_size window_size""",
    300: """encoder_hash_byte_group_vocab ngram_vocab_size_base num_position_embeddings pronunciation_vocab_size
        shape_vocab_size""",
    512: """context_length max_position_embeddings max_seq_len max_target_positions n_ctx n_positions seq_length""",
    VOCABULARY: """decoder_vocab_size vocab_size vocab_size_per_layer_input""",
}
_SIZES = {name: size for size, names in _NAMES.items() for name in names.split()}
_SET = {
    "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
    "initializer_range": 0.2, "init_std": 0.2,
}  # fmt: skip

_HEADS = {"num_key_value_heads": 2, "head_dim": 8}
_CONVOLUTIONS = {"layer_types": ["conv", "full_attention"] * 2}
_HYBRID = {"layer_types": ["linear_attention", "full_attention"] * 2}
_LATENT = {"num_key_value_heads": 4, "head_dim": 16, "per_layer_config": {}}
_SHARED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
_INDEXED = {
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 256,
    "indexer_compress_ratio": 8,
}  # fmt: skip
_SPECIAL: dict[str, dict[str, Any]] = {
    "bailing_hybrid": _HYBRID, "bamba": {"attn_layer_indices": [1, 3]}, "blenderbot": {"max_position_embeddings": 512},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48}},
    "deepseek_v2": {"num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "dots3_note": {"text_config": _LATENT, "vision_config": {"mlp_layer_types": ["dense"] * 4}},
    "dots3_note_text": _LATENT, "emu3": {"vocabulary_map": {"<image>": VOCABULARY - 1}},
    "gemma3n_text": {"num_hidden_layers": 15, "num_kv_shared_layers": 5},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    "gemma4_unified_assistant": {"text_config": _SHARED}, "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": _HYBRID, "hunyuan_v1_dense": _HEADS, "hunyuan_v1_moe": _HEADS,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1}, "kimi_linear": _HYBRID,
    "lfm2": _CONVOLUTIONS, "lfm2_moe": _CONVOLUTIONS, "mamba2": {"head_dim": 16, "n_groups": 2},
    "ministral": _HEADS, "nemotron": _HEADS, "qwen4_exp": {"text_config": _INDEXED}, "qwen4_exp_text": _INDEXED,
    "reformer": {"vocab_size": VOCABULARY, "is_decoder": True, "axial_pos_shape": (16, 32),
        "axial_pos_embds_dim": (8, 24)},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128}, "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 14, "attn_layer_period": 6},
    "zamba2": {"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "hybrid"] * 3},
}  # fmt: skip


def small_config(model_type: str, **settings: Any) -> PretrainedConfig:
    """Return the default configuration of a type with all its sizes cut down, and with these settings."""
    return _shrunk(CONFIG_MAPPING[model_type], {**_SPECIAL.get(model_type, {}), **settings})


def save_small(config: PretrainedConfig, folder: Path) -> Path:
    """Write a random model of a configuration, and a tokenizer; a multimodal one whole, as its checkpoints are."""
    torch.manual_seed(0)
    whole = None if config.is_encoder_decoder else MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(config.model_type)
    if whole is None:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    else:
        model = getattr(transformers, whole)(config)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def _shrunk(
    kind: type[PretrainedConfig], settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> PretrainedConfig:
    """Return a configuration of settings, and of defaults (beside those of its class) that are cut down."""
    given = {field.name: field.default for field in dataclasses.fields(kind)} | dict(defaults or {})
    values = {
        **(defaults or {}),
        **{name: own for name, value in given.items() if (own := _small(name, value)) is not None},
    }
    if given.get("num_key_value_heads") == given.get("num_attention_heads") is not None:
        values["num_key_value_heads"] = values["num_attention_heads"]
    rest = dict(settings)
    for name, part in kind.sub_configs_defaults.items():
        if not part.optional:
            of_part = part.config_class
            of_part = of_part if issubclass(of_part, PretrainedConfig) else CONFIG_MAPPING[part.model_type]
            values[name] = _shrunk(of_part, rest.pop(name, {}), part.init_kwargs)
    return kind(**{**values, **rest})


def _small(name: str, default: Any) -> Any:
    """Return what a setting is in a small model, or None where it stays."""
    if name in _SET:
        return _SET[name]
    if not isinstance(default, int) or isinstance(default, bool):
        return None
    if name.endswith(("_token_id", "_token_index")):  # of images and sounds, say
        return VOCABULARY - 1
    return _SIZES[name] if default > _SIZES.get(name, default) else None
