"""Linear attention over states, in torch, without a loop over tokens.

Sizes: T tokens, H query heads, H_k groups, g = H / H_k, head size D, features F, values D_v. States: S [slots, H_k, F, D_v] and
z [slots, H_k, F], float32. The arithmetic is float32 whatever the inputs are. ``naive.py`` defines results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention.routing import LANDMARKS

FLOOR = 1e-6  # exp of a very negative number underflows to 0


def features(x: Tensor, projection: Tensor | None) -> Tensor:
    """φ(x) = elu(W x) + 1. x [..., H_k, g, D] → [..., H_k, g, F]; projection [H_k, F, D] or None.

    Below 0 that is exp(x), and it is computed so: 1 + (exp(x) − 1) in float32 rounds away what a trained model relies on.
    """
    x = x.float()
    if projection is not None:
        x = torch.einsum("...hgd,hfd->...hgf", x, projection)
    return torch.where(x > 0, x + 1.0, x.clamp_max(0.0).exp())


def absorb(key: Tensor, value: Tensor, projection: Tensor | None) -> tuple[Tensor, Tensor]:
    """(S, z) of keys [n, H_k, D] and values [n, H_k, D_v]."""
    mapped = features(key.unsqueeze(2), projection).squeeze(2)
    return torch.einsum("nhf,nhv->hfv", mapped, value.float()), mapped.sum(0)


def decode(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, norm: Tensor, slots: Tensor, projection: Tensor | None
) -> Tensor:
    """One token of each of R rows: absorb it into the row's state, then answer.

    query [R, H, D], key [R, H_k, D], value [R, H_k, D_v], slots [R] (distinct). Changes ``state`` and ``norm`` in place.
    Returns [R, H, D_v], float32.
    """
    rows, groups = key.shape[:2]
    mapped_k = features(key.unsqueeze(2), projection)  # [R, H_k, 1, F]
    mapped_q = features(query.view(rows, groups, -1, query.shape[-1]), projection)
    now = state[slots]
    now += mapped_k.transpose(2, 3) * value.float().unsqueeze(2)
    state[slots] = now
    total = norm[slots]
    total += mapped_k.squeeze(2)
    norm[slots] = total
    bottom = torch.matmul(mapped_q, total.unsqueeze(-1)).clamp_min(FLOOR)
    out = torch.matmul(mapped_q, now) / bottom
    return out.reshape(rows, -1, out.shape[-1])


@dataclass
class Chunks:
    """Runs of tokens cut into pieces of equal length.

    Attributes:
        index: [pieces, C]; place of each token in the flat batch, padding repeats a token of the run.
        valid: [pieces, C]; False where padding.
        spans: (first piece, last piece + 1) of each run.
        rows: [runs]; the batch row of each.
        tokens: [pieces × C]; where the valid ones lie in the flat batch, for scattering: index[valid].
    """

    index: Tensor
    valid: Tensor
    spans: list[tuple[int, int]]
    rows: Tensor
    tokens: Tensor


def cut(runs: list[tuple[int, int, int]], longest_piece: int = 128) -> Chunks:
    """Cut runs (row, q0, q1) into pieces of one length: a power of two up to ``longest_piece``, no longer than needed."""
    longest = max(q1 - q0 for _, q0, q1 in runs)
    size = min(longest_piece, 1 << (longest - 1).bit_length())
    starts: list[int] = []
    ends: list[int] = []
    spans: list[tuple[int, int]] = []
    count = 0
    for _, q0, q1 in runs:
        pieces = range(q0, q1, size)
        starts += pieces
        ends += [q1] * len(pieces)
        spans.append((count, count + len(pieces)))
        count += len(pieces)
    at = torch.tensor(starts)[:, None] + torch.arange(size)[None, :]
    end = torch.tensor(ends)[:, None]
    valid = at < end
    index = torch.minimum(at, end - 1)
    return Chunks(index, valid, spans, torch.tensor([row for row, _, _ in runs]), index[valid])


def prefill(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    norm: Tensor,
    slots: Tensor,
    chunks: Chunks,
    projection: Tensor | None,
) -> Tensor:
    """Runs of several tokens: every token sees the row's state and the tokens of its run up to itself.

    query [T, H, D], key [T, H_k, D], value [T, H_k, D_v] of the whole batch; slots [runs]. Changes ``state`` and ``norm``. Returns
    the answers to ``chunks.tokens`` [n, H, D_v], float32.
    """
    pieces, size = chunks.index.shape
    groups, heads = key.shape[1], query.shape[1]
    mask = chunks.valid[:, :, None, None]
    mapped_q = features(query[chunks.index].view(pieces, size, groups, heads // groups, -1), projection)
    mapped_k = features(key[chunks.index].unsqueeze(3), projection).squeeze(3) * mask
    values = value[chunks.index].float() * mask
    mapped_k, values = mapped_k.transpose(1, 2), values.transpose(1, 2)  # [P, H_k, C, F or D_v]
    queries = mapped_q.permute(0, 2, 3, 1, 4).reshape(pieces, groups, -1, mapped_q.shape[-1])  # [P, H_k, g·C, F]
    added = torch.matmul(mapped_k.transpose(2, 3), values)  # [P, H_k, F, D_v]
    added_norm = mapped_k.sum(2)
    before, before_norm = torch.empty_like(added), torch.empty_like(added_norm)
    for i, (first, last) in enumerate(chunks.spans):
        _before(state, slots[i], added, before, first, last)
        _before(norm, slots[i], added_norm, before_norm, first, last)
    causal = torch.ones(size, size, dtype=torch.bool).tril().repeat(heads // groups, 1)
    weights = torch.matmul(queries, mapped_k.transpose(2, 3)).masked_fill(~causal, 0.0)
    top = torch.matmul(weights, values) + torch.matmul(queries, before)
    bottom = weights.sum(-1) + torch.matmul(queries, before_norm.unsqueeze(-1)).squeeze(-1)
    out = (top / bottom.clamp_min(FLOOR).unsqueeze(-1)).view(pieces, groups, heads // groups, size, -1)
    out = out.permute(0, 3, 1, 2, 4).reshape(pieces, size, heads, -1)
    return out[chunks.valid]


def _before(state: Tensor, slot: Any, added: Tensor, before: Tensor, first: int, last: int) -> None:
    """The state before each piece of a run, and the row's state after all of them."""
    running = torch.cat([state[slot].unsqueeze(0), added[first:last]]).cumsum(0)
    before[first:last] = running[:-1]
    state[slot] = running[-1]


def write(out: Tensor, at: Tensor, answers: Tensor, mask: Tensor | None = None) -> None:
    """Answers [n, H, D_v] to the tokens ``at`` into out [T, H, D], zeros behind D_v.

    mask [T, H_k]: not 0 where a group of a token is answered elsewhere, and is left as it is.
    """
    answers = answers.to(out.dtype)
    if answers.shape[-1] != out.shape[-1]:
        padded = out.new_zeros(len(at), *out.shape[1:])
        padded[..., : answers.shape[-1]] = answers
        answers = padded
    if mask is not None:
        elsewhere = mask[at].bool().repeat_interleave(out.shape[1] // mask.shape[1], 1)[..., None]
        answers = torch.where(elsewhere, out[at], answers)
    out[at] = answers


def landmarks(seen: Tensor) -> Tensor:
    """[n, 64]: the positions of the landmark keys where c = ``seen`` [n], a multiple of 64: ⌊i·c/64⌋."""
    return torch.arange(LANDMARKS) * seen[:, None] // LANDMARKS


def entropy(scores: Tensor) -> Tensor:
    """Of softmax(scores) over the last axis, which are the 64 landmarks, divided by log 64: 0 … 1."""
    logs = scores.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1) / math.log(LANDMARKS)
