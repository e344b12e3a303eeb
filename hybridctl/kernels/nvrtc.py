"""NVRTC, the compiler as a library: comes with torch's CUDA wheels, needs neither a toolkit nor a host compiler.

Called through ctypes, so that nothing has to be installed. API: https://docs.nvidia.com/cuda/nvrtc/.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hybridctl.errors import HybridctlError

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")


def find(paths: Iterable[str] | None = None) -> Path | None:
    """The library: in the wheels of this Python's path, in a toolkit, or where the loader finds it."""
    for entry in sys.path if paths is None else paths:
        for folder in _FOLDERS:
            for name in _NAMES:
                if (file := Path(entry) / folder / name).is_file():
                    return file
    if paths is not None:
        return None
    for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"):
        for name in _NAMES:
            if (file := Path(folder) / name).is_file():
                return file
    name = ctypes.util.find_library("nvrtc") or ""
    return Path(name) if name else None


@functools.lru_cache(maxsize=4)
def _library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise HybridctlError(f"NVRTC can't be loaded: {error}", "python -m pip install nvidia-cuda-nvrtc") from error


def version(path: Path) -> tuple[int, int]:
    """CUDA version of the library."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_source(
    path: Path, texts: Mapping[str, str], main: str, arch: str, flags: Iterable[str]
) -> tuple[str, bytes, str]:
    """PTX, machine code and log of one source with its includes, given by name.

    Raises:
        HybridctlError: the compiler's first error.
    """
    library = _library(path)
    ptx, _, log = _compile(library, texts, main, [f"--gpu-architecture=compute_{arch.removeprefix('sm_')}", *flags])
    _, cubin, more = _compile(library, texts, main, [f"--gpu-architecture={arch}", *flags])
    return ptx, cubin, log + more


def _compile(library: ctypes.CDLL, texts: Mapping[str, str], main: str, flags: list[str]) -> tuple[str, bytes, str]:
    headers = [name for name in texts if name != main]
    count = len(headers)
    program = ctypes.c_void_p()
    bodies = (ctypes.c_char_p * count)(*(texts[name].encode() for name in headers))
    names = (ctypes.c_char_p * count)(*(name.encode() for name in headers))
    _ok(
        library,
        library.nvrtcCreateProgram(ctypes.byref(program), texts[main].encode(), main.encode(), count, bodies, names),
    )
    try:
        given = ["--std=c++17", *flags]
        options = (ctypes.c_char_p * len(given))(*(flag.encode() for flag in given))
        code = library.nvrtcCompileProgram(program, len(given), options)
        log = _take(library, "ProgramLog", program).decode(errors="replace")
        if code:
            said = next((line for line in log.splitlines() if "error" in line), _name(library, code))
            raise HybridctlError(f"NVRTC failed: {said.strip()[:300]}", "hybridctl kernels build")
        text = _take(library, "PTX", program).rstrip(b"\0").decode()
        return text, _take(library, "CUBIN", program), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _take(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _ok(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    if not size.value:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    _ok(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw.rstrip(b"\0") if what == "ProgramLog" else buffer.raw


def _name(library: ctypes.CDLL, code: int) -> str:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return str(library.nvrtcGetErrorString(code).decode())


def _ok(library: ctypes.CDLL, code: int) -> None:
    if code:
        raise HybridctlError(f"NVRTC: {_name(library, code)}", "hybridctl kernels build")
