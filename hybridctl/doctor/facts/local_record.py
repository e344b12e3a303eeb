"""The files of an installed package against its RECORD: the size of every file, and the hash of those that people edit by hand.

Files are asked for their size alone, which for the five thousand of a vLLM takes a few hundredths of a second; links to folders
are not followed. What is hashed is in ``recipes/tables/vllm_record.toml``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hybridctl.doctor.facts.local_read import regular_bytes
from hybridctl.doctor.facts.record_file import Record

MAX_HASHED = 4 << 20
MAX_FILES = 60_000
_CODE = (".py", ".so", ".pyd")


@dataclass(slots=True)
class Comparison:
    """What differs, by paths as RECORD writes them.

    Attributes:
        changed: files of another size or content, and how they differ.
        missing: recorded and not there.
        added: Python files, libraries and links to folders that are not recorded. Others are no code: vLLM reads tuned
            kernel settings that its users put beside its own.
        checked: files of the recorded size; ``hashed``: how many of them have the recorded hash as well.
        unread: rows that say too little to compare with.
        problem: what kept part of the package from being looked at.
    """

    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    checked: int = 0
    hashed: int = 0
    unread: int = 0
    problem: str = ""


def compare(record: Record, package: Path, by_hash: Callable[[str], bool]) -> Comparison:
    """Look at the files below ``package``, the folder whose name the paths of ``record`` begin with.

    Args:
        record: what its RECORD says.
        package: the folder.
        by_hash: whether the content of a file, by its path, is to be compared as well.
    """
    result = Comparison(unread=record.unread)
    sizes, links, result.problem = _sizes(package)
    site = package.parent
    for path, row in record.rows.items():
        size = sizes.get(path)
        if size is None and (size := _size(site / path)) is None:
            result.missing.append(path)
        elif str(size) == row.size:
            result.checked += 1
            if by_hash(path):
                data = regular_bytes(site / path, MAX_HASHED)
                same = row.holds(data) if isinstance(data, bytes) else None
                result.hashed += same is True
                result.unread += same is None
                if same is False:
                    result.changed.append(f"{path} (same size, other content)")
        elif (stated := row.stated_size()) is None:
            result.unread += 1
        else:
            result.changed.append(f"{path} ({size} bytes, recorded {stated})")
    if result.problem:
        result.missing = []  # they may be where nobody may look
    result.added = sorted(path for path in sizes if path.endswith(_CODE) and path not in record.rows)
    result.added += [f"{link} (a link)" for link in links if not any(p.startswith(f"{link}/") for p in record.rows)]
    return result


def _sizes(package: Path) -> tuple[dict[str, int], list[str], str]:
    """Size of every regular file, by its path as RECORD writes it; links to folders; what could not be looked at."""
    sizes: dict[str, int] = {}
    links: list[str] = []
    problem = ""
    folders = [(str(package), f"{package.name}/")]
    while folders:
        folder, prefix = folders.pop()
        try:
            with os.scandir(folder) as scan:
                for entry in scan:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if name != "__pycache__":
                            folders.append((entry.path, f"{prefix}{name}/"))
                    elif entry.is_symlink() and entry.is_dir():
                        links.append(prefix + name)
                    elif (size := _size(entry)) is not None:
                        sizes[prefix + name] = size
        except OSError as error:
            problem = f"the files in {folder} ({error.strerror})"
        if len(sizes) > MAX_FILES:
            return sizes, links, f"a package of fewer than {MAX_FILES} files"
    return sizes, links, problem


def _size(file: os.DirEntry[str] | Path) -> int | None:
    """Bytes of a regular file, through a link too: installers may link into their cache."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
