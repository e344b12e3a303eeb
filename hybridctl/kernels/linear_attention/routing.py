"""Which kernel a token takes, in plain PyTorch: a function of its position and of the tokens before it, never of the batch.

Sizes as in naive.py. A mask is a bool tensor [n, H_k]: True where that position and group take the linear kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention import naive

LANDMARKS = 64
POLICIES = ("entropy_based", "flash", "linear")


def landmark_positions(position: int) -> list[int]:
    """The 64 key positions that the entropy score of a position looks at: ⌊i·c/64⌋ with c = 64·⌊(p+1)/64⌋.

    c moves only once in 64 positions, so neighbouring queries share their landmarks, and all lie at or before p.
    Raises ValueError below position 63, where there are not 64 keys yet.
    """
    seen = LANDMARKS * ((position + 1) // LANDMARKS)
    if seen == 0:
        raise ValueError(f"position {position} has fewer than {LANDMARKS} keys: it has no entropy score")
    return [i * seen // LANDMARKS for i in range(LANDMARKS)]


def entropy_scores(q: Tensor, k: Tensor, positions: Sequence[int], *, scale: float | None = None) -> Tensor:
    """Entropy of softmax(q·K_landmarksᵀ·scale) / log 64, the mean over the query heads of each group.

    q [n, H, D] and k [n, H_k, D] of the whole sequence; positions: which to score. Returns [len(positions), H_k], in
    0 … 1: 0 where one landmark takes all the weight, 1 where all have the same.
    """
    heads, size = q.shape[1:]
    groups = k.shape[1]
    rows = []
    for position in positions:
        landmarks = k[landmark_positions(position)]  # [64, H_k, D]
        query = naive._wide(q[position]).view(groups, heads // groups, size)
        scores = torch.einsum("hgd,mhd->hgm", query, naive._wide(landmarks)) * (size**-0.5 if scale is None else scale)
        logs = scores.log_softmax(dim=-1)
        entropy = -(logs.exp() * logs).sum(dim=-1) / math.log(LANDMARKS)
        rows.append(entropy.mean(dim=-1))
    return torch.stack(rows) if rows else naive._wide(q).new_zeros(0, groups)


def linear_groups(groups: int, *, ratio: float = 1.0, listed: Sequence[int] | None = None) -> list[bool]:
    """Level 4: whether each KV group may be linear: group h iff ⌊(h+1)·r⌋ > ⌊h·r⌋, or as listed by index."""
    if listed is not None:
        if any(not 0 <= h < groups for h in listed):
            raise ValueError(f"linear_heads {list(listed)} names a group outside 0 … {groups - 1}")
        return [h in listed for h in range(groups)]
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"linear_head_ratio {ratio} is not in 0 … 1")
    return [math.floor((h + 1) * ratio) > math.floor(h * ratio) for h in range(groups)]


@dataclass(frozen=True)
class Routing:
    """Thresholds T_f and T_l in tokens (T_l None: never linear by position alone), and what decides between them."""

    flash_below: int
    linear_from: int | None
    band: str = "entropy_based"
    entropy_threshold: float = 0.8
    linear_head_ratio: float = 1.0
    linear_heads: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.band not in POLICIES:
            raise ValueError(f"fallback_policy {self.band!r} is not one of {', '.join(POLICIES)}")
        if self.flash_below < 0 or (self.linear_from is not None and self.linear_from < self.flash_below):
            raise ValueError(f"thresholds {self.flash_below} and {self.linear_from} are not 0 ≤ flash ≤ linear")
        has_band = self.linear_from is None or self.linear_from > self.flash_below
        if has_band and self.band == "entropy_based" and self.flash_below < LANDMARKS:
            raise ValueError(f"entropy decides from position {self.flash_below}, but needs {LANDMARKS} keys")

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Routing:
        """From a checkpoint's hybrid_config of strategy "sequence_length" (or "layer_types", seen from one of its layers).

        Raises ValueError for what a position's kernel can't be computed from here: other strategies, and rules by
        prompt length or by batch.
        """
        strategy = config.get("routing_strategy", "sequence_length")
        if strategy not in ("sequence_length", "layer_types"):
            raise ValueError(f"routing_strategy {strategy!r}: replay a recorded mask instead")
        if config.get("route_by", "position") != "position" or config.get("batch_policy") is not None:
            raise ValueError("route_by and batch_policy other than by position: replay a recorded mask instead")
        thresholds = config.get("thresholds")
        if not isinstance(thresholds, Mapping) or not isinstance(thresholds.get("flash"), int):
            raise ValueError("thresholds is not {flash: tokens, linear: tokens or null}")
        heads = config.get("linear_heads")
        return cls(
            flash_below=thresholds["flash"],
            linear_from=thresholds.get("linear"),
            band=str(config.get("fallback_policy", "entropy_based")),
            entropy_threshold=float(config.get("entropy_threshold", 0.8)),  # type: ignore[arg-type]
            linear_head_ratio=float(config.get("linear_head_ratio", 1.0)),  # type: ignore[arg-type]
            linear_heads=None if heads is None else tuple(heads),  # type: ignore[arg-type]
        )


def route(q: Tensor, k: Tensor, routing: Routing, *, scale: float | None = None) -> Tensor:
    """The mask [n, H_k] of a whole sequence, q [n, H, D] and k [n, H_k, D], levels 1 to 4.

    p < T_f flash; p ≥ T_l linear; between: by entropy (above the threshold flash, else linear) or as the policy says;
    groups that may not be linear are always flash.
    """
    n, groups = k.shape[:2]
    position = torch.arange(n, device=q.device)
    end = n if routing.linear_from is None else min(routing.linear_from, n)
    mask = (position >= end)[:, None].repeat(1, groups)
    band = range(min(routing.flash_below, n), end)
    if routing.band == "linear":
        mask[band.start : band.stop] = True
    elif routing.band == "entropy_based" and len(band):
        mask[band.start : band.stop] = entropy_scores(q, k, band, scale=scale) <= routing.entropy_threshold
    allowed = linear_groups(groups, ratio=routing.linear_head_ratio, listed=routing.linear_heads)
    return mask & torch.tensor(allowed, device=q.device)


def hybrid_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    routing: Routing | None = None,
    linear_proj: Tensor | None = None,
    linear_head_gate: Tensor | None = None,
    kernels: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """A whole sequence through the operator: each position and group by the kernel that it is routed to.

    q [n, H, D], k [n, H_k, D], v [n, H_k, D_v]; linear_proj [H_k, F, D] or None; linear_head_gate [H], logits: a head
    gives σ·linear + (1 − σ)·flash where it is routed linear. kernels: a mask [n, H_k] to replay instead of routing.
    Returns the output [n, H, D], zeros past D_v, and the mask that was used.
    """
    if (routing is None) == (kernels is None):
        raise ValueError("give either a routing or a mask to replay")
    n, heads, size = q.shape
    if routing is not None:
        mask = route(q, k, routing, scale=scale)
    else:
        assert kernels is not None
        mask = kernels.to(q.device)
        if mask.dtype != torch.bool or mask.shape != (n, k.shape[1]):
            raise ValueError(f"the mask must be bool [{n}, {k.shape[1]}], not {mask.dtype} {list(mask.shape)}")
    soft = naive.flash(q, k, v, scale=scale)
    lin = naive.linear(q, k, v, linear_proj)
    if linear_head_gate is not None:
        g = torch.sigmoid(naive._wide(linear_head_gate)).to(soft.dtype)[None, :, None]
        lin = g * lin + (1.0 - g) * soft
    taken = naive._per_query_head(mask, heads)[..., None]
    return naive.pad_values(torch.where(taken, lin, soft), size), mask
