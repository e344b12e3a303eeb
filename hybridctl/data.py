"""Where the shipped data lies (inside the wheel, or at the top of a checkout), and how its TOML files are read."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from hybridctl.errors import BrokenDataError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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
        return Path(home).expanduser() / fallback.rsplit("/", 1)[-1]
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / fallback) / "hybridctl"


def cache_dir() -> Path:
    """Files that can be deleted at any time (``XDG_CACHE_HOME`` or ``HYBRIDCTL_HOME``). Not created here."""
    return _own_dir("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Run directories and logs (``XDG_STATE_HOME`` or ``HYBRIDCTL_HOME``). Not created here."""
    return _own_dir("XDG_STATE_HOME", ".local/state")


def load_compiled(folder: Path, compile_one: Callable[[Path], dict[str, Any]]) -> list[dict[str, Any]]:
    """Every ``*.toml`` of a folder as plain tables, through a cache keyed by the names, sizes and times of the files."""
    with os.scandir(folder) as scan:
        listing = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in scan if e.name.endswith(".toml"))
    key = hashlib.sha256(repr((str(folder), listing, 3)).encode()).hexdigest()[:24]
    cached = cache_dir() / "compiled" / f"{folder.name}-{key}.json"
    try:
        rows: list[dict[str, Any]] = json.loads(cached.read_bytes())
    except (OSError, ValueError):
        rows = [compile_one(folder / name) for name, _, _ in listing]
        _keep(cached, rows)
    return rows


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(path.name.rsplit("-", 1)[0] + "-*.json"):
            old.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp") as handle:
            json.dump(rows, handle)
        Path(handle.name).replace(path)
    except OSError:
        return  # a read-only home costs 0.3 s a run, no more


def read_toml(path: Path) -> dict[str, Any]:
    """One data file.

    Raises:
        BrokenDataError: it can't be read as TOML.
    """
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return table
    except (OSError, ValueError) as error:
        raise BrokenDataError(f"{path.name}: {error}") from error
