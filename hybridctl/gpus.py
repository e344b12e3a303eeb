"""GPUs by name: what ``recipes/tables/gpus.toml`` says of compute capability and memory. Nothing is guessed.

Drivers, people and programs write one GPU in many ways (``NVIDIA A100-SXM4-80GB``, ``A100 80GB PCIe``, ``RTX4090``,
``NVIDIA GeForce RTX 309...``). A name is cut into words, the words that only name the vendor or the packaging are
dropped, and what is left must be a name of the table. A name that ``nvidia-smi`` cut off gives what all GPUs that begin
so have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hybridctl.data import read_table
from hybridctl.patterns import late

_LONGEST = 200
_VENDOR_TEXT = """
NVIDIA GEFORCE TESLA AMD ATI INSTINCT RADEON INTEL ARC HUAWEI ASCEND CORPORATION INC R TM GPU GRAPHICS EACH VRAM WITH DESIGN
"""
_VENDOR_WORDS = frozenset(_VENDOR_TEXT.split())
_PACKAGING_TEXT = """
PCIE SXM SXM2 SXM3 SXM4 SXM5 SXM6 NVL DGXS FHHL OAM HBM HBM2 HBM2E HBM3 HBM3E GDDR6 GDDR6X GDDR7 AC LC HGX DGX
"""
_PACKAGING = frozenset(_PACKAGING_TEXT.split())
_SIZE = late(r"\b(\d{1,3})\s?(?:GI?B|G)\b", re.IGNORECASE)
_MIG = late(r"\bMIG\s+\d+[gc][\w.]*?\.(\d+)gb\b.*", re.IGNORECASE)
_AMD_TARGET = late(r"\bgfx[0-9a-f]{3,4}\b", re.IGNORECASE)
_NOTE = late(r"\((?:UUID|gfx|nvgpu|[0-9a-f]{8})[^)]*\)?|\(R\)|\(TM\)|[®™]|,?\s*compute capability.*", re.IGNORECASE)
_GLUED = (
    (late(r"\b(RTX|GTX|RX|ASCEND)(?=\d)"), r"\1 "),
    (late(r"\b(\d{4})(TI|SUPER|XTX|XT|D)(?=\W|SUPER|$)"), r"\1 \2 "),
    (late(r"\bTI(?=SUPER\b)"), "TI "),
)
_VENDORS = (
    ("nvidia", late(r"\b(?:nvidia|geforce|tesla|quadro|rtx|gtx|titan|jetson)(?=\b|\d)", re.IGNORECASE)),
    ("amd", late(r"\b(?:amd|radeon|instinct|mi[23]\d\d[ax]?)\b", re.IGNORECASE)),
    ("ascend", late(r"\bascend|\bhuawei\b", re.IGNORECASE)),
    ("intel", late(r"\bintel\b|\barc\b", re.IGNORECASE)),
    ("tpu", late(r"\btpu\b", re.IGNORECASE)),
    ("apple", late(r"\bapple\s+m\d", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What is known of a GPU by its name."""

    name: str
    """The name of the table, without the vendor."""
    vendor: str
    kind: str
    """datacenter, workstation, geforce, radeon, integrated."""
    cc: str | None
    """CUDA compute capability; ``None`` for other vendors."""
    arch: str | None
    """AMD's target, e.g. gfx942."""
    memory_gib: float | None
    """Memory as the name states it, else as the table does; ``None`` when the name is sold in several sizes."""
    unified: bool
    """GPU and host share one memory."""
    source: str
    """Address of the list that says so."""
    memory_named: bool = False
    """The size stands in the name itself."""


def lookup(name: str) -> Gpu | None:
    """The GPU of this name, or ``None`` when the table does not know it.

    Args:
        name: as a driver or a person writes it, with or without vendor, packaging, size and MIG slice.
    """
    return _lookup(name[:_LONGEST])


def variants(gpu: Gpu) -> list[Gpu]:
    """The cards of the table whose names go on where this one ends, smallest memory first: H100 PCIe and H100 NVL for H100."""
    begin = _words(gpu.name)
    found = {g for words, g in _table().items() if words[: len(begin)] == begin and g.memory_gib is not None}
    return sorted(found, key=lambda g: (g.memory_gib or 0.0, g.name))


def vendor_of(name: str) -> str | None:
    """The maker by the words of the name, for a GPU that the table does not know too."""
    found = lookup(name)
    if found:
        return found.vendor
    return next((vendor for vendor, pattern in _VENDORS if pattern.search(name[:_LONGEST])), None)


def amd_target(name: str) -> str | None:
    """``gfx942`` of ``AMD Instinct MI300X (gfx942:sramecc+:xnack-)``."""
    found = _AMD_TARGET.search(name[:_LONGEST])
    return found[0].lower() if found else None


@lru_cache(maxsize=512)
def _lookup(name: str) -> Gpu | None:
    cut_off = name.rstrip().endswith(("...", "…"))
    mig = _MIG.search(name)
    plain = _MIG.sub("", _NOTE.sub(" ", name))
    if cut_off:
        return _common(tuple(w for w in _words(_SIZE.sub(" ", plain)) if w not in _PACKAGING))
    for sized in (True, False):  # "GH200 480GB" is a name of its own, "A100 80GB" is a name and a size
        text = plain if sized else _SIZE.sub(" ", plain)
        for drop in (frozenset(), _PACKAGING):
            found = _table().get(tuple(w for w in _words(text) if w not in drop)) or _bare(text, drop)
            if found:
                return _with_size(found, mig[1] if mig else None if sized else _size(plain))
    return None


def _bare(text: str, drop: frozenset[str]) -> Gpu | None:
    """``3090`` and ``4070 Ti`` are said for GeForce cards of the 20 to 50 series only."""
    words = tuple(w for w in _words(text) if w not in drop)
    if words and re.fullmatch(r"[2-5]0[5-9]0", words[0]):
        return _table().get(("RTX", *words))
    return None


def _with_size(gpu: Gpu, size: str | None) -> Gpu:
    return replace(gpu, memory_gib=float(size), memory_named=True) if size else gpu


def _size(name: str) -> str | None:
    found = _SIZE.search(name)
    return found[1] if found and int(found[1]) else None


def _words(name: str) -> tuple[str, ...]:
    text = name.upper()
    for pattern, split in _GLUED:
        text = pattern.sub(split, text)
    return tuple(w for w in re.split(r"[^A-Z0-9]+", text) if w and w not in _VENDOR_WORDS)


def _common(words: tuple[str, ...]) -> Gpu | None:
    """What all GPUs have in common whose name begins like a name that was cut off."""
    if not words:
        return None
    begin = " ".join(words)
    found = [gpu for key, gpu in _table().items() if " ".join(key).startswith(begin)]
    if not found or len({(g.vendor, g.cc, g.arch) for g in found}) > 1:
        return None
    first = found[0]
    same_memory = len({g.memory_gib for g in found}) == 1
    return replace(first, name=begin, memory_gib=first.memory_gib if same_memory else None)


@lru_cache(maxsize=1)
def _table() -> dict[tuple[str, ...], Gpu]:
    document = read_table("gpus.toml")
    return dict(_rows(document))


def _rows(document: dict[str, Any]) -> Iterable[tuple[tuple[str, ...], Gpu]]:
    for group in document["group"]:
        for row in group["gpus"]:
            size = row.get("memory_gib")
            gpu = Gpu(
                name=row["name"],
                vendor=group["vendor"],
                kind=group["kind"],
                cc=group.get("cc"),
                arch=group.get("arch"),
                memory_gib=float(size) if size is not None else None,
                unified=bool(group.get("unified", False)),
                source=document["sources"][group["source"]],
            )
            for name in (row["name"], *row.get("names", ())):
                yield _words(name), gpu
