"""Turns the Attention layers of a built model into routed ones, and refuses those that can't be."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import AttentionType
from vllm.v1.kv_cache_interface import AttentionSpec

from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.vllm_plugin import keep_kv
from hybridctl.runtime.vllm_plugin.backends import routed_backend
from hybridctl.runtime.vllm_plugin.kv_spec import RoutedKVSpec
from hybridctl.runtime.vllm_plugin.routing import RefusedError, first_linear, route_of, state_sizes
from hybridctl.runtime.vllm_plugin.state import LinearState, state_shapes


@dataclass
class LayerRouting:
    """What a routed layer knows of its routing.

    Attributes:
        route: its place in the plans of ``dispatcher``.
        layer: its index in the model; ``last`` is True for the last routed layer.
        pages_end: from this position on it has no K/V pages; None: it keeps them all.
        value_size: D_v. The columns of a value beyond are zero in the state's answers.
        projection: W [H_k, F, D], float32, or None for the identity. Set when weights are loaded.
    """

    dispatcher: HybridAttentionDispatcher
    route: int
    layer: int
    pages_end: int | None
    value_size: int
    projection: torch.Tensor | None = None
    last: bool = False


class RoutedAttention(Attention):
    """vLLM's Attention with a linear state (``linear_state``) and a routing (``routing``)."""

    routing: LayerRouting
    linear_state: LinearState

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        spec = super().get_kv_cache_spec(vllm_config)
        if self.routing.pages_end is None:
            return spec
        shared = {f.name: getattr(spec, f.name) for f in fields(AttentionSpec) if f.init}
        return RoutedKVSpec(**shared, pages_end=self.routing.pages_end)


def wrap(model: torch.nn.Module, vllm_config: Any, dispatcher: HybridAttentionDispatcher) -> dict[str, RoutedAttention]:
    """Route the layers that the dispatcher says can go linear. Returns them by layer name, in order.

    Raises:
        RefusedError: a layer that takes part but can't be routed, or none that can.
    """
    wrapped: dict[str, RoutedAttention] = {}
    pairs = [(p, c) for p in model.modules() for c in p.children() if hasattr(c, "get_kv_cache_spec")]
    for parent, layer in pairs:
        name = str(layer.layer_name)
        index = extract_layer_index(name)
        route = route_of(dispatcher, index)
        if route is None:
            continue
        if why := unwrappable(layer):
            raise RefusedError(f"layer {index} ({name}) can't be routed: {why}", "serve with --no-hybrid")
        wrapped[name] = _wrap(parent, layer, vllm_config, dispatcher, index, route)
    if missing := [i for i in dispatcher.layers if route_of(dispatcher, i) is not None and i not in _indices(wrapped)]:
        raise RefusedError(f"layer {missing[0]} has no attention that can be routed", "serve with --no-hybrid")
    list(wrapped.values())[-1].routing.last = True
    return wrapped


def _indices(wrapped: dict[str, RoutedAttention]) -> set[int]:
    return {layer.routing.layer for layer in wrapped.values()}


def unwrappable(layer: Any) -> str:
    """Why the state can't stand in for this layer's attention; empty where it can."""
    if type(layer) is not Attention:
        return f"its attention is {type(layer).__name__}, not plain Attention"
    impl = layer.impl
    reasons = {
        "sliding window": layer.sliding_window is not None,
        "attention sinks": layer.has_sink or getattr(impl, "sinks", None) is not None,
        "ALiBi": getattr(impl, "alibi_slopes", None) is not None,
        "soft cap": bool(getattr(impl, "logits_soft_cap", None)),
        "encoder attention": layer.attn_type != AttentionType.DECODER,
        "K/V shared with another layer": layer.kv_sharing_target_layer_name is not None,
        "keys and values of different sizes": layer.head_size_v != layer.head_size,
        "quantised K/V": layer.kv_cache_dtype not in ("auto", "float16", "bfloat16", "float32"),
    }
    return ", ".join(name for name, holds in reasons.items() if holds)


def _wrap(
    parent: torch.nn.Module, layer: Any, vllm_config: Any, dispatcher: HybridAttentionDispatcher, index: int, route: int
) -> RoutedAttention:
    sizes = state_sizes(dispatcher, layer.head_size)
    pages_end = None if keep_kv() else dispatcher.pages_end(index, 0)
    layer.__class__ = RoutedAttention
    layer.routing = LayerRouting(dispatcher, route, index, pages_end, sizes[1])
    layer.linear_state = LinearState(
        vllm_config,
        f"{layer.layer_name}.linear_state",
        state_shapes(layer.num_kv_heads, *sizes),
        first_linear(dispatcher),
    )
    layer.attn_backend = routed_backend(layer.attn_backend)
    layer.impl.__class__ = layer.attn_backend.get_impl_cls()
    # The operator's weight stands where the checkpoint has it, beside the projections of the attention block.
    if sizes[0] != layer.head_size or dispatcher.config.feature_size is not None:
        parent.linear_proj = Projection(layer.num_kv_heads, sizes[0], layer.head_size)
        layer.routing.projection = parent.linear_proj.weight
    return layer  # type: ignore[no-any-return]


class Projection(torch.nn.Module):
    """``linear_proj``: W [H_k, F, D] of a rank's groups, float32."""

    def __init__(self, groups: int, features: int, head_size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(
            torch.full((groups, features, head_size), float("nan"), dtype=torch.float32), requires_grad=False
        )
