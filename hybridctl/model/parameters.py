"""How many numbers the weights of a model are, part by part, counted from its config.json alone.

For a checkpoint whose headers can't be read. Norms and biases are left out (below 0.1 %), and so is a vision tower whose config
gives no width. Checked against the sizes of published checkpoints (tests/model/test_parameters.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isqrt
from typing import Any

from hybridctl.model.config import ModelConfig
from hybridctl.model.plan import LayerPlan
from hybridctl.model.states import StateShape

_GATED = ("qwen3_next", "qwen3_5", "qwen4_exp")
_NGRAM_PARTS = ("ngram_size", "heads_per_ngram", "ngram_vocab_size_base", "ple_embed_dim")


def count_parameters(config: ModelConfig, plan: LayerPlan) -> dict[str, int] | None:
    """Numbers by part (embedding, attention, state, feed-forward, experts, shared expert, router, vision, table, draft, other).

    ``None`` when the config lacks a size. Parts are those of :func:`hybridctl.model.inventory.part_of`.
    """
    hidden, vocab = config.hidden_size, config.vocab_size
    if not hidden or not vocab or plan.missing:
        return None
    total: Counter[str] = Counter()
    tied = bool(config.text.get("tie_word_embeddings", config.document.get("tie_word_embeddings", False)))
    total["embedding"] = vocab * hidden * (1 if tied else 2)
    for layer in plan.layers:
        _mixer(total, config, plan, layer.parts, hidden)
        _feed_forward(total, config, layer.kind, layer.moe, hidden)
    if streams := _whole(config.text, "hc_count"):  # two hyper-connections a layer
        width = streams * hidden
        total["other"] += 2 * len(plan.layers) * width * (2 * (_whole(config.text, "hc_lowrank") or 0) + streams)
    total["table"] = ple_table(config.text)
    total["vision"] = _vision(config.document.get("vision_config"))
    total["draft"] = _draft(config, plan, hidden)
    return {part: n for part, n in total.items() if n}


def ple_table(text: Mapping[str, Any]) -> int:
    """Numbers of the n-gram table (PLE), 0 without one: 320 million rows of 160 for Qwen3.8-Flash-Next.

    A row for each entry of each head's vocabulary; a head's vocabulary is the next prime after the base, as good as the base.
    """
    ids = text.get("ple_layer_ids")
    if not isinstance(ids, list) or not ids:
        return 0
    sizes = [_whole(text, name) for name in _NGRAM_PARTS]
    if None in sizes:
        return 0
    grams, heads, base, width = (s for s in sizes if s is not None)
    if grams < 2:
        return 0
    return len(ids) * (grams - 1) * heads * base * (width // ((grams - 1) * heads))


def _mixer(total: Counter[str], config: ModelConfig, plan: LayerPlan, parts: tuple[str, ...], hidden: int) -> None:
    for part in parts:
        if part in plan.states:
            total["state"] += _state(config, plan.states[part], hidden)
        elif part in plan.attention:
            total["attention"] += _attention(config, plan, part, hidden)


def _attention(config: ModelConfig, plan: LayerPlan, part: str, hidden: int) -> int:
    attention, heads = plan.attention[part], config.num_attention_heads or 0
    text = config.text
    if attention.latent:
        nope, rope = _whole(text, "qk_nope_head_dim") or 0, _whole(text, "qk_rope_head_dim") or 0
        latent, value = _whole(text, "kv_lora_rank") or 0, _whole(text, "v_head_dim") or 0
        lora = _whole(text, "q_lora_rank")
        queries = hidden * lora + lora * heads * (nope + rope) if lora else hidden * heads * (nope + rope)
        return queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    gate = 2 if any(t.startswith(_GATED) for t in config.model_types) else 1
    size = heads * attention.head_size
    numbers = hidden * size * gate + hidden * attention.numbers_a_token(1) + heads * attention.value_size * hidden
    if plan.indexer and part == "sparse":
        queries = _whole(text, "indexer_n_heads") or 0
        numbers += hidden * plan.indexer.head_size * (queries + (_whole(text, "indexer_kv_heads") or 1))
    return numbers


def _state(config: ModelConfig, shape: StateShape, hidden: int) -> int:
    text = config.text
    channels = shape.conv + shape.groups * shape.group_numbers
    kernel = channels * (shape.rows + 1)
    if shape.kind == "gdn":
        values = shape.heads * (_whole(text, "linear_value_head_dim") or 0)
        return hidden * (channels + values + 2 * shape.heads) + kernel + values * hidden
    if shape.kind == "mamba2":
        return hidden * (channels + shape.conv + shape.heads) + kernel + shape.conv * hidden
    if shape.kind == "mamba1":
        rank = _whole(text, "mamba_dt_rank") or -(-hidden // 16)
        inner = shape.conv
        return (
            hidden * 2 * inner
            + kernel
            + inner * (rank + 2 * shape.head_numbers)
            + rank * inner
            + inner * shape.head_numbers
            + inner * hidden
        )
    if shape.kind == "kda":
        inner, dim = channels // 3, channels // 3 // shape.heads
        return hidden * channels + kernel + 2 * (hidden * dim + dim * inner) + hidden * shape.heads + inner * hidden
    if shape.kind == "lightning":
        inner = shape.heads * isqrt(shape.head_numbers)
        return 5 * hidden * inner  # queries, keys, values, gate, output
    return hidden * 3 * channels + kernel + channels * hidden  # short convolution


def _feed_forward(total: Counter[str], config: ModelConfig, kind: str, moe: bool | None, hidden: int) -> None:
    nemotron = any(t.startswith("nemotron_h") for t in config.model_types)
    if nemotron and kind not in ("mlp", "moe"):
        return
    matrices = 2 if nemotron else 3  # relu² has no gate
    text = config.text
    if not moe:
        total["feed-forward"] += matrices * hidden * (config.intermediate_size or 0)
        return
    experts = config.num_experts or 0
    width = config.moe_intermediate_size or config.intermediate_size or 0
    total["experts"] += experts * matrices * hidden * width
    total["router"] += experts * hidden
    shared = _whole(
        text, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"
    )
    if shared is None and (several := _whole(text, "n_shared_experts", "num_shared_experts")):
        shared = several * width
    total["shared expert"] += matrices * hidden * (shared or 0)


def _draft(config: ModelConfig, plan: LayerPlan, hidden: int) -> int:
    """MTP layers: one attention layer with the model's own feed-forward, and the projection that joins two hidden states."""
    count = config.mtp_layers or 0
    kind = next((k for k in ("full", "sparse") if k in plan.attention), None)
    if not count or kind is None:
        return 0
    one: Counter[str] = Counter()
    _mixer(one, config, plan, (kind,), hidden)
    _feed_forward(one, config, kind, bool(config.moe), hidden)
    return count * (sum(one.values()) + 2 * hidden * hidden)


def _vision(document: object) -> int:
    if not isinstance(document, Mapping):
        return 0
    depth, width = _whole(document, "depth", "num_hidden_layers"), _whole(document, "hidden_size", "embed_dim")
    inner = _whole(document, "intermediate_size")
    return depth * (4 * width * width + 2 * width * (inner or 4 * width)) if depth and width else 0


def _whole(table: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = table.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
            return value
    return None
