"""Routing on top of vLLM's CPU attention: planned once a step, executed layer by layer."""

from __future__ import annotations

import copy
import sys
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
from hybridctl.runtime.selection_log import SelectionLog
from hybridctl.runtime.step_plan import StepPlan
from hybridctl.runtime.vllm_plugin import pages_cpu, record
from hybridctl.runtime.vllm_plugin.band import Band
from hybridctl.runtime.vllm_plugin.by_value import PromptLengths, require_room
from hybridctl.runtime.vllm_plugin.counters import COUNTERS
from hybridctl.runtime.vllm_plugin.kv_spec import RoutedKVSpec
from hybridctl.runtime.vllm_plugin.routing import first_cut
from hybridctl.runtime.vllm_plugin.work import Run, Work, places, work_of

logger = init_logger("vllm.hybridctl")


class RoutedCPUBuilder(CPUAttentionMetadataBuilder):
    """Adds ``hybrid``, the :class:`~hybridctl.runtime.vllm_plugin.work.Work` of each route, to vLLM's metadata."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: Any) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        context = vllm_config.compilation_config.static_forward_context
        self.layers = [context[name] for name in layer_names]
        routings = [layer.routing for layer in self.layers]
        self.dispatcher = routings[0].dispatcher
        self.routes = sorted({routing.route for routing in routings})
        self.gated = {routing.route for routing in routings if routing.gate is not None}
        self.pages_end = routings[0].pages_end
        # Kept pages of vLLM's own kind are cleared by vLLM, where states share the pool.
        self.clears = isinstance(kv_cache_spec, RoutedKVSpec)
        moving = any(self.dispatcher.routes[route].state_start is not None for route in self.routes)
        self.flash_end = first_cut(self.dispatcher) if moving else sys.maxsize
        self.prompts = PromptLengths() if self.dispatcher.config.route_by == "prompt_length" else None
        if self.dispatcher.by_value:
            require_room(vllm_config)
        self.log = None
        for routing in routings:
            if routing.tells:  # of several builders in a process one speaks
                self.log = routing.log = SelectionLog(logger.info, self.dispatcher.routes)

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
        prompts = None
        if self.prompts is not None:
            begin = lengths - starts.diff()
            prompts = self.prompts.of(common.block_table_tensor[:rows, 0].tolist(), begin.tolist(), lengths.tolist())
        plan = self.dispatcher.plan_step(starts.numpy(), lengths.numpy(), prompts)
        if self.log is not None:
            self.log.step(plan)
        metadata.hybrid = {route: self._work(route, plan, common, metadata) for route in self.routes}
        if self.clears:
            self._pages(starts, lengths.long(), common)
        return metadata

    def _decode(self, metadata: Any, lengths: list[int]) -> Any:
        """One token a row, all of them flash, and none starts or crosses: most steps of many servers, so without torch."""
        metadata.hybrid = dict.fromkeys(self.routes, Work(True, len(lengths), flash=metadata))
        if self.log is not None and self.log.waiting:
            self.log.give_due()
        if self.clears:
            fresh = [i for i, n in enumerate(lengths) if n % self.block_size == 1]
            if fresh:
                self._clear(metadata.block_table[fresh, [lengths[i] // self.block_size for i in fresh]])
        return metadata

    def _work(self, index: int, step: StepPlan, common: Any, metadata: Any) -> Work:
        plan, partition = step.routes[index], self.dispatcher.routes[index]
        values = step.values
        rules = [partition.at(p0 if values is None else values[row]) for row, _, _, p0, _ in plan.band]
        work, runs = work_of(plan, rules, index in self.gated)
        if runs is None:
            work.flash = metadata
        elif runs:
            work.flash_at, work.flash = self._flash_part(runs, common)
        return work

    def _flash_part(self, runs: list[Run], common: Any) -> tuple[Tensor, Any]:
        row, q0, q1, _, p1 = (torch.tensor(column, dtype=torch.long) for column in zip(*runs, strict=True))
        counts = q1 - q0
        starts = torch.zeros(len(runs) + 1, dtype=common.query_start_loc.dtype)
        starts[1:] = counts.cumsum(0)
        at = places(q0, counts)
        part = copy.copy(common)
        part.query_start_loc = part.query_start_loc_cpu = starts
        part.num_reqs, part.num_actual_tokens = len(runs), len(at)
        part.seq_lens = p1.to(common.seq_lens.dtype)
        part.max_query_len, part.max_seq_len = int(counts.max()), int(p1.max())
        part.block_table_tensor = common.block_table_tensor[row].contiguous()
        part.slot_mapping = common.slot_mapping[at]
        return at, super().build(0, part)

    def _pages(self, starts: Tensor, end: Tensor, common: Any) -> None:
        """Tokens from ``pages_end`` on have no page: their place in the table holds the null block, which is not written.

        A page that comes in this step is cleared first, see ``_clear``.

        ``starts`` [rows + 1]: where each row's tokens begin in the batch; ``end`` [rows]: their last position + 1.
        """
        counts = starts.diff()
        begin = end - counts
        paged = counts
        if self.pages_end is not None:
            paged = (end.clamp_max(self.pages_end) - begin).clamp_min(0)
            if not torch.equal(paged, counts):
                common.slot_mapping[places(starts[:-1] + paged, counts - paged)] = -1
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
        routing = layer.routing
        work = attn_metadata.hybrid[routing.route]
        if not work.plain:
            self._linear(layer, work, query, key, value, kv_cache, attn_metadata.block_table, output)
        mask = None
        if work.band is not None:
            mask = self._decide(layer, work.band, query, kv_cache, attn_metadata.block_table)
        if record.hook is not None:
            record.hook(layer, work, mask)
        # After the state's answers: a token that enters the state may still be answered by flash.
        if work.flash is not None:
            COUNTERS.add("flash", work.flash_tokens, routing.share)
            if work.plain:
                super().forward(
                    layer, query, key, value, kv_cache, work.flash, output, output_scale, output_block_scale
                )
            else:
                self._flash(layer, work, mask, query, kv_cache, output)
        if routing.last:
            COUNTERS.flush()
        return output

    def _decide(self, layer: Any, band: Band, query: Tensor, kv_cache: Tensor, table: Tensor) -> Tensor:
        """[B, H_k]: which tokens of the band are linear."""
        keys = pages_cpu.gather_keys(kv_cache, table[band.rows], band.keys, layer.isa)
        mask = band.linear(band.scores(query[band.at], keys, self.scale))
        share, log = layer.routing.share, layer.routing.log
        linear = float(mask.float().mean(1).sum())
        COUNTERS.add("linear", linear, share)
        COUNTERS.add("flash", len(mask) - linear, share)
        if log is not None:
            log.band(len(mask) - round(linear), round(linear))
        return mask

    def _flash(
        self, layer: Any, work: Work, mask: Tensor | None, query: Tensor, kv_cache: Tensor, output: Tensor
    ) -> None:
        """Answers of flash, into the tokens and heads that it computes. ``output`` holds those of the state."""
        tokens = output.shape[0] if work.flash_at is None else len(work.flash_at)
        soft = torch.empty_like(output[:tokens])
        asked = query if work.flash_at is None else query[work.flash_at]
        super().forward(layer, asked, None, None, kv_cache, work.flash, soft)
        taken = torch.zeros(output.shape[0], layer.num_kv_heads, dtype=torch.bool)
        if work.band is not None and mask is not None:
            taken[work.band.at] = mask
        if work.linear_at is not None:
            taken[work.linear_at] = True
        at = slice(0, tokens) if work.flash_at is None else work.flash_at
        linear = taken[at].repeat_interleave(layer.num_heads // layer.num_kv_heads, 1)[..., None]
        answer = output[at]
        gate = layer.routing.gate
        if gate is not None:
            weight = gate.sigmoid()[None, :, None]
            answer = (weight * answer.float() + (1.0 - weight) * soft.float()).to(output.dtype)
        output[at] = torch.where(linear, answer, soft)

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
        groups = layer.num_kv_heads
        state, norm = (tensor[:, :groups] for tensor in layer.linear_state.kv_cache)
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
                COUNTERS.add("absorb", work.absorb_end, routing.share)
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
        COUNTERS.add("linear", work.linear_tokens, routing.share)
        for at, out in parts:
            vectorised.write(output, at, out)


class RoutedCPUBackend(CPUAttentionBackend):
    """Keeps the name of CPU_ATTN, which vLLM looks up among its own."""

    @staticmethod
    def get_impl_cls() -> type[RoutedCPUImpl]:
        return RoutedCPUImpl

    @staticmethod
    def get_builder_cls() -> type[RoutedCPUBuilder]:
        return RoutedCPUBuilder
