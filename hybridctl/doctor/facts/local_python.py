"""A Python environment besides its packages: what it is, and what compiling for it needs."""

from __future__ import annotations

from collections.abc import Iterable

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_packages import Interpreter
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.local_system import libstdcxx_version
from hybridctl.doctor.facts.model import Fact
from hybridctl.patterns import late

_CONDA_TORCH = late(r"(?:pytorch|libtorch)-\d[^/]*\.json")


def python_facts(interpreter: Interpreter, machine: Machine) -> Iterable[Fact]:
    """Kind of environment, headers, compiler, and the C++ library and torch that conda put there."""
    if interpreter.prefix and interpreter.base:
        venv = interpreter.prefix != interpreter.base
        yield local_fact("python.venv", venv, f"prefix {interpreter.prefix}, base {interpreter.base}")
        yield from _conda(interpreter, machine)
        yield from _headers(interpreter, machine)
    yield _compiler(machine)


def _conda(interpreter: Interpreter, machine: Machine) -> Iterable[Fact]:
    folders = [machine.join(p, "conda-meta") for p in dict.fromkeys((interpreter.prefix, interpreter.base))]
    folder = next((f for f in folders if machine.exists(f)), None)
    yield local_fact("python.conda", folder is not None, folder or f"no {folders[0]}")
    if folder is None:
        return
    prefix = folder.rpartition("\\" if machine.windows else "/")[0]
    place = machine.join(prefix, "lib", "libstdc++.so.6")
    if version := libstdcxx_version(machine, place):
        yield local_fact("python.libstdcxx", version[1], f"{place} -> {version[0]}")
    record = next((name for name in machine.names(folder) if _CONDA_TORCH.fullmatch(name)), None)
    if record and prefix == interpreter.prefix:
        yield local_fact("torch.installer", "conda", f"{folder}: {record}")


def _headers(interpreter: Interpreter, machine: Machine) -> Iterable[Fact]:
    """``Python.h``, in the folder that sysconfig names or in one that CPATH adds."""
    short = ".".join(interpreter.version.split(".")[:2])
    if machine.windows:
        folders = [machine.join(interpreter.base, "Include")]
    else:
        folders = [machine.join(interpreter.base, "include", f"python{short}{abi}") for abi in ("", "t")]
    folders += [f for f in machine.environ.get("CPATH", "").split(";" if machine.windows else ":") if f]
    places = [machine.join(folder, "Python.h") for folder in folders]
    there = next((place for place in places if machine.exists(place)), None)
    yield local_fact("python.headers", there is not None, there or f"no {places[0]}")


def _compiler(machine: Machine) -> Fact:
    """CC, else gcc, else clang: the order of ``triton/runtime/build.py``."""
    stated = machine.environ.get("CC", "").split()
    if stated:
        found = machine.which(stated[0])
        return local_fact(
            "python.compiler",
            found or "not found",
            f"CC={' '.join(stated)}" + ("" if found else ", which is not there"),
        )
    for program in ("gcc", "clang"):
        if found := machine.which(program):
            return local_fact("python.compiler", found, f"{program} in PATH: {found}")
    return local_fact("python.compiler", "not found", "no CC, no gcc and no clang in PATH")
