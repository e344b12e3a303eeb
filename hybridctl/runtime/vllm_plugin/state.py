"""The linear state beside an attention layer, held by vLLM as it holds the state of Mamba-like layers."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import get_temporal_copy_spec
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

STATE_DTYPES = (torch.float32, torch.float32)
COPY_FUNCTIONS = (get_temporal_copy_spec, get_temporal_copy_spec)  # both are copied whole at block ends


def state_shapes(groups: int, features: int, values: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """S [H_k, F, D_v] and z [H_k, F] of one sequence and layer."""
    return (groups, features, values), (groups, features)


def state_bytes(groups: int, features: int, values: int) -> int:
    return 4 * groups * features * (values + 1)


class LinearState(torch.nn.Module, MambaBase):
    """S and z of one layer for all sequences: ``kv_cache`` = ([slots, H_k, F, D_v], [slots, H_k, F]).

    A slot holds what its last user left there. Whoever starts a state writes it whole; nothing may read it before.
    """

    def __init__(self, vllm_config: Any, name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        super().__init__()
        self.layer_name = name
        self.shapes = shapes
        self.kv_cache = (torch.tensor([]), torch.tensor([]))
        context = vllm_config.compilation_config.static_forward_context
        if name in context:
            raise ValueError(f"two layers are called {name}")
        context[name] = self

    def get_state_shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.shapes

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        return STATE_DTYPES

    @property
    def mamba_type(self) -> Any:
        return MambaAttentionBackendEnum.LINEAR
