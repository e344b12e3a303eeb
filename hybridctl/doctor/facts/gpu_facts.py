"""Listings of GPUs to facts: what the lines say, and what the table of GPUs knows by the names."""

from __future__ import annotations

from collections.abc import Iterable

from hybridctl import gpus
from hybridctl.doctor.facts.statements import IMPLIED, STATED, GpuRow, Statement

BY_TABLE = IMPLIED + 1
"""From the table: counts only where the text neither states nor implies it."""


def gpu_statements(listing: list[GpuRow]) -> Iterable[Statement]:
    """Facts of one listing. What holds of the lowest or the smallest GPU is left out as soon as one GPU is not known."""
    if not listing:
        return
    first = listing[0]
    yield _say("gpu.names", [row.name for row in listing for _ in range(row.count)], first)
    if all(row.counted for row in listing):
        yield _say("gpu.count", sum(row.count for row in listing), first)
    vendors = {gpus.vendor_of(row.name) for row in listing}
    if len(vendors) == 1 and (vendor := vendors.pop()):
        yield _say("gpu.vendor", vendor, first)
    targets = {gpus.amd_target(row.quote) for row in listing}
    if len(targets) == 1 and (target := targets.pop()):
        yield _say("gpu.arch", target, first)
    known = [(row, gpus.lookup(row.name)) for row in listing]
    yield from _lowest_cc(known)
    yield from _least_memory(known)
    if all(gpu for _, gpu in known):
        yield from _common(known)


def _common(known: list[tuple[GpuRow, gpus.Gpu | None]]) -> Iterable[Statement]:
    row, gpu = known[0]
    if gpu is None:
        return
    if all(other and other.arch == gpu.arch for _, other in known) and gpu.arch:
        yield _say("gpu.arch", gpu.arch, row, BY_TABLE)
    if all(other and other.unified == gpu.unified for _, other in known):
        yield _say("gpu.unified", gpu.unified, row, BY_TABLE)


def _lowest_cc(known: list[tuple[GpuRow, gpus.Gpu | None]]) -> Iterable[Statement]:
    stated = [(row.cc, row) for row, _ in known if row.cc]
    if len(stated) == len(known):
        cc, row = min(stated, key=lambda pair: _number(pair[0]))
        yield _say("gpu.cc", cc, row)
        return
    tabled = [(gpu.cc, row) for row, gpu in known if gpu and gpu.cc]
    if len(tabled) == len(known):
        cc, row = min(tabled, key=lambda pair: _number(pair[0]))
        yield _say("gpu.cc", cc, row, BY_TABLE)


def _least_memory(known: list[tuple[GpuRow, gpus.Gpu | None]]) -> Iterable[Statement]:
    sizes: list[tuple[float, int, GpuRow]] = []
    for row, gpu in known:
        if row.memory_gib is not None:
            sizes.append((row.memory_gib, STATED, row))
        elif gpu and gpu.memory_gib is not None:
            sizes.append((gpu.memory_gib, IMPLIED if gpu.memory_named else BY_TABLE, row))
    if len(sizes) == len(known):
        size, rank, row = min(sizes, key=lambda item: item[0])
        line, quote = (row.memory_line, row.memory_quote) if rank == STATED else (row.line, row.quote)
        yield Statement("gpu.memory_gib", size, line, quote, max(rank for _, rank, _ in sizes))


def _say(key: str, value: str | int | bool | list[str], row: GpuRow, rank: int = STATED) -> Statement:
    return Statement(key, value, row.line, row.quote, rank)


def _number(cc: str) -> tuple[int, ...]:
    return tuple(int(part) for part in cc.split(".") if part.isdigit())
