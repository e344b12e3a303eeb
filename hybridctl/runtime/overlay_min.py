"""A folder that stands for a routed checkpoint: links to its files and a config.json that names the plugin's architecture.

The checkpoint is not touched. The name exists only through the plugin, so a vLLM without it refuses the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.model.inventory import read_file

PREFIX, SUFFIX = "HybridCtl", "ForCausalLM"
_PROJECTION = re.compile(r"(?:^|\.)self_attn\.linear_proj\.weight$")


def routed_architecture(config: Mapping[str, Any]) -> str:
    """The plugin's name for the architecture of a checkpoint with ``hybrid_config``.

    Raises:
        UsageError: a checkpoint that names none, or one that the plugin has no class for.
    """
    named = config.get("architectures")
    base = str(named[0]) if isinstance(named, list) and named else ""
    if base.startswith(PREFIX):
        return base
    if not base.endswith(SUFFIX):
        raise UsageError(
            f"config.json: architecture {base or 'missing'} can't be routed; allowed: text models, …{SUFFIX}",
            "serve with --no-hybrid",
        )
    return PREFIX + base


def plain_architecture(config: Mapping[str, Any]) -> str:
    """The name by which vLLM itself knows the architecture."""
    named = config.get("architectures")
    return str(named[0]).removeprefix(PREFIX) if isinstance(named, list) and named else ""


def feature_size(folder: Path) -> int | None:
    """F of the projections [H_k, F, D] in a checkpoint, from the headers of its safetensors files. None: it has none.

    The weights say it, but a state's size must be known before they are read.

    Raises:
        UsageError: a file that is no sound safetensors file.
    """
    for file in sorted(folder.glob("*.safetensors")):
        for tensor in read_file(file):
            if _PROJECTION.search(tensor.name) and len(tensor.shape) == 3:
                return tensor.shape[1]
    return None


def make(source: Path, folder: Path, config: Mapping[str, Any], routed: bool = True) -> Path:
    """Make the overlay.

    Args:
        source: the checkpoint's folder.
        folder: to be made.
        config: the checkpoint's config.json.
        routed: whether the plugin will be there; else its architecture is replaced by vLLM's own.
    """
    name = routed_architecture(config) if routed else plain_architecture(config)
    changed = {**config, "architectures": [name]}
    routing = config.get("hybrid_config")
    if (
        routed
        and isinstance(routing, dict)
        and routing.get("linear_feature_size") is None
        and (size := feature_size(source))
    ):
        changed["hybrid_config"] = {**routing, "linear_feature_size": size}
    try:
        folder.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name != "config.json":
                (folder / entry.name).symlink_to(entry.absolute())
        (folder / "config.json").write_text(json.dumps(changed, indent=2), encoding="utf-8")
    except OSError as error:
        raise HybridctlError(f"can't make the overlay {folder}: {error.strerror}", "HYBRIDCTL_HOME=DIR") from error
    return folder
