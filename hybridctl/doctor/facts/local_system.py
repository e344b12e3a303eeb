"""The machine itself: system, kernel, C library, memory, container, and the variables that decide how an engine runs."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hybridctl.doctor.facts.local_read import head, local_fact
from hybridctl.doctor.facts.model import Fact

# By name, never by pattern: a variable that holds a token must not get into a report because somebody named it so.
VARIABLES = (
    *(
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
    ),
    *(
        "FLASHINFER_DISABLE_VERSION_CHECK",
        "GLOO_SOCKET_IFNAME",
        "HF_ENDPOINT",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_DISABLE_XET",
    ),
    *("HF_HUB_OFFLINE", "HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "LD_LIBRARY_PATH", "LD_PRELOAD", "MAX_JOBS"),
    *("NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
    *(
        "NCCL_SHM_DISABLE",
        "NCCL_SOCKET_IFNAME",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
    ),
    *("PYTHONPATH", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "ROCR_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST"),
    *(
        "TORCHINDUCTOR_CACHE_DIR",
        "TRANSFORMERS_OFFLINE",
        "TRITON_CACHE_DIR",
        "TRITON_PTXAS_PATH",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    ),
    *("VLLM_ATTENTION_BACKEND", "VLLM_CACHE_ROOT", "VLLM_ENABLE_CUDA_COMPATIBILITY", "VLLM_ENABLE_V1_MULTIPROCESSING"),
    *(
        "VLLM_FLASH_ATTN_VERSION",
        "VLLM_PLUGINS",
        "VLLM_ROCM_USE_AITER",
        "VLLM_USE_DEEP_GEMM",
        "VLLM_USE_FLASHINFER_SAMPLER",
    ),
    *("VLLM_USE_MODELSCOPE", "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_WSL2_ENABLE_PIN_MEMORY"),
)
_PRETTY = re.compile(r"^PRETTY_NAME=\"?([^\"\n]+)", re.MULTILINE)
_MEM_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)
_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|crio")
_CUDA_JSON = re.compile(r"\"cuda\"\s*:\s*\{[^}]*\"version\"\s*:\s*\"(\d+(?:\.\d+)+)\"")


def system_facts(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> list[Fact]:
    """Everything that files and calls of the system tell at once.

    Args:
        root: where ``/proc``, ``/etc`` and ``/usr`` are looked for.
        environ: the variables.
    """
    return [
        *_system(root, environ),
        *_memory(root),
        *_container(root, environ),
        *_toolkit(root, environ),
        *_variables(environ),
    ]


def _system(root: Path, environ: Mapping[str, str]) -> Iterable[Fact]:
    system = {"linux": "linux", "darwin": "macos", "win32": "windows", "cygwin": "windows"}.get(sys.platform)
    if system:
        yield local_fact("platform.os", system, sys.platform)
    kernel = platform.release()
    if system == "linux" and kernel:
        yield local_fact("platform.kernel", kernel, kernel)
        wsl = "microsoft" in kernel.lower()
        yield local_fact("platform.wsl", wsl, kernel)
        if pretty := _PRETTY.search(head(root / "etc/os-release")):
            yield local_fact("platform.distro", pretty[1], pretty[0])
    if machine := platform.machine():
        yield local_fact("platform.arch", machine, machine)
    if hasattr(os, "confstr") and "CS_GNU_LIBC_VERSION" in os.confstr_names:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
        if version := re.search(r"\d+\.\d+", library):
            yield local_fact("platform.glibc", version[0], library)


def _memory(root: Path) -> Iterable[Fact]:
    if total := _MEM_TOTAL.search(head(root / "proc/meminfo")):
        yield local_fact("platform.ram_gib", round(int(total[1]) / 1024**2, 2), total[0])
    try:
        shm = os.statvfs(root / "dev/shm")
    except (OSError, AttributeError):
        return  # not a Linux machine
    size = round(shm.f_blocks * shm.f_frsize / 1024**3, 4)
    yield local_fact("platform.shm_gib", size, f"/dev/shm: {size} GiB")


def _container(root: Path, environ: Mapping[str, str]) -> Iterable[Fact]:
    """Marks that container engines leave. That none is seen proves nothing, so it says nothing."""
    for mark in (".dockerenv", "run/.containerenv"):
        if (root / mark).exists():
            yield local_fact("platform.container", True, f"/{mark}")
            return
    if "KUBERNETES_SERVICE_HOST" in environ:
        yield local_fact("platform.container", True, "KUBERNETES_SERVICE_HOST is set")
    elif mark_found := _CGROUP.search(head(root / "proc/1/cgroup")):
        yield local_fact("platform.container", True, f"/proc/1/cgroup: {mark_found[0]}")


def _toolkit(root: Path, environ: Mapping[str, str]) -> Iterable[Fact]:
    for home in (environ.get("CUDA_HOME"), environ.get("CUDA_PATH"), str(root / "usr/local/cuda")):
        if home and (version := _CUDA_JSON.search(head(Path(home) / "version.json"))):
            yield local_fact("cuda.toolkit", version[1], f"{home}/version.json: {version[1]}")
            return


def _variables(environ: Mapping[str, str]) -> Iterable[Fact]:
    for name in VARIABLES:
        if name in environ:
            yield local_fact(f"env.{name}", environ[name], f"{name}={environ[name]}")
