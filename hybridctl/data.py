"""Where the shipped data lies (inside the wheel, or at the top of a checkout), and how its TOML files are read.

Most starts read compiled copies only, so what it takes to make one (a reader of TOML, temporary files) is loaded where one is made.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from hybridctl.errors import BrokenDataError


@lru_cache(maxsize=1)
def recipes_dir() -> Path:
    """The ``recipes`` folder.

    Raises:
        FileNotFoundError: the installation is broken.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "recipes", package.parent / "recipes"):
        if (candidate / "known_bad").is_dir():
            return candidate
    raise FileNotFoundError(f"the recipes folder is missing beside {package}")


def _own_dir(variable: str, fallback: str) -> Path:
    if home := os.environ.get("HYBRIDCTL_HOME"):
        return _at_home(home) / fallback.rsplit("/", 1)[-1]
    base = os.environ.get(variable)
    return (Path(base) if base else _at_home("~") / fallback) / "hybridctl"


def _at_home(path: str) -> Path:
    """``~`` filled in. Where nobody's home can be told, a place that can't be written: no folder named ``~`` in the current one."""
    full = os.path.expanduser(path)  # noqa: PTH111  (Path.expanduser raises for an unknown user)
    return Path(os.devnull if full.startswith("~") else full)


def cache_dir() -> Path:
    """Files that can be deleted at any time (``XDG_CACHE_HOME`` or ``HYBRIDCTL_HOME``). Not created here."""
    return _own_dir("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Run directories and logs (``XDG_STATE_HOME`` or ``HYBRIDCTL_HOME``). Not created here."""
    return _own_dir("XDG_STATE_HOME", ".local/state")


def data_dir() -> Path:
    """What was made for the user and is to be kept (``XDG_DATA_HOME`` or ``HYBRIDCTL_HOME``). Not created here."""
    return _own_dir("XDG_DATA_HOME", ".local/share")


def load_compiled(
    folder: Path, compile_one: Callable[[Path], dict[str, Any]], suffix: str = ".toml"
) -> list[dict[str, Any]]:
    """Every data file of a folder as plain tables, through a cache keyed by the names, sizes and times of the files.

    A name with a leading underscore is no table of its own: it holds what the others share.
    """
    with os.scandir(folder) as scan:
        listing = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in scan if e.name.endswith(suffix))

    def compile_all() -> list[dict[str, Any]]:
        return [compile_one(folder / name) for name, _, _ in listing if not name.startswith("_")]

    rows: list[dict[str, Any]] = _compiled(folder.name, f"{folder} {listing}", compile_all)
    return rows


def read_table(name: str) -> dict[str, Any]:
    """One of the shipped tables, as plain values (a date is text), through a cache as that of :func:`load_compiled`.

    Raises:
        BrokenDataError: it can't be read as TOML.
    """
    path = recipes_dir() / "tables" / name
    try:
        state = path.stat()
    except OSError as error:
        raise BrokenDataError(f"{name}: {error}") from error
    table: dict[str, Any] = _compiled(
        f"tables-{path.stem}", f"{path} {state.st_size} {state.st_mtime_ns}", lambda: read_toml(path)
    )
    return table


_FORM = 6
"""Of the compiled copies: those of another form are not read."""


def _compiled(name: str, of: str, make: Callable[[], Any]) -> Any:
    """What ``make`` gives, or the copy of it that an earlier run has kept.

    Args:
        of: what it was made from; another text, another copy.
    """
    head = f"{_FORM} {of}".encode("utf-8", "replace")
    cached = cache_dir() / "compiled" / f"{name}-{zlib.crc32(head):08x}{zlib.adler32(head):08x}.json"
    try:
        found, _, body = cached.read_bytes().partition(b"\n")
    except OSError:
        found = body = b""
    # A file that was cut short or changed by hand is made anew, whatever its JSON looks like.
    if body and found == _told(head, body):
        return json.loads(body)
    body = json.dumps(make(), default=str).encode()
    _keep(cached, _told(head, body) + b"\n" + body)
    return json.loads(body)


KEPT = 8
"""Compiled copies of one folder that stay in the cache."""


def _told(head: bytes, body: bytes) -> bytes:
    """The first line of a copy: what it was made from, and a sum over the rest."""
    return json.dumps([head.decode("utf-8", "replace"), len(body), zlib.crc32(body)]).encode()


def _keep(path: Path, content: bytes) -> None:
    import tempfile

    written = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False, suffix=".tmp") as handle:
            written = handle.name
            handle.write(content)
        Path(written).replace(path)
        # Several installations may share one home: each keeps its own, and only those that nobody wrote lately go.
        same = sorted(path.parent.glob(path.name.rsplit("-", 1)[0] + "-*.json"), key=lambda p: p.stat().st_mtime)
        for old in same[:-KEPT]:
            old.unlink(missing_ok=True)
    except (OSError, RecursionError):  # pathlib makes the folders of a very long path by recursion
        if written:
            Path(written).unlink(missing_ok=True)
        return  # a read-only home costs 0.3 s a run, no more


def read_toml(path: Path) -> dict[str, Any]:
    """One data file.

    Raises:
        BrokenDataError: it can't be read as TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BrokenDataError(f"{path.name}: {error}") from error
    return toml_table(text, path.name)


def toml_table(text: str, name: str) -> dict[str, Any]:
    """TOML that stands in a file of that name.

    Raises:
        BrokenDataError: it can't be read as TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:
        raise BrokenDataError(f"{name}: {error}") from error
    return table
