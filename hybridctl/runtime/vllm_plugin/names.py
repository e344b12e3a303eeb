"""Which tensors are renamed while a model is loaded: the rules that an overlay's ``hybridctl.json`` holds, and who applies them.

``HYBRIDCTL_NAMES`` is the overlay's folder. The class that its manifest names gets a stand-in under the same name, which hands
the renamed tensors to the class itself: all else that vLLM knows of that name stays as it is. Without the variable nothing happens.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from hybridctl.errors import UsageError
from hybridctl.overlays import Loading, read_manifest
from hybridctl.runtime.overlay_min import RENAMED

FOLDER = "HYBRIDCTL_NAMES"
ORIGINAL: dict[str, Any] = {}
"""What the registry held under the names that have a stand-in now."""


class RulesError(UsageError):
    """Rules for names that this process can't apply."""


@cache
def _loading(folder: str) -> Loading:
    load = read_manifest(Path(folder)).load
    if load is None:
        raise RulesError(f"{FOLDER}={folder}: its hybridctl.json has no rules for names", "hybridctl prepare MODEL")
    return load


def loading() -> Loading | None:
    """The rules of this process; ``None`` where it has none.

    Raises:
        OverlayError: the folder that is named has no manifest, or a damaged one.
        RulesError: a manifest without rules.
    """
    folder = os.environ.get(FOLDER)
    return _loading(folder) if folder else None


def register(registry: Any, module: str) -> None:
    """Put the stand-in into vLLM's registry. Idempotent.

    Args:
        module: where it is made, as ``RENAMED`` + the class's name.

    Raises:
        RulesError: rules for a class that this vLLM lacks.
    """
    load = loading()
    if load is None or load.architecture in ORIGINAL:
        return
    if load.architecture not in registry.models:
        raise RulesError(f"this vLLM has no class {load.architecture}, whose tensors are to be renamed")
    ORIGINAL[load.architecture] = registry.models[load.architecture]
    registry.register_model(load.architecture, f"{module}:{RENAMED}{load.architecture}")
