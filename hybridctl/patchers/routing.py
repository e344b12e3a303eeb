"""``--routing``: the ``hybrid_config`` block that is written, what stands against it, and what it means for a checkpoint.

What can't be routed is refused here, with the layers by name, so that there is never an overlay that serve ignores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from hybridctl.errors import UsageError
from hybridctl.inputs import read_text
from hybridctl.model.config import ModelConfig
from hybridctl.model.inventory import Inventory
from hybridctl.model.layers import STATE_KINDS
from hybridctl.model.plan import LayerPlan
from hybridctl.patchers.json_edit import parse as parse_json
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse
from hybridctl.runtime.overlay_min import first_architecture, routed_architecture

KEY = "hybrid_config"
ARTICLE: Mapping[str, Any] = {
    "routing_strategy": "sequence_length",
    "thresholds": {"flash": 2048, "linear": 4096},
    "fallback_policy": "entropy_based",
    "linear_head_ratio": 0.5,
}
"""The block of the article that the project began with, word for word."""
NAMES = {
    "full": "full attention",
    "sliding": "sliding-window attention",
    "sparse": "sparse attention",
    "gdn": "Gated DeltaNet",
    "kda": "KDA linear attention",
    "mamba1": "Mamba",
    "mamba2": "Mamba-2",
    "lightning": "lightning attention",
    "short-conv": "short convolution",
    "linear": "linear attention",
    "parallel": "attention beside Mamba-2",
    "mlp": "feed-forward only",
    "moe": "experts only",
}
_PROJECTION = re.compile(r"(?:^|\.)(?:self_attn\.linear_proj|linear_\w+)\.weight$")
_GATE = re.compile(r"(?:^|\.)self_attn\.linear_head_gate$")


class NotRoutableError(UsageError):
    """A checkpoint whose layers the dispatcher can't take over. ``table``: what each of them is."""

    def __init__(self, message: str, table: list[tuple[str, str]]) -> None:
        rows = "; ".join(f"{where}: {what}" for where, what in table)
        super().__init__(f"{message} ({rows})", "hybridctl prepare MODEL --routing none")
        self.table = table


@dataclass(frozen=True, slots=True)
class Routing:
    """A routing that was asked for. ``block`` ``None``: none, and one that config.json has is taken out."""

    name: str
    block: Mapping[str, Any] | None


def asked(option: str) -> Routing:
    """``none``, ``article``, or a JSON file that holds the block or a config.json with one.

    Raises:
        UsageError: the file can't be read, or is neither.
    """
    if option in ("none", "article"):
        return Routing(option, dict(ARTICLE) if option == "article" else None)
    document = parse_json(read_text(option, "--routing"), option)
    block = document.get(KEY, document)
    if not isinstance(block, dict):
        raise UsageError(
            f"--routing: {KEY} in {option} is no table", "give the block itself, or a config.json with one"
        )
    return Routing(Path(option).name, block)


def unwrappable(config: ModelConfig, plan: LayerPlan) -> dict[int, str]:
    """Layers that the dispatcher can't take over, each with what it is; as ``runtime.vllm_plugin.layers`` refuses them."""
    found: dict[int, str] = {}
    text = config.text
    for layer in plan.layers:
        name = NAMES.get(layer.kind, layer.kind)
        if layer.kind == "full":
            attention = plan.attention.get("full")
            if attention is not None and attention.latent:
                name = "latent attention (MLA)"
            elif attention is not None and attention.value_size != attention.head_size:
                name = "keys and values of different sizes"
            elif text.get("attn_logit_softcapping"):
                name = "attention with a soft cap"
            elif "gpt_oss" in config.model_types or text.get("attention_sinks"):
                name = "attention with sinks"
            elif text.get("alibi") or text.get("position_embedding_type") == "alibi":
                name = "attention with ALiBi"
            elif layer.index >= len(plan.layers) - plan.shared:
                name = "K/V shared with another layer"
            else:
                continue
        elif layer.kind == "sparse" and any(t.startswith("qwen4_exp") for t in config.model_types):
            name = "sparse attention (QSA)"
        found[layer.index] = name
    return found


def table(config: ModelConfig, plan: LayerPlan) -> list[tuple[str, str]]:
    """Which layers are what: ``("0-2, 4-6 (6 layers)", "Gated DeltaNet")``."""
    odd = unwrappable(config, plan)
    kinds: dict[str, list[int]] = {}
    for layer in plan.layers:
        kinds.setdefault(odd.get(layer.index, NAMES["full"]), []).append(layer.index)
    return [(f"layers {_ranges(at)}, {len(at)} in all", what) for what, at in kinds.items()]


def _ranges(numbers: Iterable[int]) -> str:
    runs = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    shown = runs if len(runs) <= 6 else [*runs[:4], "…", runs[-1]]
    return ", ".join(shown)


def dispatcher(
    document: Mapping[str, Any], config: ModelConfig, plan: LayerPlan, block: object, tp: int = 1
) -> HybridAttentionDispatcher:
    """The routing, checked against the model.

    Raises:
        ConfigError: a block that is wrong.
        NotRoutableError: a layer that takes part and can't be routed.
        UsageError: an architecture that the plugin has no class for, or heads that do not divide.
    """
    odd = unwrappable(config, plan)
    if states := [layer.kind for layer in plan.layers if layer.kind in STATE_KINDS]:
        named = NAMES.get(states[0], states[0])
        raise NotRoutableError(
            f"{_class(document)} is a hybrid already ({named}): vLLM serves it as it is, and no layer is routed",
            table(config, plan),
        )
    routed_architecture(document)
    attention = plan.attention.get("full")
    layers = len(plan.layers)
    if attention is None or not layers:
        raise NotRoutableError("no layer has full attention", table(config, plan))
    shape = ModelShape(layers, attention.kv_heads, attention.head_size)
    made = HybridAttentionDispatcher(parse(block, shape), layers, attention.kv_heads, 0, tp)
    part = [i for i in made.layers if i in odd and made.linear_groups(i)]
    if part:
        raise NotRoutableError(f"{len(part)} of {layers} layers can't be routed: {odd[part[0]]}", table(config, plan))
    return made


def _class(document: Mapping[str, Any]) -> str:
    return first_architecture(document) or "the model"


def weights(inventory: Inventory) -> tuple[int, int, int | None]:
    """Tensors that only a routed checkpoint has: ``(projections, gates, feature size)``."""
    named = [t for t in inventory.tensors if _PROJECTION.search(t.name) and len(t.shape) == 3]
    gates = sum(bool(_GATE.search(t.name)) for t in inventory.tensors)
    return len(named), gates, named[0].shape[1] if named else None


def meaning(made: HybridAttentionDispatcher, inventory: Inventory) -> list[str]:
    """What the routing means for this checkpoint, a line each."""
    projections, gates, _ = weights(inventory)
    lines = made.banner()
    if not projections:
        lines.append(
            "the checkpoint has no weights for it (self_attn.linear_proj): the feature map is elu(x) + 1 of the key itself. "
            "It was not trained for that, so what goes linear will be wrong more or less; measure it: hybridctl verify"
        )
    if made.config.gated and not gates:
        lines.append("linear_head_gate is on, and the checkpoint has no self_attn.linear_head_gate")
    lines.append(
        "PTX kernels: not built; on the CPU the operators run in torch, on a GPU the dispatcher refuses to start"
    )
    return lines
