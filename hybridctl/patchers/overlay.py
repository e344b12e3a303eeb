"""Makes, replaces and removes an overlay folder so that a kill at any moment leaves the old one, the new one, or a draft.

Beside ``NAME`` may lie, each with a dot before it so that nobody serves it: ``.NAME.part`` (a draft), ``.NAME.old`` (the one that
is being replaced) and ``.NAME.undo`` (the one that is being removed). :func:`recover` clears them up at the next run.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hybridctl import overlays
from hybridctl.errors import HybridctlError, UsageError
from hybridctl.overlays import Manifest
from hybridctl.patchers.source import SourceFile

Materialize = Literal["link", "hardlink", "copy"]


def beside(folder: Path, what: str) -> Path:
    """``.NAME.part``, ``.NAME.old`` or ``.NAME.undo``."""
    return folder.with_name(f".{folder.name}.{what}")


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """The draft of an overlay, held by this process alone and emptied of what a killed run left, but for whole copies.

    Raises:
        UsageError: another process holds it.
        HybridctlError: it can't be made.
    """
    draft = beside(folder, "part")
    try:
        draft.mkdir(parents=True, exist_ok=True)
        handle = os.open(draft, os.O_RDONLY)
    except OSError as error:
        raise _failed(draft, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another hybridctl prepares {folder} right now", "wait for it") from error
        yield draft
    finally:
        try:
            if draft.is_dir() and not any(draft.iterdir()):
                draft.rmdir()
        finally:
            os.close(handle)


def fill(draft: Path, files: tuple[SourceFile, ...], texts: Mapping[str, str], how: Materialize) -> None:
    """Put the files of a checkpoint and texts of our own into a draft.

    A copy is written under a name of its own first and gets the time of what it is a copy of: a whole one is kept by a later run.

    Raises:
        HybridctlError: the file system refuses.
    """
    wanted = {file.name for file in files}
    try:
        for name in _strangers(draft, wanted if how == "copy" else set()):
            (draft / name).unlink()
        for file in files:
            assert file.path is not None  # nothing is filled in before the download
            place = draft / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if how == "link":
                place.symlink_to(file.path)
            elif how == "hardlink":
                place.hardlink_to(file.path.resolve())
            elif not _same(place, file.path):
                part = place.with_name(f".{place.name}.copy")
                shutil.copyfile(file.path, part)
                _sync(part)
                shutil.copystat(file.path, part)
                part.replace(place)
        for name, text in texts.items():
            write(draft / name, text)
        _sync(draft)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise UsageError(
                f"{draft.parent} is on another file system than the checkpoint, so nothing can be hard-linked there",
                "--materialize link or copy",
            ) from error
        raise _failed(draft, error) from error


def _strangers(draft: Path, wanted: set[str]) -> list[str]:
    names = [Path(at, n).relative_to(draft).as_posix() for at, _, files in os.walk(draft) for n in files]
    return [name for name in names if name not in wanted or (draft / name).is_symlink()]


def _same(copy: Path, original: Path) -> bool:
    if copy.is_symlink() or not copy.is_file():
        return False
    one, other = copy.stat(), original.stat()
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def write(path: Path, text: str) -> None:
    """A whole file or none: written beside it, on the disk, then renamed."""
    part = path.with_name(f".{path.name}.new")
    part.write_text(text, encoding="utf-8")
    _sync(part)
    part.replace(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(draft: Path, folder: Path) -> None:
    """Put a finished draft in the place of the overlay. The old one stays until the new one is there.

    Raises:
        HybridctlError: the file system refuses.
    """
    old = beside(folder, "old")
    try:
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
        _sync(folder.parent)
        if old.exists():
            clear(old, overlays.read_manifest(old))
    except OSError as error:
        raise _failed(folder, error) from error


def recover(folder: Path) -> list[str]:
    """Finish what a killed run began: the old overlay comes back where there is no new one; removals are completed.

    Returns:
        A line for each thing that was done.
    """
    lines = []
    old, undone = beside(folder, "old"), beside(folder, "undo")
    if old.exists() and not folder.exists():
        old.rename(folder)
        lines.append(f"{folder}: a run was cut off while it replaced it; the old one is back")
    for rest in (old, undone):
        if rest.exists():
            clear(rest, overlays.read_manifest(rest) if (rest / overlays.MANIFEST).exists() else None)
            lines.append(f"{rest}: left by a run that was cut off; removed")
    return lines


def undo(folder: Path) -> list[str]:
    """Remove an overlay, and what killed runs left beside it: files that its manifest names, and no link is followed.

    Returns:
        A line for each folder that was removed; none where there was nothing.

    Raises:
        UsageError: it is no overlay, or holds files that hybridctl did not put there.
        HybridctlError: the file system refuses.
    """
    try:
        lines = recover(folder)
        draft = beside(folder, "part")
        if draft.is_dir():
            with locked(folder):
                clear(draft, None)
            lines.append(f"{draft}: a draft; removed")
        if folder.is_dir():
            manifest = overlays.read_manifest(folder)
            if foreign := [n for n in _strangers(folder, set()) if n not in {*manifest.files, overlays.MANIFEST}]:
                raise UsageError(
                    f"{folder} holds {foreign[0]}, which hybridctl did not put there; nothing was removed",
                    "move it elsewhere, and try again",
                )
            aside = beside(folder, "undo")
            folder.rename(aside)
            clear(aside, manifest)
            lines.append(f"{folder}: removed; the checkpoint itself is as it was")
        return lines
    except OSError as error:
        raise _failed(folder, error) from error


def clear(folder: Path, manifest: Manifest | None) -> None:
    """Unlink files and remove folders. ``manifest``: only what it names; ``None``: a draft, in which all is ours."""
    names = [*manifest.files, overlays.MANIFEST] if manifest is not None else _strangers(folder, set())
    for name in names:
        if name != overlays.MANIFEST:
            (folder / name).unlink(missing_ok=True)
    (folder / overlays.MANIFEST).unlink(missing_ok=True)
    for at, _, _ in os.walk(folder, topdown=False):
        Path(at).rmdir()


def _failed(folder: Path, error: OSError) -> HybridctlError:
    named = error.filename or folder
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)  # no wrong usage
    kind = HybridctlError if full else UsageError
    return kind(f"can't write {named}: {error.strerror or error}", "df -h, or --output DIR")
