"""Loads built kernels with the CUDA driver API into the context that torch uses, and launches them on torch's current stream.

Through ``cuda.bindings`` (``pip install 'hybridctl[kernels]'``). torch's own private loader is not used: it passes a Python float
as a double, and the kernel reads wrong bits without an error.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.kernels import ptx
from hybridctl.kernels.build import Built

# What the driver answers, and what it means here. Seen on driver 580.159.04 with the inputs named.
_MEANING = {
    200: "the file is no PTX and no machine code, or it was cut short",
    209: "the machine code is for another GPU",
    218: "the PTX has a syntax error, or its target is newer than this GPU",
    222: "the PTX is of a newer ISA than this driver reads",
    500: "there is no kernel of that name in it",
}
_HINT = {209: "hybridctl kernels build", 218: "hybridctl kernels build", 222: "hybridctl doctor"}


def explain(code: int, name: str = "") -> str:
    """One of the driver's error codes in words."""
    told = name or f"CUDA error {code}"
    return f"{told} ({code}): {_MEANING[code]}" if code in _MEANING else f"{told} ({code})"


def whole(cubin: bytes) -> bool:
    """Whether machine code is all there. The driver is given no length, and one that was cut short can end the process.

    An ELF file ends with its section headers, whose place and number its header states.
    """
    if len(cubin) < 64 or cubin[:5] != b"\x7fELF\x02":
        return False
    sections, programs = struct.unpack_from("<Q", cubin, 40)[0], struct.unpack_from("<Q", cubin, 32)[0]
    program_size, program_count, size, count = struct.unpack_from("<4H", cubin, 54)
    ends = [sections + size * count, programs + program_size * program_count]
    for index in range(count):
        at = sections + index * size
        if at + 64 > len(cubin):
            return False
        kind = struct.unpack_from("<I", cubin, at + 4)[0]
        start, length = struct.unpack_from("<QQ", cubin, at + 24)
        if kind != 8:  # SHT_NOBITS takes no room in the file
            ends.append(start + length)
    return bool(count) and max(ends) <= len(cubin)


@dataclass(frozen=True)
class Kernel:
    """One loaded entry."""

    name: str
    handle: Any

    def launch(
        self, grid: tuple[int, int, int], threads: int, shared: int, stream: int, *structs: ctypes.Structure
    ) -> None:
        """Put it on a stream.

        Args:
            grid: blocks of threads.
            shared: bytes of shared memory a block.
            stream: handle of the stream; 0 is the legacy default stream.
            structs: the kernel's parameters, each passed by value.
        """
        driver = _driver()
        pointers = (ctypes.c_void_p * len(structs))(*(ctypes.addressof(s) for s in structs))
        _check(driver.cuLaunchKernel(self.handle, *grid, threads, 1, 1, shared, stream, ctypes.addressof(pointers), 0))


def load(built: Built, shared: Mapping[str, int]) -> dict[str, Kernel]:
    """The kernels of a build, in torch's context of the current device.

    Args:
        shared: bytes of shared memory that a block of each kernel takes, by its name.

    Raises:
        HybridctlError: the file is damaged or not for this GPU or driver.
    """
    driver = _driver()
    module = _check(driver.cuModuleLoadData(_image(built)))
    kernels = {}
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    for name, size in shared.items():
        handle = _check(driver.cuModuleGetFunction(module, name.encode()))
        _check(driver.cuFuncSetAttribute(handle, limit, size))
        kernels[name] = Kernel(name, handle)
    return kernels


def _image(built: Built) -> bytes:
    if (path := built.cubin) is not None:
        code = path.read_bytes()
        if whole(code):
            return code
        raise HybridctlError(f"{path} is damaged: it was cut short", f"rm -r {built.folder}; hybridctl kernels build")
    text = built.ptx.read_text(encoding="utf-8")
    _check_isa(text, built.ptx)
    return text.encode() + b"\0"


def _check_isa(text: str, path: Path) -> None:
    """The driver compiles PTX only up to its own ISA: say so before it answers 222."""
    from hybridctl import tables
    from hybridctl.versions import parse_version

    isa = ptx.isa(text)
    number = _check(_driver().cuDriverGetVersion())
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    told = tables.ptx_of_cuda(parse_version(cuda))
    if isa and told and isa > tuple(int(n) for n in told.split(".")):
        raise HybridctlError(
            f"{path.name} is PTX {isa[0]}.{isa[1]}, and this driver (CUDA {cuda}) reads up to {told}",
            "update the driver, or build with a toolkit no newer than it: hybridctl doctor",
        )


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise HybridctlError(
            "cuda-bindings is not installed, which loads the kernels", "python -m pip install 'hybridctl[kernels]'"
        ) from error
    return driver


def _check(answer: tuple[Any, ...]) -> Any:
    code = int(answer[0])
    if code:
        raise HybridctlError(explain(code, getattr(answer[0], "name", "")), _HINT.get(code, "hybridctl kernels check"))
    return answer[1] if len(answer) > 1 else None
