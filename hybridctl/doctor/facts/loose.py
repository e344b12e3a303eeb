"""``name : value`` lines as people write them, and lone lines of programs: ``ollama --version``, ``df``, ``wsl --version``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hybridctl.doctor.facts import labels
from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.collect_env import cuda_driver
from hybridctl.doctor.facts.gpu_lines import named
from hybridctl.doctor.facts.package_names import is_known, normalise
from hybridctl.doctor.facts.statements import IMPLIED, Found, cuda_of_tag, is_nothing, is_version
from hybridctl.gpus import vendor_of

_SIZE = re.compile(r"~?\s*(\d{1,9}(?:\.\d+)?)\s*([KMGT])?i?(?:B|b)?(?![\w.])")
_UNITS = {"K": 1 / 1048576, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
_CC = re.compile(r"(?:sm_?|compute_?)?(\d{1,2})(?:\.(\d)|(?<=\d)(\d))[af]?(?![\d.])", re.IGNORECASE)
_DF_SHM = re.compile(r"\s*\S+\s+(\d{1,9}(?:\.\d+)?)([KMGT])i?\s.*\s/dev/shm\s*$")
_OLLAMA = re.compile(r".*\bollama version is (\d[\w.+-]*)", re.IGNORECASE)
_VLLM_SAYS = re.compile(r".*(?:\bvLLM API server version v?|Initializing an? (?:V1 )?LLM engine \(v)(\d[\w.+-]*)")
_IMAGE = re.compile(r"\b(vllm/vllm-openai|lmsysorg/sglang)\S*?:v?(\d+\.\d+(?:\.\d+)?[\w.]*)((?:-cu\d{2,3})?)")
_WITHOUT_COLON = re.compile(r"\s*(?:[-*•]\s+)?([A-Za-z][\w. -]{0,30}?)\s+version\s+v?(\d[\w.+-]*)\s*$", re.IGNORECASE)
_CARD = re.compile(r".*\b(?:Card [Ss]eries|Marketing Name)\s*:\s*(\S.*?)\s*$")
_UNAME_R = re.compile(r"\s*\d+\.\d+\.\d+\S*-microsoft-standard\S*\s*$")
_TWO_CUDA = re.compile(r"\s*CUDA Driver Version / Runtime Version\s+(\d{1,2}\.\d+) / (\d{1,2}\.\d+)")
_CC_LINE = re.compile(r"\s*CUDA Capability Major/Minor version number:\s+(\d{1,2}\.\d)")
_WSL_VERSION = re.compile(
    r"\s*WSL[- ]?(?:version|versie|versión|versione|版本|バージョン|버전|Version)?\s*[:：]\s*([<>=~]*\s*\d+\.[\d.]*\d)",
    re.IGNORECASE,
)
_NO_PACKAGES_TEXT = """
os gcc clang cmake kernel bios schema api config file format data model spec document protocol compose chart python libc
cuda driver rust go node java openmpi docker runtime client server nvidia-smi nvml nvrm vbios image inforom
"""
_NO_PACKAGES = frozenset(_NO_PACKAGES_TEXT.split())


def parse(lines: Sequence[Line]) -> Found:
    """What the labels say, and the known lone lines."""
    found = Found()
    for line in lines:
        if _lone(found, line):
            continue
        split = labels.split_label(line.text)
        if not split:
            continue
        label, value = split
        if is_nothing(value):
            continue
        plain = label.replace("_", " ").replace("-", " ")
        handler = _HANDLERS.get(label) or _HANDLERS.get(plain)
        if handler:
            handler(found, value, line)
        else:
            _package(found, label, value, line)
    return found


def _package(found: Found, label: str, value: str, line: Line) -> None:
    """``vLLM Version : 0.22.0``, ``torch: 2.8.0+cu129``, ``sgl_kernel: 0.3.9``."""
    name = label.removesuffix(" version").strip()
    if name != label and '"' in line.text:
        return  # "transformers_version" of a config.json is that of whoever saved the model
    numbered = name != label or re.match(r"\W{0,3}v?\d+\.\d", value) or not is_version(value)
    if (is_known(name) and numbered) or (
        name != label and re.fullmatch(r"[\w.+-]{2,40}", name) and name not in _NO_PACKAGES
    ):
        if normalise(name) == "llama.cpp":
            value = re.sub(r"^(?:version:?\s*)?b(?=\d)", "", value)
        found.package(name, value, line)
        _image(found, line)


def _lone(found: Found, line: Line) -> bool:
    text = line.text
    if wsl := _WSL_VERSION.match(text):
        found.say("platform.wsl", True, line)
        found.say("platform.wsl_version", wsl[1], line)
    elif ollama := _OLLAMA.match(text):
        found.package("ollama", ollama[1], line)
    elif says := _VLLM_SAYS.match(text):
        found.package("vllm", says[1], line)
    elif "/dev/shm" in text and (shm := _DF_SHM.match(text)):
        found.say("platform.shm_gib", _rounded(float(shm[1]) * _UNITS[shm[2]]), line)
    elif (pair := _WITHOUT_COLON.match(text)) and (is_known(pair[1]) or pair[1].lower() == "linux"):
        if pair[1].lower() == "linux":
            found.say("platform.kernel", pair[2], line)
            found.say("platform.os", "linux", line, IMPLIED)
        else:
            found.package(pair[1], pair[2], line)
    elif both := _TWO_CUDA.match(text):
        found.say("driver.cuda", both[1], line)
        found.say("cuda.toolkit", both[2], line, IMPLIED)
    elif cc := _CC_LINE.match(text):
        found.say("gpu.cc", cc[1], line)
    elif (card := _CARD.match(text)) and vendor_of(card[1]) == "amd" and (row := named(card[1], line)):
        _card(found, row.name, line)
    elif _UNAME_R.match(text) or text.startswith("Linux "):
        return labels.say_kernel(found, text.strip(), line)
    else:
        return False
    return True


def _card(found: Found, name: str, line: Line) -> None:
    """Tools of ROCm print a block for each card; blocks follow each other, so they are one listing."""
    row = named(name, line)
    if row:
        row.counted = True
        last = found.gpus[-1] if found.gpus else None
        if last and last[-1].name == row.name and line.number - last[-1].line < 60 and line.number != last[-1].line:
            last.append(row)
        else:
            found.gpus.append([row])


def _image(found: Found, line: Line) -> None:
    for image in _IMAGE.finditer(line.text):
        engine = image[1].rpartition("/")[2].removesuffix("-openai")
        found.say(f"pkg.{engine}", image[2], line, IMPLIED)
        if engine == "vllm" and (cuda := cuda_of_tag(image[3])):
            found.say("vllm.cuda", cuda, line, IMPLIED)


def _gpus(found: Found, value: str, line: Line) -> None:
    parts = [part for part in re.split(r"[;\[\]\"]|,(?!\s*\d)", value) if part.strip()]
    rows = [row for part in parts if vendor_of(part) and (row := named(part.strip(), line))]
    if len(rows) > 1:
        for gpu in rows:
            gpu.counted = True
    if rows:
        found.gpus.append(rows)


def _gib(key: str, unit: str = "G") -> _Handler:
    def handle(found: Found, value: str, line: Line) -> None:
        if size := _SIZE.match(value):
            found.say(key, _rounded(float(size[1]) * _UNITS[size[2] or unit]), line)

    return handle


def _cc(found: Found, value: str, line: Line) -> None:
    seen = [f"{hit[1]}.{hit[2] or hit[3]}" for hit in _CC.finditer(value)]
    if seen:
        found.say("gpu.cc", min(seen, key=lambda cc: tuple(map(int, cc.split(".")))), line)


def _wsl(found: Found, value: str, line: Line) -> None:
    word = value.strip().lower()
    if word in ("false", "no", "0"):
        found.say("platform.wsl", False, line)
    elif word in ("true", "yes", "1", "2", "v2") or "wsl" in word:
        found.say("platform.wsl", True, line)
    elif is_version(value):
        found.say("platform.wsl", True, line)
        found.say("platform.wsl_version", value, line)


def _container(found: Found, value: str, line: Line) -> None:
    word = value.strip().lower()
    if word in ("false", "no"):
        found.say("platform.container", False, line)
    elif word in ("true", "yes") or re.match(r"docker|podman|kube|k8s|apptainer|singularity", word):
        found.say("platform.container", True, line)


def _docker_image(found: Found, value: str, line: Line) -> None:
    if ":" in value or "/" in value:
        found.say("platform.container", True, line, IMPLIED)
        _image(found, line)


def _count(found: Found, value: str, line: Line) -> None:
    if seen := re.fullmatch(r"(\d{1,3})x?", value):
        found.say("gpu.count", int(seen[1]), line)
    else:
        _gpus(found, value, line)


def _kernel(found: Found, value: str, line: Line) -> None:
    if not labels.say_kernel(found, value, line) and is_version(value):
        found.say("platform.kernel", value, line)


def _arch(found: Found, value: str, line: Line) -> None:
    if seen := re.match(r"(x86_64|aarch64|arm64|amd64|ppc64le)\b", value, re.IGNORECASE):
        found.say("platform.arch", seen[1].lower(), line)


def _version(key: str) -> _Handler:
    return lambda found, value, line: found.version(key, value, line)


def _rocm(found: Found, value: str, line: Line) -> None:
    if is_version(value):
        found.say("rocm.version", value, line)
        found.say("gpu.vendor", "amd", line, IMPLIED)


def _rounded(value: float) -> float:
    return round(value, 4)


_Handler = Callable[[Found, str, Line], None]


def _under(handler: _Handler, *names: str) -> dict[str, _Handler]:
    return dict.fromkeys(names, handler)


_HANDLERS: dict[str, _Handler] = {
    **_under(
        labels.say_driver,
        *("driver", "nvidia driver", "driver version", "nvidia driver version", "gpu driver", "kmd version", "windows driver"),
        *("host driver", "nvidia driver (windows)", "driver (windows)", "windows driver version", "gpu driver version"),
    ),
    **_under(
        cuda_driver,
        *("cuda version (nvidia-smi)", "cuda version (nvidia smi)", "cuda driver", "cuda (driver)", "driver cuda"),
        *("cuda version (driver)", "nvidia smi cuda", "cuda (nvidia smi)", "cudrivergetversion", "max cuda"),
        *("driver cuda version", "cuda umd version", "cuda runtime (per driver)"),
    ),
    **_under(labels.say_toolkit, "cuda runtime", "cuda toolkit", "cuda toolkit version", "nvcc", "nvcc version", "toolkit"),
    **_under(_version("torch.cuda"), "torch cuda", "torch.version.cuda", "pytorch cuda", "torch cuda version"),
    **_under(lambda found, value, line: found.package("torch", value, line), "pytorch", "pytorch version", "torch"),
    **_under(_version("cuda.cudnn"), "cudnn", "cudnn version"),
    **_under(labels.say_os, "os", "operating system", "distro", "distribution", "linux distribution"),
    **_under(labels.say_platform, "platform", "environment"),
    **_under(_kernel, "kernel", "kernel version", "linux kernel", "wsl kernel", "uname"),
    **_under(_arch, "arch", "architecture", "cpu arch", "machine"),
    **_under(labels.say_glibc, "glibc", "libc", "glibc version"),
    **_under(labels.say_python, "python", "python version"),
    **_under(_wsl, "wsl", "wsl2", "wsl version"),
    **_under(_rocm, "rocm", "rocm version", "hip version"),
    **_under(_gib("gpu.memory_gib"), "gpu memory gib", "gpu memory", "gpu memory gb", "vram", "vram gib", "vram gb", "gpu vram"),
    **_under(_gib("platform.ram_gib"), "ram", "ram gib", "ram gb", "system ram", "host ram", "host memory", "system memory"),
    **_under(_gib("platform.ram_gib", "K"), "memtotal"),
    **_under(_gib("platform.shm_gib"), "shm", "shm gib", "shm size", "/dev/shm", "dev shm"),
    **_under(_cc, "compute capability", "gpu cc", "cuda capability", "sm", "sm arch", "gpu arch", "compute cap"),
    **_under(
        _gpus,
        *("gpu", "gpus", "gpu type", "gpu model", "gpu name", "graphics card", "hardware", "accelerator", "显卡"),
        *("device", "npu"),
    ),
    **_under(_count, "gpu count", "num gpus", "number of gpus", "gpus count"),
    **_under(_container, "container", "in container"),
    **_under(_docker_image, "image", "docker image", "container image"),
}  # fmt: skip
