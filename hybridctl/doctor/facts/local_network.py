"""What listens on this machine, and which fast network adapters it has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.patterns import late

_LISTENING = late(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0A ", re.MULTILINE)
_MAX_TABLE = 4 << 20


def network_facts(machine: Machine) -> Iterable[Fact | Unknown]:
    """Ports in the state LISTEN (0A), over IPv4 and IPv6; InfiniBand and RoCE adapters."""
    tables = [machine.head(f"{machine.proc}/net/{name}", _MAX_TABLE) for name in ("tcp", "tcp6")]
    if any(tables):
        ports = sorted({int(port, 16) for table in tables for port in _LISTENING.findall(table)})
        shown = " ".join(map(str, ports)) or "none"
        yield local_fact("platform.ports", [str(port) for port in ports], f"{machine.proc}/net/tcp: listening: {shown}")
    else:
        yield Unknown("ports", f"{machine.proc}/net/tcp, which can't be read here")
    if adapters := machine.names("/sys/class/infiniband"):
        yield local_fact("platform.infiniband", adapters, f"/sys/class/infiniband: {' '.join(adapters)}")
