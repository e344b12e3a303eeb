"""The kernels as operators of torch, ``torch.ops.hybridctl.linear_attention_*``: compiled ones on a GPU, torch's own on the CPU.

Importing this module registers them. What they write they are given, so under ``torch.compile`` and on meta tensors they give
nothing. Arguments are those of ``launch.Kernels``, with the parts of ``Pages`` one by one. Registered with ``Library.impl``, as
``torch.library.custom_op`` adds microseconds to each call.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention import on_cpu

if TYPE_CHECKING:
    from hybridctl.kernels.linear_attention.launch import Kernels, Pages

NAMESPACE = "hybridctl"
PREFIX = "linear_attention_"
BLOCK = 16
"""Block size of the variant where there are no pages."""
_PAGES = "Tensor? cache=None, Tensor? block_table=None, Tensor? position=None"
_STATES = "Tensor(a!) state, Tensor(b!) norm"
SCHEMAS = {
    "prefill": "(Tensor q, Tensor k, Tensor v, Tensor start, Tensor end, Tensor slot, " + _STATES + ", Tensor(c!) out, *, "
    "Tensor? fresh=None, " + _PAGES + ", Tensor? mask=None, Tensor? proj=None) -> ()",
    "absorb": "(Tensor cache, Tensor block_table, Tensor position, Tensor start, Tensor end, Tensor slot, "
    + _STATES + ", int tokens, *, Tensor? fresh=None, Tensor? proj=None, int group=1) -> ()",
    "decode": "(Tensor q, Tensor k, Tensor v, Tensor token, Tensor slot, " + _STATES + ", Tensor(c!) out, *, "
    "Tensor? fresh=None, Tensor? mask=None, Tensor? proj=None) -> ()",
    "entropy": "(Tensor q, Tensor? k, Tensor start, Tensor end, Tensor(a!) mask, int first, int last, float threshold, "
    "float scale, *, Tensor? slot=None, " + _PAGES + ", Tensor(b!)? score=None, int feature_size=0, int value_size=0) -> ()",
}  # fmt: skip
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


@cache
def _loaded(
    head: int, feature: int, value: int, group: int, block: int, dtype: torch.dtype, projected: bool, device: int
) -> Kernels:
    from hybridctl.kernels.linear_attention.launch import for_sizes

    return for_sizes(head, feature, value, group, block, dtype, projected, device)


def _kernels(q: Tensor, state: Tensor, proj: Tensor | None, cache: Tensor | None = None) -> Kernels:
    groups, feature, value = state.shape[1:]
    block = BLOCK if cache is None else cache.shape[2]
    return _loaded(q.shape[2], feature, value, q.shape[1] // groups, block, q.dtype, proj is not None, q.device.index)


def _pages(cache: Tensor | None, block_table: Tensor | None, position: Tensor | None) -> Pages | None:
    from hybridctl.kernels.linear_attention.launch import Pages

    given = cache is not None, block_table is not None, position is not None
    if not any(given):
        return None
    if cache is None or block_table is None or position is None:
        raise ValueError("cache, block_table and position are given together")
    return Pages(cache, block_table, position)


def _gpu_prefill(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor, end: Tensor, slot: Tensor, state: Tensor, norm: Tensor, out: Tensor, *,
    fresh: Tensor | None = None, cache: Tensor | None = None, block_table: Tensor | None = None,
    position: Tensor | None = None, mask: Tensor | None = None, proj: Tensor | None = None,
) -> None:  # fmt: skip
    _kernels(q, state, proj, cache).prefill(
        q, k, v, start, end, slot, state, norm, out,
        fresh=fresh, pages=_pages(cache, block_table, position), mask=mask, proj=proj,
    )  # fmt: skip


def _gpu_absorb(
    cache: Tensor, block_table: Tensor, position: Tensor, start: Tensor, end: Tensor, slot: Tensor, state: Tensor,
    norm: Tensor, tokens: int, *, fresh: Tensor | None = None, proj: Tensor | None = None, group: int = 1,
) -> None:  # fmt: skip
    from hybridctl.kernels.linear_attention.launch import Pages

    _, block, width = cache.shape[1:]
    feature, value = state.shape[2:]
    kernels = _loaded(width // 2, feature, value, group, block, cache.dtype, proj is not None, cache.device.index)
    kernels.absorb(Pages(cache, block_table, position), start, end, slot, state, norm, tokens, fresh=fresh, proj=proj)


def _gpu_decode(
    q: Tensor, k: Tensor, v: Tensor, token: Tensor, slot: Tensor, state: Tensor, norm: Tensor, out: Tensor, *,
    fresh: Tensor | None = None, mask: Tensor | None = None, proj: Tensor | None = None,
) -> None:  # fmt: skip
    _kernels(q, state, proj).decode(q, k, v, token, slot, state, norm, out, fresh=fresh, mask=mask, proj=proj)


def _gpu_entropy(
    q: Tensor, k: Tensor | None, start: Tensor, end: Tensor, mask: Tensor, first: int, last: int, threshold: float,
    scale: float, *, slot: Tensor | None = None, cache: Tensor | None = None, block_table: Tensor | None = None,
    position: Tensor | None = None, score: Tensor | None = None, feature_size: int = 0, value_size: int = 0,
) -> None:  # fmt: skip
    head = q.shape[2]
    block = BLOCK if cache is None else cache.shape[2]
    sizes = (head, feature_size or head, value_size or head, q.shape[1] // mask.shape[1], block)
    _loaded(*sizes, q.dtype, sizes[1] != head, q.device.index).entropy(
        q, k, start, end, mask, (first, last), threshold, scale,
        slot=slot, pages=_pages(cache, block_table, position), score=score,
    )  # fmt: skip


def _nothing(*arguments: object, **named: object) -> None:
    """Without numbers there is nothing to write."""


_GPU = {"prefill": _gpu_prefill, "absorb": _gpu_absorb, "decode": _gpu_decode, "entropy": _gpu_entropy}
for _name, _schema in SCHEMAS.items():
    _LIBRARY.define(PREFIX + _name + _schema)
    _LIBRARY.impl(PREFIX + _name, _GPU[_name], "CUDA")
    _LIBRARY.impl(PREFIX + _name, getattr(on_cpu, _name), "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{PREFIX}{_name}", _nothing, lib=_LIBRARY)
