"""K/V pages of routed layers: none for positions from T_l on, and those below T_l are freed once the state has absorbed them.

Where a layer has KV groups of both kinds, those that keep their pages have a spec of their own too.

Importing this module registers the spec, so it is known wherever one arrives, in whatever process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.v1.core.kv_cache_utils import resolve_block_hashes
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry


@dataclass(frozen=True, kw_only=True)
class RoutedKVSpec(AttentionSpec):
    """Full attention up to position ``pages_end``, a linear state from there on.

    Not a FullAttentionSpec: vLLM fuses kin of that silently, and looks for a prefix hit in it before it asks for the state.
    """

    pages_end: int

    def __hash__(self) -> int:
        """vLLM looks specs up in every step, and a dataclass hashes all its fields."""
        return hash((self.block_size, self.pages_end))

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """What one sequence holds at most: pages for positions below ``pages_end``."""
        tokens = min(vllm_config.model_config.max_model_len, self.pages_end)
        return int(cdiv(tokens, self.block_size) * self.page_size_bytes)

    @classmethod
    def merge(cls, specs: list[Any]) -> Any:
        """One spec for equal ones. AssertionError for anything else, which makes vLLM keep groups apart."""
        if not all(type(spec) is cls and spec == specs[0] for spec in specs):
            raise AssertionError("layers of one group must have one kind of K/V pages")
        return specs[0]

    def is_uniform_with_collection(self, kv_cache_specs: dict[str, Any]) -> bool:
        return all(type(spec) is type(self) and spec.pages_end == self.pages_end for spec in kv_cache_specs.values())


@dataclass(frozen=True, kw_only=True)
class KeptKVSpec(RoutedKVSpec):
    """KV groups that keep all their pages, in a layer that has others which don't. Merges with its own kind only."""

    pages_end: int = sys.maxsize

    __hash__ = RoutedKVSpec.__hash__  # a dataclass would make its own


class RoutedKVManager(SingleTypeKVCacheManager):
    """Gives pages to positions below ``pages_end`` only; later places of a block table hold the null block.

    A KeptKVSpec has no such end, so all pages are given, kept, and needed for a prefix hit.
    """

    def __init__(self, kv_cache_spec: RoutedKVSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.pages_end = kv_cache_spec.pages_end
        self.paged_blocks = int(cdiv(self.pages_end, self.block_size))

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int, *args: Any, **kwargs: Any) -> int:
        """Admission and allocation both count pages below ``pages_end`` only."""
        held = self.req_to_blocks.get(request_id)
        if held:  # under way, so nothing more comes from the prefix cache; asked in every step, so without a detour
            return max(-(-min(num_tokens, self.pages_end) // int(self.block_size)) - len(held), 0)
        return int(super().get_num_blocks_to_allocate(request_id, min(num_tokens, self.pages_end), *args, **kwargs))

    def allocate_new_blocks(self, request_id: str, num_tokens: int, num_tokens_main_model: int) -> list[Any]:
        if num_tokens <= self.pages_end:
            if num_tokens <= len(self.req_to_blocks[request_id]) * self.block_size:
                return []
            return super().allocate_new_blocks(request_id, num_tokens, num_tokens_main_model)  # type: ignore[no-any-return]
        new = list(super().allocate_new_blocks(request_id, self.pages_end, num_tokens_main_model))
        blocks = self.req_to_blocks[request_id]
        # The worker appends what is returned to its table by place, so places without a page are filled too.
        missing = [self._null_block] * (cdiv(num_tokens, self.block_size) - len(blocks))
        blocks.extend(missing)
        return new + missing

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int, *args: Any, **kwargs: Any) -> None:
        if processed_computed_tokens > self.pages_end:
            super().remove_skipped_blocks(request_id, processed_computed_tokens, *args, **kwargs)

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All pages, once position ``pages_end`` has been computed: that step absorbed them.

        At exactly ``pages_end`` computed tokens the state does not exist yet.
        """
        return 0 if num_computed_tokens <= self.pages_end else self.paged_blocks * int(self.block_size)

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Any,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: Any,
        kv_cache_spec: RoutedKVSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> tuple[tuple[list[Any], ...], int]:
        """The longest prefix that needs no page that is missing.

        Beyond ``pages_end`` no page is needed: any length will do, and the state's group decides. Up to there, every page is.
        vLLM asks again with what the other groups have found, until all agree.
        """
        block = kv_cache_spec.block_size
        length = max_length - max_length % alignment_tokens
        if length > kv_cache_spec.pages_end:
            return tuple([block_pool.null_block] * (length // block) for _ in kv_cache_group_ids), length
        hashes = resolve_block_hashes(block_hashes, block_pool.hash_block_size, block)
        found: list[Sequence[Any]] = []
        for i in range(length // block):
            cached = block_pool.get_cached_block(hashes[i], kv_cache_group_ids)
            if not cached:
                break
            found.append(cached)
        length = len(found) * block
        length -= length % alignment_tokens
        del found[length // block :]
        return tuple([list(row) for row in zip(*found, strict=True)] or [[] for _ in kv_cache_group_ids]), length

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """0: no cascade attention (vLLM up to 0.30 asks)."""
        return 0


# Registered first, ours would keep vLLM's own specs from being registered in this process.
KVCacheSpecRegistry._ensure_registered()
KVCacheSpecRegistry.register(RoutedKVSpec, RoutedKVManager, uniform_type_base_spec=RoutedKVSpec)
KVCacheSpecRegistry.register(KeptKVSpec, RoutedKVManager, uniform_type_base_spec=KeptKVSpec)
