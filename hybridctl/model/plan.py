"""LayerPlan: what every layer of a model is, and what it keeps of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybridctl.model.config import ModelConfig
from hybridctl.model.experts import expert_layers
from hybridctl.model.layers import ATTENTION_KINDS, STATE_KINDS
from hybridctl.model.states import StateShape, ple_state, state_shape


@dataclass(frozen=True, slots=True)
class Attention:
    """Keys and values of one attention layer, over all ranks, in numbers a token.

    ``value_size`` 0: one latent for keys and values (MLA), which every rank holds whole.
    """

    kv_heads: int
    head_size: int
    value_size: int
    window: int | None = None
    """Tokens of a sliding window or of a local chunk; ``None``: all tokens."""
    chunked: bool = False
    """The window is a chunk that starts anew, and does not slide."""

    @property
    def latent(self) -> bool:
        return self.value_size == 0

    def heads_on(self, ranks: int) -> int:
        """KV heads that one rank holds: at least one, so that fewer heads than ranks are repeated."""
        return 1 if self.latent else max(1, self.kv_heads // ranks)

    def numbers_a_token(self, ranks: int) -> int:
        """Numbers that one token takes in one layer on one rank."""
        return self.heads_on(ranks) * (self.head_size + self.value_size)


@dataclass(frozen=True, slots=True)
class Indexer:
    """The side caches of a sparse (QSA) layer: the open group's raw keys in a ring, and one compressed key a group."""

    head_size: int
    ratio: int
    """Tokens a group."""
    positions: bool
    """Three exact int64 positions lie beside every raw key (multimodal rope)."""


@dataclass(frozen=True, slots=True)
class PlannedLayer:
    """One layer. ``kind``: full, sliding, sparse, gdn, kda, mamba1, mamba2, lightning, short-conv, linear, parallel, mlp, moe."""

    index: int
    kind: str
    moe: bool | None
    """Whether its feed-forward part is a mixture of experts; ``None``: the config does not tell."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What keeps something of a sequence: a parallel layer is attention and state."""
        if self.kind == "parallel":
            return ("full", "mamba2")
        return () if self.kind in ("mlp", "moe") else (self.kind,)


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """All layers of a model and the sizes of what they keep."""

    layers: tuple[PlannedLayer, ...]
    read_from: str
    """The field of config.json that told the kinds."""
    attention: Mapping[str, Attention]
    """By kind."""
    states: Mapping[str, StateShape]
    """By kind; "ple" for the window before an n-gram embedding."""
    indexer: Indexer | None
    dtype: str
    shared: int
    """Layers at the end that read an earlier layer's cache and have none."""
    chunk: int
    """Tokens that a Mamba scan takes at once; 2048 where there are no chunks, as vLLM counts it."""
    missing: tuple[str, ...]
    """What the config does not tell, one line each; a plan with a line here can't be sized."""

    @property
    def hybrid(self) -> bool:
        return any(layer.kind in STATE_KINDS for layer in self.layers)

    def count(self, kind: str) -> int:
        """Layers that hold a cache of that kind; parallel layers count for both of theirs."""
        own = self.layers[: len(self.layers) - self.shared]
        return sum(part == kind for layer in own for part in layer.parts)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of caches, in order of appearance."""
        return tuple(dict.fromkeys(part for layer in self.layers for part in layer.parts))


def plan_layers(config: ModelConfig) -> LayerPlan:
    """The plan of a model. What its config leaves open stands in ``missing``."""
    missing: list[str] = []
    kinds, source = config.layers, config.layers_from
    if kinds is None:
        kinds, source = _plain(config)
    if not kinds:
        missing.append("which layers there are")
        kinds = []
    experts = expert_layers(config.text, kinds, config.model_types, config.num_experts)
    layers = tuple(PlannedLayer(i, kind, moe) for i, (kind, moe) in enumerate(zip(kinds, experts, strict=True)))
    parts = dict.fromkeys(part for layer in layers for part in layer.parts)
    attention = {kind: a for kind in parts if kind in ATTENTION_KINDS and (a := _attention(config, kind))}
    states = {
        kind: s for kind in parts if kind in STATE_KINDS and (s := state_shape(config.text, kind, config.model_types))
    }
    if ple := ple_state(config.text):
        states["ple"] = ple
    if kinds and not parts:
        missing.append("a layer that keeps anything of a sequence")
    for kind in parts:
        if kind not in attention and kind not in states:
            missing.append("what its linear attention is" if kind == "linear" else f"the sizes of a {kind} layer")
        elif kind == "sliding" and attention[kind].window is None:
            missing.append("sliding_window")
    indexer = _indexer(config) if "sparse" in parts else None
    if "sparse" in parts and indexer is None:
        missing.append("the sizes of the sparse layers' indexer")
    shared = config.text.get("num_kv_shared_layers")
    return LayerPlan(
        layers,
        source,
        attention,
        states,
        indexer,
        config.dtype or "",
        shared if isinstance(shared, int) and 0 < shared < len(layers) else 0,
        _chunk(config),
        tuple(missing),
    )


_CHUNKS = {"falcon_h1": 256, "granitemoehybrid": 256, "bamba": 256, "nemotron_h": 128, "zamba2": 256, "mamba2": 256}


def _chunk(config: ModelConfig) -> int:
    """``ModelConfig.get_mamba_chunk_size`` of vLLM; where the config leaves it out, its class in transformers fills it in."""
    stated = _whole(config.text.get("mamba_chunk_size")) or _whole(config.text.get("chunk_size"))
    return stated or next((_CHUNKS[t] for t in config.model_types if t in _CHUNKS), 2048)


def _plain(config: ModelConfig) -> tuple[list[str] | None, str]:
    """Models whose config has no word about kinds: attention everywhere, sliding where a window is stated and used."""
    count = config.num_hidden_layers
    if not count or not config.complete or not 0 < count <= 2000 or _has_state(config.text):
        return None, ""
    window = config.text.get("sliding_window")
    if not window or config.text.get("use_sliding_window") is False:
        return ["full"] * count, "num_hidden_layers"
    if "mistral" in config.model_types:
        return ["sliding"] * count, "sliding_window"
    return None, ""


def _has_state(text: Mapping[str, Any]) -> bool:
    return any(name.startswith(("linear_", "mamba_", "ssm_", "conv_L")) for name in text)


def _attention(config: ModelConfig, kind: str) -> Attention | None:
    text = config.text
    slides, chunk = _whole(text.get("sliding_window")), _whole(text.get("attention_chunk_size"))
    window = (slides or chunk) if kind == "sliding" else None
    latent = _whole(text.get("kv_lora_rank"))
    if latent and kind == "full":
        return Attention(1, latent + (_whole(text.get("qk_rope_head_dim")) or 0), 0)
    heads = _whole(config.num_attention_heads)
    kv_heads = _whole(config.num_key_value_heads) or heads
    head = _whole(text.get("attention_head_dim")) or _whole(config.head_dim)
    if not head and heads and (hidden := _whole(config.hidden_size)):
        head = hidden // heads
    value = _whole(text.get("v_head_dim"))
    if kind == "full" and (wide := _whole(text.get("global_head_dim"))):  # Gemma 4
        head, kv_heads = wide, _whole(text.get("num_global_key_value_heads")) or kv_heads
    if kind == "sliding" and (own := _whole(text.get("swa_head_dim"))):  # MiMo-V2
        head, kv_heads = own, _whole(text.get("swa_num_key_value_heads")) or kv_heads
        value = _whole(text.get("swa_v_head_dim"))
    return Attention(kv_heads, head, value or head, window, bool(window) and not slides) if kv_heads and head else None


def _indexer(config: ModelConfig) -> Indexer | None:
    head, ratio = _whole(config.text.get("indexer_head_dim")), _whole(config.text.get("indexer_compress_ratio"))
    if not head or not ratio:
        return None
    multimodal = any(name.endswith("ForConditionalGeneration") for name in config.architectures)
    rope = config.text.get("rope_parameters") or config.text.get("rope_scaling")
    sections = isinstance(rope, Mapping) and "mrope_section" in rope
    return Indexer(head, ratio, multimodal and (sections or rope is None))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None
