"""GPU lists of one line a GPU: ``GPU 0: NVIDIA H100`` of collect_env, ``nvidia-smi -L``, SGLang, llama.cpp, deviceQuery."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.statements import Found, GpuRow, is_nothing
from hybridctl.gpus import vendor_of

_HEAD = "GPU models and configuration"
_ROW = re.compile(
    r"\s*(?:GPU models and configuration\s*:\s*)?GPU\s*#?(\d{1,3}(?:\s*,\s*\d{1,3}){0,63})\s*[:：]\s*(\S.*?)\s*$"
)
_DEVICE = re.compile(r".*?\bDevice (\d{1,3}): \"?([^\",]+?)\"?\s*(?:,\s*compute capability (\d+\.\d+).*)?$")
_MIG = re.compile(r"\s*MIG\s+\d+[gc][\w.]*?\.(\d+)gb\b", re.IGNORECASE)
_TIMES = re.compile(r"(\d{1,3})\s*[x×*]\s*(?=[A-Za-z])(.+)|(.*\S)\s*\(?\s*[x×*]\s*(\d{1,3})\)?", re.IGNORECASE)
_TAIL = re.compile(r"\s*\((?:UUID|gfx)[^)]*\)?\s*$")
_CAPABILITY = re.compile(r"\s*GPU [\d,\s]+Compute Capability\s*:\s*(\d{1,2}\.\d)")


def parse(lines: Sequence[Line]) -> Found:
    """Listings in the order of the text. A repeated index begins a new one."""
    found = Found()
    listing: list[GpuRow] = []
    seen: set[int] = set()
    under_head = False
    for line in lines:
        text = line.text
        if _HEAD in text:
            under_head = True
            value = text.partition(":")[2].strip()
            if value and not value.startswith("GPU ") and not is_nothing(value) and (row := named(value, line)):
                found.gpus.append([row])
                continue
        if listing and (mig := _MIG.match(text)):
            slice_gib = float(mig[1])
            if listing[-1].memory_gib is None or slice_gib < listing[-1].memory_gib:
                listing[-1].sized(slice_gib, mig[0], line)
            continue
        if capability := _CAPABILITY.match(text):
            found.say("gpu.cc", capability[1], line)
            continue
        rows = _rows(text, line, under_head)
        if not rows:
            under_head = under_head and _HEAD in text
            continue
        indexes = {row.index for row in rows if row.index is not None}
        if indexes & seen:
            listing, seen = [], set()
        if not listing:
            found.gpus.append(listing)
        listing += rows
        seen |= indexes
    return found


def _rows(text: str, line: Line, trusted: bool) -> list[GpuRow]:
    if seen := _ROW.match(text):
        if not (trusted or "UUID" in text or vendor_of(seen[2])):
            return []
        whole = [row for _ in seen[1].split(",") if (row := named(seen[2], line))]
        for gpu, index in zip(whole, seen[1].split(","), strict=False):
            gpu.index = int(index)
        return whole
    if "Device " in text and (seen := _DEVICE.match(text)) and vendor_of(seen[2]) and (row := named(seen[2], line)):
        row.index, row.cc = int(seen[1]), seen[3]
        return [row]
    return []


def named(text: str, line: Line) -> GpuRow | None:
    """A GPU by the text that names it: number of them and identifiers taken off. ``None`` when no name is left."""
    name = _TAIL.sub("", text).strip().strip(",;")
    quote = name
    count = 1
    if (times := _TIMES.fullmatch(name)) and (times[2] or vendor_of(times[3] or "")):
        count = int(times[1] or times[4])
        name = (times[2] or times[3]).strip()
    name = name.strip(" ()")
    if not name or is_nothing(name) or not 0 < count <= 512:
        return None
    tail = text[len(name) :].strip() if text.startswith(name) else ""
    return GpuRow(name=name, line=line.number, quote=text.strip() if tail.startswith("(gfx") else quote, count=count)
