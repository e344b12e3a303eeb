"""The checks of what a look at the machine shows: each of their outcomes, on facts as the collectors state them."""

from __future__ import annotations

from typing import Any

import pytest

from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Outcome
from tests.doctor.checks.making import check
from tests.doctor.checks.making import facts as stated

SERVE = {"command.form": "serve", "engine": "vllm", "model.name": "Qwen/Qwen3-8B"}
GPU = {"torch.build": "cuda", "torch.cuda": "12.8"}
HERE = {"platform.ports": ["22"]}


def run(id: str, values: dict[str, Any]) -> Outcome:
    from hybridctl.doctor.checks import Context

    made = Facts()
    for fact in stated(values):
        local = not fact.key.startswith(("flag.", "command.", "model.", "engine"))
        made.add(fact.key, fact.value, Origin("local", None, fact.origin.quote) if local else fact.origin)
    return check(id).run(Context(made))


def found(id: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in run(id, values).findings]


# --- what is found

HELD = {
    "gpu.free_gib": ["70.0", "12.0"],
    "gpu.memory_gib": 79.6,
    "gpu.processes": ["GPU 1: pid 77 VLLM::EngineCore, 66.0 GiB"],
}
MIG = {"gpu.mig": True, "gpu.mig_devices": ["a", "b"], "driver.version": "550.1"}
TWO = {"gpu.names": ["NVIDIA H100", "NVIDIA L4"]}
LIBRARY = {**GPU, "cuda.shadowing": ["/a/libnvJitLink.so.12.4.127"], "pkg.nvidia-nvjitlink-cu12": "12.8.93"}
CONDA = {
    "python.conda": True,
    "python.libstdcxx": "6.0.29",
    "platform.libstdcxx": "6.0.32",
    "python.compiler": "/usr/bin/gcc",
}
LOCKED = {"platform.memlock_gib": 0.0078, "platform.infiniband": ["mlx5_0"], "platform.capabilities": []}
BUILD = {**GPU, "cuda.nvcc": "/u/bin/nvcc", "cuda.home": "/u", "cuda.headers": True, "pkg.flashinfer-python": "0.6"}
CACHE = {
    "disk.cache": "/c",
    "disk.cache_fs": "ext4",
    "disk.cache_free_gib": 10.0,
    "hub.cached": False,
    "model.size_gib": 60.0,
}
RAM = {"platform.ram_gib": 100.0, "platform.ram_limit_gib": 16.0}

FOUND = [
    ("gpu-held", {**HELD, **SERVE, "flag.tensor-parallel-size": 2}, [("any-free-memory-below-utilization", "error")]),
    ("gpu-held", {**HELD, **SERVE, "flag.gpu-memory-utilization": 0.95}, [("any-free-memory-below-utilization", "error")]),
    ("gpu-held", HELD, [("gpu-memory-held", "info")]),
    ("port-taken", {**SERVE, "platform.ports": ["8000"]}, [("port-in-use", "error")]),
    ("port-taken", {**SERVE, "engine": "sglang", "platform.ports": ["30000"]}, [("port-in-use", "error")]),
    ("mig", {**MIG, **SERVE, "flag.tensor-parallel-size": 2}, [("mig-with-several-ranks", "error")]),
    ("mig", {**MIG, **SERVE, "driver.version": "580.1", "flag.tensor-parallel-size": 2}, [("mig-with-several-ranks", "warning")]),
    ("mig", {"gpu.mig": True, "gpu.mig_devices": []}, [("mig-without-instance", "error")]),
    ("gpu-order", TWO, [("different-gpus-unordered", "info")]),
    ("gpu-order", {**TWO, "env.CUDA_VISIBLE_DEVICES": "0"}, [("different-gpus-unordered", "warning")]),
    ("build-tools", {**GPU, "python.compiler": "not found", "python.headers": True}, [("c-compiler-missing", "warning")]),
    (
        "build-tools",
        {**GPU, "python.compiler": "/usr/bin/gcc", "python.headers": False, "model.layers": ["full", "gdn"]},
        [("python-headers-missing", "error")],
    ),
    ("toolkit", {**BUILD, "cuda.nvcc": "not found"}, [("cuda-home-not-set", "info")]),
    ("toolkit", {**BUILD, "cuda.nvcc": "not found", "env.CUDA_HOME": "/u"}, [("cuda-home-not-set", "warning")]),
    ("toolkit", {**BUILD, "cuda.headers": False}, [("cuda-home-without-headers", "warning")]),
    ("toolkit", {**BUILD, "cuda.toolkit": "13.0.88"}, [("build-cuda-mismatch", "info")]),
    ("library-path", LIBRARY, [("library-path-before-torch", "warning")]),
    ("libstdcxx", {**CONDA, **GPU, "pkg.flashinfer-python": "0.6"}, [("libstdcxx-too-old", "warning")]),
    ("libstdcxx", CONDA, [("libstdcxx-too-old", "info")]),
    ("memlock", {**LOCKED, "flag.nnodes": 2}, [("memlock-too-small-for-infiniband", "warning")]),
    (
        "plugin-names", {"env.VLLM_PLUGINS": "a,b", "vllm.plugins": ["a (x, general_plugins)"]},
        [("plugin-not-installed", "warning")],
    ),
    ("cache-place", CACHE, [("hub-disk-full", "warning")]),
    ("cache-place", {"disk.cache": "/c", "disk.cache_fs": "tmpfs"}, [("cache-in-memory", "warning")]),
    (
        "cache-place", {"disk.cache": "/c", "disk.cache_fs": "overlay", "platform.container": True},
        [("cache-inside-container", "info")],
    ),
    ("host-memory", {**RAM, **SERVE, "flag.cpu-offload-gb": 20}, [("host-memory-too-small", "error")]),
    ("host-memory", {**RAM, "env.VLLM_CPU_KVCACHE_SPACE": "40", "pkg.vllm": "0.32.0+cpu"}, [("host-memory-too-small", "error")]),
    ("windows-mount", {"disk.cache": "/mnt/c/hf", "disk.cache_fs": "drvfs"}, [("weights-on-windows-drive", "warning")]),
]  # fmt: skip


@pytest.mark.parametrize(("id", "values", "expected"), FOUND)
def test_what_is_found(id: str, values: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(id, values) == expected


@pytest.mark.parametrize(("id", "values", "expected"), FOUND)
def test_findings_are_whole(id: str, values: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    for finding in run(id, values).findings:
        assert finding.source
        assert finding.fix
        assert all(e.fact for e in finding.evidence)
        assert finding.evidence


STATES = [
    # the nearest thing that is no fault
    ("gpu-held", {**HELD, **SERVE, "flag.gpu-memory-utilization": 0.85}, "ok"),
    ("gpu-held", {**HELD, **SERVE, "process.pid": 77}, "not-applicable"),
    ("gpu-held", {**HELD, **TWO}, "unknown"),
    ("gpu-held", {"gpu.memory_gib": 79.6}, "unknown"),
    ("gpu-held", {**HELD, "torch.build": "cpu"}, "not-applicable"),
    ("port-taken", {**SERVE, "platform.ports": ["8000"], "flag.port": 8001}, "ok"),
    ("port-taken", {**SERVE, "platform.ports": ["8000"], "process.pid": 5}, "not-applicable"),
    ("port-taken", {**SERVE, "platform.ports": ["8000"], "command.form": "docker"}, "unknown"),
    ("port-taken", {**SERVE, "platform.ports": ["8000"], "log.reached": "ready"}, "not-applicable"),
    ("mig", {"gpu.mig": False}, "ok"),
    ("mig", {**MIG, **SERVE}, "ok"),
    ("mig", MIG, "unknown"),
    ("gpu-order", {**TWO, "env.CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "ok"),
    ("gpu-order", {"gpu.names": ["NVIDIA L4", "NVIDIA L4"]}, "ok"),
    ("build-tools", {**GPU, "python.compiler": "/usr/bin/gcc", "python.headers": True}, "ok"),
    ("build-tools", {**GPU, "python.compiler": "/usr/bin/gcc"}, "unknown"),
    ("build-tools", {"torch.build": "cpu", "python.compiler": "not found"}, "not-applicable"),
    ("build-tools", {**GPU, "python.compiler": "not found", "log.reached": "ready"}, "not-applicable"),
    ("toolkit", {**BUILD, "cuda.toolkit": "12.6"}, "ok"),
    ("toolkit", {**GPU, "cuda.nvcc": "not found"}, "ok"),  # nothing here compiles
    ("toolkit", {**BUILD, "cuda.nvcc": "not found", "command.image": "vllm/vllm-openai"}, "not-applicable"),
    ("library-path", {**LIBRARY, "pkg.nvidia-nvjitlink-cu12": "12.4.127"}, "ok"),
    ("library-path", {**LIBRARY, "cuda.shadowing": ["/a/libnvJitLink.so.13.0.39"]}, "ok"),  # another interface
    ("library-path", {**LIBRARY, "cuda.shadowing": ["/a/libnvJitLink.so.12"]}, "ok"),  # of no told release
    ("library-path", {**GPU, **HERE}, "ok"),
    ("library-path", GPU, "unknown"),
    ("libstdcxx", {**CONDA, "platform.libstdcxx": "6.0.29"}, "ok"),
    ("libstdcxx", {"python.conda": False}, "not-applicable"),
    ("libstdcxx", {"python.conda": True}, "unknown"),
    ("memlock", {**LOCKED, "platform.memlock_gib": 2.0**33}, "ok"),
    ("memlock", {**LOCKED, "platform.capabilities": ["ipc_lock"]}, "ok"),
    ("memlock", LOCKED, "not-applicable"),
    ("memlock", {"platform.memlock_gib": 0.0078, "flag.nnodes": 2}, "not-applicable"),
    ("plugin-names", {"env.VLLM_PLUGINS": "a", "vllm.plugins": ["a (x, general_plugins)"]}, "ok"),
    ("plugin-names", HERE, "not-applicable"),
    ("plugin-names", {"env.VLLM_PLUGINS": "a"}, "unknown"),
    ("cache-place", {**CACHE, "hub.cached": True}, "ok"),
    ("cache-place", {**CACHE, "disk.cache_free_gib": 100.0}, "ok"),
    ("cache-place", {"disk.cache": "/c"}, "unknown"),
    ("host-memory", {**RAM, **SERVE, "flag.cpu-offload-gb": 10}, "ok"),
    ("host-memory", {**RAM, **SERVE}, "ok"),
    ("host-memory", RAM, "unknown"),
    ("host-memory", {**RAM, "env.VLLM_CPU_KVCACHE_SPACE": "40", "torch.build": "cuda"}, "unknown"),  # only the CPU build reads it
    ("windows-mount", {"disk.cache": "/c", "disk.cache_fs": "9p"}, "ok"),  # of a sandbox, not of Windows
    ("windows-mount", {"disk.cache": "/mnt/c/hf", "disk.cache_fs": "drvfs", "model.name": "/models/x"}, "ok"),
]  # fmt: skip


@pytest.mark.parametrize(("id", "values", "state"), STATES)
def test_what_is_no_fault_or_not_known(id: str, values: dict[str, Any], state: str) -> None:
    assert run(id, values).state == state


def test_the_process_to_end_is_named() -> None:
    (held,) = run("gpu-held", {**HELD, **SERVE, "flag.tensor-parallel-size": 2}).findings
    assert "pid 77 VLLM::EngineCore" in held.cause
    assert held.fix[0].command == "kill 77"
    assert "--gpu-memory-utilization" not in str(held.fix)  # so little of it serves nothing
    (half,) = run("gpu-held", {**HELD, **SERVE, "gpu.free_gib": ["40.0"]}).findings
    assert half.fix[-1].command == "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.48"


def test_no_process_is_to_be_ended_by_the_number_that_it_has_elsewhere() -> None:
    outside = ["GPU 1: pid 77 (number on the host), 66.0 GiB"]
    (held,) = run("gpu-held", {**HELD, **SERVE, "flag.tensor-parallel-size": 2, "gpu.processes": outside}).findings
    assert not any("kill" in (fix.command or "") for fix in held.fix)


def test_the_compiler_of_conda_builds_for_the_library_of_conda() -> None:
    from hybridctl.doctor.checks import Context

    made = Facts()
    for key, value in {**CONDA, "python.compiler": "/c/envs/v/bin/gcc"}.items():
        made.add(key, value, Origin("local", None, "/c/envs/v/conda-meta" if key == "python.conda" else key))
    assert check("libstdcxx").run(Context(made)).state == "ok"
