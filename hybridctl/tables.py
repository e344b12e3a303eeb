"""Version tables that ship as data: what each vLLM release pins, which GPU code its wheel holds, which driver serves which CUDA.

Every look-up takes a set of versions (:class:`~hybridctl.versions.VersionSet`), since that is what people state, and answers a
field only when every version of the set, and the rows on both sides of a version that has no row of its own, agree on it. A field
that is not known is ``None``; a field that is known to be absent (no FlashInfer pin) is the empty string.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

from packaging.version import Version

from hybridctl.data import read_table
from hybridctl.errors import BrokenDataError
from hybridctl.versions import Interval, VersionSet, parse_condition, parse_version


class _Row(Protocol):
    """A row: a named tuple, since classes of many fields are slow to make as dataclasses, and most starts make all of these."""

    @property
    def version(self) -> str: ...

    @property
    def _fields(self) -> tuple[str, ...]: ...


RowT = TypeVar("RowT", bound=_Row)


class Release(NamedTuple):
    """What a vLLM release asks for. ``cuda``: CUDA major that the wheel links to; ``torch_cuda``: CUDA of the default torch."""

    version: str
    torch: str | None = ""
    torchvision: str | None = ""
    triton: str | None = ""
    transformers: str | None = ""
    flashinfer: str | None = ""
    flashinfer_cubin: str | None = ""
    xformers: str | None = ""
    python: str | None = ""
    cuda: int | None = None
    torch_cuda: str | None = ""
    glibc: str | None = ""


class Wheel(NamedTuple):
    """GPU code of the default wheel: targets such as ``90a`` with machine code (cubin) and with PTX, by extension module."""

    version: str
    core_cubin: tuple[str, ...] | None = ()
    core_ptx: tuple[str, ...] | None = ()
    moe_cubin: tuple[str, ...] | None = ()
    moe_ptx: tuple[str, ...] | None = ()
    fa2_cubin: tuple[str, ...] | None = ()
    fa2_ptx: tuple[str, ...] | None = ()
    fa3_cubin: tuple[str, ...] | None = ()
    ptx_isa: str | None = None


class Torch(NamedTuple):
    """The default build of a torch release: the Triton it pins, its torchvision, its CUDA."""

    version: str
    triton: str | None = ""
    torchvision: str | None = None
    cuda: str | None = ""


class Triton(NamedTuple):
    """The assembler inside a Triton wheel. ``targets``: GPU targets from sm_100 on that it knows."""

    version: str
    ptxas: str | None = ""
    ptxas_blackwell: str | None = ""
    targets: tuple[str, ...] | None = ()


class Cuda(NamedTuple):
    """A CUDA release: its PTX ISA and the first drivers that serve it; ``None`` where the release notes name none."""

    version: str
    ptx: str
    linux: str | None = None
    windows: str | None = None


@cache
def _document(name: str) -> dict[str, Any]:
    return read_table(f"{name}.toml")


def _rows(name: str, key: str, kind: type[RowT]) -> tuple[RowT, ...]:
    try:
        return tuple(
            kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in _document(name)[key]
        )
    except (KeyError, TypeError) as error:
        raise BrokenDataError(f"{name}.toml: {error}") from error


@cache
def releases() -> tuple[Release, ...]:
    """Checked vLLM releases, oldest first."""
    return _rows("vllm", "release", Release)


@cache
def wheels() -> tuple[Wheel, ...]:
    """Inspected vLLM wheels, oldest first."""
    return _rows("wheels", "wheel", Wheel)


@cache
def torches() -> tuple[Torch, ...]:
    """Checked torch releases, oldest first."""
    return _rows("torch", "torch", Torch)


@cache
def tritons() -> tuple[Triton, ...]:
    """Inspected Triton wheels, oldest first."""
    return _rows("triton", "triton", Triton)


@cache
def cudas() -> tuple[Cuda, ...]:
    """CUDA releases, oldest first."""
    return _rows("cuda", "cuda", Cuda)


def sources(name: str) -> list[str]:
    """Addresses that the table ``name`` rests on."""
    return [str(s) for s in _document(name)["source"]]


def _candidates(rows: Sequence[RowT], versions: VersionSet) -> tuple[list[RowT], bool] | None:
    """Rows that a version of the set may be like, and whether the set reaches past the newest row. None: it reaches below."""
    found: dict[str, RowT] = {}
    beyond = False
    known = [(Version(row.version), row) for row in rows]
    for interval in versions.intervals:
        if interval.low is None or interval.low < known[0][0]:
            return None
        found.update((row.version, row) for at, row in known if _holds(interval, at))
        if not any(at == interval.low for at, _ in known):
            below = [row for at, row in known if at < interval.low][-1]
            found[below.version] = below
        above = None
        if interval.high is not None:
            if any(at == interval.high for at, _ in known) and interval.high_closed:
                continue
            above = next((row for at, row in known if at >= interval.high), None)
        if above is None:
            beyond = True
        else:
            found[above.version] = above
    return sorted(found.values(), key=lambda row: Version(row.version)), beyond


def _holds(interval: Interval, version: Version) -> bool:
    return not interval.intersect(Interval(version, True, version, True)).is_empty()


def _merge(kind: type[RowT], rows: Sequence[RowT], versions: VersionSet, rising: Sequence[str], beyond: bool) -> RowT:
    """One row with the fields that all rows agree on; past the newest row only those that never fall."""
    merged: dict[str, Any] = {"version": versions.text}
    for name in rows[0]._fields:
        if name == "version":
            continue
        values = {getattr(row, name) for row in rows}
        agreed = len(values) == 1 and not (beyond and name not in rising)
        merged[name] = values.pop() if agreed else None
    return kind(**merged)


def release(versions: VersionSet | None) -> Release | None:
    """What the releases in the set ask for, field by field; ``None`` when nothing is known of any of them.

    ``cuda`` holds beyond the newest row too: a wheel's CUDA major has never fallen.
    """
    at = _candidates(releases(), versions) if versions else None
    return None if at is None or versions is None else _merge(Release, at[0], versions, ("cuda",), at[1])


def wheel(versions: VersionSet | None) -> Wheel | None:
    """GPU code of the default wheels in the set, field by field.

    ``ptx_isa`` was not read from every wheel; where it was not, the wheels on both sides decide. Past the newest row the answer
    is a lower bound.
    """
    at = _candidates(wheels(), versions) if versions else None
    if at is None or versions is None:
        return None
    merged = _merge(Wheel, at[0], versions, (), at[1])
    measured = _candidates([w for w in wheels() if w.ptx_isa], versions)
    isa = _merge(Wheel, measured[0], versions, ("ptx_isa",), measured[1]).ptx_isa if measured else None
    return merged._replace(ptx_isa=isa)


def torch(versions: VersionSet | None) -> Torch | None:
    """The default builds of the torch releases in the set, field by field."""
    at = _candidates(torches(), versions) if versions else None
    return None if at is None or versions is None else _merge(Torch, at[0], versions, (), at[1])


def triton(versions: VersionSet | None) -> Triton | None:
    """The assemblers of the Triton wheels in the set, field by field."""
    at = _candidates(tritons(), versions) if versions else None
    return None if at is None or versions is None else _merge(Triton, at[0], versions, (), at[1])


def ptx_of_cuda(cuda: VersionSet | None) -> str | None:
    """PTX ISA that a CUDA toolkit writes (``8.7`` for 12.8 and for 12.8.93), or ``None``."""
    rows = [c for c in cudas() if cuda and cuda.within(parse_condition(f"=={c.version}.*"))]
    return rows[0].ptx if len(rows) == 1 else None


def cuda_of_ptx(isa: str) -> str | None:
    """Oldest CUDA version of a driver that compiles this PTX ISA."""
    return next((c.version for c in cudas() if c.ptx == isa), None)


def cuda_of_driver(driver: VersionSet | None) -> VersionSet | None:
    """CUDA versions that drivers of this number serve, after their branch.

    Windows numbers run inside the same branches (581.80 belongs to R580), so one rule serves both.
    """
    if driver is None or not driver.intervals:
        return None
    rows = [(int(c.linux.split(".")[0]), c.version) for c in cudas() if c.linux]
    lows = [_branch(i.low) if i.low else 0 for i in driver.intervals]
    highs = [_branch(i.high, open_end=not i.high_closed) if i.high else rows[-1][0] + 1 for i in driver.intervals]
    at_least = max((version for branch, version in rows if branch <= min(lows)), key=Version, default="")
    served = [f"=={version}" for branch, version in rows if min(lows) <= branch <= max(highs) or version == at_least]
    if not at_least:
        served.insert(0, f"<{rows[0][1]}")
    if max(highs) > rows[-1][0]:
        served[-1] = f">={rows[-1][1]}"
    return replace(parse_condition(" || ".join(served), stated=True), text=f"driver {driver.text}")


def _branch(version: Version, open_end: bool = False) -> int:
    """Branch of a driver number; for an open upper bound such as ``571.dev0`` the branch below it."""
    return version.major - 1 if open_end and version.release[1:] in ((), (0,)) else version.major


def driver_for_cuda(cuda: str, windows: bool = False) -> str | None:
    """First driver that serves a CUDA version, as the number to ask for; the branch number where Windows has none of its own."""
    row = next((c for c in cudas() if c.version == cuda), None)
    if row is None or row.linux is None:
        return None
    return (row.windows or row.linux.split(".")[0]) if windows else row.linux


def driver_for_major(major: int, windows: bool = False) -> str | None:
    """First driver on which machine code of any toolkit of this CUDA major runs."""
    row = next((m for m in _document("cuda")["major"] if m["major"] == major), None)
    return None if row is None else str(row["windows" if windows else "linux"])


def version_of(text: str | None) -> VersionSet | None:
    """:func:`parse_version` for a field that may be unknown or absent."""
    return parse_version(text) if text else None
