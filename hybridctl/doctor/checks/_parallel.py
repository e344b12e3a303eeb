"""The parallel layout of a launch: sizes from flags, with vLLM's and SGLang's names, and what they mean for experts."""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Quantity
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence

_TP = ("flag.tensor-parallel-size", "flag.tp-size", "flag.tp")
_PP = ("flag.pipeline-parallel-size", "flag.pp-size", "flag.pp")
_DP = ("flag.data-parallel-size", "flag.dp-size", "flag.dp")
_EP = ("flag.expert-parallel-size", "flag.ep-size", "flag.ep")


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of each kind; ``None`` where it is not known."""

    tp: Quantity | None
    pp: Quantity | None
    dp: Quantity | None
    experts: Quantity | None
    """Into how many pieces the width of one expert is cut. 1 under expert parallelism."""

    @property
    def world(self) -> int | None:
        """GPUs that the launch uses."""
        if self.tp is None or self.pp is None or self.dp is None:
            return None
        return self.tp.value * self.pp.value * self.dp.value


def layout(facts: Facts) -> Layout:
    """Read the layout from the launch line, or from what a log prints of it."""
    tp, pp, dp = (read.number(facts, names, default=1) for names in (_TP, _PP, _DP))
    return Layout(_positive(tp), _positive(pp), _positive(dp), _positive(_expert_pieces(facts, tp, dp)))


def _expert_pieces(facts: Facts, tp: Quantity | None, dp: Quantity | None) -> Quantity | None:
    if tp is None or tp.value < 1:
        return None
    on, says = read.switch(facts, "enable-expert-parallel", default=False)
    if on and says:
        return Quantity(1, says)
    if read.engine(facts) == "sglang":
        ep = read.number(facts, _EP, default=1)
        if read.flag(facts, "enable-ep-moe", "enable-deepep-moe") or _sends_experts(facts):
            return Quantity(1, tp.evidence)
        return None if ep is None or ep.value < 1 else Quantity(max(1, tp.value // ep.value), _both(tp, ep))
    if on is None or dp is None:
        return None
    # Without expert parallelism vLLM spreads each expert over the data-parallel ranks too.
    return Quantity(tp.value * max(1, dp.value), tp.evidence)


def _sends_experts(facts: Facts) -> bool:
    backend = read.flag(facts, "moe-a2a-backend")
    return backend is not None and str(backend.value).lower() not in ("none", "")


def _both(tp: Quantity, ep: Quantity) -> Evidence:
    return tp.evidence if ep.value == 1 else ep.evidence


def _positive(quantity: Quantity | None) -> Quantity | None:
    return quantity if quantity and quantity.value >= 1 else None
