"""GPU lists of one line a GPU: ``GPU 0: NVIDIA H100`` of collect_env, ``nvidia-smi -L``, SGLang, llama.cpp, deviceQuery."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.statements import Found, GpuRow, is_nothing
from hybridctl.gpus import lookup, vendor_of

_HEAD = "GPU models and configuration"
_ROW = re.compile(
    r"\s*(?:GPU models and configuration\s*:\s*)?(?:[-*•]\s+)?[*`]*GPU\s*#?(\d{1,3}(?:\s*,\s*\d{1,3}){0,63})"
    r"[*`]*\s*[:：][*`]*\s*(\S.*?)\s*$"
)
_DEVICE = re.compile(r".*?\bDevice (\d{1,3}): \"?([^\",]+?)\"?\s*(?:,\s*compute capability (\d+\.\d+).*)?$")
_MIG = re.compile(r"\s*MIG\s+\d+[gc][\w.]*?\.(\d+)gb\b", re.IGNORECASE)
_BEFORE = re.compile(r"(\d{1,3})\s*[x×*]\s*(?=[A-Za-z0-9])(.+)", re.IGNORECASE)
_PLAIN_BEFORE = re.compile(r"(\d{1,2})\s+(.+)")
_NUMBER_WORDS = {"single": 1, "one": 1, "dual": 2, "two": 2, "three": 3, "four": 4, "quad": 4, "eight": 8}
_WORD_BEFORE = re.compile(rf"({'|'.join(_NUMBER_WORDS)})\s+(.+)", re.IGNORECASE)
_AFTER = re.compile(r"\s*\(?\s?(?<![A-Za-z0-9])[x×*]\s?(\d{1,3})\)?(?![\w.])", re.IGNORECASE)
_PIPED_DRIVER = re.compile(r"\bdriver (\d{3}(?:\.\d+)*)\b")
_PIPED_MEMORY = re.compile(r"\b(?:VRAM:\s*)?(\d{4,7}) MiB\b")
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
                found.gpus.append([row])  # with ROCm, only the first GPU is named
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
        if rows and " | " in text and (driver := _PIPED_DRIVER.search(text)):
            found.say("driver.version", driver[1], line)
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
    rows: list[GpuRow] = []
    if seen := _ROW.match(text):
        name = seen[2].split(" | ")[0]
        if not (trusted or "UUID" in text or vendor_of(name)):
            return []
        for index in seen[1].split(","):
            if row := named(name, line):
                row.index, row.counted = int(index), True
                rows.append(row)
    elif "Device " in text and (seen := _DEVICE.match(text)) and vendor_of(seen[2]) and (row := named(seen[2], line)):
        row.index, row.counted, row.cc = int(seen[1]), True, seen[3]
        rows.append(row)
    if size := _PIPED_MEMORY.search(text):
        for row in rows:
            row.sized(round(int(size[1]) / 1024, 2), size[0], line)
    return rows


def named(text: str, line: Line) -> GpuRow | None:
    """One type of GPU by the text that names it, identifiers taken off. ``None`` when no name is left.

    ``counted`` tells whether the text holds a number of them (``8x H100``, ``A100 (x4)``, ``dual RTX 3090``).
    """
    quote = text.strip().strip(",;")
    name = _TAIL.sub("", quote).strip().strip(",;")
    name, count = _times(name)
    name = name.strip(" ()")
    if name[-1:] == "s" and not lookup(name) and lookup(name[:-1]):
        name = name[:-1]
    if not name or is_nothing(name) or count == 0 or count > 512:
        return None
    if "gfx" not in quote:
        quote = _TAIL.sub("", quote).strip().strip(",;")
    return GpuRow(name=name, line=line.number, quote=quote, count=max(count, 1), counted=count > 0)


def _times(name: str) -> tuple[str, int]:
    """The name without the number of GPUs in it, and that number; -1 where there is none."""
    if seen := _BEFORE.match(name):
        return seen[2], int(seen[1])
    if (seen := _PLAIN_BEFORE.match(name)) and not lookup(name) and lookup(seen[2].removesuffix("s")):
        return seen[2], int(seen[1])
    if (seen := _WORD_BEFORE.match(name)) and vendor_of(seen[2]):
        return seen[2], _NUMBER_WORDS[seen[1].lower()]
    if "pci" not in name.lower() and (seen := _AFTER.search(name)):
        rest = name[: seen.start()] + " " + name[seen.end() :]
        if lookup(rest):
            return rest.strip(), int(seen[1])
    return name, -1
