"""What ``nvidia-smi`` prints: the table, ``-q``, ``--version`` and ``--query-gpu`` (``-L`` is in :mod:`gpu_lines`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts import labels
from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.statements import IMPLIED, Found, GpuRow
from hybridctl.gpus import vendor_of

# Since 610 the header says "KMD Version" and "CUDA UMD Version" for what were "Driver Version" and "CUDA Version".
_HEADER = re.compile(r"NVIDIA-SMI\s+(\d[\d.]*)")
_DRIVER = re.compile(r"(?:Driver|KMD) Version\s*:\s*(\d{3}(?:\.\d+)*)(?=[\s|]|$)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d{1,2}\.\d+)(?=[\s|]|$)")
_MODULE = re.compile(r"NVIDIA UNIX .*Kernel Module\b.*?\s(\d{3}\.\d+(?:\.\d+)?)\s")
_ROW = re.compile(r"\s*\|\s*(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:")
_USAGE = re.compile(r"\|\s*\d+MiB\s*(/\s*(\d+)MiB)")
_MIG_USAGE = re.compile(r"\s*\|\s*(\d+)\s+\d+\s+\d+\s+\d+\s*\|\s*\d+MiB\s*(/\s*(\d+)MiB)")
_ABOVE = re.compile(r"\s*(?:driver version|kmd version|nvidia-smi|nvml version|timestamp)", re.IGNORECASE)
_QUERY = re.compile(r"--query-gpu[= ]([\w.,]+)")
_FULL_NAME = re.compile(r"\s*Product Name\s*:\s*(\S.*?)\s*$")
_FULL_MEMORY = re.compile(r"\s*Total\s*:\s*(\d+) MiB\s*$")
_FIELDS = {
    "name",
    "gpu_name",
    "driver_version",
    "memory.total",
    "compute_cap",
    "index",
    "uuid",
    "gpu_uuid",
    "pci.bus_id",
    "count",
}
_DRIVER_FIELD = re.compile(r"\d{3}\.\d{2,3}(?:\.\d{2,3})?")


def parse(lines: Sequence[Line]) -> Found:
    """Driver, CUDA of the driver, and the GPUs of each table or query."""
    found = Found()
    for line in lines:
        if "NVIDIA-SMI" in line.text or "Version" in line.text:
            _header(found, line)
        elif "Kernel Module" in line.text and (module := _MODULE.search(line.text + " ")):
            found.say("driver.version", module[1], line)
    _long_form(found, lines)
    _tables(found, lines)
    _queries(found, lines)
    return found


def _header(found: Found, line: Line) -> None:
    smi, driver, cuda = _HEADER.search(line.text), _DRIVER.search(line.text), _CUDA.search(line.text)
    if not smi:
        return
    if cuda:
        found.say("driver.cuda", cuda[1], line)
    if not driver:
        return
    found.say("driver.version", driver[1], line)
    # In WSL the program is the Linux one and the driver the Windows one, so the numbers differ, in length too.
    if smi[1].count(".") == 2 and driver[1].count(".") == 1 and smi[1] != driver[1]:
        found.say("platform.wsl", True, line, IMPLIED)
        found.say("platform.os", "linux", line, IMPLIED)


def _long_form(found: Found, lines: Sequence[Line]) -> None:
    """``-q`` and ``--version``: the CUDA line belongs to the driver only under a driver line."""
    listing: list[GpuRow] = []
    for before, line in zip((None, *lines), lines, strict=False):
        if "NVIDIA-SMI" in line.text or "|" in line.text:
            continue
        if re.match(r"\s*(?:driver|kmd) version\s*:", line.text, re.IGNORECASE):
            labels.say_driver(found, line.text, line)
        elif (cuda := _CUDA.match(line.text.strip())) and (
            "UMD" in line.text or (before and _ABOVE.match(before.text))
        ):
            found.say("driver.cuda", cuda[1], line)
        elif (name := _FULL_NAME.match(line.text)) and vendor_of(name[1]):
            listing.append(GpuRow(name[1], line.number, name[1], len(listing)))
        elif listing and listing[-1].memory_gib is None and (size := _FULL_MEMORY.match(line.text)):
            listing[-1].sized(_gib(size[1]), size[0], line)
    if listing:
        found.gpus.append(listing)


def _tables(found: Found, lines: Sequence[Line]) -> None:
    listing: list[GpuRow] = []
    waiting: GpuRow | None = None
    for line in lines:
        if "|" not in line.text:
            continue
        if "NVIDIA-SMI" in line.text:
            listing, waiting = [], None
        elif row := _ROW.match(line.text):
            if not listing or any(r.index == int(row[1]) for r in listing):
                listing = []
                found.gpus.append(listing)
            waiting = GpuRow(row[2], line.number, row[2], int(row[1]))
            listing.append(waiting)
            if row[3] in ("WDDM", "TCC", "MCDM"):
                found.say("platform.os", "windows", line, IMPLIED)
        elif mig := _MIG_USAGE.match(line.text):
            for gpu in listing:
                if gpu.index == int(mig[1]) and (gpu.memory_gib is None or _gib(mig[3]) < gpu.memory_gib):
                    gpu.sized(_gib(mig[3]), mig[2], line)
        elif waiting and (usage := _USAGE.search(line.text)):
            waiting.sized(_gib(usage[2]), usage[1], line)
            waiting = None


def _queries(found: Found, lines: Sequence[Line]) -> None:
    """CSV, with a header, under the command that asked for it, or bare: then only what has one reading is taken."""
    fields: list[str] = []
    listing: list[GpuRow] = []
    for line in lines:
        if asked := _QUERY.search(line.text):
            fields, listing = asked[1].split(","), []
            continue
        cells = [cell.strip() for cell in line.text.split(",")]
        heads = [cell.split(" [")[0] for cell in cells]
        if len(set(heads) & _FIELDS) >= min(2, len(heads)) and set(heads) & _FIELDS:
            fields, listing = heads, []
            continue
        if len(cells) == len(fields):
            row = _csv_row(found, dict(zip(fields, cells, strict=True)), line)
        else:
            fields = []
            row = _bare_row(found, cells, line) if 2 <= len(cells) <= 12 else None
        if not row:
            listing = []
            continue
        if not listing:
            found.gpus.append(listing)
        row.index = len(listing)
        listing.append(row)


def _csv_row(found: Found, row: dict[str, str], line: Line) -> GpuRow | None:
    if (driver := row.get("driver_version")) and _DRIVER_FIELD.fullmatch(driver):
        found.say("driver.version", driver, line)
    cc = row.get("compute_cap", "")
    cc_known = re.fullmatch(r"\d{1,2}\.\d", cc)
    name = row.get("name") or row.get("gpu_name") or ""
    size = re.fullmatch(r"(\d+)(?: MiB)?", row.get("memory.total", ""))
    if not name or not (vendor_of(name) or cc_known or size):
        if cc_known and not name:
            found.say("gpu.cc", cc, line)
        return None
    gpu = GpuRow(name, line.number, name, cc=cc if cc_known else None)
    if size:
        gpu.sized(_gib(size[1]), size[0], line)
    return gpu


def _bare_row(found: Found, cells: list[str], line: Line) -> GpuRow | None:
    """``NVIDIA H100 80GB HBM3, 570.86.15, 81559 MiB``: which memory that is, nobody says."""
    names = [cell for cell in cells[:3] if re.match(r"(?:NVIDIA|Tesla|GeForce|Quadro)\b", cell) and len(cell) < 60]
    drivers = [cell for cell in cells if _DRIVER_FIELD.fullmatch(cell)]
    sizes = [cell for cell in cells if re.fullmatch(r"\d+(?: MiB| W| %|\.\d+ W)", cell)]
    if len(names) != 1 or not (drivers or sizes):
        return None
    if len(drivers) == 1:
        found.say("driver.version", drivers[0], line)
    return GpuRow(names[0], line.number, names[0])


def _gib(mib: str) -> float:
    return round(int(mib[:12]) / 1024, 2)
