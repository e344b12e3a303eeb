"""The parts of one GPU's memory, in the order in which bars and plots show them."""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.fit.estimate import Estimate

GIB = 2**30
_GROUPED = {
    "experts": "experts", "shared expert": "experts", "router": "experts", "attention": "layers", "state": "layers",
    "feed-forward": "layers", "other": "layers", "embedding": "embeddings", "vision": "vision", "draft": "draft head",
    "table": "n-gram table",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One bar. Sizes in bytes."""

    name: str
    low: int
    high: int
    style: str
    """A terminal colour by name; plots have their own for the same names."""
    note: str = ""

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def amount(self) -> str:
        if self.low == self.high:
            return f"{self.low / GIB:.1f} GiB"
        return f"{self.low / GIB:.1f} to {self.high / GIB:.1f} GiB"


def parts(e: Estimate) -> list[Part]:
    """Weights by kind, overhead, what is left for the caches, and what the share of memory leaves to others."""
    if e.weights is None or e.overhead is None:
        return []
    grouped: dict[str, int] = {}
    for name, size in e.weights.parts.items():
        grouped[_GROUPED.get(name, "layers")] = grouped.get(_GROUPED.get(name, "layers"), 0) + size
    found = [Part(name, size, size, "blue", "weights") for name, size in sorted(grouped.items(), key=lambda p: -p[1])]
    beside = e.overhead
    found += [
        Part(
            "activations", beside.activations.low, beside.activations.high, "yellow", "measured by vLLM's profile run"
        ),
        Part("graphs", beside.graphs.low, beside.graphs.high, "yellow", ""),
        Part("driver, NCCL", beside.driver.low, beside.driver.high, "yellow", ""),
        Part("caches", e.pool.low, e.pool.high, "green" if e.verdict == "fits" else "red", "what is left"),
    ]
    left = [int(m * (1 - e.utilization)) for m in (e.memory.low, e.memory.high)]
    found.append(Part("not used", left[0], left[1], "bright_black", f"--gpu-memory-utilization {e.utilization:g}"))
    return found
