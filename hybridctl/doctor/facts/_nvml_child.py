"""Ask the NVIDIA driver, in a process of its own: a driver that hangs then hangs nobody else. Writes one JSON document."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def read_nvml() -> dict[str, Any]:
    """What NVML says, or ``{"missing": what it takes}``. A value that one GPU does not give is ``None``."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return {"missing": "the Python package nvidia-ml-py, which asks the NVIDIA driver"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"missing": f"an NVIDIA driver on this machine ({error})"}
    try:
        return {
            "driver": _text(_ask(pynvml, "nvmlSystemGetDriverVersion")),
            "cuda": _ask(pynvml, "nvmlSystemGetCudaDriverVersion_v2"),
            "gpus": [_gpu(pynvml, index) for index in range(_ask(pynvml, "nvmlDeviceGetCount") or 0)],
        }
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return {"name": None, "cc": None, "memory": None}
    cc = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return {
        "name": _text(_ask(nvml, "nvmlDeviceGetName", handle)),
        "cc": f"{cc[0]}.{cc[1]}" if cc else None,
        "memory": int(memory.total) if memory else None,  # boards with one memory for all answer "not supported"
    }


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    json.dump(read_nvml(), sys.stdout)
