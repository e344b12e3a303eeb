"""How far a launch can be taken: sequences at once, the least prefill budget, fp8 keys and values, longer contexts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybridctl.fit.caches import QUANTISED, Caches, caches
from hybridctl.fit.estimate import Estimate
from hybridctl.model.plan import LayerPlan

DEFAULT_CONTEXTS = (4096, 32768, 131072)


@dataclass(frozen=True, slots=True)
class AtContext:
    """Requests at once, when all of them are that long."""

    tokens: int
    blocks: int
    """Blocks of the pool that one such request holds."""
    gib: float
    concurrency: float


@dataclass(frozen=True, slots=True)
class Sequences:
    """Limits on ``--max-num-seqs``.

    ``start``: above it vLLM refuses to start with full CUDA graphs (each sequence needs a state block); ``None``: no state.
    ``short``: so many one-block requests run without preempting each other.
    """

    start: int | None
    short: int

    @property
    def safe(self) -> int:
        return min(self.short, self.start) if self.start is not None else self.short


@dataclass(frozen=True, slots=True)
class Gain:
    """The same pool with keys and values in fp8."""

    block_size: int
    concurrency: float
    factor: float
    """Concurrency at the maximum length against the present one: well below 2 where states take much of the pool."""


def contexts(made: Caches, pool: int, wanted: tuple[int, ...] = ()) -> list[AtContext]:
    """Concurrency at several lengths, none above the maximum, the maximum itself last."""
    most = made.flags.max_model_len
    lengths = sorted({n for n in wanted or DEFAULT_CONTEXTS if 0 < n < most} | {most})
    return [
        AtContext(n, made.grouping.blocks(n, made.launch), made.need(n) / 2**30, made.concurrency(pool, n))
        for n in lengths
    ]


def sequences(made: Caches, pool: int) -> Sequences:
    """How many sequences a pool admits."""
    hybrid = made.alignment is not None
    return Sequences(
        made.blocks(pool) if hybrid else None,
        max(0, int((made.blocks(pool) - 1) / made.grouping.blocks(1, made.launch))),
    )


def least_budget(made: Caches) -> tuple[int, str]:
    """The smallest sensible ``--max-num-batched-tokens``, and why."""
    decode = made.flags.max_num_seqs * (1 + made.flags.num_speculative_tokens)
    if made.mode == "align" and made.block_size > decode:
        return made.block_size, f"a prefill saves its state at multiples of the block of {made.block_size} tokens"
    drafts = f" with {made.flags.num_speculative_tokens} drafts each" if made.flags.num_speculative_tokens else ""
    return decode, f"one decode step of {made.flags.max_num_seqs} sequences{drafts}"


def fp8_gain(answer: Estimate, plan: LayerPlan) -> Gain | None:
    """What ``--kv-cache-dtype fp8`` buys here; ``None`` where the cache is quantised already or nothing is known."""
    made = answer.caches
    if made is None or made.flags.kv_cache_dtype in QUANTISED or answer.planned <= 0:
        return None
    narrow = caches(plan, replace(made.flags, kv_cache_dtype="fp8"), answer.rules)
    now, then = made.concurrency(answer.planned), narrow.concurrency(answer.planned)
    return Gain(narrow.block_size, then, then / now) if now else None


def state_share(made: Caches, length: int) -> float:
    """Share of one request's blocks that hold states and not keys and values."""
    blocks = made.grouping.blocks(length, made.launch)
    states = sum(g.blocks(length, made.launch) for g in made.grouping.groups if g.first.kind == "state")
    return states / blocks if blocks else 0.0
