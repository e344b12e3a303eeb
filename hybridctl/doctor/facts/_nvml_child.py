"""Ask the NVIDIA driver, in a process of its own: a driver that hangs then hangs nobody else.

Run as a file, with the standard library alone, so that it has begun to ask before the rest of a run is loaded. Writes one JSON
document a line, each as soon as it is known: what the driver's files say, ``libcuda``, ``nvml`` (the GPUs) and ``state`` (what may
take longer: memory errors, processes, connections). What one GPU does not give is ``None``. The calls are those of the NVML API
reference, https://docs.nvidia.com/deploy/nvml-api/.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

DRIVER_FILES = "/proc/driver/nvidia/gpus"
_NO_LIBRARY, _TOO_SMALL = 12, 7
_UNCORRECTED, _SINCE_LOAD = 1, 0
_READ, _NVLINK = 0, 2
_NOT_TOLD = 2**64 - 1
_MODES = {0: "default", 1: "exclusive", 2: "prohibited", 3: "exclusive"}
_LEVELS = {
    0: "same board", 10: "one PCIe switch", 20: "PCIe switches", 30: "host bridge", 40: "one NUMA node", 50: "CPU to CPU",
}  # fmt: skip


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``, in bytes."""

    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Process(ctypes.Structure):
    """``nvmlProcessInfo_t`` of the calls ``_v2`` and ``_v3``."""

    _fields_ = [
        ("pid", c_uint), ("used", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint),
    ]  # fmt: skip


class Nvml:
    """The library, opened. Every question gives ``None`` where the driver or the GPU has no answer."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> int | None:
        """The return code of a function; ``None`` when this driver has no such function."""
        function = getattr(self._library, name, None)
        return None if function is None else int(function(*arguments))

    def ask(self, name: str, *given: Any, out: Any = (c_uint,)) -> Any:
        """What a function writes through its last parameters: one value, or a tuple of several."""
        results = [kind() for kind in out]
        if self.call(name, *given, *map(byref, results)) != 0:
            return None
        values = tuple(getattr(result, "value", result) for result in results)
        return values[0] if len(values) == 1 else values

    def text(self, name: str, *given: Any) -> str | None:
        buffer = ctypes.create_string_buffer(128)
        code = self.call(name, *given, buffer, c_uint(len(buffer)))
        return buffer.value.decode("utf-8", "replace") if code == 0 else None

    def error(self, code: int) -> str:
        """What the library says of a return code."""
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return "unknown"
        function.restype = ctypes.c_char_p
        return (function(code) or b"unknown").decode("utf-8", "replace")


def documents() -> Iterator[dict[str, Any]]:
    """Everything that can be asked for, the quickest first."""
    yield {"files": _files()}
    yield {"libcuda": _libcuda()}
    library = _open(_names())
    if library is None:
        yield {"nvml": {"error": _NO_LIBRARY, "text": "NVML Shared Library Not Found"}}
        return
    nvml = Nvml(library)
    code = nvml.call("nvmlInit_v2")
    if code != 0:
        yield {"nvml": {"error": code if code is not None else -1, "text": nvml.error(code or 13)}}
        return
    try:
        count = nvml.ask("nvmlDeviceGetCount_v2") or 0
        gpus = [nvml.ask("nvmlDeviceGetHandleByIndex_v2", c_uint(i), out=(c_void_p,)) for i in range(count)]
        handles = [c_void_p(gpu) if gpu is not None else None for gpu in gpus]
        yield {
            "nvml": {
                "driver": nvml.text("nvmlSystemGetDriverVersion"),
                "cuda": nvml.ask("nvmlSystemGetCudaDriverVersion_v2", out=(c_int,)),
                "gpus": [_gpu(nvml, handle) for handle in handles],
            }
        }
        yield {"state": [_state(nvml, handle) for handle in handles], "links": _links(nvml, handles)}
    finally:
        nvml.call("nvmlShutdown")


def _names() -> list[str]:
    if sys.platform != "win32":
        return ["libnvidia-ml.so.1"]
    roots = (("WINDIR", "C:\\Windows", "System32"), ("PROGRAMFILES", "C:\\Program Files", "NVIDIA Corporation\\NVSMI"))
    return [os.path.join(os.environ.get(name, usual), folder, "nvml.dll") for name, usual, folder in roots]  # noqa: PTH118


def _open(names: list[str]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _files() -> list[dict[str, str]]:
    """GPUs as the kernel module lists them; it does so too when NVML refuses."""
    found = []
    try:
        places = sorted(os.listdir(DRIVER_FILES))  # noqa: PTH208
    except OSError:
        return []
    for place in places:
        try:
            with open(f"{DRIVER_FILES}/{place}/information", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                pairs = [line.partition(":") for line in file.read(65536).splitlines()]
        except OSError:
            continue
        found.append({key.strip().lower(): value.strip() for key, _, value in pairs})
    return found


def _libcuda() -> dict[str, Any]:
    """The CUDA library of the driver that a process gets here, and the CUDA version that it serves."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return {"error": str(error)}
    version = Nvml(library).ask("cuDriverGetVersion", out=(c_int,))
    return {"version": version, "path": _loaded(name) or name}


def _loaded(name: str) -> str | None:
    """The file that was really loaded: links resolved, LD_LIBRARY_PATH obeyed."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return next((line.split(None, 5)[5].strip() for line in file if f"/{name.split('.')[0]}.so" in line), None)
    except OSError:
        return None


def _gpu(nvml: Nvml, handle: Any) -> dict[str, Any]:
    if handle is None:
        return {"name": None, "cc": None, "memory": None, "free": None, "uuid": None, "mig": None}
    cc = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle, out=(c_int, c_int))
    mig = nvml.ask("nvmlDeviceGetMigMode", handle, out=(c_uint, c_uint))
    return {
        **_named(nvml, handle),
        "cc": f"{cc[0]}.{cc[1]}" if cc else None,
        "mig": _mig_devices(nvml, handle) if mig and mig[0] else None,
    }


def _named(nvml: Nvml, handle: Any) -> dict[str, Any]:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle, out=(_Memory,))
    return {
        "name": nvml.text("nvmlDeviceGetName", handle),
        "uuid": nvml.text("nvmlDeviceGetUUID", handle),
        "memory": memory.total if memory else None,  # boards with one memory for all answer "not supported"
        "free": memory.free if memory else None,
    }


def _mig_devices(nvml: Nvml, handle: Any) -> list[dict[str, Any]]:
    found = []
    for index in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, c_uint(index), out=(c_void_p,))
        if device is not None:  # numbers that no instance has are refused
            part = c_void_p(device)
            found.append({**_named(nvml, part), "instance": nvml.ask("nvmlDeviceGetGpuInstanceId", part)})
    return found


def _state(nvml: Nvml, handle: Any) -> dict[str, Any]:
    if handle is None:
        return {}
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle, out=(c_uint,) * 4)
    return {
        "mode": _MODES.get(nvml.ask("nvmlDeviceGetComputeMode", handle)),
        "ecc_errors": nvml.ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_LOAD, out=(c_ulonglong,)),
        "remap_pending": bool(rows[2]) if rows else None,
        "processes": _processes(nvml, handle),
    }


def _processes(nvml: Nvml, handle: Any) -> list[dict[str, Any]] | None:
    """Asked for their number first, then with room for more: some may come between the two calls."""
    for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
        count = c_uint(0)
        code = nvml.call(name, handle, byref(count), None)
        if code == 0:
            return []
        if code != _TOO_SMALL:
            continue
        count = c_uint(count.value * 2 + 8)
        room = (_Process * count.value)()
        if nvml.call(name, handle, byref(count), room) == 0:
            return [{"pid": p.pid, "used": None if p.used == _NOT_TOLD else p.used} for p in room[: count.value]]
    return None


def _links(nvml: Nvml, handles: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "pair": [a, b],
            "p2p": nvml.ask("nvmlDeviceGetP2PStatus", handles[a], handles[b], _READ),
            "nvlink": nvml.ask("nvmlDeviceGetP2PStatus", handles[a], handles[b], _NVLINK),
            "level": _LEVELS.get(nvml.ask("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])),
        }
        for a in range(len(handles))
        for b in range(a + 1, len(handles))
        if handles[a] is not None and handles[b] is not None
    ]


if __name__ == "__main__":
    for document in documents():
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
