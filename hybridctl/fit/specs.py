"""What one layer asks of the cache pool, as vLLM's KV cache specs say it: page size, tokens a block, blocks a request.

Source: ``vllm/v1/kv_cache_interface.py``, read in 0.30 to 0.33 and compared with what 0.30 and 0.32 compute (tests/data/fit).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybridctl.fit.blocks import ceil_div


@dataclass(frozen=True, slots=True)
class Launch:
    """What of a launch decides how many blocks one request may hold."""

    in_flight: int
    """Tokens that are scheduled and not settled: max_num_batched_tokens, twice that with asynchronous scheduling."""
    mode: str = "align"
    """mamba_cache_mode: none, align, and all (until 0.31)."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One layer's cache. Equal specs share a group.

    ``kind``: full, sliding, chunked, mla, ring or state. ``content``: bytes of a page before padding; ``page``: with padding.
    """

    kind: str
    block: int
    content: int
    page: int
    window: int = 0
    drafts: int = 0
    checkpoints: int = 0
    replicated: bool = False
    label: str = ""
    """What layers it is for; two states of equal size but other shapes do not share a group."""
    divisor: int = 1
    """Tokens of one stored entry (compressed keys)."""

    def blocks(self, length: int, launch: Launch) -> int:
        """Blocks that a request of that many tokens may hold at once."""
        if self.kind == "state":
            if launch.mode == "all":
                return ceil_div(length, self.block) + self.drafts
            return (2 + self.drafts + self.checkpoints) if launch.mode == "align" else 1 + self.drafts
        if self.kind == "ring":
            return 1
        if self.kind == "sliding":
            return ceil_div(min(self.window - 1 + launch.in_flight, length), self.block) + 1
        if self.kind == "chunked":
            return ceil_div(min(self.window + launch.in_flight, length), self.block)
        return ceil_div(length, self.block)

    def with_page(self, page: int) -> Spec:
        return replace(self, page=page)

    def times(self, ratio: int) -> Spec:
        """The same layer with a block that is so many times as long."""
        return replace(self, block=self.block * ratio, content=self.content * ratio, page=self.page * ratio)

    @property
    def base(self) -> str:
        """Kinds that can lie in one group when their pages differ."""
        return "full" if self.kind == "mla" else self.kind


def mergeable(a: Spec, b: Spec) -> bool:
    """Whether one block table serves both: the same in all that decides what a page is."""
    return a == b


def uniform(specs: list[Spec]) -> bool:
    """Whether all of them need the same number of token slots, so that one table serves layers of different page sizes."""
    first = specs[0]
    if any(s.block != first.block or s.base != first.base for s in specs):
        return False
    if first.kind in ("sliding", "chunked"):
        return all(s.window == first.window for s in specs)
    if first.kind == "state":
        same = (first.drafts, first.checkpoints, first.page, first.replicated)
        return all((s.drafts, s.checkpoints, s.page, s.replicated) == same for s in specs)
    return True
