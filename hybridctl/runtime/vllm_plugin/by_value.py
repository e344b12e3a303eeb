"""Routing by the prompt's length or by the longest row: what it needs of vLLM, which tells the plan of a step neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

from hybridctl.runtime.step_plan import PlanError
from hybridctl.runtime.vllm_plugin.routing import RefusedError


class PromptLengths:
    """The length of each running request's prompt, by its first page.

    Without chunks, prefix caching and preemption a row that begins at position 0 is a whole prompt, and its first page is its own
    for as long as it runs.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, pages: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Prompt lengths of a step's rows.

        Args:
            pages: first page of each row.
            starts, ends: positions that the row's tokens begin and end at.
        """
        lengths = []
        for page, start, end in zip(pages, starts, ends, strict=True):
            if start == 0:
                self._known[page] = end
            if page not in self._known:
                raise PlanError(f"a row at position {start} whose prompt was never seen: its length is not known")
            lengths.append(self._known[page])
        return lengths


def require_room(vllm_config: Any) -> None:
    """Refuse a pool in which a request could be preempted: what was generated would come back as a part of its prompt.

    Raises:
        RefusedError: ``max_num_seqs`` requests of the longest length need more blocks than there are.
    """
    layers = vllm_config.compilation_config.static_forward_context
    specs = {name: layer.get_kv_cache_spec(vllm_config) for name, layer in layers.items()}
    groups = get_kv_cache_groups(vllm_config, {name: spec for name, spec in specs.items() if spec is not None})
    each = sum(
        -(-g.kv_cache_spec.max_memory_usage_bytes(vllm_config) // g.kv_cache_spec.page_size_bytes) for g in groups
    )
    most, pool = vllm_config.scheduler_config.max_num_seqs, vllm_config.cache_config.num_gpu_blocks - 1
    if most * each > pool:
        raise RefusedError(
            f"{most} requests of {vllm_config.model_config.max_model_len} tokens need {most * each} blocks of the cache, and there "
            f"are {pool}: a request could be preempted, and its prompt's length would be lost",
            f"serve with --max-num-seqs {max(pool // each, 1)}, a shorter --max-model-len or more memory for the cache",
        )
