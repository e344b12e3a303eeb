"""One attention layer as several: each takes the KV groups of one route, so that each has pages and states of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.model_executor.layers.attention import Attention

from hybridctl.runtime.dispatcher import HybridAttentionDispatcher


@dataclass(frozen=True)
class Part:
    """KV groups of one layer with one route.

    Attributes:
        route: its place in the dispatcher's routes.
        groups: local KV groups, in the order in which they lie side by side in this part.
        linear: whether they may be linear, and so have a state.
    """

    route: int
    groups: tuple[int, ...]
    linear: bool


def parts_of(dispatcher: HybridAttentionDispatcher, layer: int) -> tuple[Part, ...]:
    """The parts of a layer, linear ones first."""
    linear = set(dispatcher.linear_groups(layer))
    found: dict[int, list[int]] = {}
    for group in dispatcher.permutation(layer):
        found.setdefault(dispatcher.route(layer, group), []).append(group)
    return tuple(Part(route, tuple(groups), groups[0] in linear) for route, groups in found.items())


class SplitAttention(torch.nn.Module):
    """Stands where a model has an Attention. The columns of q, k and v lie in the order of the parts' groups.

    Args:
        parts: the attention layers; together they have the KV groups of the layer that they replace.
    """

    def __init__(self, parts: list[Attention]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)
        self.queries = [part.num_heads * part.head_size for part in parts]
        self.keys = [part.num_kv_heads * part.head_size for part in parts]

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """query [T, H·D] or [T, H, D], key and value [T, H_k·D] or [T, H_k, D] → [T, H·D]."""
        queries = query.flatten(1).split(self.queries, -1)
        keys, values = (x.flatten(1).split(self.keys, -1) for x in (key, value))
        done = [part(q, k, v) for part, q, k, v in zip(self.parts, queries, keys, values, strict=True)]
        return torch.cat(done, -1)


def split(layer: Attention, parts: tuple[Part, ...], vllm_config: Any) -> list[Attention]:
    """Attention layers for the parts of ``layer``, which leaves vLLM's register of layers. Called while the model is built."""
    context = vllm_config.compilation_config.static_forward_context
    del context[layer.layer_name]
    heads = layer.num_heads // layer.num_kv_heads
    made = []
    for i, part in enumerate(parts):
        kind = "linear" if part.linear else "flash"
        number = f"_{i + 1}" if i and part.linear else ""
        made.append(
            Attention(
                heads * len(part.groups),
                layer.head_size,
                layer.impl.scale,
                num_kv_heads=len(part.groups),
                cache_config=vllm_config.cache_config,
                quant_config=layer.quant_config,
                prefix=f"{layer.layer_name}.{kind}{number}",
                attn_backend=layer.attn_backend,
            )
        )
    return made
