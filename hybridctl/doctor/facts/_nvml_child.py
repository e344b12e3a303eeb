"""Ask the NVIDIA driver, in a process of its own: a driver that hangs then hangs nobody else.

Writes one JSON document a line, each as soon as it is known: what the driver's files say, ``libcuda``, ``nvml`` (the GPUs) and
``state`` (what may take longer: memory errors, processes, connections). What one GPU does not give is ``None``.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

DRIVER_FILES = "/proc/driver/nvidia/gpus"
_LEVELS = {
    0: "same board", 10: "one PCIe switch", 20: "PCIe switches", 30: "host bridge", 40: "one NUMA node", 50: "CPU to CPU",
}  # fmt: skip
_MODES = {0: "default", 1: "exclusive", 2: "prohibited", 3: "exclusive"}


def documents() -> Iterator[dict[str, Any]]:
    """Everything that can be asked for, the quickest first."""
    yield {"files": _files()}
    yield {"libcuda": _libcuda()}
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        yield {"nvml": {"missing": "the Python package nvidia-ml-py, which asks the NVIDIA driver"}}
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        yield {"nvml": {"error": error.value, "text": str(error)}}
        return
    try:
        handles = [_ask(nvml, "nvmlDeviceGetHandleByIndex", i) for i in range(_ask(nvml, "nvmlDeviceGetCount") or 0)]
        yield {
            "nvml": {
                "driver": _text(_ask(nvml, "nvmlSystemGetDriverVersion")),
                "cuda": _ask(nvml, "nvmlSystemGetCudaDriverVersion_v2"),
                "gpus": [_gpu(nvml, handle) for handle in handles],
            }
        }
        yield {"state": [_state(nvml, handle) for handle in handles], "links": _links(nvml, handles)}
    finally:
        nvml.nvmlShutdown()


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
        version = ctypes.c_int(0)
        code = library.cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as error:
        return {"error": str(error)}
    return {"version": version.value if code == 0 else None, "code": code, "path": _loaded(name) or name}


def _loaded(name: str) -> str | None:
    """The file that was really loaded: links resolved, LD_LIBRARY_PATH obeyed."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return next((line.split(None, 5)[5].strip() for line in file if f"/{name.split('.')[0]}.so" in line), None)
    except OSError:
        return None


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    if handle is None:
        return {"name": None, "cc": None, "memory": None, "free": None, "uuid": None, "mig": None}
    cc = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    mig = _ask(nvml, "nvmlDeviceGetMigMode", handle)
    return {
        **_named(nvml, handle),
        "cc": f"{cc[0]}.{cc[1]}" if cc else None,
        "mig": _mig_devices(nvml, handle) if mig and mig[0] else None,
    }


def _named(nvml: Any, handle: Any) -> dict[str, Any]:
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return {
        "name": _text(_ask(nvml, "nvmlDeviceGetName", handle)),
        "uuid": _text(_ask(nvml, "nvmlDeviceGetUUID", handle)),
        "memory": int(memory.total) if memory else None,  # boards with one memory for all answer "not supported"
        "free": int(memory.free) if memory else None,
    }


def _mig_devices(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    found = []
    for index in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if device is not None:  # numbers that no instance has are refused
            found.append({**_named(nvml, device), "instance": _ask(nvml, "nvmlDeviceGetGpuInstanceId", device)})
    return found


def _state(nvml: Any, handle: Any) -> dict[str, Any]:
    if handle is None:
        return {}
    rows = _ask(nvml, "nvmlDeviceGetRemappedRows", handle)
    # Uncorrected errors, counted since the driver was loaded.
    errors = _ask(nvml, "nvmlDeviceGetTotalEccErrors", handle, 1, 0)
    processes = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    return {
        "mode": _MODES.get(_ask(nvml, "nvmlDeviceGetComputeMode", handle)),
        "ecc_errors": errors,
        "remap_pending": bool(rows[2]) if rows else None,
        "processes": None if processes is None else [{"pid": p.pid, "used": p.usedGpuMemory} for p in processes],
    }


def _links(nvml: Any, handles: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "pair": [a, b],
            "p2p": _ask(nvml, "nvmlDeviceGetP2PStatus", handles[a], handles[b], 0),
            "nvlink": _ask(nvml, "nvmlDeviceGetP2PStatus", handles[a], handles[b], 2),
            "level": _LEVELS.get(_ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])),
        }
        for a in range(len(handles))
        for b in range(a + 1, len(handles))
        if handles[a] is not None and handles[b] is not None
    ]


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    for document in documents():
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
