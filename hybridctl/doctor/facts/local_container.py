"""Whether a container is around the process, and what it leaves to it: capabilities, memory that may be locked."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.patterns import late

CONTAINER_GROUP = late(r"docker|kubepods|containerd|libpod|crio|lxc")
_ENGINES = {
    "docker": "docker", "kubepods": "kubernetes", "libpod": "podman", "crio": "kubernetes", "containerd": "containerd",
    "lxc": "lxc",
}  # fmt: skip
# By their bit, as in linux/capability.h: those that engines and their tools ask for.
_CAPABILITIES = {14: "ipc_lock", 19: "sys_ptrace", 21: "sys_admin", 23: "sys_nice", 24: "sys_resource"}
_EFFECTIVE = late(r"^CapEff:\s+([0-9a-f]+)", re.MULTILINE)
_LOCKED = late(r"^Max locked memory\s+(\d+|unlimited)", re.MULTILINE)
UNLIMITED_GIB = 2.0**33


def container_mark(machine: Machine) -> tuple[str, str] | None:
    """``(engine, what shows it)``; ``None`` where no mark is seen, which proves nothing."""
    if "KUBERNETES_SERVICE_HOST" in machine.environ:
        return "kubernetes", "KUBERNETES_SERVICE_HOST is set"
    if machine.exists("/run/.containerenv"):
        return "podman", "/run/.containerenv"
    if machine.exists("/.dockerenv"):
        return "docker", "/.dockerenv"
    if stated := machine.environ.get("container"):
        return stated[:40], f"container={stated[:40]}"
    if found := CONTAINER_GROUP.search(machine.head("/proc/1/cgroup")):
        return _ENGINES[found[0]], f"/proc/1/cgroup: {found[0]}"
    return None


def container_facts(machine: Machine) -> Iterable[Fact]:
    """Marks that container engines leave, and limits of the process."""
    if mark := container_mark(machine):
        yield local_fact("platform.container", True, mark[1])
        yield local_fact("platform.container_engine", mark[0], mark[1])
    if effective := _EFFECTIVE.search(machine.head(f"{machine.proc}/status")):
        bits = int(effective[1], 16)
        held = [name for bit, name in _CAPABILITIES.items() if bits >> bit & 1]
        yield local_fact("platform.capabilities", held, f"{machine.proc}/status: {effective[0]}")
    if locked := _LOCKED.search(machine.head(f"{machine.proc}/limits")):
        size = UNLIMITED_GIB if locked[1] == "unlimited" else int(locked[1]) / 1024**3
        yield local_fact(
            "platform.memlock_gib", round(size, 6), f"{machine.proc}/limits: {' '.join(locked[0].split())}"
        )
