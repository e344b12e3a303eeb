"""The NVIDIA driver and GPUs of this machine, through NVML and the files of the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from hybridctl.doctor.facts.gpu_facts import gpu_statements
from hybridctl.doctor.facts.local_driver import Answers, ask_driver
from hybridctl.doctor.facts.local_gpus import state_facts, visible
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_pci import driver_file_facts
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.facts.statements import GpuRow
from hybridctl.doctor.findings import Unknown

_CHECK = "NVIDIA driver and GPUs"
_ABSENT = 12


def gpu_source(machine: Machine, answers: Callable[[], Answers] | None = None) -> Iterable[Fact | Unknown]:
    """Everything about driver and GPUs. A machine without an NVIDIA driver gives one unknown, which is no error.

    Args:
        machine: whose files and variables count.
        answers: waits for what the driver says; the question goes out now by default.
    """
    answers = answers or ask_driver()
    seen = list(driver_file_facts(machine))
    yield from seen
    documents, problem = answers()
    merged: dict[str, Any] = {}
    for document in documents:
        merged.update(document if isinstance(document, dict) else {})
    yield from nvml_facts(merged, problem, machine, {f.key: f for f in seen})


def nvml_facts(
    told: dict[str, Any], problem: str, machine: Machine, seen: dict[str, Fact] | None = None
) -> Iterable[Fact | Unknown]:
    """Facts of what the child wrote.

    Args:
        told: its documents, as one (:mod:`_nvml_child` says what is in them).
        problem: why it wrote no more; empty when it ended well.
        machine: whose variables say which GPUs a process sees.
        seen: facts that the files of the kernel gave, by key.
    """
    seen = seen or {}
    nvml = told.get("nvml") or {}
    # Without a driver there is no library of it either: that is one lack, not two.
    there = bool(nvml.get("driver") or "driver.module" in seen or "driver.devices" in seen)
    yield from _library(told.get("libcuda") or {}, there)
    gpus = nvml.get("gpus") or []
    module = seen.get("driver.module")
    if driver := nvml.get("driver"):
        yield local_fact("driver.version", driver, f"NVML driver version {driver}")
    elif module:
        yield local_fact("driver.version", module.value, module.origin.quote)
    if cuda := nvml.get("cuda"):
        yield local_fact("driver.cuda", _cuda(cuda), f"NVML CUDA driver version {cuda}")
    if (error := nvml.get("error")) is not None:
        yield local_fact("driver.nvml_error", error, f"NVML: {nvml.get('text')} ({error})")
    listing = _rows(gpus) or _rows_of_files(told.get("files") or [])
    yield from _ranked(listing)
    yield from _mig(gpus, nvml.get("driver"), machine)
    if gpus:
        yield from state_facts(gpus, told, machine)
    if error is not None:
        yield Unknown(_CHECK, _why(int(error), str(nvml.get("text")), seen, machine))
    elif not nvml:
        yield Unknown(_CHECK, f"an answer of the driver: {problem or 'it gave none'}. nvidia-smi will hang or fail too")
    elif not gpus:
        yield Unknown("GPUs", "a GPU that the NVIDIA driver lists; it lists none")
    elif "state" not in told:
        yield Unknown(
            "gpu-state", f"the driver's answer on processes, memory errors and connections: {problem or 'it gave none'}"
        )


def _library(libcuda: dict[str, Any], there: bool) -> Iterable[Fact]:
    if text := libcuda.get("error"):
        absent = "No such file" in text or "Could not find" in text
        if there or not absent:
            yield local_fact("driver.libcuda", "not found" if absent else f"broken: {text}", text)
    elif path := libcuda.get("path"):
        yield local_fact("driver.libcuda", path, path)
        if version := libcuda.get("version"):
            yield local_fact("driver.cuda", _cuda(version), f"cuDriverGetVersion {version} ({path})")


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _rows(gpus: list[dict[str, Any]]) -> list[GpuRow]:
    """One row a GPU; a GPU that MIG divides is the devices that were made of it."""
    rows = []
    for index, gpu in enumerate(gpus):
        parts = [gpu] if gpu.get("mig") is None else gpu["mig"]
        for part in parts:
            if not (name := part.get("name") or gpu.get("name")):
                continue
            memory = part.get("memory")
            rows.append(
                GpuRow(
                    name=name,
                    line=0,
                    quote=f"NVML device {index}: {name}",
                    counted=gpu.get("mig") is None,
                    memory_gib=round(memory / 1024**3, 2) if memory else None,
                    memory_quote=f"NVML device {index}: {memory} bytes",
                    cc=gpu.get("cc"),
                )
            )
    return rows


def _rows_of_files(files: list[dict[str, str]]) -> list[GpuRow]:
    names = [file["model"] for file in files if file.get("model") and "unknown" not in file["model"].lower()]
    return [GpuRow(name=name, line=0, quote=f"/proc/driver/nvidia/gpus: {name}") for name in names]


def _ranked(listing: list[GpuRow]) -> Iterable[Fact]:
    """Where the driver states and the table knows one key, what the driver states."""
    best: dict[str, Fact] = {}
    for s in sorted(gpu_statements(listing), key=lambda s: s.rank):
        best.setdefault(s.key, local_fact(s.key, s.value, s.quote))
    return best.values()


def _mig(gpus: list[dict[str, Any]], driver: str | None, machine: Machine) -> Iterable[Fact]:
    """Before R570 a process gets one MIG device, however many there are; from R570 on one of each GPU instance.

    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html#cuda-device-enumeration
    """
    chosen = [gpu for _, gpu in visible(gpus, machine)]
    divided = [gpu for gpu in chosen if gpu.get("mig") is not None]
    if not chosen:
        return
    quote = f"NVML: MIG is on for {len(divided)} of {len(chosen)} GPUs"
    yield local_fact("gpu.mig", bool(divided), quote)
    if not divided:
        return
    names = [device.get("name") or "MIG device" for gpu in divided for device in gpu["mig"]]
    yield local_fact("gpu.mig_devices", names, f"{quote}, with {len(names)} MIG devices")
    branch = str(driver or "").partition(".")[0]
    if branch.isdecimal():
        instances = {(id(gpu), device.get("instance")) for gpu in divided for device in gpu["mig"]}
        # An older driver shows no whole GPU either as soon as there is a MIG device.
        count = (
            len(instances) + len(chosen) - len(divided)
            if int(branch) >= 570
            else min(1, len(names)) or len(chosen) - len(divided)
        )
        yield local_fact(
            "gpu.count", count, f"{quote}, with {len(names)} MIG devices; driver {driver} shows {count} to a process"
        )


def _why(error: int, text: str, seen: dict[str, Fact], machine: Machine) -> str:
    devices = seen["gpu.pci"].value if "gpu.pci" in seen else []
    makers = {str(device).split()[0] for device in devices} if isinstance(devices, list) else set()
    if error != _ABSENT:
        return f"an answer of NVML, which refuses: {text} ({error})"
    library = "nvml.dll" if machine.windows else "libnvidia-ml.so.1"
    why = f"an NVIDIA driver: {library} is not here"
    if "nvidia" in makers:
        return f"{why}, though the PCI bus has an NVIDIA GPU"
    if makers:
        return f"{why}; the PCI bus has GPUs of {', '.join(sorted(makers))}, whose own tools can tell more (--env)"
    if machine.platform == "linux" and os.path.isdir(machine.path("/sys/bus/pci")):  # noqa: PTH112
        return f"{why}, and the PCI bus has no GPU"
    return why
