"""The linear state beside an attention layer, held by vLLM as it holds the state of Mamba-like layers.

A request that ends before its first linear token never has one: neither a slot nor its cost in a step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import get_temporal_copy_spec
from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.attention.backends.linear_attn import LinearAttentionBackend
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.attention.backends.utils import mamba_get_block_table_tensor
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

STATE_DTYPES = (torch.float32, torch.float32)
COPY_FUNCTIONS = (get_temporal_copy_spec, get_temporal_copy_spec)  # both are copied whole at block ends


def state_shapes(groups: int, features: int, values: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """S [H_k, F, D_v] and z [H_k, F] of one sequence and layer."""
    return (groups, features, values), (groups, features)


def state_bytes(groups: int, features: int, values: int) -> int:
    return 4 * groups * features * (values + 1)


@dataclass(frozen=True, kw_only=True)
class StateSpec(MambaSpec):
    """A state that begins at position ``start``: no request with fewer tokens holds one."""

    start: int

    def __hash__(self) -> int:
        """Cheap, as for RoutedKVSpec."""
        return hash((self.block_size, self.start))

    @property
    def begin(self) -> int:
        """Requests of up to this many tokens have no slot.

        Where states are kept at block ends, block tables grow by place and the worker never changes an entry: the slot comes with
        the block that ``start`` lies in.
        """
        return self.start if self.mamba_cache_mode == "none" else self.start // self.block_size * self.block_size


class StateManager(MambaManager):
    """Gives slots to requests that are beyond ``begin``; until there the places of a block table hold the null block."""

    def __init__(self, kv_cache_spec: StateSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.begin = kv_cache_spec.begin

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int, *args: Any, **kwargs: Any) -> int:
        if num_tokens <= self.begin:
            return 0
        return int(super().get_num_blocks_to_allocate(request_id, num_tokens, *args, **kwargs))

    def allocate_new_blocks(self, request_id: str, num_tokens: int, num_tokens_main_model: int) -> list[Any]:
        if num_tokens > self.begin:
            return list(super().allocate_new_blocks(request_id, num_tokens, num_tokens_main_model))
        if self.mamba_cache_mode == "none":
            return []
        blocks = self.req_to_blocks[request_id]
        if num_tokens <= len(blocks) * self.block_size:
            return []
        missing = [self._null_block] * (-(-num_tokens // self.block_size) - len(blocks))
        blocks.extend(missing)
        return missing

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        if num_computed_tokens <= self.begin:
            return num_computed_tokens
        return int(super().get_num_skipped_tokens(num_computed_tokens))

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int, *args: Any, **kwargs: Any) -> None:
        if processed_computed_tokens > self.begin:
            super().remove_skipped_blocks(request_id, processed_computed_tokens, *args, **kwargs)

    def cache_blocks(self, request: Any, num_tokens: int, *args: Any, **kwargs: Any) -> None:
        if num_tokens > self.begin:
            super().cache_blocks(request, num_tokens, *args, **kwargs)

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Any,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: Any,
        kv_cache_spec: StateSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> tuple[tuple[list[Any], ...], int]:
        """The longest prefix whose state is cached, or as much as needs none: pages decide there."""
        found, length = super().find_longest_cache_hit(
            *(block_hashes, max_length, kv_cache_group_ids, block_pool, kv_cache_spec, drop_eagle_block),
            *(alignment_tokens, dcp_world_size, pcp_world_size),
        )
        free = min(max_length, kv_cache_spec.begin)
        free -= free % alignment_tokens
        if length > free:
            return found, int(length)
        blocks = free // kv_cache_spec.block_size
        return tuple([block_pool.null_block] * blocks for _ in kv_cache_group_ids), free


class StateMetadata:
    """Where the states of a step's rows are. Looked up when the first layer asks: most steps have no linear token."""

    def __init__(self, table: Tensor, seq_lens: Tensor, spec: Any, mode: str) -> None:
        self._source = (table, seq_lens, spec, mode)

    @cached_property
    def state_indices_tensor(self) -> Tensor:
        """[rows], int64: the slot of each row. Of a row that has none it is any number."""
        slots: Tensor = mamba_get_block_table_tensor(*self._source)
        return slots[:, 0].long()


class StateBuilder(AttentionMetadataBuilder):
    """Unlike vLLM's builder for linear attention it asks for no order of the batch's rows, and computes nothing in advance."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: Any) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.mode = vllm_config.cache_config.mamba_cache_mode

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> StateMetadata:
        common = common_attn_metadata
        return StateMetadata(common.block_table_tensor, common.seq_lens, self.kv_cache_spec, self.mode)


class StateBackend(LinearAttentionBackend):
    @staticmethod
    def get_builder_cls() -> type[StateBuilder]:
        return StateBuilder


class LinearState(torch.nn.Module, MambaBase):
    """S and z of one layer for all sequences: ``kv_cache`` = ([slots, H_k, F, D_v], [slots, H_k, F]).

    H_k may be larger than the number of KV groups of its layer, which then uses the first of them.

    A slot holds what its last user left there. Whoever starts a state writes it whole; nothing may read it before.

    Args:
        start: the first position at which a layer of this model may need a state.
        share: its KV groups, as a part of those of the rank. The page that vLLM pads a state to is that of all groups' keys and
            values; a state of fewer groups is padded to theirs.
    """

    def __init__(
        self,
        vllm_config: Any,
        name: str,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        start: int = 0,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        self.layer_name = name
        self.shapes = shapes
        self.start, self.share = start, share
        self.kv_cache = (torch.tensor([]), torch.tensor([]))
        context = vllm_config.compilation_config.static_forward_context
        if name in context:
            raise ValueError(f"two layers are called {name}")
        context[name] = self

    def get_state_shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.shapes

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        return STATE_DTYPES

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        spec = super().get_kv_cache_spec(vllm_config)
        given = {f.name: getattr(spec, f.name) for f in fields(MambaSpec) if f.init}
        if spec.page_size_padded is not None:
            given["page_size_padded"] = round(spec.page_size_padded * self.share)
        return StateSpec(**given, start=self.start)

    def get_attn_backend(self) -> type[StateBackend]:
        return StateBackend

    @property
    def mamba_type(self) -> Any:
        return MambaAttentionBackendEnum.LINEAR


# vLLM's own specs first, as for RoutedKVSpec.
KVCacheSpecRegistry._ensure_registered()
KVCacheSpecRegistry.register(StateSpec, StateManager, uniform_type_base_spec=StateSpec)
