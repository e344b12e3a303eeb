"""CUDA libraries that LD_LIBRARY_PATH puts before those of torch's wheels."""

from __future__ import annotations

from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.patterns import late

# Those that the wheels of torch bring. A link such as libnvJitLink.so.12 leads to the file whose name holds the version.
_LIBRARY = late(r"lib(nvJitLink|cudart|cublas|cublasLt|cusparse|cudnn|nccl|nvrtc|cufft|cusolver)\.so\.\d+(?:\.\d+)*")
_MOST = 40


def library_facts(machine: Machine) -> Iterable[Fact]:
    """Each with its whole version where the file's name tells it; nothing where the variable is not set."""
    stated = machine.environ.get("LD_LIBRARY_PATH", "")
    if not stated or machine.windows:
        return
    found: dict[str, str] = {}
    for folder in dict.fromkeys(part for part in stated.split(":") if part.startswith("/")):
        for name in machine.names(folder):
            if (library := _LIBRARY.fullmatch(name)) and library[1] not in found:
                found[library[1]] = f"{folder.rstrip('/')}/{_longest(machine, folder, library[1])}"
    yield local_fact("cuda.shadowing", list(found.values())[:_MOST], f"LD_LIBRARY_PATH={stated}")


def _longest(machine: Machine, folder: str, library: str) -> str:
    """Of several files and links of one library, the one whose name says most."""
    names = [n for n in machine.names(folder) if (m := _LIBRARY.fullmatch(n)) and m[1] == library]
    return max(names, key=lambda name: (name.count("."), name))
