"""What every kernel must compute, in plain PyTorch: slow, readable, exact in float64.

One sequence at a time, no batch axis. Sizes: n query positions, c key positions, H query heads, H_k key/value heads
(groups), g = H / H_k query heads a group, D head size, F feature size, D_v value size. Query head h reads group h // g.
q and k are taken after RoPE. Position p (from 0) sees the keys of positions 0 … p.

The arithmetic runs in the dtype of the inputs; float16 and bfloat16 are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DENOMINATOR_FLOOR = 1e-6  # φ can underflow to 0, and 0 / 0 must not reach the output


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _per_query_head(x: Tensor, heads: int) -> Tensor:
    """[c, H_k, …] → [c, H, …]: each group repeated for its query heads."""
    if heads % x.shape[1]:
        raise ValueError(f"{heads} query heads cannot be shared by {x.shape[1]} key/value heads")
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def pad_values(output: Tensor, head_size: int) -> Tensor:
    """[n, H, D_v] → [n, H, D]: zeros behind the values where D_v < D.

    Raises ValueError where D_v > D: such an output has no place in the layer.
    """
    missing = head_size - output.shape[-1]
    if missing < 0:
        raise ValueError(f"values of size {output.shape[-1]} do not fit a head of size {head_size}")
    return torch.cat([output, output.new_zeros(*output.shape[:-1], missing)], dim=-1)


def feature_map(x: Tensor, linear_proj: Tensor | None = None) -> Tensor:
    """φ(x) = elu(W x) + 1. x [n, H or H_k, D]; W = linear_proj [H_k, F, D], or the identity. Returns [n, H or H_k, F].

    A query head uses the projection of its group. Below 0, elu(x) + 1 is exp(x) and is computed as that: in float32,
    1 + (exp(x) − 1) would round everything under 6e-8 away, and a model can come to depend on it.
    """
    x = _wide(x)
    if linear_proj is not None:
        if linear_proj.dim() != 3 or linear_proj.shape[-1] != x.shape[-1]:
            raise ValueError(f"linear_proj {tuple(linear_proj.shape)} is not [H_k, F, {x.shape[-1]}]")
        weight = _per_query_head(linear_proj.to(x.dtype).unsqueeze(0), x.shape[1])[0]  # [H, F, D]
        x = torch.einsum("nhd,hfd->nhf", x, weight)
    return torch.where(x > 0, x + 1.0, x.clamp_max(0.0).exp())


def _causal(n: int, c: int, device: torch.device) -> Tensor:
    """[n, c]: True where the key lies at or before the query; the queries are the last n of c positions."""
    if n > c:
        raise ValueError(f"{n} queries but only {c} keys")
    positions = torch.arange(c - n, c, device=device)
    return torch.arange(c, device=device)[None, :] <= positions[:, None]


def flash(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """softmax(q·Kᵀ·scale + causal)·V, scale 1/√D unless given.

    q [n, H, D] at the last n of c positions, k [c, H_k, D], v [c, H_k, D_v]. Returns [n, H, D_v].
    """
    n, heads, size = q.shape
    keys, values = _per_query_head(_wide(k), heads), _per_query_head(_wide(v), heads)
    scores = torch.einsum("nhd,chd->hnc", _wide(q), keys) * (size**-0.5 if scale is None else scale)
    scores = scores.masked_fill(~_causal(n, k.shape[0], q.device), -math.inf)
    return torch.einsum("hnc,chv->nhv", scores.softmax(dim=-1), values).to(q.dtype)


def linear(q: Tensor, k: Tensor, v: Tensor, linear_proj: Tensor | None = None) -> Tensor:
    """Parallel form: Σ_j (φ(q)·φ(k_j)) v_j / max(Σ_j φ(q)·φ(k_j), 1e-6) over the keys j at or before the query.

    q [n, H, D] at the last n of c positions, k [c, H_k, D], v [c, H_k, D_v]. Returns [n, H, D_v].
    """
    n, heads, _ = q.shape
    keys, values = _per_query_head(feature_map(k, linear_proj), heads), _per_query_head(_wide(v), heads)
    weights = torch.einsum("nhf,chf->hnc", feature_map(q, linear_proj), keys)
    weights = weights.masked_fill(~_causal(n, k.shape[0], q.device), 0.0)
    total = weights.sum(dim=-1).clamp_min(DENOMINATOR_FLOOR).transpose(0, 1)
    return (torch.einsum("hnc,chv->nhv", weights, values) / total[..., None]).to(q.dtype)


@dataclass(frozen=True)
class LinearState:
    """What linear attention keeps of the past: s = Σ φ(k) vᵀ [H_k, F, D_v] and z = Σ φ(k) [H_k, F]; float32 in a server."""

    s: Tensor
    z: Tensor

    @classmethod
    def zeros(
        cls, groups: int, features: int, value_size: int, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> LinearState:
        return cls(
            torch.zeros(groups, features, value_size, dtype=dtype, device=device),
            torch.zeros(groups, features, dtype=dtype, device=device),
        )


def absorb(state: LinearState, k: Tensor, v: Tensor, linear_proj: Tensor | None = None) -> LinearState:
    """The state after the further keys k [n, H_k, D] and values v [n, H_k, D_v]. The state given is left as it is."""
    features = feature_map(k, linear_proj).to(state.s.dtype)
    return LinearState(
        state.s + torch.einsum("chf,chv->hfv", features, _wide(v).to(state.s.dtype)), state.z + features.sum(dim=0)
    )


def read_state(state: LinearState, q: Tensor, linear_proj: Tensor | None = None) -> Tensor:
    """φ(q)ᵀs / max(φ(q)ᵀz, 1e-6). q [n, H, D]: every row reads the same state. Returns [n, H, D_v]."""
    features = feature_map(q, linear_proj).to(state.s.dtype)
    heads = q.shape[1]
    s = state.s.repeat_interleave(heads // state.s.shape[0], dim=0)
    z = state.z.repeat_interleave(heads // state.z.shape[0], dim=0)
    total = torch.einsum("nhf,hf->nh", features, z).clamp_min(DENOMINATOR_FLOOR)
    return (torch.einsum("nhf,hfv->nhv", features, s) / total[..., None]).to(q.dtype)


def decode(
    state: LinearState, q: Tensor, k: Tensor, v: Tensor, linear_proj: Tensor | None = None
) -> tuple[Tensor, LinearState]:
    """One token: absorb k [1, H_k, D], v [1, H_k, D_v], then answer q [1, H, D]. Returns ([1, H, D_v], the new state)."""
    if not q.shape[0] == k.shape[0] == v.shape[0] == 1:
        raise ValueError("decode takes one token")
    state = absorb(state, k, v, linear_proj)
    return read_state(state, q, linear_proj), state
