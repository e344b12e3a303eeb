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
from hybridctl.runtime import tensors

PREFIX, SUFFIX = "HybridCtl", "ForCausalLM"
RENAMED = "HybridCtlRenamed"
"""Before the class of an overlay whose tensors are renamed while they are loaded, and which is not routed: no vLLM registers it, so
that none serves the folder without the rules. Where the plugin is told of the rules, the class is served under its own name."""
_PROJECTION = re.compile(r"(?:^|\.)self_attn\.linear_proj\.weight$")
_OPERATOR = re.compile(r"(?:^|\.)self_attn\.(?:linear_proj\.weight|linear_head_gate)$")


def first_architecture(config: Mapping[str, Any]) -> str:
    """The first class that config.json names; empty where it names none."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def routed_architecture(config: Mapping[str, Any]) -> str:
    """The plugin's name for the architecture of a checkpoint with ``hybrid_config``.

    Raises:
        UsageError: a checkpoint that names none, or one that the plugin has no class for.
    """
    base = first_architecture(config).removeprefix(RENAMED)
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
    return first_architecture(config).removeprefix(RENAMED).removeprefix(PREFIX)


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


def operator_tensors(folder: Path) -> dict[Path, set[str]]:
    """The tensors that only the dispatcher reads, by file. vLLM by itself refuses a checkpoint that holds any."""
    found = {
        file: {tensor.name for tensor in read_file(file) if _OPERATOR.search(tensor.name)}
        for file in sorted(folder.glob("*.safetensors"))
    }
    return {file: names for file, names in found.items() if names}


def make(source: Path, folder: Path, config: Mapping[str, Any], routed: bool = True) -> Path:
    """Make the overlay.

    Args:
        source: the checkpoint's folder.
        folder: to be made.
        config: the checkpoint's config.json.
        routed: whether the plugin will be there. Else the architecture is vLLM's own, and files that hold tensors of the
            dispatcher's are not linked but copied without them.
    """
    name = routed_architecture(config) if routed else plain_architecture(config)
    changed = {**config, "architectures": [name]}
    routing = config.get("hybrid_config")
    unset = isinstance(routing, dict) and routing.get("linear_feature_size") is None
    if routed and isinstance(routing, dict) and unset and (size := feature_size(source)):
        changed["hybrid_config"] = {**routing, "linear_feature_size": size}
    leave_out = {} if routed else operator_tensors(source)
    try:
        folder.mkdir(parents=True)
        for entry in source.iterdir():
            if entry in leave_out:
                tensors.copy_without(entry, folder / entry.name, leave_out[entry])
            elif entry.name.endswith(".index.json") and leave_out:
                _write_index(entry, folder / entry.name, set().union(*leave_out.values()))
            elif entry.name != "config.json":
                (folder / entry.name).symlink_to(entry.absolute())
        (folder / "config.json").write_text(json.dumps(changed, indent=2), encoding="utf-8")
    except OSError as error:
        raise HybridctlError(f"can't make the overlay {folder}: {error.strerror}", "HYBRIDCTL_HOME=DIR") from error
    return folder


def _write_index(source: Path, target: Path, leave_out: set[str]) -> None:
    """The table of which file holds which tensor, without some."""
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
        document["weight_map"] = {n: file for n, file in document["weight_map"].items() if n not in leave_out}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{source} is no index of weights: {error}", "fetch the checkpoint again") from error
    target.write_text(json.dumps(document), encoding="utf-8")
