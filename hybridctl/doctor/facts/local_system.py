"""The operating system: name, kernel, C library, C++ library."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.patterns import late

_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows", "cygwin": "windows"}
_PRETTY = late(r"^PRETTY_NAME=\"?([^\"\n]+)", re.MULTILINE)
_LIBSTDCXX = late(r"libstdc\+\+\.so\.(6\.\d+\.\d+)$")
# Debian and Ubuntu by architecture, then the Red Hat family and the rest.
_LIBRARY_FOLDERS = ("/usr/lib/{arch}-linux-gnu", "/lib/{arch}-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib")


def kernel_of(machine: Machine) -> str:
    """Release of a Linux kernel, as ``uname -r`` prints it; empty elsewhere."""
    return machine.head("/proc/sys/kernel/osrelease").strip() if machine.platform == "linux" else ""


def system_facts(machine: Machine) -> Iterable[Fact]:
    """What the system calls itself."""
    if system := _SYSTEMS.get(machine.platform):
        yield local_fact("platform.os", system, machine.platform)
    if kernel := kernel_of(machine):
        yield local_fact("platform.kernel", kernel, kernel)
        if pretty := _PRETTY.search(machine.head("/etc/os-release")):
            yield local_fact("platform.distro", pretty[1], pretty[0])
    if machine.arch:
        yield local_fact("platform.arch", machine.arch, machine.arch)
    if version := re.search(r"\d+\.\d+", machine.libc):
        yield local_fact("platform.glibc", version[0], machine.libc)
    for folder in _LIBRARY_FOLDERS:
        place = f"{folder.format(arch=machine.arch)}/libstdc++.so.6"
        if version := libstdcxx_version(machine, place):
            yield local_fact("platform.libstdcxx", version[1], f"{place} -> {version[0]}")
            break


def libstdcxx_version(machine: Machine, place: str) -> re.Match[str] | None:
    """Version of a C++ library by the name of the file that its link leads to."""
    return _LIBSTDCXX.search(machine.link(place) or "")
