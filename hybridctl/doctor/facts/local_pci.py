"""GPUs and drivers by the files of the kernel: the PCI bus, device files, the loaded module. They need no working driver."""

from __future__ import annotations

from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.patterns import late

_PCI = "/sys/bus/pci/devices"
_MAKERS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel", "0x19e5": "huawei", "0x1da3": "habana"}
# VGA, 3D and other display controllers; processing accelerators. https://pcisig.com class codes as in /usr/share/misc/pci.ids
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
_DEVICE = late(r"nvidia(?:\d+|ctl|-uvm)|kfd")
_MODULE = late(r"Kernel Module(?: for \S+)?\s+(\d+\.[\d.]+)")


def driver_file_facts(machine: Machine) -> Iterable[Fact]:
    """What can be known of GPUs and driver without asking the driver."""
    if devices := list(_devices(machine)):
        yield local_fact("gpu.pci", devices, f"{_PCI}: {', '.join(devices)}")
    if names := [name for name in machine.names("/dev") if _DEVICE.fullmatch(name)]:
        yield local_fact("driver.devices", names, f"/dev: {' '.join(names)}")
    if version := _MODULE.search(machine.head("/proc/driver/nvidia/version")):
        yield local_fact("driver.module", version[1], f"/proc/driver/nvidia/version: {version[0]}")


def _devices(machine: Machine) -> Iterable[str]:
    for place in machine.names(_PCI):
        folder = f"{_PCI}/{place}"
        if machine.head(f"{folder}/class").startswith(_CLASSES):
            maker = _MAKERS.get(machine.head(f"{folder}/vendor").strip())
            if maker:
                yield f"{maker} {machine.head(f'{folder}/device').strip().removeprefix('0x')} {place}"
