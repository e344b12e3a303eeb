"""CUDA toolkits on disk, and the one that a build takes. Versions are read from files; nvcc is started only where none says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hybridctl import tables
from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.patterns import late

SECONDS = 0.8
# Most machines have few of these files or none: each pattern is compiled where there is one to read.
_JSON = r"\"cuda\"\s*:\s*\{[^}]*\"version\"\s*:\s*\"(\d+(?:\.\d+)+)\""
_TEXT = r"CUDA Version (\d+(?:\.\d+)+)"
_HEADER = r"(?m)^#define CUDA_VERSION (\d{5})"
_RELEASE = rb"release (\d+\.\d+)(?:, V(\d+(?:\.\d+)+))?"
_FOLDER = late(r"cuda(?:-\d+(?:\.\d+)?)?")
_WINDOWS_HOME = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"
_INCLUDES = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One toolkit; ``version`` is None where no file says it."""

    folder: str
    version: str | None
    quote: str


def toolkit_facts(machine: Machine) -> Iterable[Fact | Unknown]:
    """Every toolkit, and of the one that torch and FlashInfer build with: folder, version, compiler, PTX ISA."""
    found = [kit for folder in _folders(machine) if (kit := _toolkit(machine, folder)).version]
    if found:
        shown = [f"{kit.version} {kit.folder}" for kit in found]
        yield local_fact("cuda.toolkits", shown, "; ".join(kit.quote for kit in found))
    home, says = _home(machine)
    if home is None:
        yield local_fact("cuda.nvcc", "not found", "no CUDA_HOME, no nvcc in PATH, no /usr/local/cuda")
        return
    yield local_fact("cuda.home", home, says)
    own = machine.join(home, "bin", "nvcc.exe" if machine.windows else "nvcc")
    nvcc = machine.which(own)
    yield local_fact("cuda.nvcc", nvcc or "not found", nvcc or f"no {own}")
    headers = [machine.join(home, *f"{folder}/cuda_runtime.h".split("/")) for folder in _INCLUDES]
    there = next((place for place in headers if machine.exists(place)), None)
    yield local_fact("cuda.headers", there is not None, there or f"no {headers[0]}")
    kit = _toolkit(machine, home)
    version, quote = kit.version, kit.quote
    if version is None and nvcc:
        answer = _ask(machine, nvcc)
        if isinstance(answer, Unknown):
            yield answer
        else:
            version, quote = answer
    if version is None:
        return
    yield local_fact("cuda.toolkit", version, quote)
    # A JIT writes the ISA of its toolkit; ptxas comes from the same one.
    if nvcc and (isa := tables.ptx_of_cuda(tables.version_of(".".join(version.split(".")[:2])))):
        yield local_fact("cuda.ptx", isa, f"{quote}; CUDA {version} writes PTX ISA {isa}")


def _folders(machine: Machine) -> list[str]:
    """Where toolkits are put: named by variables, below /usr/local and /opt, Debian's own, Windows' own."""
    named = [machine.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if machine.environ.get(name)]
    if machine.windows:
        return _unique(machine, [*named, *(machine.join(_WINDOWS_HOME, v) for v in machine.names(_WINDOWS_HOME))])
    places = [f"{p}/{n}" for p in ("/usr/local", "/opt") for n in machine.names(p) if _FOLDER.fullmatch(n)]
    return _unique(machine, [*named, *places, "/usr/lib/cuda", "/usr"])


def _unique(machine: Machine, folders: list[str]) -> list[str]:
    """Without those that are links to another one of them."""
    seen: dict[str, str] = {}
    for folder in folders:
        real = machine.path(folder).resolve()
        shown = folder.rstrip("/\\") or folder
        if real.name == shown.rpartition("/")[2]:
            seen[str(real)] = shown
        else:
            seen.setdefault(str(real), shown)
    return list(seen.values())


def _home(machine: Machine) -> tuple[str | None, str]:
    """The folder that torch's extension builder takes: CUDA_HOME, CUDA_PATH, the one around nvcc in PATH, /usr/local/cuda.

    https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py
    """
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if stated := machine.environ.get(name):
            return stated.rstrip("/\\") or stated, f"{name}={stated}"
    if nvcc := machine.which("nvcc"):
        folder = re.split(r"[/\\]", nvcc)[:-2]
        return machine.join(*folder) if len(folder) > 1 else nvcc, f"nvcc in PATH: {nvcc}"
    if not machine.windows and machine.exists("/usr/local/cuda"):
        return "/usr/local/cuda", "/usr/local/cuda"
    return None, ""


def _toolkit(machine: Machine, folder: str) -> Toolkit:
    """Version by ``version.json``, ``version.txt`` (before 11.1), or the header of the driver API, which every toolkit has."""
    for name, pattern in (("version.json", _JSON), ("version.txt", _TEXT)):
        place = machine.join(folder, name)
        if (text := machine.head(place)) and (stated := re.search(pattern, text)):
            return Toolkit(folder, stated[1], f"{place}: {stated[1]}")
    for name in _INCLUDES:
        place = machine.join(folder, *name.split("/"), "cuda.h")
        if (text := machine.head(place)) and (stated := re.search(_HEADER, text)):
            number = int(stated[1])
            return Toolkit(folder, f"{number // 1000}.{number % 1000 // 10}", f"{place}: {stated[0]}")
    return Toolkit(folder, None, "")


def _ask(machine: Machine, nvcc: str) -> tuple[str, str] | Unknown:
    try:
        said = Child([str(machine.path(nvcc)), "--version"], "/").text(SECONDS)
    except ChildError as error:
        return Unknown("cuda-toolkit", f"an answer from {nvcc}: {error}")
    release = re.search(_RELEASE, said)
    if release is None:
        return Unknown("cuda-toolkit", f"a release number from {nvcc} --version")
    version = (release[2] or release[1]).decode()
    return version, f"{nvcc} --version: {release[0].decode()}"
