"""Host memory: what there is, what a control group leaves of it, and /dev/shm."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.patterns import late

_LINE = late(r"^(MemTotal|MemAvailable|SwapTotal):\s+(\d+) kB", re.MULTILINE)
_KEYS = {
    "MemTotal": "platform.ram_gib",
    "MemAvailable": "platform.ram_free_gib",
    "SwapTotal": "platform.swap_gib",
}


def memory_facts(machine: Machine) -> Iterable[Fact | Unknown]:
    """Sizes in GiB."""
    total = 0
    for line in _LINE.finditer(machine.head("/proc/meminfo")):
        kib = int(line[2])
        total = kib * 1024 if line[1] == "MemTotal" else total
        yield local_fact(_KEYS[line[1]], round(kib / 1024**2, 2), line[0])
    if not total:
        yield Unknown("host-memory", "/proc/meminfo, which can't be read here")
        return
    limit = min(_limits(machine), default=None)
    if limit and limit[0] < total:
        yield local_fact("platform.ram_limit_gib", round(limit[0] / 1024**3, 2), f"{limit[1]}: {limit[0]}")
    shm = machine.space(machine.path("/dev/shm"))
    if shm and machine.exists("/dev/shm"):
        size = round(shm[0] / 1024**3, 4)
        yield local_fact("platform.shm_gib", size, f"/dev/shm: {size} GiB")


def _limits(machine: Machine) -> Iterable[tuple[int, str]]:
    """``(bytes, file)`` of every group that the process is in, from the innermost out: each of them holds."""
    seen = set()
    for line in machine.head(f"{machine.proc}/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            base, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part and part != ".."]
        # In a container the path may be that of the host while the mount shows the container's own group at its top.
        for depth in range(len(parts), -1, -1):
            place = "/".join([base, *parts[:depth], name])
            text = machine.head(place).strip()
            if text.isdecimal() and place not in seen:
                seen.add(place)
                yield int(text), place
