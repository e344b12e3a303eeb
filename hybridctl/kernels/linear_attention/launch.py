"""The linear-attention kernels on torch tensors: shapes, dtypes and strides are checked, and what is wrong is named.

Sizes as in ``naive.py``: T tokens of a batch, R rows, H query heads, H_k groups, D, F, D_v. Row r is the tokens start[r] to
end[r] − 1. States are float32: S [slots, H_k, F, D_v], z [slots, H_k, F]. Everything is on one GPU, and nothing is read back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hybridctl.kernels.build import build
from hybridctl.kernels.linear_attention.variant import Variant, room_kib
from hybridctl.kernels.loader import Kernel, load

_POINTERS = (
    *("q", "k", "v", "pages", "table", "start", "end", "position"),
    *("slot", "fresh", "mask", "proj", "state", "norm", "work", "out"),
)
_LONGS = (
    *("q_stride", "k_stride", "v_stride", "out_stride", "k_head"),
    *("v_head", "out_head", "block_stride", "page_head", "page_token"),
)
_INTS = ("table_stride", "rows", "groups", "segment", "out_size", "flags")
_SKIP_LAST = 1


class Batch(ctypes.Structure):
    """``struct Batch`` of common.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_uint64) for name in _LONGS),
        *((name, ctypes.c_int) for name in _INTS),
    )


class Band(ctypes.Structure):
    """``struct Band`` of entropy.cuh."""

    _fields_ = (
        ("score", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("first", ctypes.c_int),
        ("last", ctypes.c_int),
        ("threshold", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


@dataclass(frozen=True)
class Pages:
    """K/V pages as FLASH_ATTN lays them out.

    Attributes:
        cache: [blocks, H_k, block_size, 2·D], keys then values.
        block_table: [R, n] int32.
        position: [R] int32; position of the token at start[r].
    """

    cache: Tensor
    block_table: Tensor
    position: Tensor


class Kernels:
    """The loaded kernels of one variant on one GPU."""

    def __init__(self, variant: Variant, device: torch.device | int | None = None) -> None:
        """Builds them if they are not kept, and loads them.

        Raises:
            HybridctlError: no compiler, or the driver refuses them.
        """
        self.device = torch.device(
            "cuda", torch.cuda.current_device() if device is None else torch.device(device).index or 0
        )
        major, minor = torch.cuda.get_device_capability(self.device)
        self.variant = variant
        self.dtype = getattr(torch, variant.dtype)
        shared = {
            "state": variant.shared_state,
            "scan": 0,
            "reduce": 0,
            "forward": variant.shared_forward,
            "decode": variant.shared_decode,
            "entropy": variant.shared_entropy,
        }
        with torch.cuda.device(self.device):
            torch.zeros(1, device=self.device)  # makes torch's context the current one
            built = build(variant, f"sm_{major}{minor}")
            loaded = load(built, {f"linear_attention_{name}": size for name, size in shared.items()})
        self.built = built
        self._shared = shared
        self._kernels: Mapping[str, Kernel] = {name: loaded[f"linear_attention_{name}"] for name in shared}
        self._tiles = variant.value_size // variant.value_tile

    def prefill(
        self,
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
        pages: Pages | None = None,
        mask: Tensor | None = None,
        proj: Tensor | None = None,
        segment: int | None = None,
        workspace: Tensor | None = None,
    ) -> None:
        """Every row's tokens enter its state and are answered, each from the state up to itself.

        Args:
            q: [T, H, D]. ``k``: [T, H_k, D]. ``v``: [T, H_k, D_v]; with ``pages`` keys and values come from there.
            start, end: [R] int32, ascending. ``slot``: [R] int32, below 0: the row is left alone.
            state, norm: changed in place. ``out``: [T, H, D], written where a row lies; behind D_v zeros.
            fresh: [R] uint8, not 0: the state starts from zeros. ``mask``: [T, H_k] uint8, not 0: answered elsewhere.
            proj: [H_k, F, D], where the variant is projected.
            segment: tokens that one block of threads works through, a multiple of 64.
            workspace: float32, at least :meth:`workspace_floats`.
        """
        tokens = q.shape[0]
        length = segment or self.segment(tokens, k.shape[1])
        batch = self._batch(q, k, v, start, end, slot, state, norm, out, fresh, pages, mask, proj, length)
        work = self._workspace(workspace, tokens, batch)
        batch.flags = _SKIP_LAST
        segments, groups = tokens // length + batch.rows, batch.groups
        threads = self.variant.threads
        if tokens > length:  # else no row is longer than a segment
            self._launch("state", (segments, groups, self._tiles), threads, batch)
            steps = -(-self.variant.work_floats // 4 // threads)
            self._launch("scan", (batch.rows, groups * self._tiles, steps), threads, batch)
        self._launch("forward", (segments, groups, self._tiles), threads, batch)
        del work

    def absorb(
        self,
        pages: Pages,
        start: Tensor,
        end: Tensor,
        slot: Tensor,
        state: Tensor,
        norm: Tensor,
        tokens: int,
        *,
        fresh: Tensor | None = None,
        proj: Tensor | None = None,
        segment: int | None = None,
        workspace: Tensor | None = None,
    ) -> None:
        """Keys and values of pages enter the rows' states: positions position[r] … position[r] + end[r] − start[r] − 1.

        Args:
            tokens: at least end[R − 1].
        """
        length = segment or self.segment(tokens, pages.cache.shape[1])
        batch = self._batch(None, None, None, start, end, slot, state, norm, None, fresh, pages, None, proj, length)
        work = self._workspace(workspace, tokens, batch)
        segments, groups, threads = tokens // length + batch.rows, batch.groups, self.variant.threads
        self._launch("state", (segments, groups, self._tiles), threads, batch)
        self._launch("reduce", (batch.rows, groups, self._tiles * 4), threads, batch)
        del work

    def decode(
        self,
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
        """One token a row, at place token[r] of the batch: it enters the row's state, and is answered. In place."""
        batch = self._batch(q, k, v, token, token, slot, state, norm, out, fresh, None, mask, proj, 64)
        self._launch("decode", (batch.rows, batch.groups, 1), 256, batch)

    def entropy(
        self,
        q: Tensor,
        k: Tensor | None,
        start: Tensor,
        end: Tensor,
        mask: Tensor,
        band: tuple[int, int],
        threshold: float,
        scale: float,
        *,
        slot: Tensor | None = None,
        pages: Pages | None = None,
        score: Tensor | None = None,
    ) -> None:
        """The mask of every token: 1 flash, 0 linear. Positions of the band by their score, others by the side they lie on.

        Args:
            q: [T, H, D]. ``k``: [T, H_k, D] where rows begin at position 0 and no pages are given.
            mask: [T, H_k] uint8, written. ``score``: [T, H_k] float32, written in the band.
            band: first position, and the one behind the last. ``scale``: of the layer, 1/√D as a rule.
        """
        batch = self._batch(q, k, None, start, end, slot, None, None, None, None, pages, None, None, 64)
        self._need("mask", mask, torch.uint8, (q.shape[0], batch.groups))
        if score is not None:
            self._need("score", score, torch.float32, (q.shape[0], batch.groups))
        told = Band(_pointer(score), mask.data_ptr(), *band, threshold, scale)
        tiles = q.shape[0] // 64 + 2 * batch.rows
        self._launch("entropy", (tiles, batch.groups, 1), self.variant.entropy_threads, batch, told)

    def segment(self, tokens: int, groups: int) -> int:
        """Tokens of a segment: short enough that every multiprocessor has work, long enough that states move little.

        Measured on an H200: one block of threads a multiprocessor up to 256 tokens, two from there on.
        """
        processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        length, work = 64, tokens * groups * self._tiles
        while length < 2048 and work > length * processors * (1 if length < 256 else 2):
            length *= 2
        return length

    def workspace_floats(self, tokens: int, rows: int, groups: int, segment: int) -> int:
        """float32 numbers that a prefill or an absorption needs beside its tensors."""
        return (tokens // segment + rows) * groups * self._tiles * self.variant.work_floats

    def _workspace(self, given: Tensor | None, tokens: int, batch: Batch) -> Tensor:
        count = self.workspace_floats(tokens, batch.rows, batch.groups, batch.segment)
        work = torch.empty(count, dtype=torch.float32, device=self.device) if given is None else given
        if work.dtype != torch.float32 or work.numel() < count or not work.is_contiguous():
            raise ValueError(f"workspace holds {work.numel()} of {work.dtype}, needed are {count} float32 in one piece")
        batch.work = work.data_ptr()
        return work

    def _launch(self, name: str, grid: tuple[int, int, int], threads: int, *structs: ctypes.Structure) -> None:
        if min(grid) > 0:
            stream = torch.cuda.current_stream(self.device).cuda_stream
            self._kernels[name].launch(grid, threads, self._shared[name], stream, *structs)

    def _batch(
        self,
        q: Tensor | None,
        k: Tensor | None,
        v: Tensor | None,
        start: Tensor,
        end: Tensor,
        slot: Tensor | None,
        state: Tensor | None,
        norm: Tensor | None,
        out: Tensor | None,
        fresh: Tensor | None,
        pages: Pages | None,
        mask: Tensor | None,
        proj: Tensor | None,
        segment: int,
    ) -> Batch:
        u = self.variant
        rows = start.shape[0]
        batch = Batch(rows=rows, segment=segment, out_size=u.head_size)
        if segment < 64 or segment % 64:
            raise ValueError(f"a segment of {segment} tokens is no multiple of 64")
        source = state if state is not None else pages.cache if pages is not None else k
        if source is None:
            raise ValueError("keys come from k or from pages")
        groups = batch.groups = source.shape[1]
        for name, tensor in (("start", start), ("end", end), ("slot", slot)):
            if tensor is not None:
                self._need(name, tensor, torch.int32, (rows,))
                setattr(batch, name, tensor.data_ptr())
        if fresh is not None:
            self._need("fresh", fresh, torch.uint8, (rows,))
            batch.fresh = fresh.data_ptr()
        for name, tensor, heads, size in (
            ("q", q, groups * u.group, u.head_size),
            ("k", k, groups, u.head_size),
            ("v", v, groups, u.value_size),
            ("out", out, groups * u.group, u.head_size),
        ):
            if tensor is not None:
                self._heads(batch, name, tensor, heads, size)
        if mask is not None and q is not None:
            self._need("mask", mask, torch.uint8, (q.shape[0], groups))
            batch.mask = mask.data_ptr()
        if state is not None and norm is not None:
            self._need("state", state, torch.float32, (state.shape[0], groups, u.feature_size, u.value_size))
            self._need("norm", norm, torch.float32, (state.shape[0], groups, u.feature_size))
            batch.state, batch.norm = state.data_ptr(), norm.data_ptr()
            if u.projected != (proj is not None):
                raise ValueError(f"proj is {'missing' if u.projected else 'given, but these kernels take none'}")
        if proj is not None:
            self._need("proj", proj, self.dtype, (groups, u.feature_size, u.head_size))
            batch.proj = proj.data_ptr()
        if pages is not None:
            self._pages(batch, pages, rows, groups)
        return batch

    def _heads(self, batch: Batch, name: str, tensor: Tensor, heads: int, size: int) -> None:
        self._place(name, tensor, self.dtype)
        if tensor.dim() != 3 or tensor.shape[1:] != (heads, size):
            raise ValueError(f"{name} {tuple(tensor.shape)} is not [T, {heads}, {size}]")
        token, head, last = tensor.stride()
        if last != 1 or token % 8 or head % 8 or (name == "q" and head != size):
            raise ValueError(f"{name}: strides {tensor.stride()} can't be read 16 bytes at a time, head by head")
        setattr(batch, name, tensor.data_ptr())
        setattr(batch, f"{name}_stride", token)
        if name != "q":
            setattr(batch, f"{name}_head", head)

    def _pages(self, batch: Batch, pages: Pages, rows: int, groups: int) -> None:
        u, cache = self.variant, pages.cache
        self._place("pages", cache, self.dtype)
        if cache.dim() != 4 or cache.shape[1:] != (groups, u.block_size, 2 * u.head_size):
            raise ValueError(
                f"pages {tuple(cache.shape)} are not [blocks, {groups}, {u.block_size}, {2 * u.head_size}]"
            )
        if cache.stride(3) != 1 or any(s % 8 for s in cache.stride()[:3]):
            raise ValueError(f"pages: strides {cache.stride()} can't be read 16 bytes at a time")
        if pages.block_table.dim() != 2 or pages.block_table.shape[0] < rows or pages.block_table.stride(1) != 1:
            raise ValueError(
                f"block_table {tuple(pages.block_table.shape)} is not [{rows}, n] with neighbouring columns"
            )
        self._place("block_table", pages.block_table, torch.int32)
        self._need("position", pages.position, torch.int32, (rows,))
        batch.pages, batch.table, batch.position = (
            cache.data_ptr(),
            pages.block_table.data_ptr(),
            pages.position.data_ptr(),
        )
        batch.table_stride = pages.block_table.stride(0)
        batch.block_stride, batch.page_head, batch.page_token = cache.stride()[:3]

    def _need(self, name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self._place(name, tensor, dtype)
        if tuple(tensor.shape) != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} {tuple(tensor.shape)} is not {list(shape)}, contiguous")

    def _place(self, name: str, tensor: Tensor, dtype: torch.dtype) -> None:
        if tensor.device != self.device:
            raise ValueError(f"{name} is on {tensor.device}, the kernels are on {self.device}")
        if tensor.dtype != dtype:
            raise ValueError(f"{name} is {tensor.dtype}, needed is {dtype}")
        if tensor.data_ptr() % 16 and tensor.element_size() * tensor.numel() >= 16 and dtype == self.dtype:
            raise ValueError(f"{name} does not begin at a multiple of 16 bytes")


def _pointer(tensor: Tensor | None) -> Any:
    return tensor.data_ptr() if tensor is not None else None


def for_sizes(
    head_size: int,
    feature_size: int,
    value_size: int,
    group: int,
    block_size: int,
    dtype: torch.dtype,
    projected: bool,
    device: torch.device | int | None = None,
) -> Kernels:
    """The kernels for a layer's sizes on a GPU, with what shared memory it has."""
    major, minor = torch.cuda.get_device_capability(device)
    room = room_kib(f"sm_{major}{minor}")
    name = str(dtype).removeprefix("torch.")
    return Kernels(Variant(head_size, feature_size, value_size, group, block_size, name, projected, room), device)
