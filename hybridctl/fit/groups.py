"""How vLLM lays a model's layers into cache groups, and what one block of the pool holds.

All groups share one pool of equal blocks; a group takes its layers' pages side by side, so the widest group sets the block's bytes.

Source: ``get_kv_cache_groups`` and what it calls (vllm/v1/core/kv_cache_utils.py), read in 0.30 to 0.32 and compared with what both
compute (tests/data/fit).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hybridctl.errors import HybridctlError
from hybridctl.fit.blocks import ceil_div
from hybridctl.fit.specs import Launch, Spec, mergeable, uniform


@dataclass(frozen=True, slots=True)
class Group:
    """Layers under one block table."""

    specs: tuple[Spec, ...]
    """One for each layer."""

    @property
    def first(self) -> Spec:
        return self.specs[0]

    @property
    def pages(self) -> int:
        """Bytes that the group's layers take of one block."""
        return sum(spec.page for spec in self.specs)

    def blocks(self, length: int, launch: Launch) -> int:
        """Blocks of the pool that one request of that length may hold through this group."""
        return max(spec.blocks(length, launch) for spec in self.specs)


@dataclass(frozen=True, slots=True)
class Grouping:
    """All groups of a model, and the bytes of one block of the pool."""

    groups: tuple[Group, ...]
    block_bytes: int

    def blocks(self, length: int, launch: Launch) -> int:
        """Blocks of one request of that length, over all groups."""
        return sum(group.blocks(length, launch) for group in self.groups)

    def idle(self, length: int, launch: Launch) -> float:
        """Share of one request's blocks that no layer can use: groups are narrower than a block, or pages are padded."""
        used = sum(g.blocks(length, launch) * sum(s.content for s in g.specs) for g in self.groups)
        return 1 - used / (self.block_bytes * self.blocks(length, launch))


class PagesDiffer(HybridctlError):
    """Page sizes that vLLM can't bring together; it refuses such a model while it starts."""


def group_layers(specs: list[Spec], block_outermost: bool = False) -> Grouping:
    """Lay layers into groups.

    Args:
        specs: one for each layer that keeps a cache, in the order of the layers; not empty.
        block_outermost: the pages of one block lie side by side whatever their size (layouts BLNHC and BLHNC).

    Raises:
        PagesDiffer: the page sizes can't be unified.
    """
    if all(mergeable(specs[0], spec) for spec in specs) or uniform(specs):
        return _sized([specs], block_outermost)
    if block_outermost and len({spec.page for spec in specs}) > 1:
        return _sized(_packed(specs), True)
    return _sized(_split(unify(specs)), block_outermost)


def unify(specs: list[Spec]) -> list[Spec]:
    """Bring all pages to the size of the largest: longer blocks where that divides, padding for states and plain attention.

    Raises:
        PagesDiffer: an MLA page does not divide the largest.
    """
    largest = max(spec.page for spec in specs)
    unified = []
    for spec in specs:
        if spec.page == largest:
            unified.append(spec)
        elif spec.kind == "state":
            unified.append(spec.with_page(largest))
        elif largest % spec.page == 0:
            unified.append(spec.times(largest // spec.page))
        elif spec.kind != "mla":
            unified.append(spec.with_page(largest))
        else:
            raise PagesDiffer(
                f"a page of {spec.page} bytes (MLA) does not divide one of {largest}, and can't be padded"
            )
    return unified


def _split(specs: list[Spec]) -> list[list[Spec]]:
    """Groups of equally many layers, where all pages are equal."""
    buckets: list[list[Spec]] = []
    for spec in specs:
        home = next((b for b in buckets if mergeable(b[0], spec)), None)
        if home is None:
            buckets.append([spec])
        else:
            home.append(spec)
    least, most = min(map(len, buckets)), max(map(len, buckets))
    size = most if most < least * 1.5 else least
    return [bucket[i :: ceil_div(len(bucket), size)] for bucket in buckets for i in range(ceil_div(len(bucket), size))]


def _packed(specs: list[Spec]) -> list[list[Spec]]:
    """Groups for a block in which pages of different sizes lie side by side."""
    buckets: list[list[Spec]] = []
    for spec in specs:
        home = next((b for b in buckets if uniform([*b, spec])), None)
        if home is None:
            buckets.append([spec])
        else:
            home.append(spec)
    counts = [Counter(s.page for s in bucket) for bucket in buckets]
    balanced = [len(set(count.values())) == 1 for count in counts]
    most = [max(count.values()) for count in counts]
    mixed = [m for m, count, even in zip(most, counts, balanced, strict=True) if even and len(count) > 1]
    repeats = _least_padding([m for m, even in zip(most, balanced, strict=True) if even], max(mixed)) if mixed else None
    parts = [ceil_div(m, repeats) if repeats and even else 1 for m, even in zip(most, balanced, strict=True)]
    states = [b[0].kind in ("state", "ring") or (repeats is None and b[0].kind == "sliding") for b in buckets]
    anchor = max(
        sum(ceil_div(n, len(bucket) if state else part) * page for page, n in count.items())
        for bucket, count, part, state in zip(buckets, counts, parts, states, strict=True)
    )
    groups: list[list[Spec]] = []
    for bucket, part, state in zip(buckets, parts, states, strict=True):
        if state:
            part = max(part, ceil_div(len(bucket), max(anchor // bucket[0].page, 1)))
        if part == 1:
            groups.append(bucket)
            continue
        sizes = list(dict.fromkeys(s.page for s in bucket))
        repeated = list(zip(*([s for s in bucket if s.page == size] for size in sizes), strict=False))
        groups += [[spec for repeat in repeated[i::part] for spec in repeat] for i in range(part)]
    return groups


def _least_padding(counts: list[int], least: int) -> int:
    """The group length that wastes least when every count is rounded up to a multiple of it; the longest of equals."""
    if least > max(counts):
        return least
    return min(range(least, max(counts) + 1), key=lambda d: (sum(-n % d for n in counts), -d))


def _sized(groups: list[list[Spec]], block_outermost: bool) -> Grouping:
    made = tuple(Group(tuple(specs)) for specs in groups)
    return Grouping(made, max(group.pages for group in made))


__all__ = ["Group", "Grouping", "PagesDiffer", "group_layers", "unify"]
