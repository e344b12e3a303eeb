"""``collect_env`` of torch and of vLLM, in all their ages, and SGLang's ``check_env``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hybridctl.doctor.facts import labels
from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.statements import IMPLIED, Found, is_nothing, is_version

_PIP = re.compile(r"\s*\[pip3?\]\s*([A-Za-z0-9][\w.-]*)\s*==\s*([^\s;,]+)")
_CONDA = re.compile(r"\s*\[conda\]\s+([A-Za-z0-9][\w.-]*)\s+(\d\S*)(?:\s+(\S+))?")
_CONDA_CUDA = re.compile(r"cuda(\d{1,2}\.\d)")
_CUDNN_FILE = re.compile(r"libcudnn\.so\.(\d+\.\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"\d+(?:\.\d+)+")


def parse(lines: Sequence[Line]) -> Found:
    """Everything that stands under the labels of these programs, and the ``[pip3]`` and ``[conda]`` lines."""
    found = Found()
    for line in lines:
        if "[" in line.text[:12] and _listed(found, line):
            continue
        if seen := _CUDNN_FILE.search(line.text):
            found.say("cuda.cudnn", seen[1], line)
        split = labels.split_label(line.text)
        if split and split[0] in _HANDLERS and not is_nothing(split[1]):
            _HANDLERS[split[0]](found, split[1], line)
        elif "compilation tools, release" in line.text:
            labels.say_toolkit(found, line.text, line)
    return found


def _listed(found: Found, line: Line) -> bool:
    if pip := _PIP.match(line.text):
        found.package(pip[1], pip[2], line)
        return True
    if conda := _CONDA.match(line.text):
        say_conda(found, conda[1], conda[2], conda[3] or "", line)
        return True
    return False


def say_conda(found: Found, name: str, version: str, build: str, line: Line) -> None:
    """A row of ``conda list``; the build string of conda's own torch names its CUDA."""
    found.package(name, version, line)
    if name.lower() in ("pytorch", "torch") and (cuda := _CONDA_CUDA.search(build)):
        found.say("torch.cuda", cuda[1], line, IMPLIED)
        found.say("torch.build", "cuda", line, IMPLIED)
    if name.lower() == "pytorch-cuda":
        found.say("torch.cuda", version, line, IMPLIED)


def _torch_cuda(found: Found, value: str, line: Line) -> None:
    if is_version(value):
        found.say("torch.cuda", value, line)
        found.say("torch.build", "cuda", line, IMPLIED)


def _torch_rocm(found: Found, value: str, line: Line) -> None:
    if is_version(value):
        found.say("torch.rocm", value, line)
        found.say("torch.build", "rocm", line, IMPLIED)
        found.say("gpu.vendor", "amd", line, IMPLIED)


def _rocm(found: Found, value: str, line: Line) -> None:
    if is_version(value):
        found.say("rocm.version", value, line)
        found.say("gpu.vendor", "amd", line, IMPLIED)


def _available(found: Found, value: str, line: Line) -> None:
    if value.lower() in ("true", "false"):
        found.say("torch.cuda_available", value.lower() == "true", line)


def _cudnn(found: Found, value: str, line: Line) -> None:
    if seen := _NUMBER.search(value):
        found.say("cuda.cudnn", seen[0], line)


def cuda_driver(found: Found, value: str, line: Line) -> None:
    """A "CUDA driver" is the driver, the CUDA that it serves, or ``cuDriverGetVersion``: the size tells which."""
    value = re.sub(r"^cuda\s*", "", value, flags=re.IGNORECASE)
    if re.match(r"\d{5}\b", value):
        number = int(value[:5])
        found.say("driver.cuda", f"{number // 1000}.{number % 1000 // 10}", line)
    elif re.match(r"(?:[<>=~]{1,2}\s*)?\d{1,2}(?:\.\d+)?(?![\d])", value):
        found.say("driver.cuda", value.split("/")[0].strip(), line)
    else:
        labels.say_driver(found, value, line)


_Handler = Callable[[Found, str, Line], None]

_HANDLERS: dict[str, _Handler] = {
    "os": labels.say_os,
    "libc version": labels.say_glibc,
    "python version": labels.say_python,
    "python platform": lambda found, value, line: labels.say_platform(found, value, line),
    "pytorch version": lambda found, value, line: found.package("torch", value, line),
    "pytorch": lambda found, value, line: found.package("torch", value, line),
    "cuda used to build pytorch": _torch_cuda,
    "rocm used to build pytorch": _torch_rocm,
    "is cuda available": _available,
    "cuda available": _available,
    "cuda runtime version": labels.say_toolkit,
    "nvcc": labels.say_toolkit,
    "nvidia driver version": labels.say_driver,
    "cuda driver version": cuda_driver,
    "cuda driver versions": cuda_driver,
    "cudnn version": _cudnn,
    "hip runtime version": _rocm,
    "rocm version": _rocm,
    "architecture": lambda found, value, line: _architecture(found, value, line),
    "neuron sdk version": lambda found, value, line: found.package("neuron-sdk", value, line),
}


def _architecture(found: Found, value: str, line: Line) -> None:
    if re.fullmatch(r"x86_64|aarch64|arm64|ppc64le|amd64", value.lower()):
        found.say("platform.arch", value.lower(), line)
