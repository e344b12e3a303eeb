"""Reads the K/V pages of vLLM's CPU attention, which packs them differently for each instruction set."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


@functools.lru_cache(maxsize=8)
def unpack_index(isa: str, dtype: torch.dtype, block: int, head_size: int) -> tuple[Tensor, Tensor]:
    """Where element (token, dim) of a page lies in packed K and in packed V: natural = packed[index].

    Found by writing numbers through the op that vLLM writes pages with (digits below 256 are exact in every float type).

    Raises:
        RuntimeError: the op does not merely reorder elements, so pages can't be read back.
    """
    return _probe(isa, dtype, block, head_size, 0), _probe(isa, dtype, block, head_size, 1)


def _probe(isa: str, dtype: torch.dtype, block: int, head_size: int, which: int) -> Tensor:
    from vllm import _custom_ops as ops

    count = block * head_size
    place, weight = torch.zeros(count, dtype=torch.long), 1
    while weight < count:
        digits = (torch.arange(count) // weight % 256).to(dtype).view(block, 1, head_size)
        pair = [torch.zeros_like(digits), torch.zeros_like(digits)]
        pair[which] = digits
        halves = torch.zeros(1, 1, 2 * block, head_size, dtype=dtype).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(pair[0], pair[1], halves[0], halves[1], torch.arange(block), isa)
        place += halves[which].reshape(-1).float().round().long() * weight
        weight *= 256
    if not torch.equal(place.sort().values, torch.arange(count)):
        raise RuntimeError(
            f"pages of CPU attention ({isa}, {dtype}, block {block}, head {head_size}) can't be unpacked"
        )
    index = torch.empty_like(place)
    index[place] = torch.arange(count)
    return index


def read(cache: Tensor, blocks: Tensor, length: int, isa: str) -> tuple[Tensor, Tensor]:
    """K and V of positions [0, length) of one row, [length, H_k, D] each.

    Args:
        cache: [blocks, H_k, block, 2 D].
        blocks: [≥ ⌈length / block⌉]; the row's block table.
    """
    _, groups, block, width = cache.shape
    head_size = width // 2
    where = unpack_index(isa, cache.dtype, block, head_size)
    used = -(-length // block)
    pages = cache[blocks[:used].long()].reshape(used, groups, 2, block * head_size)
    out = []
    for i, index in enumerate(where):
        flat = pages[:, :, i][..., index].view(used, groups, block, head_size)
        out.append(flat.transpose(1, 2).reshape(used * block, groups, head_size)[:length])
    return out[0], out[1]


def gather_keys(cache: Tensor, tables: Tensor, positions: Tensor, isa: str) -> Tensor:
    """K at ``positions`` [N, m] of N rows, [N, m, H_k, D].

    Args:
        cache: [blocks, H_k, block, 2 D].
        tables: [N, …]; the block table of each row.
    """
    _, groups, block, width = cache.shape
    head_size = width // 2
    where = unpack_index(isa, cache.dtype, block, head_size)[0].view(block, head_size)
    pages = cache.view(cache.shape[0], groups, 2, block * head_size)[:, :, 0]
    held = tables.long().gather(1, positions // block)
    group = torch.arange(groups)[None, None, :, None]
    return pages[held[:, :, None, None], group, where[positions % block][:, :, None, :]]
