"""Who listens on a port: a server that answers there may be somebody else's, who took the port while ours was starting."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LISTEN = "0A"
"""State of a listening socket in ``/proc/net/tcp`` (TCP_LISTEN in the kernel's tcp_states.h)."""


def listeners(port: int) -> set[str]:
    """Inodes of the sockets that listen on a TCP port; empty where the system does not tell."""
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, rows):
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def holds(pids: Iterable[int], inodes: set[str]) -> bool:
    """Whether one of the processes has one of the sockets open."""
    links = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids:
        try:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                if str(entry.readlink()) in links:
                    return True
        except OSError:
            continue  # gone meanwhile
    return False
