"""A route's part of a step's plan as tensors on the CPU: what its layers do, and which rows are whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention import vectorised
from hybridctl.runtime.compute_unit import FLASH
from hybridctl.runtime.partition import Range
from hybridctl.runtime.step_plan import RoutePlan
from hybridctl.runtime.vllm_plugin.band import Band, band_of


@dataclass
class Work:
    """What the layers of one route do in a step.

    Attributes:
        plain: all tokens are flash and no state changes: vLLM's own step.
        flash_tokens, linear_tokens: how many each kernel answers beside the band.
        flash: metadata of the runs that flash computes, None where there are none; ``flash_at`` their tokens, None for the whole
            batch.
        decode_rows, decode_at: rows with one token that enters the state, and its place in the batch.
        chunks: the longer runs that enter the state.
        first: rows whose state starts in this step, from the positions below ``absorb_end``.
        band: the tokens that entropy decides, None where there are none. Flash computes them too.
        linear_at: tokens of linear runs that flash computes too, for gated layers; None elsewhere.
        plan: what all this was made from; None where all is plain.
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
    band: Band | None = None
    linear_at: Tensor | None = None
    plan: RoutePlan | None = None


Run = tuple[int, int, int, int, int]


def long(values: Any) -> Tensor:
    return torch.tensor(values.tolist(), dtype=torch.long)


def places(starts: Tensor, counts: Tensor) -> Tensor:
    """The tokens of runs, in order: [starts[i], starts[i] + counts[i]) for each i."""
    ends = counts.cumsum(0)
    return torch.repeat_interleave(starts - ends + counts, counts) + torch.arange(int(ends[-1]) if len(ends) else 0)


def work_of(plan: RoutePlan, rules: Sequence[Range], gated: bool) -> tuple[Work, list[Run] | None]:
    """The work of a route, without the metadata of its flash part; and the runs of that part, None for the whole batch.

    Args:
        rules: what decides each run of ``plan.band``.
        gated: linear tokens are answered by flash too.
    """
    plain = plan.whole == FLASH and not len(plan.update)
    work = Work(plain, plan.flash.tokens, plan.linear.tokens, absorb_end=plan.absorb_end, plan=plan)
    runs: list[Run] = [*plan.flash, *plan.band, *(plan.linear if gated else ())]
    if len(plan.band):
        work.band = band_of(list(plan.band), rules)
    if gated and len(plan.linear):
        q0 = long(plan.linear.q0)
        work.linear_at = places(q0, long(plan.linear.q1) - q0)
    if len(plan.update):
        short, many = plan.update.split()
        if len(short):
            work.decode_rows, work.decode_at = long(short.row), long(short.q0)
        if len(many):
            work.chunks = vectorised.cut([(row, q0, q1) for row, q0, q1, _, _ in many])
        if len(plan.first):
            work.first = long(plan.first)
    # Runs of the whole batch, uncut: vLLM's own metadata will do.
    whole = plan.whole is not None and (gated or plan.whole == FLASH or bool(len(plan.band)))
    return work, None if whole else runs
