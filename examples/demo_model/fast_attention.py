"""Attention for training and evaluation: flash before one cut, linear from it on; both differentiable and batched.

The same function as hybridctl/kernels/linear_attention (tests/kernels/test_demo_attention.py holds the two together), with
SDPA below the cut and chunks of 64 positions above it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK = 64
FLOOR = 1e-6
# While this is a list, every linear layer adds how far its denominators lie below 1 (mean, in nats). A model that lives near
# the floor would depend on how φ is rounded there.
watched: list[Tensor] | None = None


class LinearProj(nn.Module):
    """Holds the feature map's weight [H_k, F, D] under the checkpoint's name, self_attn.linear_proj.weight."""

    def __init__(self, groups: int, features: int, head_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(groups, features, head_size) * head_size**-0.5)


def flash_part(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Causal softmax attention. q [B, H, n, D], k and v [B, H_k, n, D]; on a GPU in bfloat16, as training needs no more."""
    kind = torch.bfloat16 if q.is_cuda and torch.backends.cuda.matmul.allow_tf32 else q.dtype
    out = F.scaled_dot_product_attention(
        q.to(kind), k.to(kind), v.to(kind), is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out.to(q.dtype)


def features(x: Tensor) -> Tensor:
    """elu(x) + 1 without its cancellation: below 0 it is exp(x), where 1 + (exp(x) − 1) would keep nothing under 6e-8."""
    return torch.where(x > 0, x + 1.0, x.clamp_max(0.0).exp())


def linear_part(q: Tensor, k: Tensor, v: Tensor, proj: Tensor, start: int) -> Tensor:
    """Linear attention of the positions from start on. q [B, H, n, D], k and v [B, H_k, n, D]; returns [B, H, n − start, D].

    Positions below start are one block of past; the rest goes by chunks: what lies before a chunk comes from running
    sums, what lies inside it from masked scores. A column of ones beside the values carries the denominator.
    """
    batch, heads, n, size = q.shape
    groups = k.shape[1]
    g = heads // groups
    q = q[:, :, start:].reshape(batch, groups, g, n - start, size)
    fq = features(torch.einsum("bhgnd,hfd->bhgnf", q, proj))
    fk = features(torch.einsum("bhnd,hfd->bhnf", k, proj))
    v1 = F.pad(v, (0, 1), value=1.0)
    past = fk[:, :, :start].transpose(-1, -2) @ v1[:, :, :start]  # [B, H_k, F, D + 1]
    short = -(n - start) % CHUNK
    m = (n - start + short) // CHUNK
    fq = F.pad(fq, (0, 0, 0, short)).view(batch, groups, g, m, CHUNK, -1)
    fk = F.pad(fk[:, :, start:], (0, 0, 0, short)).view(batch, groups, m, CHUNK, -1)
    v1 = F.pad(v1[:, :, start:], (0, 0, 0, short)).view(batch, groups, m, CHUNK, size + 1)
    sums = fk.transpose(-1, -2) @ v1
    # Sums of what lies before, never a difference of sums: that would cancel in float32.
    before = torch.cat([past.unsqueeze(2), sums[:, :, :-1]], dim=2).cumsum(2)
    inside = (fq @ fk.unsqueeze(2).transpose(-1, -2)).tril()
    out = fq @ before.unsqueeze(2) + inside @ v1.unsqueeze(2)
    total = out[..., size:]
    if watched is not None:
        watched.append(torch.relu(-total.clamp_min(1e-20).log()).mean())
    out = out[..., :size] / total.clamp_min(FLOOR)
    return out.view(batch, heads, m * CHUNK, size)[:, :, : n - start]


def cut_attention(q: Tensor, k: Tensor, v: Tensor, proj: Tensor, cut: int, scale: float) -> Tensor:
    """[B, H, n, D] → [B, H, n, D]: positions below the cut by flash, the others linear. cut 0: all linear; ≥ n: all flash."""
    n = q.shape[2]
    if cut >= n:
        return flash_part(q, k, v, scale)
    tail = linear_part(q, k, v, proj, cut)
    if cut == 0:
        return tail
    return torch.cat([flash_part(q[:, :, :cut], k[:, :, :cut], v[:, :, :cut], scale), tail], dim=2)
