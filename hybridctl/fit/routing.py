"""What dynamic routing saves on a model that declares ``hybrid_config``, and what its cache groups cost.

Below ``thresholds.linear`` every KV head keeps pages; from there on the linear heads keep a state instead, and what they had is
freed. The linear and the flash heads of a layer are two cache groups, and groups share one page size: an uneven split pads the
smaller one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybridctl.fit.blocks import ceil_div
from hybridctl.fit.groups import group_layers
from hybridctl.fit.specs import Spec
from hybridctl.model.config import ModelConfig
from hybridctl.model.plan import LayerPlan


@dataclass(frozen=True, slots=True)
class Routing:
    """The caches of a routed model against those of the same model with flash attention only, one rank."""

    layers: int
    linear_heads: int
    """KV heads of a layer that are linear from ``pages_end`` on."""
    flash_heads: int
    pages_end: int
    """Tokens that keep pages for the linear heads too."""
    state_bytes: int
    """Of one sequence, over all routed layers: float32 sums of keys and values."""
    padding: float
    """Share of the pool's bytes that no layer can use, because groups of unequal pages share blocks."""
    block_factor: int
    """By how much the smaller group's blocks are longer to fill a page."""
    token_bytes: int
    """Of one token in one layer for one KV head."""

    def live(self, length: int) -> int:
        """Bytes that one sequence of that length holds while it decodes."""
        linear = (
            self.state_bytes if length > self.pages_end else length * self.linear_heads * self.token_bytes * self.layers
        )
        return linear + length * self.flash_heads * self.token_bytes * self.layers

    def flash_only(self, length: int) -> int:
        """Bytes of the same sequence without routing."""
        return length * (self.linear_heads + self.flash_heads) * self.token_bytes * self.layers

    def ratio(self, length: int) -> float:
        """Live bytes against flash only."""
        return self.live(length) / self.flash_only(length)


def routing(config: ModelConfig, plan: LayerPlan, ranks: int, block: int = 16, width: int = 2) -> Routing | None:
    """Read ``hybrid_config``; ``None`` for a model that declares none, or whose attention can't be routed.

    Args:
        ranks: tensor-parallel size.
        block: tokens of an attention block.
        width: bytes of a cached number.
    """
    table = config.document.get("hybrid_config") or config.text.get("hybrid_config")
    attention = plan.attention.get("full")
    if not isinstance(table, Mapping) or attention is None or attention.latent:
        return None
    end = _threshold(table)
    if end is None:
        return None
    heads = attention.heads_on(ranks)
    linear = _linear_heads(table, attention.kv_heads) // (attention.kv_heads // heads)
    flash = heads - linear
    layers = plan.count("full")
    token = (attention.head_size + attention.value_size) * width
    features = attention.head_size
    state = linear * features * (attention.value_size + 1) * 4 * layers
    specs = [
        Spec("full", block, block * n * token, block * n * token, label=name)
        for name, n in (("linear", linear), ("flash", flash))
        if n
    ]
    padding, factor = _groups(specs, layers)
    return Routing(layers, linear, flash, end, state, padding, factor, token)


def _groups(specs: list[Spec], layers: int) -> tuple[float, int]:
    """Padding and block factor of two groups a layer. The linear group is a kind of its own, which vLLM never fuses with flash."""
    if len(specs) < 2:
        return 0.0, 1
    own = [Spec("routed", s.block, s.content, s.page, label=s.label) if s.label == "linear" else s for s in specs]
    made = group_layers(own * layers)
    wide = max(g.pages for g in made.groups)
    used = sum(min(s.content, s.page) for g in made.groups for s in g.specs)
    return 1 - used / (wide * len(made.groups)), max(g.first.block for g in made.groups) // min(
        g.first.block for g in made.groups
    )


def _threshold(table: Mapping[str, Any]) -> int | None:
    stated = table.get("thresholds")
    end = stated.get("linear") if isinstance(stated, Mapping) else None
    return end if isinstance(end, int) and not isinstance(end, bool) and end >= 0 else None


def _linear_heads(table: Mapping[str, Any], heads: int) -> int:
    listed = table.get("linear_heads")
    if isinstance(listed, list):
        return min(heads, len(set(map(str, listed))))
    ratio = table.get("linear_head_ratio", 1.0)
    share = float(ratio) if isinstance(ratio, (int, float)) and 0 <= ratio <= 1 else 1.0
    return sum(int((h + 1) * share) > int(h * share) for h in range(heads))


def break_even(made: Routing) -> int:
    """The shortest sequence whose state is smaller than the pages that it replaces."""
    page = made.linear_heads * made.token_bytes * made.layers
    return max(made.pages_end, ceil_div(made.state_bytes, page)) if page else 0
