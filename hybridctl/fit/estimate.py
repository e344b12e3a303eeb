"""Puts the parts together: does a model fit, how much is left for the caches, and whom does that serve?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hybridctl.fit.caches import Caches, Flags, caches
from hybridctl.fit.groups import PagesDiffer
from hybridctl.fit.overhead import NOTHING, Overhead, Range, overhead
from hybridctl.fit.parallel import problems
from hybridctl.fit.rules import Rules
from hybridctl.fit.weights import Ranks, Weights, from_count, from_inventory
from hybridctl.model.config import ModelConfig
from hybridctl.model.inventory import Inventory
from hybridctl.model.parameters import count_parameters
from hybridctl.model.plan import LayerPlan
from hybridctl.model.states import NotDivisible

Verdict = Literal["fits", "tight", "does-not-fit", "refused", "unknown"]
GIB = 2**30
# What drivers report of a size that a name states ("80GB" is 79.65 GiB).
_NOMINAL = (0.98, 0.9975)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one GPU in bytes; a range where only the size that a name states is known."""

    low: int
    high: int
    name: str = ""
    unified: bool = False

    @classmethod
    def nominal(cls, gib: float, name: str, unified: bool = False) -> Memory:
        return cls(int(gib * GIB * _NOMINAL[0]), int(gib * GIB * _NOMINAL[1]), name, unified)

    @classmethod
    def exact(cls, gib: float, name: str = "", unified: bool = False) -> Memory:
        return cls(int(gib * GIB), int(gib * GIB), name, unified)


@dataclass(frozen=True, slots=True)
class Subject:
    """The model in question: what its config and headers say."""

    name: str
    config: ModelConfig
    plan: LayerPlan
    inventory: Inventory | None
    quant: list[str]
    size: int | None = None
    """Bytes of the published weight files, where a recipe states them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The answer for one launch on one kind of GPU."""

    subject: Subject
    memory: Memory
    flags: Flags
    ranks: Ranks
    rules: Rules
    utilization: float
    verdict: Verdict
    why: tuple[str, ...]
    """Why it is refused or unknown; empty otherwise."""
    weights: Weights | None = None
    overhead: Overhead | None = None
    caches: Caches | None = None
    pool: Range = NOTHING
    """Bytes that are left for the caches."""

    @property
    def planned(self) -> int:
        """The pool that the figures are given for: the middle of the range, never below 0."""
        return max(0, (self.pool.low + self.pool.high) // 2)


@dataclass(frozen=True, slots=True)
class Question:
    """All that an estimate depends on besides the model."""

    memory: Memory
    flags: Flags
    ranks: Ranks
    rules: Rules
    utilization: float
    table_on_gpu: bool = False
    eager: bool = False
    draft_loaded: bool = False


def estimate(subject: Subject, asked: Question) -> Estimate:
    """Answer one question about one model. What can't be known is said, and never guessed."""
    known = (subject, asked.memory, asked.flags, asked.ranks, asked.rules, asked.utilization)
    if subject.plan.missing:
        return Estimate(*known, "unknown", tuple(f"config.json does not tell {what}" for what in subject.plan.missing))
    if refused := problems(subject.config, subject.plan, asked.ranks, subject.quant):
        return Estimate(*known, "refused", tuple(refused))
    try:
        made = caches(subject.plan, asked.flags, asked.rules)
    except (NotDivisible, PagesDiffer) as error:
        return Estimate(*known, "refused", (str(error),))
    weights = _weights(subject, asked)
    if weights is None:
        return Estimate(
            *known, "unknown", ("neither headers nor config.json tell the size of the weights",), caches=made
        )
    beside = overhead(subject.config, subject.plan, asked.flags, asked.ranks, asked.eager)
    slack = int(weights.gpu * weights.error)
    pool = Range(
        int(asked.memory.low * asked.utilization) - weights.gpu - slack - beside.total.high,
        int(asked.memory.high * asked.utilization) - weights.gpu + slack - beside.total.low,
    )
    verdict: Verdict = "fits" if made.fits(pool.low) else "tight" if made.fits(pool.high) else "does-not-fit"
    return Estimate(*known, verdict, (), weights, beside, made, pool)


def _weights(subject: Subject, asked: Question) -> Weights | None:
    if subject.inventory is not None:
        return from_inventory(subject.inventory, subject.plan, asked.ranks, asked.table_on_gpu, asked.draft_loaded)
    counted = count_parameters(subject.config, subject.plan)
    if counted is None:
        return None
    return from_count(
        counted,
        subject.config,
        subject.plan,
        asked.ranks,
        asked.table_on_gpu,
        asked.draft_loaded,
        subject.quant,
        subject.size,
    )
