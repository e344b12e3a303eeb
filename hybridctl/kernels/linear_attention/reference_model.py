"""A whole model with the reference operator in every attention layer, through transformers' attention interface.

For decoders whose layers call that interface with q and k after RoPE: Qwen3, Qwen2, Llama, Mistral, and the full-attention layers
of Qwen3-Next. One sequence at
a time, no cache, in float32 or float64: what a server's logits are held against.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hybridctl.kernels.linear_attention.routing import Routing, entropy_scores, hybrid_attention, route

MODEL_TYPES = ("qwen3", "qwen2", "llama", "mistral", "qwen3_next")
INTERFACE = "hybridctl_reference"
CONVERTED = ("qwen3_next",)  # transformers stores their experts under other names than it holds them
# Values of hybrid_config's layer_types: routed by the thresholds, linear at every position; any other is full attention.
ROUTED_LAYER_TYPES = ("hybrid_attention", "hybrid")
LINEAR_LAYER_TYPES = ("linear_attention", "linear")
_OWN = re.compile(r"(?:^|\.)layers\.(\d+)\.self_attn\.(linear_proj\.weight|linear_head_gate)$")


@dataclass
class LayerPlan:
    """What one layer does: its routing (None: full attention only), its tensors, a mask to replay, the mask that was used.

    ``unruled``: the configuration's rule is not known here (compute units), so there must be a mask to replay.

    ``own`` is the mask that the routing gives for the same q and k, also where another is replayed; ``margins`` are the distances
    from the entropy threshold where the two differ, infinite where entropy does not decide. Both only while ``watch`` is set.
    """

    routing: Routing | None = None
    linear_proj: Tensor | None = None
    gate: Tensor | None = None
    replay: Tensor | None = None
    used: Tensor | None = None
    unruled: bool = False
    watch: bool = False
    own: Tensor | None = None
    margins: Tensor | None = None


@dataclass
class Reference:
    """A loaded model and one plan a layer."""

    model: nn.Module
    layers: list[LayerPlan] = field(default_factory=list)

    def logits(self, token_ids: Sequence[int], *, kernels: Sequence[Tensor | None] | None = None) -> Tensor:
        """Logits [n, vocabulary] of a whole sequence. kernels: a mask [n, H_k] a layer to replay (None: route)."""
        if kernels is not None and len(kernels) != len(self.layers):
            raise ValueError(f"{len(kernels)} masks for {len(self.layers)} layers")
        for i, plan in enumerate(self.layers):
            plan.replay = None if kernels is None else kernels[i]
        ids = torch.tensor([list(token_ids)], device=next(self.model.parameters()).device)
        with torch.no_grad():
            logits = self.model(input_ids=ids, use_cache=False).logits[0]
        assert isinstance(logits, Tensor)
        return logits

    @property
    def kernels(self) -> list[Tensor]:
        """The mask [n, H_k] that each attention layer used in the last call: True where linear."""
        if all(plan.used is None for plan in self.layers):
            raise ValueError("no sequence has been run yet")
        return [plan.used for plan in self.layers if plan.used is not None]


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """transformers' attention function: q [B, H, n, D], k [B, H_k, n, D], v [B, H_k, n, D_v] → [B, n, H, D].

    The mask given is not looked at: the operator is causal over one unpadded sequence.
    """
    plan = module.hybridctl_plan
    assert isinstance(plan, LayerPlan)
    if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise ValueError("the reference takes one whole sequence at a time, without a cache")
    replay = plan.replay
    if replay is None and plan.unruled:
        raise ValueError("compute units: replay a recorded mask instead")
    if replay is None and plan.routing is None:
        replay = torch.zeros(key.shape[2], key.shape[1], dtype=torch.bool, device=key.device)
    out, plan.used = hybrid_attention(
        *(x[0].transpose(0, 1) for x in (query, key, value)),
        routing=plan.routing if replay is None else None,
        kernels=replay,
        linear_proj=plan.linear_proj,
        linear_head_gate=plan.gate,
        scale=scaling,
    )
    if plan.watch and plan.routing is not None:
        _watch(plan, query[0].transpose(0, 1), key[0].transpose(0, 1), scaling)
    return out[None], None


def _watch(plan: LayerPlan, query: Tensor, key: Tensor, scaling: float) -> None:
    assert plan.routing is not None
    assert plan.used is not None
    plan.own = route(query, key, plan.routing, scale=scaling)
    differ = plan.own != plan.used
    plan.margins = torch.full((int(differ.sum()),), torch.inf)
    begin, end = plan.routing.flash_below, plan.routing.linear_from
    for i, (position, group) in enumerate(differ.nonzero().tolist()):
        if plan.routing.band == "entropy_based" and position >= begin and (end is None or position < end):
            score = entropy_scores(query, key, [position], scale=scaling)[0, group]
            plan.margins[i] = (score - plan.routing.entropy_threshold).abs()


def rename_linear(names: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Checkpoint name → model name where the article's linear_ prefix must go: linear_q_proj → q_proj.

    A component loses the prefix only if the model has the new name, does not have the old one, and the checkpoint has
    no tensor of the new name. linear_proj itself is an operator weight, not a prefixed name.
    """
    have, targets = set(names), set(wanted)
    out = {}
    for name in names:
        if name in targets or _OWN.search(name):
            continue
        new = ".".join(part.removeprefix("linear_") for part in name.split("."))
        if new != name and new in targets and new not in have:
            out[name] = new
    return out


def _operator_tensors(weights: Mapping[str, Tensor]) -> dict[tuple[int, str], Tensor]:
    """(layer, "linear_proj.weight" or "linear_head_gate") → tensor."""
    found = ((_OWN.search(name), tensor) for name, tensor in weights.items())
    return {(int(m[1]), m[2]): tensor for m, tensor in found if m}


def load_reference(
    model: str | Path | nn.Module,
    config: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    weights: Mapping[str, Tensor] | None = None,
) -> Reference:
    """A folder with config.json and safetensors files, or a transformers model (changed in place), with the reference in it.

    config: the hybrid_config; the checkpoint's own unless given; {} or none: full attention everywhere. weights: the
    operator's tensors by checkpoint name, where model is not a folder. Raises ValueError for a model type that the
    reference is not for, for sliding windows that the sequence could outgrow, and for tensors that are missing.
    """
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

    AttentionInterface.register(INTERFACE, _attention)
    if isinstance(model, nn.Module):
        settings: Any = model.config
        tensors = dict(weights or {})
    else:
        settings = AutoConfig.from_pretrained(model)
        tensors = _read(Path(model))
    if settings.model_type not in MODEL_TYPES:
        raise ValueError(f"model type {settings.model_type!r} is not one of {', '.join(MODEL_TYPES)}")
    if any(kind == "sliding_attention" for kind in getattr(settings, "layer_types", None) or ()) or (
        settings.model_type == "mistral" and settings.sliding_window is not None
    ):
        raise ValueError("layers with a sliding window cannot be wrapped")
    if not isinstance(model, nn.Module) and settings.model_type in CONVERTED:
        built: Any
        built, told = AutoModelForCausalLM.from_pretrained(
            model, dtype=dtype, attn_implementation=INTERFACE, output_loading_info=True
        )
        odd = [*told["missing_keys"], *(n for n in told["unexpected_keys"] if not _OWN.search(n))]
        if odd:
            raise ValueError(f"tensors missing or not known: {sorted(odd)}")
    elif not isinstance(model, nn.Module):
        settings._attn_implementation = INTERFACE
        built = AutoModelForCausalLM.from_config(settings, dtype=dtype)
        renamed = rename_linear(list(tensors), list(built.state_dict()))
        plain = {renamed.get(n, n): t.to(dtype) for n, t in tensors.items() if not _OWN.search(n)}
        missing, unexpected = built.load_state_dict(plain, strict=False)
        tied = {"lm_head.weight"} if settings.tie_word_embeddings else set()
        if set(missing) - tied or unexpected:
            raise ValueError(f"tensors missing: {sorted(set(missing) - tied)}; not known: {sorted(unexpected)}")
        built.tie_weights()
    else:
        built = model.to(dtype)
        built.set_attn_implementation(INTERFACE)
    return _with_plans(built.eval(), config, tensors, dtype)


def _with_plans(
    model: Any, config: Mapping[str, Any] | None, tensors: Mapping[str, Tensor], dtype: torch.dtype
) -> Reference:
    hybrid: Mapping[str, Any] = (config if config is not None else getattr(model.config, "hybrid_config", None)) or {}
    kinds = hybrid.get("layer_types")
    gates = hybrid.get("linear_head_gate")
    own = _operator_tensors(tensors)
    reference = Reference(model)
    device = next(model.parameters()).device
    for i, layer in enumerate(model.model.layers):
        if not hasattr(layer, "self_attn"):  # a layer of another kind
            reference.layers.append(LayerPlan())
            continue
        kind = None if kinds is None else kinds[i]
        part = bool(hybrid) and kind in (None, *ROUTED_LAYER_TYPES, *LINEAR_LAYER_TYPES)
        plan = LayerPlan(unruled=part and hybrid.get("compute_units") is not None)
        if part and not plan.unruled:
            plan.routing = _routing_of(hybrid, i, kind)
        if part:
            proj, gate = own.get((i, "linear_proj.weight")), own.get((i, "linear_head_gate"))
            gated = i in gates if isinstance(gates, list) else bool(gates)
            plan.linear_proj = None if proj is None else proj.to(device, dtype)
            plan.gate = None if gate is None or not gated else gate.to(device, dtype)
            if gated and gate is None:
                raise ValueError(f"layer {i} has no self_attn.linear_head_gate, which hybrid_config asks for")
        layer.self_attn.hybridctl_plan = plan
        reference.layers.append(plan)
    return reference


def _routing_of(hybrid: Mapping[str, Any], layer: int, kind: str | None) -> Routing:
    """The routing of one layer that takes part."""
    heads = hybrid.get("linear_heads")
    if isinstance(heads, list) and any(isinstance(each, list) for each in heads):
        hybrid = {**hybrid, "linear_heads": heads[layer]}
    if kind in LINEAR_LAYER_TYPES:
        hybrid = {**hybrid, "thresholds": {"flash": 0, "linear": 0}}
    return Routing.from_config(hybrid)


def _read(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} has no safetensors file")
    return {name: tensor for file in files for name, tensor in load_file(str(file)).items()}


def reference_logits(
    model: str | Path | nn.Module | Reference,
    token_ids: Sequence[int],
    config: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    kernels: Sequence[Tensor | None] | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Logits [n, vocabulary] of one sequence. See load_reference, whose result can be given to avoid loading again."""
    if not isinstance(model, Reference):
        model = load_reference(model, config, dtype=dtype, weights=weights)
    return model.logits(token_ids, kernels=kernels)
