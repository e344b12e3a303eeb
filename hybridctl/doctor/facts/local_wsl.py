"""The Windows Subsystem for Linux: which one it is, and what it was given of GPU and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.local_system import kernel_of
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.patterns import late

SECONDS = 0.8
_WSLINFO = "/usr/bin/wslinfo"
_DRIVER_LIBRARY = "/usr/lib/wsl/lib/libcuda.so.1"
_LINUX_DRIVER = late(r"libcuda\.so\.(?:1|\d{3}\.[\d.]+)|libnvidia-ml\.so\.(?:1|\d{3}\.[\d.]+)")
_USER = late(r"/mnt/([a-z])/Users/([^/:;]+)/", re.IGNORECASE)
_SECTION = late(r"^\s*\[(\w+)\]", re.MULTILINE)
_MEMORY = late(r"^\s*memory\s*=\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*$", re.MULTILINE | re.IGNORECASE)
_UNITS = {"": 2.0**-30, "K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 1024.0}


def wsl_facts(machine: Machine) -> Iterable[Fact | Unknown]:
    """Whether this is WSL, and if so what it is made of. Only the Windows driver counts there; a Linux one is in its way."""
    kernel = kernel_of(machine)
    if not kernel:
        return
    wsl = "microsoft" in kernel.lower()
    yield local_fact("platform.wsl", wsl, kernel)
    if not wsl:
        return
    if "wsl2" not in kernel.lower() and re.match(r"4\.4\.0-\d+-microsoft$", kernel, re.IGNORECASE):
        yield local_fact("platform.wsl_version", "1", kernel)  # WSL 1 has no Linux kernel and shows this one for all
        return
    for key, place in (("wsl.dxg", "/dev/dxg"), ("wsl.driver_library", _DRIVER_LIBRARY)):
        there = machine.exists(place)
        yield local_fact(key, there, place if there else f"no {place}")
    folder = f"/usr/lib/{machine.arch}-linux-gnu"
    if libraries := [f"{folder}/{name}" for name in machine.names(folder) if _LINUX_DRIVER.fullmatch(name)]:
        yield local_fact("wsl.linux_driver", libraries, " ".join(libraries))
    yield _version(machine)
    yield from _config(machine)


def _version(machine: Machine) -> Fact | Unknown:
    """``wslinfo`` came with 2.0 and tells the version since 2.2.3 (https://github.com/microsoft/WSL/releases)."""
    needs = "the first line of `wsl --version` in Windows (--env takes it as: WSL version: 2.7.0)"
    if not machine.exists(_WSLINFO):
        return Unknown("wsl-version", needs)
    try:
        said = Child([str(machine.path(_WSLINFO)), "--wsl-version"], "/").text(SECONDS)
    except ChildError as error:
        return Unknown("wsl-version", f"{needs}; wslinfo: {error}")
    version = re.search(rb"\d+\.\d+\.\d+(?:\.\d+)?", said)
    if not version:
        return Unknown("wsl-version", needs)
    return local_fact("platform.wsl_version", version[0].decode(), f"wslinfo --wsl-version: {version[0].decode()}")


def _config(machine: Machine) -> Iterable[Fact]:
    """``memory=`` of ``.wslconfig``. Windows appends its PATH to that of Linux, and there the user's folder has its name."""
    users = {m[0] for m in _USER.finditer(machine.environ.get("PATH", ""))}
    for folder in sorted(users):
        text = machine.head(f"{folder}.wslconfig")
        sections = list(_SECTION.finditer(text))
        for section, following in zip(sections, [*sections[1:], None], strict=True):
            if section[1].lower() != "wsl2":
                continue
            stated = _MEMORY.search(text, section.end(), following.start() if following else len(text))
            if stated:
                size = round(float(stated[1]) * _UNITS[stated[2].upper()], 2)
                yield local_fact("wsl.memory_gib", size, f"{folder}.wslconfig: {stated[0].strip()}")
                return
