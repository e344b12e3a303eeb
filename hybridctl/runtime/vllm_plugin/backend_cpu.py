"""Routing on top of vLLM's CPU attention: planned once a step, executed layer by layer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.forward_context import get_forward_context
from vllm.logger import init_logger
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadataBuilder,
)

from hybridctl.kernels.linear_attention import vectorised
from hybridctl.runtime.compute_unit import FLASH
from hybridctl.runtime.selection_log import SelectionLog
from hybridctl.runtime.step_plan import RoutePlan
from hybridctl.runtime.vllm_plugin import pages_cpu
from hybridctl.runtime.vllm_plugin.counters import COUNTERS
from hybridctl.runtime.vllm_plugin.routing import first_cut

logger = init_logger("vllm.hybridctl")


@dataclass
class Work:
    """What the layers of one route do in a step, as tensors.

    Attributes:
        plain: all tokens are flash and no state changes: vLLM's own step.
        flash_tokens, linear_tokens: how many each kernel answers.
        flash: metadata of the flash runs, None where there are none; ``flash_at`` their tokens, None for the whole batch.
        decode_rows, decode_at: rows with one token that enters the state, and its place in the batch.
        chunks: the longer runs that enter the state.
        first: rows whose state starts in this step, from the positions below ``absorb_end``.
    """

    plain: bool
    flash_tokens: int
    linear_tokens: int = 0
    flash: Any = None
    flash_at: Tensor | None = None
    decode_rows: Tensor | None = None
    decode_at: Tensor | None = None
    chunks: vectorised.Chunks | None = None
    first: Tensor | None = None
    absorb_end: int = 0


def _long(values: Any) -> Tensor:
    return torch.tensor(values.tolist(), dtype=torch.long)


def _places(starts: Tensor, counts: Tensor) -> Tensor:
    """The tokens of runs, in order: [starts[i], starts[i] + counts[i]) for each i."""
    ends = counts.cumsum(0)
    return torch.repeat_interleave(starts - ends + counts, counts) + torch.arange(int(ends[-1]) if len(ends) else 0)


class RoutedCPUBuilder(CPUAttentionMetadataBuilder):
    """Adds ``hybrid``, the :class:`Work` of each route, to vLLM's metadata."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: Any) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        context = vllm_config.compilation_config.static_forward_context
        self.layers = [context[name] for name in layer_names]
        routings = [layer.routing for layer in self.layers]
        self.dispatcher = routings[0].dispatcher
        self.routes = sorted({routing.route for routing in routings})
        self.pages_end = routings[0].pages_end
        self.flash_end = first_cut(self.dispatcher)
        # Of several builders in a process one speaks.
        self.log = SelectionLog(logger.info, self.dispatcher.routes) if any(r.last for r in routings) else None

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        common, rows = common_attn_metadata, common_attn_metadata.num_reqs
        metadata = super().build(common_prefix_len, common, fast_build)
        lengths = common.seq_lens_cpu_upper_bound  # exact, as speculative decoding is refused
        if common.max_query_len == 1 and common.max_seq_len <= self.flash_end:
            known = lengths.tolist()[:rows]
            if min(known) > 1:
                return self._decode(metadata, known)
        lengths = lengths[:rows]
        starts = common.query_start_loc_cpu[: rows + 1].long()
        plan = self.dispatcher.plan_step(starts.numpy(), lengths.numpy())
        if self.log is not None:
            self.log.step(plan)
        metadata.hybrid = {route: self._work(plan.routes[route], common, metadata) for route in self.routes}
        if self.pages_end is not None:
            self._pages(starts, lengths.long(), common)
        return metadata

    def _decode(self, metadata: Any, lengths: list[int]) -> Any:
        """One token a row, all of them flash, and none starts or crosses: most steps of many servers, so without torch."""
        metadata.hybrid = dict.fromkeys(self.routes, Work(True, len(lengths), flash=metadata))
        if self.log is not None and self.log.waiting:
            self.log.give_due()
        if self.pages_end is not None:
            fresh = [i for i, n in enumerate(lengths) if n % self.block_size == 1]
            if fresh:
                self._clear(metadata.block_table[fresh, [lengths[i] // self.block_size for i in fresh]])
        return metadata

    def _work(self, plan: RoutePlan, common: Any, metadata: Any) -> Work:
        plain = plan.whole == FLASH and not len(plan.update)
        work = Work(plain, plan.flash.tokens, plan.linear.tokens, absorb_end=plan.absorb_end)
        if plan.whole == FLASH:
            work.flash = metadata
        elif len(plan.flash):
            work.flash_at, work.flash = self._flash_part(plan, common)
        if len(plan.update):
            short, long = plan.update.split()
            if len(short):
                work.decode_rows, work.decode_at = _long(short.row), _long(short.q0)
            if len(long):
                work.chunks = vectorised.cut([(row, q0, q1) for row, q0, q1, _, _ in long])
            if len(plan.first):
                work.first = _long(plan.first)
        return work

    def _flash_part(self, plan: RoutePlan, common: Any) -> tuple[Tensor, Any]:
        runs = plan.flash
        q0, q1, p1 = _long(runs.q0), _long(runs.q1), _long(runs.p1)
        counts = q1 - q0
        starts = torch.zeros(len(runs) + 1, dtype=common.query_start_loc.dtype)
        starts[1:] = counts.cumsum(0)
        at = _places(q0, counts)
        part = copy.copy(common)
        part.query_start_loc = part.query_start_loc_cpu = starts
        part.num_reqs, part.num_actual_tokens = len(runs), runs.tokens
        part.seq_lens = p1.to(common.seq_lens.dtype)
        part.max_query_len, part.max_seq_len = int(counts.max()), int(p1.max())
        part.block_table_tensor = common.block_table_tensor[_long(runs.row)].contiguous()
        part.slot_mapping = common.slot_mapping[at]
        return at, super().build(0, part)

    def _pages(self, starts: Tensor, end: Tensor, common: Any) -> None:
        """Tokens from ``pages_end`` on have no page: their place in the table holds the null block, which is not written.

        ``starts`` [rows + 1]: where each row's tokens begin in the batch; ``end`` [rows]: their last position + 1.
        """
        counts = starts.diff()
        begin = end - counts
        paged = (end.clamp_max(self.pages_end) - begin).clamp_min(0)
        if not torch.equal(paged, counts):
            common.slot_mapping[_places(starts[:-1] + paged, counts - paged)] = -1
        end = begin + paged
        last = (end - 1).div(self.block_size, rounding_mode="floor")
        fresh = (paged > 0) & (last * self.block_size >= begin) & (end % self.block_size != 0)
        if bool(fresh.any()):
            self._clear(common.block_table_tensor[fresh, last[fresh]])

    def _clear(self, blocks: Tensor) -> None:
        """Zero blocks whose first tokens come in this step and don't fill them.

        Attention multiplies what lies behind a sequence's end by zero, so it must not be NaN.
        """
        blocks = blocks.long()
        for layer in self.layers:
            layer.kv_cache[blocks] = 0


class RoutedCPUImpl(CPUAttentionBackendImpl):
    """CPU attention for flash runs, the layer's linear state for the others."""

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: Any,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        if attn_metadata is None:  # warm-up
            return output
        work = attn_metadata.hybrid[layer.routing.route]
        if not work.plain:
            self._linear(layer, work, query, key, value, kv_cache, attn_metadata.block_table, output)
        # After the state's answers: a token that enters the state may still be answered by flash.
        if work.flash is not None:
            COUNTERS.add("flash", work.flash_tokens)
            if work.flash_at is None:
                super().forward(
                    layer, query, key, value, kv_cache, work.flash, output, output_scale, output_block_scale
                )
            else:
                part = torch.empty_like(output[: len(work.flash_at)])
                super().forward(layer, query[work.flash_at], None, None, kv_cache, work.flash, part)
                output[work.flash_at] = part
        if layer.routing.last:
            COUNTERS.flush()
        return output

    def _linear(
        self,
        layer: Any,
        work: Work,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        table: Tensor,
        output: Tensor,
    ) -> None:
        routing = layer.routing
        state, norm = layer.linear_state.kv_cache
        slots = get_forward_context().attn_metadata[layer.linear_state.layer_name].state_indices_tensor
        value = value[..., : routing.value_size]
        if work.first is not None:
            for row in work.first.tolist():
                slot = slots[row]
                if not work.absorb_end:
                    state[slot], norm[slot] = 0.0, 0.0
                    continue
                old_k, old_v = pages_cpu.read(kv_cache, table[row], work.absorb_end, layer.isa)
                old_v = old_v[..., : routing.value_size]
                state[slot], norm[slot] = vectorised.absorb(old_k, old_v, routing.projection)
                COUNTERS.add("absorb", work.absorb_end)
        parts = []
        if work.decode_at is not None and work.decode_rows is not None:
            at = work.decode_at
            out = vectorised.decode(
                query[at], key[at], value[at], state, norm, slots[work.decode_rows], routing.projection
            )
            parts.append((at, out))
        if work.chunks is not None:
            out = vectorised.prefill(
                query, key, value, state, norm, slots[work.chunks.rows], work.chunks, routing.projection
            )
            parts.append((work.chunks.tokens, out))
        COUNTERS.add("linear", work.linear_tokens)
        for at, out in parts:
            if routing.value_size == output.shape[-1]:
                output[at] = out.to(output.dtype)
            else:
                padded = output.new_zeros(len(at), *output.shape[1:])
                padded[..., : routing.value_size] = out
                output[at] = padded


class RoutedCPUBackend(CPUAttentionBackend):
    """Keeps the name of CPU_ATTN, which vLLM looks up among its own."""

    @staticmethod
    def get_impl_cls() -> type[RoutedCPUImpl]:
        return RoutedCPUImpl

    @staticmethod
    def get_builder_cls() -> type[RoutedCPUBuilder]:
        return RoutedCPUBuilder
