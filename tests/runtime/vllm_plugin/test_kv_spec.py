"""The manager of routed pages, with vLLM's own block pool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.single_type_kv_cache_manager import get_manager_for_kv_cache_spec
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from hybridctl.runtime.vllm_plugin.kv_spec import KeptKVSpec, RoutedKVManager, RoutedKVSpec

pytestmark = [pytest.mark.vllm, pytest.mark.core]
BLOCK = 32


def spec(pages_end: int = 100, **other: Any) -> RoutedKVSpec:
    return RoutedKVSpec(
        **{
            "block_size": BLOCK,
            "num_kv_heads": 2,
            "head_size": 64,
            "dtype": torch.float32,
            "pages_end": pages_end,
            **other,
        }
    )


def manager(pages_end: int = 100, blocks: int = 50) -> Any:
    pool = BlockPool(blocks, True, BLOCK)
    return get_manager_for_kv_cache_spec(
        spec(pages_end),
        512,
        2048,
        block_pool=pool,
        enable_caching=True,
        kv_cache_group_id=0,
        scheduler_block_size=BLOCK,
    )


def held(made: Any, request: str = "r") -> list[bool]:
    return [not block.is_null for block in made.req_to_blocks[request]]


def test_positions_from_the_threshold_on_get_no_page() -> None:
    made = manager()
    assert type(made) is RoutedKVManager
    assert made.get_num_blocks_to_allocate("r", 1000, [], 0, 0, 1000) == 4
    new = made.allocate_new_blocks("r", 60, 60)
    assert [b.is_null for b in new] == [False, False]
    new = made.allocate_new_blocks("r", 300, 300)
    assert [b.is_null for b in new] == [False, False] + [True] * 6  # what the worker appends, place by place
    assert held(made) == [True] * 4 + [False] * 6
    assert made.block_pool.get_num_free_blocks() == 49 - 4
    assert made.get_num_blocks_to_allocate("r", 2000, [], 300, 0, 2000) == 0


def test_pages_go_once_the_state_holds_them() -> None:
    made = manager()
    made.allocate_new_blocks("r", 130, 130)
    made.remove_skipped_blocks("r", 100)  # position 100 has not been computed: nothing has absorbed the pages
    assert held(made) == [True] * 4 + [False]
    made.remove_skipped_blocks("r", 101)
    assert held(made) == [False] * 5
    assert made.block_pool.get_num_free_blocks() == 49
    made.allocate_new_blocks("r", 170, 170)
    made.remove_skipped_blocks("r", 170)
    assert held(made) == [False] * 6
    made.free("r")
    assert made.block_pool.get_num_free_blocks() == 49


@pytest.mark.parametrize(("pages_end", "most"), [(100, 4), (96, 3), (1, 1), (5000, 63)])
def test_memory_of_one_sequence(pages_end: int, most: int) -> None:
    config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=2000))
    assert spec(pages_end).max_memory_usage_bytes(config) == most * spec().page_size_bytes


class Hashes(list):  # type: ignore[type-arg]
    """Block hashes, and a pool in which some are cached."""


def hit(pages_end: int, cached: int, length: int) -> tuple[list[bool], int]:
    pool = BlockPool(50, True, BLOCK)
    blocks = pool.get_new_blocks(cached) if cached else []
    found = {f"h{i}".encode(): [b] for i, b in enumerate(blocks)}
    pool.get_cached_block = lambda h, ids: found.get(h)  # type: ignore[method-assign,assignment,return-value]
    hashes: Any = [f"h{i}".encode() for i in range(20)]
    rows, got = RoutedKVManager.find_longest_cache_hit(hashes, length, [0], pool, spec(pages_end), False, BLOCK)
    return [not b.is_null for b in rows[0]], got


def test_a_prefix_needs_pages_up_to_the_threshold_and_only_the_state_beyond() -> None:
    assert hit(100, 2, 90) == ([True, True], 64)
    assert hit(100, 4, 100) == ([True] * 3, 96)
    assert hit(96, 4, 96) == ([True] * 3, 96)  # at the threshold itself there is no state yet
    assert hit(100, 0, 64) == ([], 0)
    assert hit(100, 0, 330) == ([False] * 10, 320)
    assert hit(100, 4, 128) == ([False] * 4, 128)


def test_a_hit_beyond_the_threshold_takes_no_page() -> None:
    made = manager()
    null = [made.block_pool.null_block] * 5
    assert made.get_num_blocks_to_allocate("r", 200, null, 160, 160, 200) == 0
    made.add_local_computed_blocks("r", null, 160, 0)
    new = made.allocate_new_blocks("r", 200, 200)
    assert (held(made), [b.is_null for b in new]) == ([False] * 7, [True, True])
    assert made.block_pool.get_num_free_blocks() == 49


def kept(**other: Any) -> KeptKVSpec:
    return KeptKVSpec(**{"block_size": BLOCK, "num_kv_heads": 2, "head_size": 64, "dtype": torch.float32, **other})


def test_groups_that_keep_their_pages_have_the_same_manager_without_an_end() -> None:
    pool = BlockPool(50, True, BLOCK)
    settings: dict[str, Any] = {"block_pool": pool, "enable_caching": True, "kv_cache_group_id": 0}
    made = get_manager_for_kv_cache_spec(kept(), 512, 2048, scheduler_block_size=BLOCK, **settings)
    assert type(made) is RoutedKVManager
    made.allocate_new_blocks("r", 300, 300)
    made.remove_skipped_blocks("r", 300)
    assert held(made) == [True] * 10
    assert made.get_num_blocks_to_allocate("r", 400, [], 300, 0, 400) == 3
    config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=2000))
    assert kept().max_memory_usage_bytes(config) == 63 * kept().page_size_bytes
    assert len({kept(), kept(), spec()}) == 2


def test_never_fused_with_another_kind() -> None:
    full = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=64, dtype=torch.float32)
    mamba = MambaSpec(block_size=BLOCK, shapes=((2, 64, 64),), dtypes=(torch.float32,))
    assert RoutedKVSpec.merge([spec(), spec()]) == spec()
    assert KeptKVSpec.merge([kept(), kept()]) == kept()
    for other in (full, mamba, spec(64), spec(num_kv_heads=1), kept()):
        with pytest.raises(AssertionError):
            RoutedKVSpec.merge([spec(), other])
        with pytest.raises(AssertionError):
            type(other).merge([other, spec()])
        uniform = spec().is_uniform_with_collection({"a": spec(), "b": other})
        assert uniform is (type(other) is RoutedKVSpec and other.pages_end == 100)
        with pytest.raises(AssertionError):
            KeptKVSpec.merge([kept(), full])
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(spec()) is RoutedKVSpec
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(kept()) is KeptKVSpec
    assert KVCacheSpecRegistry.get_manager_class(full) is not None  # ours did not keep vLLM's own from being registered
