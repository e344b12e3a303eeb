"""The machine as its collectors see it: its files, its variables, what Python says of it. Tests hand over a recorded one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hybridctl.doctor.facts.local_read import head


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, or one process of it that lives in its own file system and with its own limits."""

    environ: Mapping[str, str]
    root: Path = Path(os.sep)
    """Where the machine's ``/`` lies."""
    platform: str = sys.platform
    arch: str = ""
    libc: str = ""
    """Name and version of the C library (``glibc 2.39``)."""
    outer: Path | None = None
    """Where ``/proc`` and ``/sys`` lie, when the process has a file system of its own."""
    proc: str = "/proc/self"
    """The process whose limits, groups and mounts count."""
    space: Callable[[Path], tuple[int, int] | None] = lambda path: disk_space(path)
    """Size and free bytes of the file system of a path."""

    @property
    def windows(self) -> bool:
        return self.platform == "win32"

    def path(self, place: str) -> Path:
        """Where an absolute path of that machine lies here."""
        root = self.root
        if self.outer is not None and place.startswith(("/proc/", "/sys/")):
            root = self.outer
        if root == Path(os.sep):
            return Path(place)
        return root / (place.replace("\\", "/").replace(":", "") if self.windows else place).lstrip("/")

    def head(self, place: str, size: int = 65536) -> str:
        """The beginning of one of its text files; empty when it can't be read."""
        return head(self.path(place), size)

    def exists(self, place: str) -> bool:
        """Whether a file is there and may be looked at."""
        return os.path.lexists(self.path(place))

    def size(self, place: str) -> int | None:
        """Bytes of a file, without reading it."""
        try:
            return self.path(place).stat().st_size
        except (OSError, ValueError):
            return None

    def names(self, place: str) -> list[str]:
        """What a folder holds, sorted; nothing when it can't be read."""
        try:
            with os.scandir(self.path(place)) as scan:
                return sorted(entry.name for entry in scan)
        except OSError:
            return []

    def link(self, place: str) -> str | None:
        """What a symbolic link points to."""
        try:
            return str(self.path(place).readlink())
        except (OSError, ValueError):
            return None

    def join(self, *parts: str) -> str:
        """A path of that machine."""
        separator = "\\" if self.windows else "/"
        return separator.join([parts[0].rstrip("/\\") if len(parts[0]) > 1 else "", *parts[1:]])

    def home(self) -> str:
        """The user's folder, or nothing when no variable says it."""
        return self.environ.get("USERPROFILE" if self.windows else "HOME", "")

    def which(self, program: str) -> str | None:
        """The file that a shell would start."""
        suffix = ".exe" if self.windows and not program.endswith(".exe") else ""
        if "/" in program or "\\" in program:
            return program if os.access(self.path(program), os.X_OK) else None
        for folder in self.environ.get("PATH", "").split(";" if self.windows else ":"):
            if folder and os.access(self.path(place := self.join(folder, program + suffix)), os.X_OK):
                return place
        return None


def disk_space(path: Path) -> tuple[int, int] | None:
    """Size and free bytes of a path's file system, or ``None`` where the system does not say."""
    import shutil

    try:
        usage = shutil.disk_usage(path)
    except (OSError, ValueError):
        return None
    return usage.total, usage.free


def this_machine() -> Machine:
    """The machine that hybridctl runs on, and hybridctl's own process."""
    libc = ""
    if hasattr(os, "confstr") and "CS_GNU_LIBC_VERSION" in os.confstr_names:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return Machine(os.environ, arch=_processor(), libc=libc)


def _processor() -> str:
    """As :func:`platform.machine` says it, without the module where the system tells it itself."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()
