"""The operators of ``ops.py`` on the CPU: the effects of the compiled kernels (``launch.Kernels``), in torch.

Sizes as in ``launch.py``. float32 is taken beside the kernels' own dtypes. What only the choice of a compiled kernel needs is taken
and not used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention import vectorised
from hybridctl.kernels.linear_attention.routing import LANDMARKS


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: Tensor,
    end: Tensor,
    slot: Tensor,
    state: Tensor,
    norm: Tensor,
    out: Tensor,
    *,
    fresh: Tensor | None = None,
    cache: Tensor | None = None,
    block_table: Tensor | None = None,
    position: Tensor | None = None,
    mask: Tensor | None = None,
    proj: Tensor | None = None,
) -> None:
    """See ``Kernels.prefill``; ``cache``, ``block_table``, ``position`` are those of ``Pages``."""
    rows = _rows(start, end, slot)
    if not rows:
        return
    _clear([row for row, _, _ in rows], slot, fresh, state, norm)
    if cache is not None and block_table is not None and position is not None:
        # Tokens that lie in no row are never looked at.
        k, v = (x.new_zeros(q.shape[0], *x.shape[1:]) for x in (k, v))
        for row, first, last in rows:
            k[first:last], v[first:last] = _paged(cache, block_table[row], position[row], last - first, v.shape[-1])
    chunks = vectorised.cut(rows)
    answers = vectorised.prefill(q, k, v, state, norm, slot.long()[chunks.rows], chunks, _wide(proj))
    vectorised.write(out, chunks.tokens, answers, mask)


def absorb(
    cache: Tensor,
    block_table: Tensor,
    position: Tensor,
    start: Tensor,
    end: Tensor,
    slot: Tensor,
    state: Tensor,
    norm: Tensor,
    tokens: int,
    *,
    fresh: Tensor | None = None,
    proj: Tensor | None = None,
    group: int = 1,
) -> None:
    """See ``Kernels.absorb``."""
    rows = _rows(start, end, slot)
    _clear([row for row, _, _ in rows], slot, fresh, state, norm)
    for row, first, last in rows:
        k, v = _paged(cache, block_table[row], position[row], last - first, state.shape[-1])
        added, count = vectorised.absorb(k, v, _wide(proj))
        at = int(slot[row])
        state[at] += added
        norm[at] += count


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    token: Tensor,
    slot: Tensor,
    state: Tensor,
    norm: Tensor,
    out: Tensor,
    *,
    fresh: Tensor | None = None,
    mask: Tensor | None = None,
    proj: Tensor | None = None,
) -> None:
    """See ``Kernels.decode``."""
    rows = (slot >= 0).nonzero()[:, 0]
    _clear(rows.tolist(), slot, fresh, state, norm)
    at = token.long()[rows]
    answers = vectorised.decode(q[at], k[at], v[at], state, norm, slot.long()[rows], _wide(proj))
    vectorised.write(out, at, answers, mask)


def entropy(
    q: Tensor,
    k: Tensor | None,
    start: Tensor,
    end: Tensor,
    mask: Tensor,
    first: int,
    last: int,
    threshold: float,
    scale: float,
    *,
    slot: Tensor | None = None,
    cache: Tensor | None = None,
    block_table: Tensor | None = None,
    position: Tensor | None = None,
    score: Tensor | None = None,
    feature_size: int = 0,
    value_size: int = 0,
) -> None:
    """See ``Kernels.entropy``.

    Raises:
        ValueError: the band begins where there are not 64 keys yet.
    """
    if first < LANDMARKS - 1 and last > first:
        raise ValueError(f"position {first} has fewer than {LANDMARKS} keys: it has no entropy score")
    for row, begin, stop in _rows(start, end, slot):
        past = 0 if position is None else int(position[row])
        where = torch.arange(past, past + stop - begin)
        mask[begin:stop] = (where < first).to(mask.dtype)[:, None]
        inside = ((where >= first) & (where < last)).nonzero()[:, 0]
        if not len(inside):
            continue
        seen = LANDMARKS * torch.div(where[inside] + 1, LANDMARKS, rounding_mode="floor")
        landmarks = vectorised.landmarks(seen)  # [n, 64]
        if cache is not None and block_table is not None:
            size = cache.shape[2]
            keys = cache[block_table[row].long()[landmarks // size], :, landmarks % size, : q.shape[-1]]
        elif k is not None:
            keys = k[begin:stop][landmarks]
        else:
            raise ValueError("keys come from k or from pages")
        groups = keys.shape[2]
        asked = q[begin + inside].float().unflatten(1, (groups, -1))
        scores = vectorised.entropy(torch.einsum("nhgd,nmhd->nhgm", asked, keys.float()) * scale).mean(-1)
        mask[begin + inside] = (scores > threshold).to(mask.dtype)
        if score is not None:
            score[begin + inside] = scores


def _rows(start: Tensor, end: Tensor, slot: Tensor | None) -> list[tuple[int, int, int]]:
    """(row, first token, last token + 1) of rows that have tokens and a slot."""
    slots = [0] * len(start) if slot is None else slot.tolist()
    given = zip(start.tolist(), end.tolist(), slots, strict=True)
    return [(row, a, b) for row, (a, b, s) in enumerate(given) if b > a and s >= 0]


def _clear(rows: list[int], slot: Tensor, fresh: Tensor | None, state: Tensor, norm: Tensor) -> None:
    if fresh is not None:
        new = slot.long()[[row for row in rows if fresh[row]]]
        state[new], norm[new] = 0.0, 0.0


def _paged(cache: Tensor, table: Tensor, position: Tensor, count: int, value_size: int) -> tuple[Tensor, Tensor]:
    """K [count, H_k, D] and V [count, H_k, D_v] from a position on."""
    at = torch.arange(int(position), int(position) + count)
    size, head = cache.shape[2], cache.shape[3] // 2
    held = cache[table.long()[at // size], :, at % size]
    return held[..., :head], held[..., head : head + value_size]


def _wide(proj: Tensor | None) -> Tensor | None:
    return None if proj is None else proj.float()
