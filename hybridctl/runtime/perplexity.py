"""What a routing costs or saves: the perplexity of held-out text, by ranges of positions."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybridctl.runtime.checkpoint import DEMO
from hybridctl.runtime.entropy import LANDMARKS
from hybridctl.runtime.http import Client
from hybridctl.runtime.partition import span
from hybridctl.runtime.routing_probe import tokens_of

Losses = Sequence[Sequence[float]]
"""Nats of the next token, one row a window, by position."""

MARGIN = 1.05
"""A rise of perplexity up to this factor is not called one: half precision and the choice of text move it by about a percent."""
SHORTEST = 16
"""Positions of a range: over fewer, single tokens decide."""


@dataclass(frozen=True)
class Part:
    """Perplexity over positions [start, end); ``factor``: as a multiple of the served one, with its 95 % interval (None: the served
    one itself, or too few windows for an interval)."""

    start: int
    end: int
    value: float
    factor: tuple[float, float, float] | None = None

    @property
    def place(self) -> str:
        return span(self.start, self.end)


@dataclass(frozen=True)
class Perplexity:
    """Of one routing: over everything from the first linear position on, and by ranges. ``served``: it is the one under test."""

    name: str
    whole: Part
    parts: tuple[Part, ...] = ()
    served: bool = False


def texts() -> list[str]:
    """The demo's held-out text: windows of Python source, neighbours from the same file."""
    with gzip.open(DEMO / "heldout.json.gz", "rt", encoding="utf-8") as handle:
        rows = json.load(handle)["windows"]
    return [bytes.fromhex(row["text"]).decode("utf-8", "replace") for row in rows]


def windows(client: Client, model: str, count: int, length: int) -> list[list[int]]:
    """Up to ``count`` windows of at most ``length`` tokens, by the server's own tokenizer, evenly chosen, none overlapping."""
    rows = texts()
    size = 1
    while size < len(rows) and len(tokens_of(client, model, "".join(rows[:size]))) < length:
        size = min(2 * size, len(rows))
    step = max(size, len(rows) // count)
    starts = range((step - size) // 2, len(rows) - size + 1, step)
    return [tokens_of(client, model, "".join(rows[start : start + size]))[:length] for start in starts][:count]


def edges(marks: Iterable[int], first: int, length: int) -> list[tuple[int, int]]:
    """Ranges of positions: cut where a kernel may change, halfway before, and at doublings behind.

    Args:
        marks: thresholds and changes of kernel.
        first: the first linear position.
        length: positions that there are.
    """
    cuts = {0, first // 2, *marks}
    last = max(cuts) or LANDMARKS // 2
    while last < length:
        last *= 2
        cuts.add(last)
    kept = [0]
    for cut in sorted(c for c in cuts if 0 < c < length):
        if cut - kept[-1] >= SHORTEST:
            kept.append(cut)
    if len(kept) > 1 and length - kept[-1] < SHORTEST:
        kept.pop()
    return list(itertools.pairwise([*kept, length]))


def other_routings(config: Mapping[str, Any], context: int) -> dict[str, dict[str, Any]]:
    """The same checkpoint routed otherwise, by thresholds.

    Args:
        config: the served ``hybrid_config``.
        context: a position that no text reaches.
    """
    base = {**config, "routing_strategy": "sequence_length", "fallback_policy": "flash"}
    for name in ("compute_units", "default_unit"):
        base.pop(name, None)
    inner = config.get("thresholds") or {}
    flash, linear = inner.get("flash"), inner.get("linear")
    by_entropy = flash != linear and config.get("fallback_policy", "entropy_based") == "entropy_based"
    out = {"all flash": {**base, "thresholds": {"flash": context, "linear": context}}}
    if (flash, linear) != (0, 0):
        out["all linear"] = {**base, "thresholds": {"flash": 0, "linear": 0}}
    if flash is not None and linear:
        if not (by_entropy and flash // 2 < LANDMARKS):
            out["thresholds halved"] = {**config, "thresholds": {"flash": flash // 2, "linear": linear // 2}}
        out["thresholds doubled"] = {**config, "thresholds": {"flash": 2 * flash, "linear": 2 * linear}}
    return out


def of(
    name: str, losses: Losses, first: int, ranges: Sequence[tuple[int, int]], served: Losses | None = None
) -> Perplexity:
    """The perplexity of one routing, beside the served one where that is given.

    Args:
        first: the first linear position; at least one window reaches beyond it.
        ranges: none of them beyond the longest window.
    """

    def part(start: int, end: int) -> Part:
        own = _means(losses, start, end)
        value = math.exp(sum(own) / len(own))
        base = _means(served, start, end) if served is not None else []
        return Part(start, end, value, ratio(own, base) if len(base) > 1 else None)

    longest = max(map(len, losses))
    parts = tuple(part(start, end) for start, end in ranges)
    return Perplexity(name, part(first, longest), parts, served is None)


def _means(losses: Losses, start: int, end: int) -> list[float]:
    """Nats a token of each window that reaches into the range."""
    rows = [row[start:end] for row in losses]
    return [sum(row) / len(row) for row in rows if row]


def ratio(losses: Sequence[float], base: Sequence[float], draws: int = 2000) -> tuple[float, float, float]:
    """Perplexity as a multiple of another on the same windows, with its 95 % interval (bootstrap over windows)."""
    gaps = [a - b for a, b in zip(losses, base, strict=True)]
    chance = random.Random(0)
    means = sorted(sum(chance.choices(gaps, k=len(gaps))) / len(gaps) for _ in range(draws))
    low, high = means[int(0.025 * draws)], means[int(0.975 * draws) - 1]
    return math.exp(sum(gaps) / len(gaps)), math.exp(low), math.exp(high)
