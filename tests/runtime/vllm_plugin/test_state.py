"""When a request gets a slot for its state, with vLLM's own block pool; and what the metadata of states say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.single_type_kv_cache_manager import get_manager_for_kv_cache_spec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from hybridctl.runtime.vllm_plugin.state import LinearState, StateBuilder, StateManager, StateMetadata, StateSpec

pytestmark = [pytest.mark.vllm, pytest.mark.core]
BLOCK, START, CONTEXT = 32, 100, 2048


def spec(mode: str = "align", **other: Any) -> StateSpec:
    made = {"block_size": BLOCK if mode == "align" else CONTEXT, "shapes": ((2, 64, 64), (2, 64)), "start": START}
    return StateSpec(**{**made, "dtypes": (torch.float32,) * 2, "mamba_cache_mode": mode, **other})


def manager(mode: str = "align") -> Any:
    return get_manager_for_kv_cache_spec(
        spec(mode),
        512,
        CONTEXT,
        block_pool=BlockPool(50, mode == "align", BLOCK),
        enable_caching=mode == "align",
        kv_cache_group_id=0,
        scheduler_block_size=BLOCK,
    )


def held(made: Any) -> list[bool]:
    return [not block.is_null for block in made.req_to_blocks["r"]]


def grow(made: Any, tokens: int, computed: int) -> list[bool]:
    """A step to this many tokens; True for each new place with a slot."""
    wanted = made.get_num_blocks_to_allocate("r", tokens, [], computed, 0, tokens)
    made.remove_skipped_blocks("r", computed)
    new = made.allocate_new_blocks("r", tokens, tokens)
    assert wanted == sum(not block.is_null for block in new)
    return [not block.is_null for block in new]


def test_without_a_prefix_cache_the_slot_comes_with_the_first_linear_token() -> None:
    made = manager("none")
    assert type(made) is StateManager
    assert grow(made, 60, 0) == []
    assert grow(made, 100, 60) == []
    assert made.block_pool.get_num_free_blocks() == 49
    assert grow(made, 101, 100) == [True]
    assert grow(made, 300, 101) == []
    assert held(made) == [True]
    made.free("r")
    assert made.block_pool.get_num_free_blocks() == 49


def test_with_a_prefix_cache_it_comes_with_the_block_of_the_first_linear_token() -> None:
    made = manager()
    assert spec().begin == 96  # position 100 lies in the block of 96 to 127
    assert grow(made, 60, 0) == [False, False]
    assert grow(made, 64, 60) == []
    assert grow(made, 96, 64) == [False]
    assert made.block_pool.get_num_free_blocks() == 49
    assert grow(made, 97, 96) == [True]
    assert grow(made, 128, 97) == []
    assert grow(made, 129, 128) == [True]  # the state moves on, and the one at 128 is kept until it has been copied
    grow(made, 161, 160)
    assert held(made) == [False] * 4 + [True, True]
    made.free("r")
    assert made.block_pool.get_num_free_blocks() == 49


def test_a_long_prompt_gets_one_slot_at_its_end() -> None:
    made = manager()
    assert grow(made, 320, 0) == [False] * 9 + [True]


def hit(cached: int | None, length: int, start: int = START) -> tuple[list[bool], int]:
    """A look for a prefix of this length, where the state after ``cached`` blocks is kept (None: none)."""
    pool = BlockPool(50, True, BLOCK)
    block = pool.get_new_blocks(1)[0]
    key = None if cached is None else f"h{cached - 1}".encode()
    pool.get_cached_block = lambda h, ids: [block] if h == key else None  # type: ignore[method-assign,assignment,return-value]
    hashes: Any = [f"h{i}".encode() for i in range(20)]
    rows, got = StateManager.find_longest_cache_hit(hashes, length, [0], pool, spec(start=start), False, BLOCK)
    return [not b.is_null for b in rows[0]], got


def test_a_prefix_needs_a_state_only_beyond_its_begin() -> None:
    assert hit(None, 90) == ([False] * 2, 64)
    assert hit(None, 330) == ([False] * 3, 96)
    assert hit(7, 330) == ([False] * 6 + [True], 224)
    assert hit(7, 200) == ([False] * 3, 96)
    assert hit(None, 330, start=0) == ([], 0)


def test_a_hit_without_a_state_takes_no_slot() -> None:
    made = manager()
    null = [made.block_pool.null_block] * 3
    assert made.get_num_blocks_to_allocate("r", 96, null, 96, 96, 96) == 0
    made.add_local_computed_blocks("r", null, 96, 0)
    assert grow(made, 200, 96) == [False, False, False, True]
    assert held(made) == [False] * 6 + [True]


def test_a_hit_with_a_state_takes_it_and_one_for_the_next() -> None:
    made = manager()
    blocks = [made.block_pool.null_block] * 3 + made.block_pool.get_new_blocks(1)
    made.block_pool.free_blocks(blocks[3:])  # cached, and held by nobody
    assert made.get_num_blocks_to_allocate("r", 129, blocks, 128, 128, 129) == 2
    made.add_local_computed_blocks("r", blocks, 128, 0)
    made.allocate_new_blocks("r", 129, 129)
    assert held(made) == [False] * 3 + [True, True]


def test_states_stay_one_group_and_have_their_own_manager() -> None:
    assert spec().is_uniform_with_collection({"a": spec(), "b": spec()})
    assert StateSpec.merge([spec(), spec()]) == spec()
    assert KVCacheSpecRegistry.get_manager_class(spec()) is StateManager


@pytest.mark.parametrize("mode", ["none", "align"])
def test_slots_are_looked_up_when_asked(mode: str) -> None:
    table = torch.tensor([[5, 0, 0], [0, 0, 9], [7, 8, 0]], dtype=torch.int32)
    lengths = torch.tensor([1, 96, 33], dtype=torch.int32)
    slots = StateMetadata(table, lengths, spec(mode), mode).state_indices_tensor
    assert slots.dtype == torch.int64
    assert slots.tolist() == ([5, 0, 7] if mode == "none" else [5, 9, 8])


def test_a_state_says_when_it_begins_and_asks_for_no_order() -> None:
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context={}),
        cache_config=SimpleNamespace(
            mamba_block_size=BLOCK,
            mamba_page_size_padded=None,
            mamba_cache_mode="align",
            use_replayssm=False,
            use_kda_recoverssm=False,  # 0.30
        ),
        num_speculative_tokens=0,
        speculative_config=None,
    )
    state = LinearState(config, "layer.linear_state", ((2, 64, 64), (2, 64)), START)
    assert state.get_kv_cache_spec(config) == spec(mamba_type=MambaAttentionBackendEnum.LINEAR)
    assert state.get_attn_backend().get_builder_cls() is StateBuilder
    assert StateBuilder.reorder_batch_threshold is None
    with pytest.raises(ValueError, match="two layers"):
        LinearState(config, "layer.linear_state", ((2, 64, 64), (2, 64)), START)
