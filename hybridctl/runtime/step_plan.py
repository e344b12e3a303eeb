"""The plan of one engine step: which query tokens each kernel computes, and what enters the states. Lengths in, numbers out.

A *route* is one distinct partition of values among the layers and KV groups of a rank; every route gets its own plan. Few rows are
cut in plain Python, many with numpy where it is installed (vLLM brings it); both give the same integers, as ``array("q")`` or int64
arrays.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.runtime.compute_unit import ENTROPY, FLASH, LINEAR
from hybridctl.runtime.entropy import FIRST_SCORED
from hybridctl.runtime.partition import Partition

NUMPY_FROM = 16  # rows; below, the calls into numpy cost more than the loop


class PlanError(HybridctlError):
    """Lengths that can't be those of an engine step."""


class Segments:
    """Runs of query tokens: of batch row ``row[i]``, tokens [q0[i], q1[i]) of the flat batch, at positions [p0[i], p1[i]).

    ``p1`` is also the sequence length that attention over the pages needs. Ordered by row, then by position.
    """

    __slots__ = ("p0", "p1", "q0", "q1", "row", "tokens")

    def __init__(self, row: Any, q0: Any, q1: Any, p0: Any, p1: Any, tokens: int) -> None:
        self.row, self.q0, self.q1, self.p0, self.p1, self.tokens = row, q0, q1, p0, p1, tokens

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(row, q0, q1, p0, p1) of each run."""
        columns = (self.row, self.q0, self.q1, self.p0, self.p1)
        return zip(*(c.tolist() for c in columns), strict=True)

    def split(self) -> tuple[Segments, Segments]:
        """Runs of one token (decode) and longer ones (prefill)."""
        if self.tokens == len(self):
            return self, EMPTY
        runs = list(self)
        return _segments([s for s in runs if s[2] - s[1] == 1]), _segments([s for s in runs if s[2] - s[1] > 1])


def _segments(runs: Sequence[tuple[int, int, int, int, int]]) -> Segments:
    if not runs:
        return EMPTY
    row, q0, q1, p0, p1 = (array("q", column) for column in zip(*runs, strict=True))
    return Segments(row, q0, q1, p0, p1, sum(q1) - sum(q0))


EMPTY = Segments(array("q"), array("q"), array("q"), array("q"), array("q"), 0)


@dataclass(slots=True)
class RoutePlan:
    """What the layers and KV groups of one route do in this step.

    Attributes:
        flash, linear, band: the runs of each kernel; in ``band`` the entropy of each token decides. Together every token once.
        update: the runs whose keys and values enter the state in this step.
        first: rows whose state begins in this step: start it from zeros, then add positions [0, ``absorb_end``) from the pages
            (keys and values of this step are among them, so write the pages first), then the runs in ``update``.
        whole: the kernel of all tokens, where it is one.
    """

    flash: Segments
    linear: Segments
    band: Segments
    update: Segments
    first: Any
    absorb_end: int
    whole: str | None

    def of(self, kernel: str) -> Segments:
        return self.flash if kernel == FLASH else self.linear if kernel == LINEAR else self.band


@dataclass(slots=True)
class StepPlan:
    """One :class:`RoutePlan` a route.

    Attributes:
        num_tokens: query tokens of the step.
        whole: the kernel of all tokens in all routes, where it is one.
        plain: flash computes all tokens and no state changes: the step is the platform's own.
        values: what routes each batch row, where it is not each token's position.
    """

    routes: tuple[RoutePlan, ...]
    num_tokens: int
    whole: str | None
    plain: bool
    values: list[int] | None = None

    def tokens(self, kernel: str, pairs: Sequence[int]) -> int:
        """Tokens × (layer, KV group) that a kernel computes; ``pairs`` says how many layers and groups take each route."""
        return sum(route.of(kernel).tokens * n for route, n in zip(self.routes, pairs, strict=True))


@dataclass(slots=True)
class Rows:
    """The rows that have query tokens in a step, and the runs that they are before any cut."""

    runs: Segments
    low: int
    high: int
    numpy: Any


@cache
def load_numpy() -> Any:
    """numpy, or None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def read_rows(query_start_loc: Any, seq_lens: Any) -> Rows:
    """Check the lengths of a step. Rows without query tokens (padding) fall away.

    Args:
        query_start_loc: where each row's query tokens begin in the flat batch, and the end; [rows + 1] or longer.
        seq_lens: tokens of each row, this step's included; [rows].
    """
    rows = len(seq_lens)
    if len(query_start_loc) <= rows:
        raise PlanError(f"{len(query_start_loc)} query starts for {rows} rows; one more than rows is needed")
    numpy = load_numpy() if rows >= NUMPY_FROM else None
    return _read_numpy(numpy, query_start_loc, seq_lens) if numpy else _read_python(query_start_loc, seq_lens)


def _read_python(query_start_loc: Any, seq_lens: Any) -> Rows:
    starts, lens = _list(query_start_loc), _list(seq_lens)
    runs = []
    for row, end in enumerate(lens):
        q0, q1 = starts[row], starts[row + 1]
        if q1 != q0:
            p0 = end - q1 + q0
            if q1 < q0 or p0 < 0:
                raise PlanError(f"row {row} has {q1 - q0} query tokens and a length of {end}")
            runs.append((row, q0, q1, p0, end))
    low, high = (min(r[3] for r in runs), max(r[4] for r in runs)) if runs else (0, 0)
    return Rows(_segments(runs), low, high, None)


def _read_numpy(np: Any, query_start_loc: Any, seq_lens: Any) -> Rows:
    p1 = np.asarray(seq_lens, dtype=np.int64)
    starts = np.asarray(query_start_loc, dtype=np.int64)[: len(p1) + 1]
    q0, q1, row = starts[:-1], starts[1:], np.arange(len(p1))
    count = q1 - q0
    if not count.all():
        row = row[count != 0]
        q0, q1, p1, count = q0[row], q1[row], p1[row], count[row]
        if not len(row):
            return Rows(EMPTY, 0, 0, None)
    p0 = p1 - count
    low = int(p0.min())
    if low < 0 or int(count.min()) < 0:
        bad = int(np.flatnonzero((p0 < 0) | (count < 0))[0])
        raise PlanError(f"row {int(row[bad])} has {int(count[bad])} query tokens and a length of {int(p1[bad])}")
    return Rows(Segments(row, q0, q1, p0, p1, int(count.sum())), low, int(p1.max()), np)


def _list(values: Any) -> list[int]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def route_by_position(partition: Partition, rows: Rows) -> RoutePlan:
    """Cut rows where the partition cuts positions."""
    runs, np = rows.runs, rows.numpy
    at = partition.index(rows.low)
    end = partition.ranges[at].end
    begin = partition.state_start
    if end is None or rows.high <= end:
        parts = {partition.ranges[at].kernel: runs}
    else:
        parts = _cut_numpy(np, partition, runs) if np else _cut_python(partition, runs)
    used = [kernel for kernel, each in parts.items() if len(each)]
    whole = used[0] if len(used) == 1 else None
    update, first = EMPTY, EMPTY.row
    if begin is not None and rows.high > begin:
        update = runs if rows.low >= begin else _from_numpy(np, runs, begin) if np else _from_python(runs, begin)
        if rows.low <= begin:
            if np:
                first = runs.row[(runs.p0 <= begin) & (runs.p1 > begin)]
            else:
                first = array("q", [row for row, _, _, p0, p1 in runs if p0 <= begin < p1])
    return RoutePlan(
        parts.get(FLASH, EMPTY), parts.get(LINEAR, EMPTY), parts.get(ENTROPY, EMPTY), update, first, begin or 0, whole
    )


def _cut_python(partition: Partition, runs: Segments) -> dict[str, Segments]:
    parts: dict[str, list[tuple[int, int, int, int, int]]] = {FLASH: [], LINEAR: [], ENTROPY: []}
    ranges = partition.ranges
    for row, q0, q1, p0, p1 in runs:
        at = partition.index(p0)
        while True:
            end = ranges[at].end
            if end is None or p1 <= end:
                parts[ranges[at].kernel].append((row, q0, q1, p0, p1))
                break
            parts[ranges[at].kernel].append((row, q0, q0 + end - p0, p0, end))
            q0, p0, at = q0 + end - p0, end, at + 1
    return {kernel: _segments(each) for kernel, each in parts.items()}


def _cut_numpy(np: Any, partition: Partition, runs: Segments) -> dict[str, Segments]:
    starts = np.asarray(partition.starts, dtype=np.int64)
    at = np.searchsorted(starts, runs.p0, "right") - 1
    last = np.searchsorted(starts, runs.p1 - 1, "right") - 1
    row, q0, q1, p0, p1 = runs.row, runs.q0, runs.q1, runs.p0, runs.p1
    pieces = last - at + 1
    total = int(pieces.sum())
    if total > len(row):  # a row goes over a cut: repeat it for each range, then trim each piece to its range
        source = np.repeat(np.arange(len(row)), pieces)
        at = at[source] + np.arange(total) - (np.cumsum(pieces) - pieces)[source]
        ends = np.append(starts[1:], np.iinfo(np.int64).max)
        begin = np.maximum(p0[source], starts[at])
        stop = np.minimum(p1[source], ends[at])
        shift = (q0 - p0)[source]
        row, q0, q1, p0, p1 = row[source], begin + shift, stop + shift, begin, stop
    kinds = np.asarray([(FLASH, LINEAR, ENTROPY).index(r.kernel) for r in partition.ranges])[at]
    parts = {}
    for code, kernel in enumerate((FLASH, LINEAR, ENTROPY)):
        if kernel in partition.kernels:
            mine = np.flatnonzero(kinds == code)
            parts[kernel] = _pick(mine, row, q0, q1, p0, p1)
    return parts


def _pick(mine: Any, row: Any, q0: Any, q1: Any, p0: Any, p1: Any) -> Segments:
    begin, end = q0[mine], q1[mine]
    return Segments(row[mine], begin, end, p0[mine], p1[mine], int((end - begin).sum()))


def _from_python(runs: Segments, begin: int) -> Segments:
    """The parts of runs at ``begin`` and later."""
    return _segments(
        [(r, max(q0, q0 + begin - p0), q1, max(p0, begin), p1) for r, q0, q1, p0, p1 in runs if p1 > begin]
    )


def _from_numpy(np: Any, runs: Segments, begin: int) -> Segments:
    late = np.maximum(runs.p0, begin)
    return _pick(np.flatnonzero(runs.p1 > begin), runs.row, runs.q0 + late - runs.p0, runs.q1, late, runs.p1)


def route_by_value(partition: Partition, rows: Rows, values: Sequence[int], *, keep_state: bool) -> RoutePlan:
    """Route whole rows by a value of each (prompt length, or the longest row of the batch), indexed by batch row.

    The state runs from token 0. Positions too early for an entropy score are flash.

    Args:
        keep_state: rows that are flash in this step enter the state too, since a later step may route them otherwise.
    """
    parts: dict[str, list[tuple[int, int, int, int, int]]] = {FLASH: [], LINEAR: [], ENTROPY: []}
    update, first = [], []
    stateful = partition.state_start is not None
    for run in rows.runs:
        row, q0, q1, p0, p1 = run
        kernel = partition.at(values[row]).kernel
        if kernel == ENTROPY and p0 < FIRST_SCORED:
            cut = min(p1, FIRST_SCORED)
            parts[FLASH].append((row, q0, q0 + cut - p0, p0, cut))
            if cut < p1:
                parts[ENTROPY].append((row, q0 + cut - p0, q1, cut, p1))
        else:
            parts[kernel].append(run)
        if stateful and (keep_state or kernel != FLASH):
            update.append(run)
            if p0 == 0:
                first.append(row)
    used = [kernel for kernel, runs in parts.items() if runs]
    flash, linear, band = (_segments(parts[k]) for k in (FLASH, LINEAR, ENTROPY))
    whole = used[0] if len(used) == 1 else None
    return RoutePlan(flash, linear, band, _segments(update), array("q", first), 0, whole)
