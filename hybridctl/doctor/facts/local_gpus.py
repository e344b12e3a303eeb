"""What the driver tells of the GPUs besides their kind: free memory, who holds it, memory errors, connections."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact

_GIB = 1024**3
_ALL_PROCESSES = "pid:[4026531836]"
"""The namespace in which every process of the machine has its number: PROC_PID_INIT_INO of Linux."""
HOST_NUMBER = " (number on the host)"


def visible(gpus: list[dict[str, Any]], machine: Machine) -> list[tuple[int, dict[str, Any]]]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves to a process, each with NVML's number; all where it can't be read."""
    stated = machine.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    numbered = list(enumerate(gpus))
    names = [entry.strip() for entry in stated.split(",") if entry.strip()]
    if not names:
        return numbered
    if all(name.isdecimal() for name in names):
        # CUDA counts the fastest first unless it is told otherwise: among different GPUs its numbers are not NVML's.
        same = len({gpu.get("name") for gpu in gpus}) == 1
        if same or machine.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
            return [numbered[int(name)] for name in names if int(name) < len(gpus)]
        return numbered
    chosen = [pair for name in names for pair in numbered if _is(pair[1], name)]
    return chosen or numbered


def _is(gpu: dict[str, Any], name: str) -> bool:
    """Whether a GPU, or a MIG device of it, has this identifier; CUDA takes the beginning of one too."""
    known = [gpu, *(gpu.get("mig") or [])]
    return any(str(part.get("uuid") or "").lower().startswith(name.lower()) for part in known)


def state_facts(gpus: list[dict[str, Any]], told: dict[str, Any], machine: Machine) -> Iterable[Fact]:
    """Facts of ``gpus`` and of the document ``state``."""
    chosen = visible(gpus, machine)
    free = [part.get("free") for _, gpu in chosen for part in (gpu["mig"] if gpu.get("mig") is not None else [gpu])]
    if free and None not in free:
        shown = [f"{int(f) / _GIB:.2f}" for f in free if f is not None]
        yield local_fact("gpu.free_gib", shown, f"NVML: free GiB {', '.join(shown)}")
    state = told.get("state")
    if not isinstance(state, list) or len(state) != len(gpus):
        return
    mine = [(index, state[index]) for index, _ in chosen]
    yield from _processes(mine, machine)
    modes = [s.get("mode") for _, s in mine]
    if modes and None not in modes:
        yield local_fact(
            "gpu.compute_mode", [str(m) for m in modes], f"NVML: compute mode {', '.join(map(str, modes))}"
        )
    errors = [s["ecc_errors"] for _, s in mine if s.get("ecc_errors") is not None]
    if errors:
        yield local_fact(
            "gpu.ecc_errors", sum(errors), f"NVML: uncorrected memory errors {', '.join(map(str, errors))}"
        )
    pending = [index for index, s in mine if s.get("remap_pending")]
    if any(s.get("remap_pending") is not None for _, s in mine):
        yield local_fact(
            "gpu.remap_pending", bool(pending), f"NVML: GPUs that wait to replace memory rows: {pending or 'none'}"
        )
    numbers = {index for index, _ in chosen}
    yield from _links([link for link in told.get("links") or [] if set(link["pair"]) <= numbers])


def _processes(mine: list[tuple[int, dict[str, Any]]], machine: Machine) -> Iterable[Fact]:
    listed = [(index, s["processes"]) for index, s in mine if s.get("processes") is not None]
    if not listed:
        return
    own = _family(machine)
    inside = machine.link("/proc/self/ns/pid") not in (_ALL_PROCESSES, None)
    items = [
        f"GPU {index}: pid {p['pid']}{_program(p['pid'], machine, inside)}{_used(p['used'])}"
        for index, processes in listed
        for p in processes
        if p["pid"] not in own
    ]
    # There the driver often lists none, though others hold memory: an empty list says nothing.
    if items or not inside:
        yield local_fact("gpu.processes", items, f"NVML: {'; '.join(items) or 'no process holds GPU memory'}")


def _used(used: int | None) -> str:
    return f", {used / _GIB:.1f} GiB" if used else ""


def _program(pid: int, machine: Machine, inside: bool) -> str:
    """Name of the program, without its arguments, which may hold anything.

    The driver counts processes as the host does; ``inside`` a container with numbers of its own, ours would name another one.
    """
    if inside:
        return HOST_NUMBER
    words = machine.head(f"/proc/{pid}/cmdline").replace("\0", " ").split()
    if not words:
        return ""
    name = os.path.basename(words[0])  # noqa: PTH119
    if name.startswith("python") and len(words) > 1:
        shown = words[2] if words[1] == "-m" and len(words) > 2 else os.path.basename(words[1])  # noqa: PTH119
        name += f" {shown}" if not shown.startswith("-") else ""
    return f" {name}"


def _family(machine: Machine) -> set[int]:
    """The server that was asked for and its children: what they hold is their own."""
    pid = machine.proc.rsplit("/", 1)[-1]
    if not pid.isdecimal():
        return set()
    family = {int(pid)}
    parents = {int(name): parent_of(machine, int(name)) for name in machine.names("/proc") if name.isdecimal()}
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return family


def parent_of(machine: Machine, pid: int) -> int | None:
    """The process that started this one."""
    for line in machine.head(f"/proc/{pid}/status").splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    return None


def _links(links: list[dict[str, Any]]) -> Iterable[Fact]:
    if not links:
        return
    kinds: dict[str, list[str]] = {}
    for link in links:
        kind = "NVLink" if link.get("nvlink") == 0 else f"PCIe ({link['level']})" if link.get("level") else "not told"
        kinds.setdefault(kind, []).append("-".join(map(str, link["pair"])))
    shown = [f"{kind}: {' '.join(pairs)}" for kind, pairs in kinds.items()]
    yield local_fact("gpu.links", shown, f"NVML: {'; '.join(shown)}")
    reads = [link.get("p2p") for link in links]
    if None not in reads:
        without = [f"{link['pair'][0]}-{link['pair'][1]}" for link in links if link["p2p"] != 0]
        yield local_fact("gpu.p2p", not without, f"NVML: pairs without peer access: {' '.join(without) or 'none'}")
