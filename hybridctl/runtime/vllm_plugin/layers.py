"""Turns the Attention layers of a built model into routed ones, and refuses those that can't be."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import AttentionType
from vllm.v1.kv_cache_interface import AttentionSpec

from hybridctl.runtime.compute_unit import ENTROPY, FLASH
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.selection_log import SelectionLog
from hybridctl.runtime.vllm_plugin import keep_kv
from hybridctl.runtime.vllm_plugin.backends import routed_backend
from hybridctl.runtime.vllm_plugin.kv_spec import KeptKVSpec, RoutedKVSpec
from hybridctl.runtime.vllm_plugin.permute import Block, block_of
from hybridctl.runtime.vllm_plugin.routing import RefusedError, first_linear, is_routed, state_groups, state_sizes
from hybridctl.runtime.vllm_plugin.split import Part, SplitAttention, parts_of, split
from hybridctl.runtime.vllm_plugin.state import LinearState, state_shapes


@dataclass
class LayerRouting:
    """What a routed layer, or a part of one, knows of its routing.

    Attributes:
        route: its place in the plans of ``dispatcher``.
        layer: its index in the model; ``last`` is True for the last routed layer, which runs after all others; ``tells`` for the
            one that speaks of what entropy decides, or of where kernels change, to ``log``.
        groups: the local KV groups that it holds, in order; ``share`` what part that is of the layer's.
        pages_end: from this position on it has no K/V pages; None: it keeps them all.
        value_size: D_v. The columns of a value beyond are zero in the state's answers.
        split: whether the layer is one of several parts.
        projection: W [H_k, F, D], float32, or None for the identity. Set when weights are loaded.
        gate: logits [H], float32, or None without a gate. Set when weights are loaded.
    """

    dispatcher: HybridAttentionDispatcher
    route: int
    layer: int
    groups: tuple[int, ...]
    share: float
    pages_end: int | None
    value_size: int
    split: bool = False
    projection: torch.Tensor | None = None
    gate: torch.Tensor | None = None
    last: bool = False
    tells: bool = False
    log: SelectionLog | None = None


class RoutedAttention(Attention):
    """vLLM's Attention with a routing and, where it may be linear, a state (``linear_state``; else None)."""

    routing: LayerRouting
    linear_state: LinearState | None

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        spec = super().get_kv_cache_spec(vllm_config)
        end = self.routing.pages_end
        if end is None and (keep_kv() or not self.routing.split):
            return spec
        shared = {f.name: getattr(spec, f.name) for f in fields(AttentionSpec) if f.init}
        return KeptKVSpec(**shared) if end is None else RoutedKVSpec(**shared, pages_end=end)


@dataclass
class Wrapped:
    """What :func:`wrap` made of a model.

    Attributes:
        layers: routed layers and parts of layers, by name and in order.
        blocks: attention blocks whose tensors must be put in another order, by name.
        groups: of the operator's own tensors, the KV groups over all ranks that they hold here, by the tensor's name.
    """

    layers: dict[str, RoutedAttention]
    blocks: dict[str, Block]
    groups: dict[str, tuple[int, ...]]


def wrap(model: torch.nn.Module, vllm_config: Any, dispatcher: HybridAttentionDispatcher) -> Wrapped:
    """Route the layers that the dispatcher says can go linear.

    Raises:
        RefusedError: a layer that takes part but can't be routed, or none that can.
    """
    made = Wrapped({}, {}, {})
    names = {id(module): name for name, module in model.named_modules()}
    known = {id(layer): str(name) for name, layer in vllm_config.compilation_config.static_forward_context.items()}
    found = [(p, n, c) for p in model.modules() for n, c in p.named_children() if hasattr(c, "get_kv_cache_spec")]
    for parent, attribute, layer in found:
        name = known[id(layer)]
        index = extract_layer_index(name)
        if not is_routed(dispatcher, index):
            continue
        if why := unwrappable(layer):
            raise RefusedError(f"layer {index} ({name}) can't be routed: {why}", "serve with --no-hybrid")
        _wrap(made, parent, names[id(parent)], attribute, layer, vllm_config, dispatcher, index)
    indices = {layer.routing.layer for layer in made.layers.values()}
    if missing := [i for i in dispatcher.layers if is_routed(dispatcher, i) and i not in indices]:
        raise RefusedError(f"layer {missing[0]} has no attention that can be routed", "serve with --no-hybrid")
    routings = [layer.routing for layer in made.layers.values()]
    routings[-1].last = True
    kernels = [dispatcher.routes[routing.route].kernels for routing in routings]
    by_entropy = [routing for routing, each in zip(routings, kernels, strict=True) if ENTROPY in each]
    moving = [routing for routing, each in zip(routings, kernels, strict=True) if each != {FLASH}]
    (by_entropy or moving)[-1].tells = True
    return made


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
    made: Wrapped,
    parent: torch.nn.Module,
    block: str,
    attribute: str,
    layer: Any,
    vllm_config: Any,
    dispatcher: HybridAttentionDispatcher,
    index: int,
) -> None:
    parts = parts_of(dispatcher, index)
    own = [g for part in parts for g in part.groups]
    order = list(range(dispatcher.num_kv_heads))
    if own != sorted(own):
        for place, group in enumerate(own):
            order[dispatcher.groups[place]] = dispatcher.groups[group]
        made.blocks[block] = block_of(parent, block, layer.head_size, tuple(order))
    layers = [layer]
    if len(parts) > 1:
        layers = split(layer, parts, vllm_config)
        setattr(parent, attribute, SplitAttention(layers))
    for part, each in zip(parts, layers, strict=True):
        _route(each, part, vllm_config, dispatcher, index, len(own))
        made.layers[each.layer_name] = each
    linear = [each for each in layers if each.linear_state is not None]
    groups = tuple(dispatcher.groups[g] for each in linear for g in each.routing.groups)
    sizes = state_sizes(dispatcher, layer.head_size)
    # The operator's weights stand where the checkpoint has them, beside the projections of the attention block.
    if sizes[0] != layer.head_size or dispatcher.config.feature_size is not None:
        parent.linear_proj = Projection(len(groups), sizes[0], layer.head_size)
        made.groups[f"{block}.linear_proj.weight"] = groups
        pieces = parent.linear_proj.weight.split([each.num_kv_heads for each in linear])
        for each, piece in zip(linear, pieces, strict=True):
            each.routing.projection = piece
    if index in dispatcher.config.gated:
        logits = torch.full((sum(each.num_heads for each in linear),), float("nan"), dtype=torch.float32)
        parent.linear_head_gate = torch.nn.Parameter(logits, requires_grad=False)
        made.groups[f"{block}.linear_head_gate"] = groups
        pieces = parent.linear_head_gate.split([each.num_heads for each in linear])
        for each, piece in zip(linear, pieces, strict=True):
            each.routing.gate = piece


def _route(
    layer: Any, part: Part, vllm_config: Any, dispatcher: HybridAttentionDispatcher, index: int, groups: int
) -> None:
    sizes = state_sizes(dispatcher, layer.head_size)
    pages_end = None if keep_kv() else dispatcher.pages_end(index, part.groups[0])
    layer.__class__ = RoutedAttention
    share = len(part.groups) / groups
    layer.routing = LayerRouting(
        dispatcher, part.route, index, part.groups, share, pages_end, sizes[1], len(part.groups) < groups
    )
    layer.linear_state = None
    if part.linear:
        layer.linear_state = LinearState(
            vllm_config,
            f"{layer.layer_name}.linear_state",
            state_shapes(state_groups(dispatcher), *sizes),
            first_linear(dispatcher),
            state_groups(dispatcher) / groups,
        )
    layer.attn_backend = routed_backend(layer.attn_backend)
    layer.impl.__class__ = layer.attn_backend.get_impl_cls()


class Projection(torch.nn.Module):
    """``linear_proj``: W [H_k, F, D] of a rank's groups, float32."""

    def __init__(self, groups: int, features: int, head_size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(
            torch.full((groups, features, head_size), float("nan"), dtype=torch.float32), requires_grad=False
        )
