"""From compute units to ranges: which kernel computes each value, for every layer and KV group.

A unit's condition changes at finitely many values and entropies, so trying one value between each two neighbouring cuts is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hybridctl.errors import UsageError
from hybridctl.runtime.compute_unit import ENTROPY, FLASH, LINEAR, ComputeUnit
from hybridctl.runtime.condition import Condition, Constant, bind, entropy_cuts, holds, names, value_cuts
from hybridctl.runtime.entropy import LANDMARKS

MAX_RANGES = 256


class PartitionError(UsageError):
    """Units that don't say what computes every token, or say it in a way that no kernel can follow."""


@dataclass(frozen=True, slots=True)
class Range:
    """Values [start, end), ``end`` None for no end, and what computes them.

    Attributes:
        kernel: ``flash``, ``linear``, or ``entropy``: the score of each position decides.
        above: with ``entropy``, the kernel for scores above the threshold (with ``inclusive`` also at it); the other one below.
    """

    start: int
    end: int | None
    kernel: str
    threshold: float = 0.0
    inclusive: bool = False
    above: str = FLASH

    def decide(self, entropy: float) -> str:
        """The kernel for a score. A score that is not a number counts as low."""
        if self.kernel != ENTROPY:
            return self.kernel
        high = entropy >= self.threshold if self.inclusive else entropy > self.threshold
        return self.above if high else other(self.above)

    def __str__(self) -> str:
        rule = self.kernel
        if self.kernel == ENTROPY:
            sign = ">=" if self.inclusive else ">"
            rule = f"by entropy ({sign} {self.threshold:g}: {self.above}, else {other(self.above)})"
        return f"{span(self.start, self.end)} {rule}"


def other(kernel: str) -> str:
    """Linear for flash and flash for linear."""
    return LINEAR if kernel == FLASH else FLASH


def span(start: int, end: int | None) -> str:
    """A range as people write it, both ends included: ``2048–4095``, ``4096–``."""
    return f"{start}–" if end is None else str(start) if end == start + 1 else f"{start}–{end - 1}"


@dataclass(frozen=True, slots=True)
class Partition:
    """Ranges that cover every value from 0 on exactly once; neighbours differ."""

    ranges: tuple[Range, ...]
    starts: tuple[int, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", tuple(r.start for r in self.ranges))

    def index(self, value: int) -> int:
        return bisect_right(self.starts, value) - 1

    def at(self, value: int) -> Range:
        return self.ranges[self.index(value)]

    @property
    def kernels(self) -> frozenset[str]:
        return frozenset(r.kernel for r in self.ranges)

    @property
    def state_start(self) -> int | None:
        """The first value that linear may compute: the state runs from here on. None: never."""
        return next((r.start for r in self.ranges if r.kernel != FLASH), None)

    @property
    def pages_end(self) -> int | None:
        """From this value on only linear computes, so no K/V is needed. None: K/V is needed for ever."""
        return self.ranges[-1].start if self.ranges[-1].kernel == LINEAR else None

    def __str__(self) -> str:
        return ", ".join(map(str, self.ranges))


@dataclass(frozen=True)
class Table:
    """The partition of every layer and KV group, each distinct one once.

    Attributes:
        partitions: the distinct ones, in the order of first use.
        index: ``index[layer][head]`` is a place in ``partitions``; heads are KV groups over all ranks.
        warnings: holes that were filled, units that are shadowed or never hold.
    """

    partitions: tuple[Partition, ...]
    index: tuple[tuple[int, ...], ...]
    warnings: tuple[str, ...]

    def at(self, layer: int, head: int) -> Partition:
        return self.partitions[self.index[layer][head]]


@dataclass
class _Notes:
    """What was met while partitions were built: for each unit its values, for each hole its layers and heads."""

    used: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    holes: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    shadowed: dict[tuple[int, int], list[tuple[int, int | None]]] = field(default_factory=dict)


def build_table(
    units: Sequence[ComputeUnit],
    layers: int,
    heads: int,
    default: str | None = None,
    routed: Iterable[int] | None = None,
) -> Table:
    """Partition the values of every layer and KV group.

    Args:
        default: the kernel that fills holes.
        routed: layers whose holes matter; the others take no part (all by default).

    Raises:
        PartitionError: an interval that no unit covers, two entropy thresholds in one range, or a score asked for too early.
    """
    all_names = frozenset[str]().union(*(names(u.condition) for u in units))
    notes = _Notes()
    known: dict[tuple[int, int, bool], Partition] = {}
    distinct: dict[Partition, int] = {}
    by_conditions: dict[tuple[Condition, ...], Partition] = {}
    wanted = frozenset(range(layers) if routed is None else routed)
    index = []
    for layer in range(layers):
        row = []
        for head in range(heads):
            key = (
                layer if "layer" in all_names else 0,
                head if "head" in all_names else 0,
                layer in wanted,
            )
            if key not in known:
                bound = tuple(bind(u.condition, {"layer": layer, "head": head}) for u in units)
                if key[2] is False:
                    known[key] = Partition((Range(0, None, FLASH),))
                elif bound in by_conditions:
                    known[key] = by_conditions[bound]
                else:
                    known[key] = by_conditions[bound] = _partition(units, bound, default, notes, (layer, head))
            row.append(distinct.setdefault(known[key], len(distinct)))
        index.append(tuple(row))
    return Table(tuple(distinct), tuple(index), tuple(_warnings(units, notes, default)))


def _partition(
    units: Sequence[ComputeUnit],
    conditions: tuple[Condition, ...],
    default: str | None,
    notes: _Notes,
    place: tuple[int, int],
) -> Partition:
    cuts = sorted({0}.union(*map(value_cuts, conditions)))
    if len(cuts) > MAX_RANGES:
        raise PartitionError(f"{len(cuts)} ranges in layer {place[0]}, KV group {place[1]}; at most {MAX_RANGES}")
    thresholds = sorted(frozenset[float]().union(*map(entropy_cuts, conditions)))
    ranges: list[Range] = []
    missing: list[tuple[int, int | None]] = []
    for start, end in zip(cuts, [*cuts[1:], None], strict=True):
        piece = _decide(units, conditions, (start, end), thresholds, default, notes)
        if piece is None:
            if missing and missing[-1][1] == start:
                missing[-1] = (missing[-1][0], end)
            else:
                missing.append((start, end))
            continue
        last = ranges[-1] if ranges else None
        if last and last.end == start and _rule(last) == _rule(piece):
            ranges[-1] = Range(last.start, end, *_rule(last))
        else:
            ranges.append(piece)
    if missing:
        where = ", ".join(span(*gap) for gap in missing)
        raise PartitionError(
            f"no unit covers {where} in layer {place[0]}, KV group {place[1]}; allowed: a unit that does, or default_unit"
        )
    for piece in ranges:
        if piece.kernel == ENTROPY and piece.start < LANDMARKS:
            raise PartitionError(
                f"entropy decides from {piece.start} on; allowed: {LANDMARKS} and above (a score needs {LANDMARKS} tokens)"
            )
    return Partition(tuple(ranges))


def _rule(piece: Range) -> tuple[str, float, bool, str]:
    return piece.kernel, piece.threshold, piece.inclusive, piece.above


def _decide(
    units: Sequence[ComputeUnit],
    conditions: tuple[Condition, ...],
    bounds: tuple[int, int | None],
    thresholds: list[float],
    default: str | None,
    notes: _Notes,
) -> Range | None:
    """What computes the values of one elementary range; None for a hole at every entropy."""
    start, end = bounds
    open_ = [(i, c) for i, c in enumerate(bind(c, {"seqlen": start, "position": start}) for c in conditions)]
    live = [(i, c) for i, c in open_ if not (isinstance(c, Constant) and not c.value)]
    probes = _probes(thresholds if any(not isinstance(c, Constant) for _, c in live) else [])
    found: list[str | None] = []
    for _, probe in probes:
        matching = [i for i, c in live if holds(c, start, probe)]
        notes.held.update(matching)
        if matching:
            notes.used.add(matching[0])
            for late in matching[1:]:
                _note_shadow(notes, (matching[0], late), bounds)
        found.append(units[matching[0]].kernel if matching else None)
    if None in found:
        kernels = {k for k in found if k}
        if not default and len(kernels) != 1:
            if not kernels:
                return None
            raise PartitionError(
                f"units leave entropies uncovered in {span(start, end)}; allowed: default_unit, or units for all"
            )
        fill = default or other(kernels.pop())
        low = found[0] is None
        at = next((probes[i][0] for i, k in enumerate(found) if (k is None) != low), None)
        text = "" if at is None else f" with entropy {_side(at, low)}"
        notes.holes.setdefault(f"{text}: {fill} computes it", []).append((start, end))
        found = [k or fill for k in found]
    changes = [i for i in range(1, len(found)) if found[i] != found[i - 1]]
    kernels_ = [k for k in found if k]
    if not changes:
        return Range(start, end, kernels_[0])
    if len(changes) > 1:
        raise PartitionError(
            f"the kernel changes at more than one entropy in {span(start, end)}; allowed: one threshold in a range"
        )
    threshold, inclusive = probes[changes[0]][0]
    return Range(start, end, ENTROPY, threshold, inclusive, kernels_[-1])


def _probes(thresholds: list[float]) -> list[tuple[tuple[float, bool], float]]:
    """Scores that stand for all scores: below the thresholds, at each, above each; with the side on which each begins."""
    points: list[tuple[tuple[float, bool], float]] = []
    if not thresholds or thresholds[0] > 0:
        points.append(((0.0, True), thresholds[0] / 2 if thresholds else 0.0))
    for i, cut in enumerate(thresholds):
        above = (cut + thresholds[i + 1]) / 2 if i + 1 < len(thresholds) else cut + 1.0
        points += [((cut, True), cut), ((cut, False), above)]
    return points


def _side(cut: tuple[float, bool], low: bool) -> str:
    threshold, inclusive = cut
    return f"{('<' if inclusive else '<=') if low else ('>=' if inclusive else '>')} {threshold:g}"


def _note_shadow(notes: _Notes, pair: tuple[int, int], bounds: tuple[int, int | None]) -> None:
    spans = notes.shadowed.setdefault(pair, [])
    if bounds not in spans:
        spans.append(bounds)


def _join(spans: Iterable[tuple[int, int | None]]) -> str:
    joined: list[tuple[int, int | None]] = []
    for start, end in sorted(set(spans), key=lambda s: s[0]):
        if joined and joined[-1][1] is not None and joined[-1][1] >= start:
            joined[-1] = (joined[-1][0], None if end is None else max(joined[-1][1], end))
        elif not joined or joined[-1][1] is not None:
            joined.append((start, end))
    return ", ".join(span(*s) for s in joined)


def _warnings(units: Sequence[ComputeUnit], notes: _Notes, default: str | None) -> list[str]:
    lines = []
    for text, spans in notes.holes.items():
        where = _join(spans)
        by = "default_unit" if default else "no unit covers it"
        lines.append(f"hole at {where}{text} ({by})")
    for i, each in enumerate(units):
        if each.generated or i in notes.used:
            continue
        why = "earlier units take all that it covers" if i in notes.held else "its condition never holds"
        lines.append(f"unit {each.name!r} is never used: {why}")
    for (first, late), spans in notes.shadowed.items():
        a, b = units[first], units[late]
        if late in notes.used and a.kernel != b.kernel and not (a.generated or b.generated):
            lines.append(
                f"units {a.name!r} and {b.name!r} both hold at {_join(spans)}: the first, {a.name!r}, computes"
            )
    return lines
