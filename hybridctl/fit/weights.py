"""What of a model's weights lies on one GPU, part by part, and what lies in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hybridctl.model.config import ModelConfig
from hybridctl.model.inventory import Inventory
from hybridctl.model.plan import LayerPlan

_WHOLE = ("router", "other")
"""Parts that every rank holds whole."""
# Bytes a number by scheme; scales included: one float a block of 128 x 128, one byte for 16 numbers, two bytes for 32 to 128.
_WIDTH = {
    "fp8": 1.0,
    "fp8-block": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "awq": 0.53,
    "gptq": 0.53,
    "int4": 0.53,
    "int8": 1.0,
}
_QUANTISED = ("attention", "state", "feed-forward", "experts", "shared expert")
# The formats that keep all but the experts as they were, or so the published checkpoints do.
_EXPERTS_ONLY = ("mxfp4",)


@dataclass(frozen=True, slots=True)
class Ranks:
    """How a model is spread. ``expert_parallel``: whole experts on each rank instead of a slice of every expert."""

    tensor: int = 1
    data: int = 1
    expert_parallel: bool = False

    @property
    def world(self) -> int:
        return self.tensor * self.data


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the weights. ``error``: by how much of the whole the figure may be off, 0 when it was read from headers."""

    parts: Mapping[str, int]
    """On one GPU."""
    host: int
    """The n-gram table in host memory, once for each data-parallel rank."""
    whole: int
    """The whole checkpoint."""
    source: str
    error: float

    @property
    def gpu(self) -> int:
        return sum(self.parts.values())


def from_inventory(found: Inventory, plan: LayerPlan, ranks: Ranks, table_on_gpu: bool, draft: bool) -> Weights:
    """The weights of a checkpoint whose headers were read."""
    return _spread(found.by_part, plan, ranks, table_on_gpu, draft, f"headers of {found.files} files", 0.0)


def from_count(
    counted: Mapping[str, int],
    config: ModelConfig,
    plan: LayerPlan,
    ranks: Ranks,
    table_on_gpu: bool,
    draft: bool,
    quant: list[str],
    size: int | None = None,
) -> Weights:
    """The weights of a model whose headers are not known.

    Args:
        counted: numbers by part (:func:`hybridctl.model.parameters.count_parameters`).
        quant: how they are stored; empty or "none": in 16 bits.
        size: bytes of the published files, where a recipe states them; the parts are scaled to it.
    """
    stored = {part: int(n * _width(part, quant, config)) for part, n in counted.items()}
    table = stored.get("table", 0)  # its rows are known exactly
    if size and size > table and (total := sum(stored.values()) - table):
        stored = {part: n if part == "table" else int(n * (size - table) / total) for part, n in stored.items()}
        return _spread(stored, plan, ranks, table_on_gpu, draft, "published size, shared out as counted", 0.02)
    return _spread(stored, plan, ranks, table_on_gpu, draft, "counted from config.json", _error(quant))


def _error(quant: list[str]) -> float:
    """What a checkpoint leaves unquantised is not in its config: little of 8 bits, much of 4 (27B in NVFP4: 24.6 for 18.8 GB)."""
    scheme = _scheme(quant)
    return 0.02 if scheme is None else 0.08 if _WIDTH[scheme] >= 1 else 0.3


def _scheme(quant: list[str]) -> str | None:
    return next((q for q in quant if q in _WIDTH), None)


def _width(part: str, quant: list[str], config: ModelConfig) -> float:
    scheme = _scheme(quant)
    wide = 4.0 if config.dtype == "float32" else 2.0
    if part == "table":
        stated = str(config.text.get("ple_embedding_dtype") or "").lower()
        kind = stated or (scheme or "")
        return 0.5625 if "nvfp4" in kind else 1.0 if "8" in kind else wide
    if scheme is None or part not in _QUANTISED or (scheme in _EXPERTS_ONLY and part != "experts"):
        return wide
    return _WIDTH[scheme]


def _spread(
    stored: Mapping[str, int], plan: LayerPlan, ranks: Ranks, table_on_gpu: bool, draft: bool, source: str, error: float
) -> Weights:
    parts: dict[str, int] = {}
    for part, size in stored.items():
        if (part == "table" and not table_on_gpu) or (part == "draft" and not draft):
            continue
        # Experts are spread over the data-parallel ranks too, whole or in slices; everything else is repeated there.
        split = 1 if part in _WHOLE else ranks.world if part == "experts" else ranks.tensor
        parts[part] = int(size / split)
        if part == "attention":
            parts[part] += _repeated_heads(plan, size, ranks.tensor)
    table = stored.get("table", 0)
    return Weights(parts, 0 if table_on_gpu else table, sum(stored.values()), source, error)


def _repeated_heads(plan: LayerPlan, size: int, ranks: int) -> int:
    """Bytes more than the plain share, because fewer KV heads than ranks are repeated; a bound from above."""
    most = max(
        (ranks / a.kv_heads for a in plan.attention.values() if not a.latent and a.kv_heads < ranks), default=1.0
    )
    return int(size * 0.2 * (most - 1) / ranks) if most > 1 else 0
