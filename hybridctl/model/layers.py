"""What each layer of a model is, from the fields of its config.json.

Reading order, as vLLM's own helpers do it: a list of kinds by layer first, then patterns, then periods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATE_KINDS = frozenset({"gdn", "kda", "mamba1", "mamba2", "lightning", "short-conv", "linear", "parallel"})
"""Kinds that keep recurrent state. "linear": the config says linear, and the model type does not tell which."""

ATTENTION_KINDS = frozenset({"full", "sliding", "sparse"})
"""Kinds that keep keys and values of tokens."""

# What "linear attention" or "mamba" stands for, by model type.
_STATE_OF_TYPE = {
    "qwen3_next": "gdn", "qwen3_5": "gdn", "qwen3_5_text": "gdn", "qwen3_5_moe": "gdn", "qwen3_5_moe_text": "gdn",
    "qwen4_exp": "gdn", "qwen4_exp_text": "gdn", "olmo_hybrid": "gdn", "kimi_linear": "kda", "kimi_k3": "kda",
    "nemotron_h": "mamba2", "nemotron_h_puzzle": "mamba2", "granitemoehybrid": "mamba2", "bamba": "mamba2", "zamba2": "mamba2",
    "falcon_h1": "mamba2", "plamo2": "mamba2", "jamba": "mamba1", "mamba": "mamba1", "falcon_mamba": "mamba1", "mamba2": "mamba2",
    "minimax": "lightning", "minimax_text_01": "lightning", "minimax_m1": "lightning", "bailing_hybrid": "lightning",
    "bailing_moe_v2_5": "lightning", "bailing_moe_linear": "lightning", "bailing_moe_v3": "kda", "lfm2": "short-conv",
    "lfm2_moe": "short-conv", "minicpm_sala": "lightning",
}  # fmt: skip
_STATE_OF_ARCHITECTURE = {
    "MiniMaxText01ForCausalLM": "lightning", "MiniMaxM1ForCausalLM": "lightning", "MiniMaxForCausalLM": "lightning",
    "BailingMoeV2_5ForCausalLM": "lightning", "BailingMoeV3ForCausalLM": "kda", "KimiLinearForCausalLM": "kda",
}  # fmt: skip
_WORDS = {
    "full_attention": "full", "attention": "full", "full": "full", "global": "full", "global_attention": "full", "dense": "full",
    "sliding_attention": "sliding", "sliding": "sliding", "sliding_window": "sliding", "chunked_attention": "sliding",
    "local": "sliding", "local_attention": "sliding",
    "sparse": "sparse", "sparse_attention": "sparse", "qwen_sparse_attention": "sparse", "indexed_attention": "sparse",
    "deepseek_sparse_attention": "sparse", "minimax_m3_sparse": "sparse",
    "conv": "short-conv", "short_conv": "short-conv", "kda": "kda", "gated_deltanet": "gdn", "gdn": "gdn",
    "lightning": "lightning", "lightning_attention": "lightning", "lightning-attn": "lightning",
    "moe": "moe", "mlp": "mlp", "mamba2": "mamba2", "hybrid": "parallel",
}  # fmt: skip
_STATE_WORDS = {"linear_attention", "linear", "mamba", "m", "recurrent", "linear_attn"}
_PATTERN = {"M": "mamba2", "*": "full", "-": "mlp", "E": "moe", "G": "gdn", "D": "full"}
_SPARSE_TYPES = {"qwen4_exp", "qwen4_exp_text"}  # its "full_attention" is sparse: the oldest spelling of the same layer
_PARALLEL_TYPES = {"falcon_h1"}


def layer_kinds(text: Mapping[str, Any], types: list[str], architectures: list[str]) -> tuple[list[str] | None, str]:
    """The kind of every layer and the field that told it; ``(None, "")`` when the config does not tell.

    Kinds: full, sliding, sparse, gdn, kda, mamba1, mamba2, lightning, short-conv, linear, parallel (attention and state in one
    layer), mlp, moe.
    """
    state = _state_kind(text, types, architectures)
    count = _count(text.get("num_hidden_layers"))
    for field in ("layer_types", "layers_block_type"):
        if kinds := _words(text.get(field), state):
            if _SPARSE_TYPES & set(types):
                kinds = ["sparse" if k == "full" else k for k in kinds]
            return kinds, field
    codes = _integers(text.get("attn_type_list"))
    if codes:
        return [state if code == 0 else "full" for code in codes], "attn_type_list"
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and 0 < len(pattern) < 2000 and set(pattern) <= set(_PATTERN):
        return [_PATTERN[c] for c in pattern], "hybrid_override_pattern"
    linear = text.get("linear_attn_config")
    if isinstance(linear, Mapping) and (found := _kimi(linear, count)):
        return found, "linear_attn_config"
    if _PARALLEL_TYPES & set(types):
        return (["parallel"] * count, "num_hidden_layers") if count else (None, "")
    return _by_period(text, types, state, count) if count else (None, "")


def mixers(kinds: list[str]) -> list[str]:
    """The distinct kinds that mix tokens, in order of appearance; a parallel layer is both of its parts."""
    parts = [part for kind in kinds for part in (("full", "mamba2") if kind == "parallel" else (kind,))]
    return [kind for kind in dict.fromkeys(parts) if kind not in ("mlp", "moe")]


def _state_kind(text: Mapping[str, Any], types: list[str], architectures: list[str]) -> str:
    for name in types:
        if name in _STATE_OF_TYPE:
            return _STATE_OF_TYPE[name]
    for name in architectures:
        if name in _STATE_OF_ARCHITECTURE:
            return _STATE_OF_ARCHITECTURE[name]
    if "linear_num_value_heads" in text:
        return "gdn"
    if "linear_attn_config" in text:
        return "kda"
    if "mamba_dt_rank" in text:
        return "mamba1"
    if any(f in text for f in ("mamba_n_heads", "mamba_num_heads", "mamba_n_groups", "ssm_state_size")):
        return "mamba2"
    return "linear"


def _words(value: object, state: str) -> list[str] | None:
    if not isinstance(value, list) or not value or len(value) > 2000:
        return None
    kinds = [_word(item, state) for item in value]
    return None if None in kinds else [k for k in kinds if k is not None]


def _word(item: object, state: str) -> str | None:
    if not isinstance(item, str):
        return None
    word = item.strip().lower()
    if word in _STATE_WORDS:
        return state
    return _WORDS.get(word)


def _kimi(linear: Mapping[str, Any], count: int) -> list[str] | None:
    """Layer numbers counted from 1."""
    kda, full = _integers(linear.get("kda_layers")), _integers(linear.get("full_attn_layers"))
    total = count or len(kda) + len(full)
    if not kda or not 0 < total <= 2000:
        return None
    return ["kda" if i in set(kda) else "full" for i in range(1, total + 1)]


def _by_period(text: Mapping[str, Any], types: list[str], state: str, count: int) -> tuple[list[str] | None, str]:
    layers = range(count)
    if n := _count(text.get("full_attention_interval")):
        full = "sparse" if _SPARSE_TYPES & set(types) else "full"
        return [full if (i + 1) % n == 0 else state for i in layers], "full_attention_interval"
    if n := _count(text.get("attn_layer_period")):
        offset = _count(text.get("attn_layer_offset"))
        return ["full" if i % n == offset else state for i in layers], "attn_layer_period"
    for field in ("attn_layer_indices", "full_attn_idxs"):
        if chosen := set(_integers(text.get(field))):
            return ["full" if i in chosen else state for i in layers], field
    if "hybrid_layer_ids" in text and (chosen := set(_integers(text["hybrid_layer_ids"]))):
        return ["parallel" if i in chosen else state for i in layers], "hybrid_layer_ids"
    if n := _count(text.get("layer_group_size")):
        tail = count // n * n if state == "kda" else count  # Ling 3: what is left after the last whole group is full
        return ["full" if (i + 1) % n == 0 or i >= tail else state for i in layers], "layer_group_size"
    if n := _count(text.get("mamba_step")):
        return ["full" if i % n == n // 2 else state for i in layers], "mamba_step"
    sparse = text.get("sparse_attention_config")
    if isinstance(sparse, Mapping) and (codes := _integers(sparse.get("sparse_attention_freq"))):
        return ["sparse" if code else "full" for code in codes], "sparse_attention_config"
    if n := _count(text.get("sliding_window_pattern")):
        return ["full" if (i + 1) % n == 0 else "sliding" for i in layers], "sliding_window_pattern"
    return None, ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2000 else 0


def _integers(value: object) -> list[int]:
    if not isinstance(value, list) or len(value) > 2000:
        return []
    return [v for v in value if isinstance(v, int) and not isinstance(v, bool)]
