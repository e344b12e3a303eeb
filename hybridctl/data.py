"""Where the shipped data lies: inside the wheel, or at the top of a checkout."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path


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
